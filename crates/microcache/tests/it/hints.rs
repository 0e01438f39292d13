//! Requests that browsers send in advance.

use serde_json::json;

use crate::limits::refused;
use crate::operators::Operator;
use crate::support::{Origin, Proxy, Reply};

const FRESH: &str = "Cache-Control: max-age=1000";
const PREFETCH: [&str; 3] = [
    "Sec-Purpose: prefetch;prerender",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-Dest: document",
];

#[test]
fn prefetches_are_answered_from_what_is_stored() {
    let origin = Origin::start();
    let flags = ["--prefetch", "hits", "--stale-while-revalidate", "1h"];
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    let stale = ["Cache-Control: max-age=10", "Age: 20"];
    origin.on("/page").reply(Reply::ok(&[FRESH], "page"));
    origin.on("/stale").reply(Reply::ok(&stale, "stale"));
    origin
        .on("/mine")
        .reply(Reply::ok(&["Cache-Control: private"], "mine"));
    origin.on("/post").reply(Reply::ok(&[], "done"));
    for target in ["/page", "/mine"] {
        let denied = proxy.get_with(target, &PREFETCH);
        assert_eq!(denied.status, 503);
        assert_eq!(denied.field("cache-control"), Some("no-store"));
        assert_eq!(denied.field("retry-after"), None);
        assert_eq!(denied.cache().get("detail"), Some("prefetch"));
        assert_eq!(origin.count(target), 0);
        // The visitor who follows the link, and a part of a page that is rendered in advance.
        let navigation = &PREFETCH[1..];
        assert_eq!(proxy.get_with(target, navigation).status, 200);
        let part = [PREFETCH[0], "Sec-Fetch-Dest: empty"];
        assert_eq!(proxy.get_with(target, &part).status, 200);
    }
    proxy.get_with("/page", &PREFETCH).assert_hit();
    assert_eq!(origin.count("/page"), 1);
    assert_eq!(proxy.send("POST", "/post", &PREFETCH).status, 200);
    // A stale page is not refreshed for a prefetch, nor later because of one.
    proxy.get("/stale").assert_is(200, "stale");
    for _ in 0..3 {
        proxy.get_with("/stale", &PREFETCH).assert_hit();
    }
    assert_eq!(origin.count("/stale"), 1);
    proxy.get("/stale").assert_hit();
    origin.wait_for("/stale", 2);
    assert_eq!(refused(admin, "prefetch"), 2);
    let asked = json!({"url": "http://example.com/other", "headers": ["Sec-Purpose: prefetch"]});
    let explained = Operator::at(admin).post("/v1/explain", &asked).to_string();
    assert!(
        explained.contains("the route has `prefetch ="),
        "{explained}"
    );
    let said = proxy.output();
    assert!(
        said.contains("a prefetch from 127.0.0.1 was answered 503"),
        "{said}"
    );
}

#[test]
fn the_fragments_of_a_stored_page_are_fetched_for_a_prefetch() {
    let origin = Origin::start();
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nprefetch = \"hits\"\nedge = \"always\"\nedge_paths = [\"/f/*\"]",
        origin.url()
    ));
    let page = "<p><esi:include src=\"/f/cart\"/></p>";
    origin
        .on("/")
        .reply(Reply::ok(&["Content-Type: text/html", FRESH], page));
    origin
        .on("/f/cart")
        .reply(Reply::ok(&["Cache-Control: private"], "cart"));
    proxy.get("/").assert_is(200, "<p>cart</p>");
    proxy.get_with("/", &PREFETCH).assert_is(200, "<p>cart</p>");
}
