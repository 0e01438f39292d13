//! The recipe of docs/access.md with the real oauth2-proxy, attacked. Its users are in a file, so that no identity
//! provider is needed: the cookie and the endpoints are the same.

use std::process::Command;

use crate::support::{
    Folder, Origin, Process, Proxy, Reply, Response, eventually, free_port, left_out,
};

/// The password `secret` of `ann`, at the lowest cost.
const USERS: &str = "ann:$2y$04$kVn0HdV6A7qd/c5p.RucC.4yPLFfO2IFR9pLACu1HEfLvKPMxWvpe\n";
const FRESH: &str = "Cache-Control: max-age=1000";

struct Site {
    proxy: Proxy,
    origin: Origin,
    oauth2: Process,
    _folder: Folder,
}

impl Site {
    /// Starts all of it, if oauth2-proxy is there.
    fn start() -> Option<Self> {
        let (origin, folder, port) = (Origin::start(), Folder::new(), free_port());
        let users = folder.write("users", USERS);
        let program = std::env::var("OAUTH2_PROXY").unwrap_or_else(|_| "oauth2-proxy".to_owned());
        let mut command = Command::new(program);
        command
            .arg(format!("--http-address=127.0.0.1:{port}"))
            .arg(format!("--htpasswd-file={users}"))
            .args(["--provider=github", "--client-id=x", "--client-secret=y"])
            .arg(format!("--cookie-secret={}", "0123456789abcdef".repeat(2)))
            .args([
                "--cookie-secure=false",
                "--email-domain=*",
                "--reverse-proxy=true",
            ])
            .args(["--upstream=static://202", "--set-xauthrequest"])
            .arg("--skip-auth-route=^/public");
        let Some(mut oauth2) = Process::start(&mut command) else {
            left_out("authentication by oauth2-proxy, which is not there (make oauth2-proxy)");
            return None;
        };
        oauth2.listens(port);
        let proxy = Proxy::with_config(&format!(
            r#"
origin = "{}"
forward_auth = {{ url = "http://127.0.0.1:{port}/oauth2/auth", copy_headers = ["X-Auth-Request-User", "X-Auth-Request-Email"], session_cookie = "_oauth2_proxy*", cache = "1s" }}

[upstreams.oauth2]
servers = ["http://127.0.0.1:{port}"]

[[routes]]
match = {{ path = "/oauth2/*" }}
upstream = "oauth2"
pass = true
forward_auth = "off"
"#,
            origin.url()
        ));
        origin.on("/").reply(Reply::ok(&[FRESH], "page"));
        Some(Self {
            proxy,
            origin,
            oauth2,
            _folder: folder,
        })
    }

    fn get(&self, target: &str, cookie: &str) -> Response {
        self.proxy.get_with(target, &[&format!("Cookie: {cookie}")])
    }

    /// Signs in with a password, and returns the cookie.
    fn sign_in(&self, password: &str) -> Option<String> {
        let form = format!("username=ann&password={password}&rd=%2F");
        let length = form.len();
        let answer = self.proxy.request(format!(
            "POST /oauth2/sign_in HTTP/1.1\r\nHost: example.com\r\nContent-Length: {length}\r\n\
             Content-Type: application/x-www-form-urlencoded\r\n\r\n{form}"
        ));
        let cookie = answer.field("set-cookie")?.split(';').next()?;
        (answer.status == 302).then(|| cookie.to_owned())
    }
}

#[test]
#[ignore = "the server is built by `make test-oauth2-proxy`, which takes minutes"]
fn users_who_have_signed_in_share_what_is_stored() {
    let Some(site) = Site::start() else {
        return;
    };
    assert_eq!(site.proxy.get("/").status, 401);
    assert_eq!(site.sign_in("wrong"), None);
    let (cookie, other) = (site.sign_in("secret"), site.sign_in("secret"));
    let (cookie, other) = (cookie.expect("a cookie"), other.expect("a cookie"));
    assert!(cookie.starts_with("_oauth2_proxy="), "{cookie}");
    site.get("/", &cookie).assert_is(200, "page");
    let hit = site.get("/", &other);
    hit.assert_hit();
    assert_eq!(hit.field("cache-control"), Some("private, max-age=1000"));
    assert_eq!(site.origin.count("/"), 1);
    let shared = &site.origin.seen("/")[0];
    assert_eq!(
        (shared.field("cookie"), shared.field("x-auth-request-user")),
        (None, None)
    );
    // A page for one client has the name that oauth2-proxy gives, and never one that the client claims.
    site.origin.on("/me").reply(Reply::new(200).body("ann's"));
    let claim = ["X-Auth-Request-User: root", "X_Auth_Request_User: root"];
    let fields = [&*format!("Cookie: {cookie}; basket=1"), claim[0], claim[1]];
    site.proxy.get_with("/me", &fields).assert_is(200, "ann's");
    let own = &site.origin.seen("/me")[0];
    assert_eq!(own.head.all("x-auth-request-user"), ["ann"]);
    assert_eq!(
        (own.field("x_auth_request_user"), own.field("cookie")),
        (None, Some("basket=1"))
    );
}

#[test]
#[ignore = "the server is built by `make test-oauth2-proxy`, which takes minutes"]
fn no_request_avoids_it() {
    let Some(mut site) = Site::start() else {
        return;
    };
    let cookie = site.sign_in("secret").expect("a cookie");
    site.get("/", &cookie).assert_is(200, "page");
    let forged = format!("{}A", &cookie[..cookie.len() - 1]);
    let (name, value) = cookie.split_once('=').expect("a pair");
    for cookie in [
        &*forged,
        "_oauth2_proxy=",
        &format!("{name}x={value}"),
        value,
    ] {
        assert_eq!(site.get("/", cookie).status, 401, "{cookie}");
    }
    // What oauth2-proxy lets everyone see, it is asked about with the path of the request only.
    for fields in [
        &["X-Forwarded-Uri: /public"][..],
        &[
            "X-Original-URL: http://example.com/public",
            "X-Original-URI: /public",
        ],
        &[
            "X-Forwarded-Uri: /oauth2/sign_in",
            "X-Forwarded-Method: OPTIONS",
        ],
        &[
            "X-Auth-Request-User: ann",
            "X-Forwarded-User: ann",
            "Gap-Auth: ann",
        ],
        &[
            "X-Auth-Request-Redirect: /public",
            "X-Forwarded-Host: public",
        ],
        &["Authorization: Basic YW5uOndyb25n"],
    ] {
        assert_eq!(site.proxy.get_with("/", fields).status, 401, "{fields:?}");
    }
    for target in [
        "/?/public",
        "/#/public",
        "/x/..%2foauth2/..%2f",
        "/oauth2/..%2f",
        "/oauth2/../",
        "/oauth2;/../",
        "//oauth2/../",
    ] {
        let status = site.proxy.get(target).status;
        assert!(matches!(status, 400 | 401), "{target}: {status}");
    }
    for method in ["OPTIONS", "POST", "DELETE"] {
        let refused = site.proxy.request(format!(
            "{method} / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
        ));
        assert_eq!(refused.status, 401, "{method}");
    }
    assert_eq!(
        site.origin.requests().len(),
        1,
        "the application has seen none of them"
    );
    // Neither is a hit given away once nothing decides.
    site.oauth2.kill();
    eventually("no decision", || {
        (site.get("/", &cookie).status == 503).then_some(())
    });
    assert_eq!(site.proxy.get("/").status, 503);
}
