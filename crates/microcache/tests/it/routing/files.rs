//! Files of the operator: error pages, lists of redirects.

use std::fs;

use crate::support::{Folder, Origin, Proxy, Reply, request};

#[test]
fn error_pages_replace_generated_errors_and_if_asked_those_of_the_origin() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let page = folder.write("5xx.html", "<h1>Sorry</h1>");
    let missing = folder.write("404.html", "<h1>Nothing here</h1>");
    let not_found = Reply::new(404).with("Cache-Control: max-age=60");
    origin.on("/own").reply(not_found.clone().body("app"));
    origin
        .on("/all")
        .reply(not_found.with("X-Kept: yes").body("app"));
    origin.on("/gone").reply(Reply::hang_up());
    let proxy = Proxy::with_config(&format!(
        r#"
origin = "{}"
error_pages = {{ 404 = "{missing}", 5xx = "{page}" }}
stale_if_error = "0s"
[[routes]]
match = {{ path = "/all" }}
error_pages_from = "all"
[[routes]]
match = {{ path = "/none" }}
respond = {{ status = 404 }}
[[routes]]
match = {{ path = "/plain" }}
respond = {{ status = 404, body = "plain" }}
[[routes]]
match = {{ path = "/static/*" }}
root = "{}"
"#,
        origin.url(),
        folder.as_str()
    ));
    let own = proxy.get("/own");
    own.assert_is(404, "app");
    for _ in 0..2 {
        let all = proxy.get("/all");
        all.assert_is(404, "<h1>Nothing here</h1>");
        assert_eq!(all.field("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!(all.field("cache-control"), Some("no-store"));
        assert_eq!(all.field("x-kept"), Some("yes"));
        assert_eq!(all.field("age"), None);
    }
    assert_eq!(origin.count("/all"), 1);
    proxy.get("/none").assert_is(404, "<h1>Nothing here</h1>");
    proxy.get("/plain").assert_is(404, "plain");
    for _ in 0..2 {
        let missing = proxy.get("/static/a.css");
        missing.assert_is(404, "<h1>Nothing here</h1>");
    }
    proxy.get("/gone").assert_is(502, "<h1>Sorry</h1>");
    let mut client = proxy.connect();
    client.send(request("HEAD", "/all", &[]));
    let head = client.response_to_head();
    assert_eq!(
        (head.status, head.field("content-length")),
        (404, Some("21"))
    );
    client.get("/none").assert_is(404, "<h1>Nothing here</h1>");
}

#[test]
fn a_list_of_redirects_names_the_lines_of_its_mistakes() {
    let (origin, folder) = (Origin::start(), Folder::new());
    origin.on("/page").reply(Reply::new(200).body("page"));
    let list = folder.write("redirects.txt", "/old /new 301\n/p?id=1 /first\n");
    let (proxy, _admin) = Proxy::operated_by_file(&format!(
        "origin = \"{}\"\nredirects = \"{list}\"\n",
        origin.url()
    ));
    for (target, status, location) in [
        ("/old?a=b", 301, Some("/new?a=b")),
        ("/p?id=1", 302, Some("/first")),
        ("/page", 200, None),
    ] {
        let response = proxy.get(target);
        assert_eq!(
            (response.status, response.field("location")),
            (status, location),
            "{target}"
        );
    }
    fs::write(&list, "/old /a\n/a /old\n").expect("a file");
    let (status, refused) = Proxy::refusal(&["--redirects", &list, &origin.url()]);
    assert_ne!(status, Some(0));
    assert!(
        refused.contains("redirects.txt:1: `/old` is redirected over and over"),
        "{refused}"
    );
}
