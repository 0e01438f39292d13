//! Requests that browsers send in advance, and hints for those that take long.

use serde_json::json;

use crate::limits::refused;
use crate::operators::Operator;
use crate::support::http2::{END_STREAM, HEADERS, Http2};
use crate::support::{Gate, Origin, Proxy, Reply};

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
    proxy.output_with("a prefetch from 127.0.0.1 was answered 503");
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

const LINK: &str = "Link: </a.css>; rel=preload; as=style, </next>; rel=next";
const NAVIGATION: (&str, &str) = ("sec-fetch-mode", "navigate");
const SESSION: (&str, &str) = ("cookie", "session=a");

/// The links of the 103 responses to a request by HTTP/2 whose final status is 200.
fn hints(proxy: &Proxy, target: &str, fields: &[(&str, &str)]) -> Vec<String> {
    let mut client = Http2::connect(proxy.address());
    let stream = client.ask("GET", target, fields);
    let answer = client.answer(stream);
    assert_eq!(answer.status(), 200, "{answer:?}");
    let is_hint = |head: &&Vec<(String, String)>| head[0].1 == "103";
    let all = answer.heads.iter().filter(is_hint).flatten();
    let links = all.filter(|(name, _)| name == "link");
    links.map(|(_, value)| value.clone()).collect()
}

#[test]
fn navigations_that_wait_get_the_links_of_the_page_that_strangers_get() {
    let origin = Origin::start();
    let flags = ["--early-hints", "--purge-from", "127.0.0.1"];
    let proxy = Proxy::start(&origin, &flags);
    let gate = Gate::default();
    let page = || Reply::ok(&[FRESH, LINK, "Vary: Cookie"], "page");
    origin.on("/page").reply(page()).reply(page().after(&gate));
    assert!(
        hints(&proxy, "/page", &[NAVIGATION]).is_empty(),
        "nothing is known"
    );
    assert!(hints(&proxy, "/page", &[NAVIGATION]).is_empty(), "a hit");
    // The head of the 103 comes while the origin holds the page back.
    let mut client = Http2::connect(proxy.address());
    let stream = client.ask("GET", "/page", &[NAVIGATION, SESSION]);
    let early = client.until(HEADERS);
    assert_eq!((early.stream, early.flags & END_STREAM), (stream, 0));
    gate.open();
    client.answer(stream).assert_is(200, "page");
    let known = ["</a.css>; rel=preload; as=style"];
    assert_eq!(hints(&proxy, "/page", &[NAVIGATION, SESSION]), known);
    // Not for other requests, nor over HTTP/1.
    assert!(hints(&proxy, "/page", &[SESSION]).is_empty());
    let fields = ["Sec-Fetch-Mode: navigate", "Cookie: session=a"];
    assert!(proxy.get_with("/page", &fields).interim.is_empty());
    // The origin's own come once.
    let own = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload; as=style\r\n\r\n\
        HTTP/1.1 103 Early Hints\r\nLink: </b.css>; rel=preload\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    origin.on("/page").answer(move |_| Reply::raw(own));
    let both = [known[0], "</b.css>; rel=preload"];
    assert_eq!(hints(&proxy, "/page", &[NAVIGATION, SESSION]), both);
    // After a purge nothing is known.
    assert_eq!(proxy.send("PURGE", "/page", &[]).status, 200);
    origin.on("/page").answer(move |_| page());
    assert!(hints(&proxy, "/page", &[NAVIGATION, SESSION]).is_empty());
}

#[test]
fn links_of_personal_pages_are_no_hints() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--early-hints"]);
    let shared = ["Cache-Control: public, max-age=1000", "Vary: Cookie", LINK];
    origin
        .on("/mine")
        .reply(Reply::ok(&["Cache-Control: private", LINK], "mine"));
    origin.on("/vary").reply(Reply::ok(&shared, "of a visitor"));
    for target in ["/mine", "/vary"] {
        for other in ["session=a", "session=b"] {
            assert!(hints(&proxy, target, &[NAVIGATION, ("cookie", other)]).is_empty());
        }
    }
}
