//! Access rules of routes over real connections: addresses, passwords, and an authentication server.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use crate::limits::refused;
use crate::support::http2::Http2;
use crate::support::{Folder, Gate, Origin, Proxy, Reply, eventually};

const OTHER: &str = "127.0.0.2";
const FRESH: &str = "Cache-Control: max-age=1000";
/// The password `secret` of `ann`, at the lowest cost.
const ANN: &str = "Authorization: Basic YW5uOnNlY3JldA==";
const WRONG: &str = "Authorization: Basic YW5uOndyb25n";

fn origin() -> Origin {
    let origin = Origin::start();
    for target in ["/", "/office/a"] {
        origin.on(target).reply(Reply::ok(&[FRESH], "page"));
    }
    origin
}

#[test]
fn a_stored_page_is_for_admitted_addresses_only() {
    let origin = origin();
    let (site, url) = (Folder::new(), origin.url());
    site.write("a.txt", "file");
    let root = site.as_str();
    let proxy = Proxy::with_config(&format!(
        r#"
        origin = "{url}"
        push = "/live/"
        push_directory = "none"
        allow = "127.0.0.1"
        watch = "stored"
        [[routes]]
        match = {{ path = "/files/*" }}
        root = '{root}'
        [[routes]]
        match = {{ path = "/open/*" }}
        allow = "all"
        "#
    ));
    origin.on("/open/a").reply(Reply::ok(&[FRESH], "open"));
    proxy.get("/").assert_is(200, "page");
    proxy.get("/").assert_hit();
    for target in [
        "/",
        "/files/a.txt",
        "/live/a",
        "/.well-known/microcache/watch?url=/",
        "/.well-known/microcache/live.js",
    ] {
        let denied = proxy.get_from(OTHER, target, &["X-Forwarded-For: 127.0.0.1"]);
        assert_eq!(denied.status, 403, "{target}");
        assert_eq!(denied.cache().get("detail"), Some("access-denied"));
    }
    proxy.get_from(OTHER, "/open/a", &[]).assert_is(200, "open");
    // A page that its route would not give is not watched through another one.
    assert_eq!(proxy.get_from(OTHER, "/open/..%2f", &[]).status, 400);
    assert_eq!(Http2::connect(proxy.address()).get("/").status(), 200);
    proxy.output_with("127.0.0.2 was answered 403");
}

fn staging(origin: &Origin, lines: &str) -> (Proxy, Folder) {
    let folder = Folder::new();
    let user = "ann:$2y$04$kVn0HdV6A7qd/c5p.RucC.4yPLFfO2IFR9pLACu1HEfLvKPMxWvpe\n";
    let users = folder.write("users", user);
    std::fs::set_permissions(&users, Permissions::from_mode(0o600)).expect("it is ours");
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nbasic_auth = {{ file = '{users}' }}\n{lines}",
        origin.url()
    ));
    (proxy, folder)
}

#[test]
fn passwords_open_stored_pages_and_files() {
    let origin = origin();
    let site = Folder::new();
    site.write("a.txt", "file");
    let root = site.as_str();
    let lines = format!("[[routes]]\nmatch = {{ path = \"/files/*\" }}\nroot = '{root}'\n");
    let (proxy, _folder) = staging(&origin, &lines);
    for target in ["/", "/files/a.txt"] {
        let unknown = proxy.get(target);
        assert_eq!(unknown.status, 401, "{target}");
        assert!(unknown.field("www-authenticate").is_some());
        assert_eq!(proxy.get_with(target, &[WRONG]).status, 401, "{target}");
    }
    proxy.get_with("/", &[ANN]).assert_is(200, "page");
    let hit = proxy.get_with("/", &[ANN]);
    hit.assert_hit();
    assert_eq!(hit.field("cache-control"), Some("private, max-age=1000"));
    assert_eq!(proxy.get("/").status, 401);
    assert_eq!(proxy.get_with("/", &["Range: bytes=0-1"]).status, 401);
    // All requests of one connection, and over HTTP/2.
    let mut client = proxy.connect();
    client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{ANN}\r\n\r\n"));
    assert_eq!(client.response().status, 200);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().status, 401);
    let mut http2 = Http2::connect(proxy.address());
    let token = ANN.strip_prefix("Authorization: ").expect("a field");
    let stream = http2.ask("GET", "/", &[("authorization", token)]);
    assert_eq!(http2.answer(stream).status(), 200);
    assert_eq!(http2.get("/").status(), 401);
    assert!(
        origin
            .seen("/")
            .iter()
            .all(|seen| seen.field("authorization").is_none())
    );
}

#[test]
fn a_file_is_served_once_the_password_is_verified() {
    let origin = origin();
    let site = Folder::new();
    site.write("a.txt", "x".repeat(300_000));
    let root = site.as_str();
    let lines = format!("[[routes]]\nmatch = {{ path = \"/files/*\" }}\nroot = '{root}'\n");
    let (proxy, _folder) = staging(&origin, &lines);
    // `root` is a directory with the whole path.
    std::fs::create_dir(site.file("files")).expect("a directory");
    site.write("files/a.txt", "x".repeat(300_000));
    for _ in 0..2 {
        let file = proxy.get_with("/files/a.txt", &[ANN]);
        assert_eq!((file.status, file.text().len()), (200, 300_000));
    }
}

#[test]
fn a_hit_waits_for_the_authentication_server() {
    let (origin, server) = (origin(), Origin::start());
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nforward_auth = {{ url = \"{}/verify\", copy_headers = \"Remote-User\", session_cookie = \"sid\", max_concurrent = 8 }}\n",
        origin.url(),
        server.url()
    ));
    server
        .on("/verify")
        .answer(|seen| match seen.field("cookie") {
            Some("sid=ann") => Reply::new(200).with("Remote-User: ann").body(""),
            Some("sid=500") => Reply::new(500).body(""),
            _ => Reply::new(302)
                .with("Location: https://login.example/")
                .with("Set-Cookie: a=b")
                .body(""),
        });
    proxy
        .get_with("/", &["Cookie: sid=ann"])
        .assert_is(200, "page");
    proxy.get_with("/", &["Cookie: sid=ann"]).assert_hit();
    let login = proxy.get("/");
    assert_eq!(login.status, 302);
    assert_eq!(login.field("location"), Some("https://login.example/"));
    assert_eq!(login.field("set-cookie"), Some("a=b"));
    assert_eq!(proxy.get_with("/", &["Cookie: sid=500"]).status, 503);
    let asked = server.seen("/verify");
    assert_eq!(asked.len(), 4, "about hits as well");
    assert_eq!(asked[0].field("x-forwarded-uri"), Some("/"));
    assert_eq!(asked[0].field("x-forwarded-for"), Some("127.0.0.1"));
    assert_eq!(origin.count("/"), 1);
    assert_eq!(origin.seen("/")[0].field("remote-user"), None);
    // A stopped server closes stored pages as well.
    server.stop();
    eventually("nothing answers", || {
        (proxy.get_with("/", &["Cookie: sid=ann"]).status == 503).then_some(())
    });
}

#[test]
fn a_silent_authentication_server_holds_back_a_bounded_number() {
    let (origin, server) = (origin(), Origin::start());
    let (proxy, admin) = Proxy::operated_by_file(&format!(
        "origin = \"{}\"\nforward_auth = {{ url = \"{}/verify\", max_concurrent = 2, timeout = \"30s\" }}\n\
         [[routes]]\nmatch = {{ path = \"/office/*\" }}\nforward_auth = \"off\"\n",
        origin.url(),
        server.url()
    ));
    let gate = Gate::default();
    let slow = || Reply::new(200).after(&gate);
    let script = server.on("/verify");
    (0..10).fold(script, |script, _| script.reply(slow()));
    let mut waiting: Vec<_> = (0..100).map(|_| proxy.ask("/")).collect();
    // Two ask and eight wait; the others are answered at once. Pages of other routes are as well.
    eventually("the others are answered", || {
        (refused(admin, "authentication") == 90).then_some(())
    });
    eventually("two of them ask", || {
        (server.count("/verify") == 2).then_some(())
    });
    proxy.get("/office/a").assert_is(200, "page");
    assert_eq!(server.count("/verify"), 2);
    gate.open();
    let statuses = waiting.iter_mut().map(|client| client.response().status);
    let (mut admitted, mut busy) = (0, 0);
    for status in statuses {
        match status {
            200 => admitted += 1,
            503 => busy += 1,
            other => panic!("{other}"),
        }
    }
    assert_eq!((admitted, busy), (10, 90));
}

#[test]
fn identical_requests_ask_the_authentication_server_once() {
    let (origin, server) = (origin(), Origin::start());
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nforward_auth = {{ url = \"{}/verify\", timeout = \"30s\", cache = \"1m\" }}\n",
        origin.url(),
        server.url()
    ));
    let gate = Gate::default();
    let held = gate.clone();
    server
        .on("/verify")
        .answer(move |seen| match seen.field("cookie") {
            Some("sid=ann") => Reply::new(200).body("").after(&held),
            _ => Reply::new(403).body(""),
        });
    let ann = || proxy.ask_with("/", &["Cookie: sid=ann"]);
    let mut waiting = [ann(), ann(), ann()];
    eventually("one of them asks", || {
        (server.count("/verify") == 1).then_some(())
    });
    // The question about another visitor waits for none of theirs.
    assert_eq!(proxy.get_with("/", &["Cookie: sid=bob"]).status, 403);
    assert_eq!(server.count("/verify"), 2);
    gate.open();
    for client in &mut waiting {
        assert_eq!(client.response().status, 200);
    }
    assert_eq!(ann().response().status, 200);
    assert_eq!(server.count("/verify"), 2);
}

#[test]
fn a_tunnel_begins_once_it_is_admitted() {
    let (origin, server) = (origin(), Origin::start());
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nforward_auth = {{ url = \"{}/verify\", copy_headers = \"Remote-User\" }}\n",
        origin.url(),
        server.url()
    ));
    server
        .on("/verify")
        .answer(|seen| match seen.field("cookie") {
            Some("sid=ann") => Reply::new(200).with("Remote-User: ann").body(""),
            _ => Reply::new(401).body(""),
        });
    origin.on("/ws").reply(
        Reply::raw(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        )
        .echo(),
    );
    let upgrade = ["Connection: Upgrade", "Upgrade: websocket"];
    assert_eq!(proxy.get_with("/ws", &upgrade).status, 401);
    let mut client = proxy.ask_with("/ws", &[upgrade[0], upgrade[1], "Cookie: sid=ann"]);
    let head = client.head();
    assert!(head.start.starts_with("HTTP/1.1 101"), "{head:?}");
    client.send("hello");
    assert_eq!(client.bytes(5), b"hello");
    assert_eq!(origin.seen("/ws")[0].field("remote-user"), Some("ann"));
}
