//! Paths that the origin is asked for in another form than the client's.

use crate::support::{Folder, Origin, Proxy, Reply};

const FRESH: &str = "Cache-Control: max-age=1000";

#[test]
fn the_key_is_the_url_of_the_client() {
    let origin = Origin::start();
    origin
        .on("/v2/users?a=1")
        .reply(Reply::new(200).with(FRESH).body("users"));
    origin
        .on("/other")
        .reply(Reply::new(200).with(FRESH).body("other"));
    let proxy = Proxy::with_config(&format!(
        r#"
origin = "{}"
purge_from = "127.0.0.1"
[[routes]]
match = {{ path = "/api/*" }}
strip_prefix = "/api"
add_prefix = "/v2"
"#,
        origin.url()
    ));
    for _ in 0..2 {
        proxy.get("/api/users?a=1").assert_is(200, "users");
    }
    assert_eq!(origin.count("/v2/users?a=1"), 1);
    assert_eq!(proxy.send("PURGE", "/api/users?a=1", &[]).status, 200);
    proxy.get("/api/users?a=1").assert_is(200, "users");
    assert_eq!(origin.count("/v2/users?a=1"), 2);
    proxy.get("/other").assert_is(200, "other");
    let before = origin.requests().len();
    for path in [
        "/api/../a",
        "/api/..%2fa",
        "/api/%2e%2e/a",
        "/api/..%5ca",
        "/api/..;/a",
    ] {
        assert_eq!(proxy.get(path).status, 400, "{path}");
    }
    assert_eq!(origin.requests().len(), before);
}

#[test]
fn the_origins_urls_become_those_of_the_client() {
    let origin = Origin::start();
    let own = origin.url();
    let location = |url: &str| Reply::new(302).with(&format!("Location: {url}")).body("");
    origin.on("/base/a").reply(location("/base/b?c"));
    origin
        .on("/base/own")
        .reply(location(&format!("{own}/base/b")));
    origin
        .on("/base/full")
        .reply(location("http://example.com/base/b"));
    origin
        .on("/base/else")
        .reply(location("https://other.example/base/b"));
    origin
        .on("/base/out")
        .reply(location(&format!("{own}//evil.example/")));
    origin
        .on("/base/list")
        .reply(Reply::new(200).with(FRESH).body("list"));
    origin
        .on("/base/new")
        .reply(Reply::new(201).with("Location: /base/list").body(""));
    let proxy = Proxy::with_config(&format!("origin = \"{own}/base\"\n"));
    for (path, expected) in [
        ("/a", "/b?c"),
        ("/own", "/b"),
        ("/full", "http://example.com/b"),
        ("/else", "https://other.example/base/b"),
        ("/out", "/evil.example/"),
    ] {
        assert_eq!(proxy.get(path).field("location"), Some(expected), "{path}");
    }
    // The Location of an unsafe request invalidates the client's URL (RFC 9111 §4.4).
    proxy.get("/list").assert_is(200, "list");
    let made = proxy.send("POST", "/new", &["Content-Length: 0"]);
    assert_eq!((made.status, made.field("location")), (201, Some("/list")));
    proxy.get("/list").assert_is(200, "list");
    assert_eq!(origin.count("/base/list"), 2);
}

#[test]
fn a_rewrite_has_captures_and_files_lose_a_prefix() {
    let (origin, folder) = (Origin::start(), Folder::new());
    folder.write("a.txt", "file");
    origin
        .on("/index.php?p=a/b")
        .reply(Reply::new(200).body("page"));
    let proxy = Proxy::with_config(&format!(
        r#"
origin = "{}"
[[routes]]
match = {{ path = "/files/*" }}
root = "{}"
strip_prefix = "/files"
[[routes]]
match = {{ path = "/wiki/*" }}
rewrite = {{ to = "/index.php?p={{1}}" }}
"#,
        origin.url(),
        folder.as_str()
    ));
    proxy.get("/files/a.txt").assert_is(200, "file");
    proxy.get("/a.txt");
    assert_eq!(origin.count("/a.txt"), 1);
    proxy.get("/wiki/a/b").assert_is(200, "page");
}
