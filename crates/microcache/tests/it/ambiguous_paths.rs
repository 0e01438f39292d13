//! Paths that the application reads in another way than they are written: the rules of one route never hold for the
//! pages of another.

use std::process::{Command, Stdio};

use crate::support::http2::Http2;
use crate::support::{Client, Folder, Origin, Process, Proxy, Reply, free_port, left_out, request};

const FRESH: &str = "Cache-Control: max-age=1000";
const ALICE: &str = "Cookie: session=alice";
const BOB: &str = "Cookie: session=bob";

/// Each of them is `/account` to some program.
const SPELLINGS: [&str; 12] = [
    "/static/../account",
    "/static/..%2faccount",
    "/static/..%2Faccount",
    "/static/%2e%2e/account",
    "/static/.%2e/account",
    "/static/x/..%2f../account",
    "/static/..;/account",
    "/static/..%5caccount",
    "/static/%252e%252e%252faccount",
    "/static//../account",
    "/static//..//../account",
    "/static/..%2faccount%00.css",
];

const SITE: &str = r#"
[[routes]]
match = { path = "/static/*" }
ignore_cookies = "*"
[[routes]]
match = { path = "/login" }
rate = "2/h"
rate_of = "requests"
max_body_size = "10B"
"#;

fn proxy_before(url: &str) -> Proxy {
    Proxy::with_config(&format!("origin = \"{url}\"\n{SITE}"))
}

/// A real nginx, which answers `/account` with the visitor that it recognizes.
struct Nginx {
    _process: Process,
    port: u16,
    _folder: Folder,
}

impl Nginx {
    fn start() -> Option<Self> {
        let (folder, port) = (Folder::new(), free_port());
        let file = folder.write("nginx.conf", Self::config(&folder, port));
        let mut command = Command::new("nginx");
        command.args(["-c", &file, "-e", &folder.file("error.log")]);
        let Some(mut process) = Process::start(command.stdin(Stdio::null())) else {
            left_out("paths that nginx resolves: it is not installed");
            return None;
        };
        process.listens(port);
        Some(Self {
            _process: process,
            port,
            _folder: folder,
        })
    }

    fn config(folder: &Folder, port: u16) -> String {
        let places = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {};\n", folder.file(name)));
        format!(
            "daemon off;\nmaster_process off;\npid {};\nevents {{}}\nhttp {{\naccess_log off;\n{}\
             server {{\nlisten 127.0.0.1:{port};\ndefault_type text/html;\n\
             location /static/ {{ return 200 \"a file\"; }}\n\
             location = /account {{ return 200 \"account of $cookie_session\"; }}\n}}\n}}\n",
            folder.file("pid"),
            places.concat(),
        )
    }
}

#[test]
fn behind_nginx_no_spelling_gives_one_visitor_the_page_of_another() {
    let Some(nginx) = Nginx::start() else {
        return;
    };
    let proxy = proxy_before(&format!("http://127.0.0.1:{}", nginx.port));
    let mut accounts = 0;
    for spelling in SPELLINGS {
        // Those who get through to nginx get what it says to them.
        let own = |cookie: &str| {
            let mut client = Client::connect(([127, 0, 0, 1], nginx.port).into());
            client.send(request("GET", spelling, &[cookie]));
            client.response().text()
        };
        for cookie in [ALICE, BOB, ALICE] {
            let answer = proxy.get_with(spelling, &[cookie]);
            assert_eq!(answer.text(), own(cookie), "{spelling}");
            answer.assert_forwarded("bypass");
            assert_eq!(
                answer.cache().get("detail"),
                Some("ambiguous-path"),
                "{spelling}"
            );
            assert!(!answer.cache().has("stored"), "{spelling}");
        }
        accounts += usize::from(own(ALICE) == "account of alice");
    }
    assert!(
        accounts >= 6,
        "nginx takes few of them for the account: {accounts}"
    );
    proxy
        .get_with("/static/a.css", &[ALICE])
        .assert_is(200, "a file");
    proxy.get_with("/static/a.css", &[BOB]).assert_hit();
}

#[test]
fn paths_with_the_same_route_in_all_readings_are_stored() {
    let origin = Origin::start();
    let proxy = proxy_before(&origin.url());
    for target in [
        "/api/v4/projects/a%2Fb",
        "/@scope%2fpkg",
        "/static/a%20b//c;v=1/%2e.css?x=/../account",
        "/caf%C3%A9/.well-known",
    ] {
        origin
            .on(target)
            .reply(Reply::new(200).with(FRESH).body("x"));
        proxy.get(target).assert_is(200, "x");
        proxy.get(target).assert_hit();
    }
}

#[test]
fn each_spelling_of_a_path_counts_for_its_rate() {
    let origin = Origin::start();
    let proxy = proxy_before(&origin.url());
    for (at, target) in [
        "/%6cogin",
        "//login",
        "/./login",
        "/%256cogin",
        "/x/..%2flogin",
        "/login;x",
    ]
    .into_iter()
    .enumerate()
    {
        origin
            .on(target)
            .reply(Reply::new(200).with(FRESH).body("x"));
        let from = format!("127.0.1.{}", at + 1);
        let ask = |target| proxy.get_from(&from, target, &[]);
        ask(target).assert_is(200, "x");
        ask("/static/../login");
        for target in [target, "/login"] {
            let late = ask(target);
            assert_eq!(
                (late.status, late.cache().get("detail")),
                (429, Some("rate-limited")),
                "{target}"
            );
        }
        // The path is forwarded as it came, and other pages have nothing to do with it.
        assert_eq!(origin.count(target), 1, "{target}");
        assert_ne!(ask("/x").status, 429);
    }
    let mut large = proxy.connect();
    large.send(request("POST", "/%6cogin", &["Content-Length: 11"]));
    large.send("hello world");
    assert_eq!(large.response().status, 413);
}

#[test]
fn no_ambiguous_path_gets_past_an_access_rule() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let directory = folder.file("documents");
    let push = format!("push = \"/live/\"\npush_directory = \"{directory}\"");
    let proxy = Proxy::with_config(&format!("origin = \"{}\"\n{push}\n{SITE}", origin.url()));
    for target in [
        "//live/a",
        "/x/..%2flive/a",
        "/live/..%2faccount",
        "/%6Cive/a",
    ] {
        let answer = proxy.get(target);
        answer.assert_is(400, "The path is ambiguous.\n");
        assert_eq!(answer.cache().get("detail"), Some("ambiguous-path"));
        assert_eq!(Http2::connect(proxy.address()).get(target).status(), 400);
    }
    assert_eq!(origin.requests().len(), 0);
}
