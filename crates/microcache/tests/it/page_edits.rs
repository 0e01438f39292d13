//! Pages that are changed before they are stored: holes and tokens, also in a real browser.

use std::fs;

use crate::operators::Operator;
use crate::support::{Browser, Origin, Proxy, Reply, config_file};

const HTML: &str = "Content-Type: text/html; charset=utf-8";
const FRESH: &str = "Cache-Control: public, max-age=1000";
const SCRIPT: &str = "<script type=\"module\" src=\"/.well-known/microcache/include.js\"></script>";

const HOLES: &str = r##"edge_assembly = "browser"
compress = ["gzip"]
ignore_cookies = ["session"]
[[routes]]
match = { path = ["/cart-box*", "/token*"] }
ignore_cookies = []
edge_assembly = "server"
[[routes]]
holes = [{ select = "#cart", include = "/cart-box" }]
tokens = [{ select = "input[name=_token]", from = "/token" }]
"##;

fn config(origin: &Origin, lines: &str) -> String {
    format!("origin = \"{}\"\n{lines}", origin.url())
}

#[test]
fn a_page_with_holes_is_one_for_all_visitors() {
    let origin = Origin::start();
    let proxy = Proxy::with_config(&config(&origin, HOLES));
    let filler = "<p>text</p>".repeat(300);
    let page = format!(
        "<div id=cart>empty</div><form method=post><input name=_token value=s3cret></form>{filler}"
    );
    // It arrives in pieces.
    let (first, second) = page.split_at(9);
    let reply = Reply::new(200).with_all(&[
        HTML,
        FRESH,
        "ETag: \"a\"",
        "Accept-Ranges: bytes",
        "Transfer-Encoding: chunked",
    ]);
    origin
        .on("/shop")
        .reply(reply.chunk(first).chunk(second).send("0\r\n\r\n"));
    let anonymous = proxy.get("/shop");
    let text = anonymous.text();
    assert!(text.starts_with(
        "<script type=\"module\" src=\"/.well-known/microcache/include.js\" data-microcache-tokens="
    ));
    assert!(text.contains(
        "<div id=cart><microcache-include src=\"/cart-box\">empty</microcache-include></div>"
    ));
    assert!(text.contains("<input name=_token value=\"\">"), "{text}");
    assert!(text.ends_with("</p>") && !text.contains("s3cret"));
    for cookie in ["Cookie: session=a", "Cookie: session=b"] {
        let hit = proxy.get_with("/shop", &[cookie]);
        hit.assert_hit();
        assert_eq!(hit.text(), text);
        assert_eq!(hit.field("etag"), Some("W/\"a\""));
        assert_eq!(hit.field("accept-ranges"), None);
    }
    assert_eq!(
        proxy.get_with("/shop", &["If-None-Match: W/\"a\""]).status,
        304
    );
    assert_eq!(origin.count("/shop"), 1);
    assert_eq!(
        origin.seen("/shop")[0].field("accept-encoding"),
        Some("identity")
    );
    let script = proxy.get("/.well-known/microcache/include.js");
    assert_eq!(
        script.field("content-type"),
        Some("text/javascript; charset=utf-8")
    );
    assert!(script.text().contains("microcache-include"));
}

#[test]
fn fragments_and_tokens_are_for_one_visitor() {
    let origin = Origin::start();
    let proxy = Proxy::with_config(&config(&origin, HOLES));
    origin.on("/token").answer(|request| {
        let own = request.field("cookie").unwrap_or("none").to_owned();
        Reply::new(200)
            .with_all(&["Content-Type: text/plain", FRESH])
            .body(own)
    });
    for cookie in ["session=a", "session=b"] {
        let response = proxy.get_with("/token", &[&format!("Cookie: {cookie}")]);
        response.assert_is(200, cookie);
        assert_eq!(response.field("cache-control"), Some("private, no-store"));
    }
    // Nor is one for nobody in particular.
    for nth in 1..=2 {
        proxy.get("/token").assert_is(200, "none");
        assert_eq!(origin.count("/token"), 2 + nth);
    }
}

#[test]
fn holes_and_tokens_are_filled_here() {
    let origin = Origin::start();
    let lines = r##"[[routes]]
match = { path = "/shop" }
ignore_cookies = ["session"]
holes = [{ select = "#cart", include = "/cart-box" }]
tokens = [{ select = "input[name=_token]", from = "/token", wait = true }]
"##;
    let proxy = Proxy::with_config(&config(&origin, lines));
    let tags = "<esi:include src=\"/cart-box\"/><!--#include virtual=\"/stolen\" -->";
    let page = format!("<p id=cart>none</p>{tags}<input name=_token value=first>");
    let announced = "Surrogate-Control: content=\"ESI/1.0\"";
    origin
        .on("/shop")
        .reply(Reply::ok(&[HTML, FRESH, announced], page));
    let own = |what: &'static str, kind: &'static str| {
        origin.on(what).answer(move |request| {
            let visitor = request.field("cookie").unwrap_or("nobody").to_owned();
            Reply::ok(
                &[kind, "Cache-Control: private"],
                format!("{what} of {visitor}"),
            )
        });
    };
    own("/cart-box", HTML);
    own("/token", "Content-Type: text/plain");
    for visitor in ["session=a", "session=b", "session=a"] {
        let response = proxy.get_with("/shop", &[&format!("Cookie: {visitor}")]);
        let expected = format!(
            "<p id=cart>/cart-box of {visitor}</p><ESI:include src=\"/cart-box\"/><!-- #include virtual=\"/stolen\" -->\
             <input name=_token value=\"/token of {visitor}\">"
        );
        response.assert_is(200, &expected);
        assert_eq!(response.field("surrogate-control"), None);
    }
    assert_eq!((origin.count("/shop"), origin.count("/stolen")), (1, 0));
    assert_eq!(origin.seen("/shop")[0].field("surrogate-capability"), None);
}

#[test]
fn tags_of_an_application_become_elements() {
    let origin = Origin::start();
    let lines = "edge = \"announced\"\nedge_assembly = \"browser\"\nedge_paths = [\"/part*\"]\n";
    let proxy = Proxy::with_config(&config(&origin, lines));
    let page = "<b>a</b><esi:include src=\"/part?1\" /><esi:include src=\"/account\" />";
    let announced = "Surrogate-Control: content=\"ESI/1.0\"";
    origin
        .on("/page")
        .reply(Reply::ok(&[HTML, FRESH, announced], page));
    let element = "<microcache-include src=\"/part?1\"></microcache-include>";
    for _ in 0..2 {
        let response = proxy.get("/page");
        response.assert_is(200, &format!("<b>a</b>{SCRIPT}{element}"));
        assert_eq!(response.field("surrogate-control"), None);
        assert_eq!(
            response.field("cache-control"),
            Some("public, max-age=1000")
        );
    }
    assert_eq!(origin.count("/page"), 1);
    let asked = origin.seen("/page")[0]
        .field("surrogate-capability")
        .map(str::to_owned);
    assert_eq!(asked.as_deref(), Some("microcache=\"ESI/1.0\""));
}

#[test]
fn a_page_that_was_stored_with_other_holes_is_not_found() {
    let origin = Origin::start();
    let lines = |select: &str| {
        let holes = format!(
            "edge_assembly = \"browser\"\nholes = [{{ select = \"{select}\", include = \"/a\" }}]\n"
        );
        config(&origin, &holes)
    };
    let file = config_file(&lines("#cart"));
    let (proxy, admin) = Proxy::operated(&origin, &["--config", &file.display().to_string()]);
    let page = "<p id=cart>a</p><p id=name>b</p>";
    origin.on("/shop").reply(Reply::ok(&[HTML, FRESH], page));
    for (select, expected) in [
        (
            "#cart",
            format!(
                "{SCRIPT}<p id=cart><microcache-include src=\"/a\">a</microcache-include></p><p id=name>b</p>"
            ),
        ),
        (
            "#name",
            format!(
                "<p id=cart>a</p>{SCRIPT}<p id=name><microcache-include src=\"/a\">b</microcache-include></p>"
            ),
        ),
        (
            "#cart",
            format!(
                "{SCRIPT}<p id=cart><microcache-include src=\"/a\">a</microcache-include></p><p id=name>b</p>"
            ),
        ),
    ] {
        fs::write(&file, lines(select)).expect("the file can be written");
        Operator::at(admin).post("/v1/reload", &serde_json::json!({}));
        assert_eq!(proxy.get("/shop").text(), expected, "{select}");
    }
    assert_eq!(origin.count("/shop"), 2);
}

#[test]
fn a_page_that_cannot_be_changed_is_whole_and_not_stored() {
    let origin = Origin::start();
    let proxy = Proxy::with_config(&config(&origin, HOLES));
    let large = format!("<div id=cart title=\"{}\">a</div>", "x".repeat(3 << 20));
    origin.on("/large").reply(Reply::ok(&[HTML, FRESH], &large));
    let gzip = "Content-Encoding: gzip";
    origin
        .on("/gzip")
        .reply(Reply::ok(&[HTML, FRESH, gzip], "abc"));
    for nth in 1..=2 {
        assert!(proxy.get("/large").text() == large);
        let encoded = proxy.get("/gzip");
        encoded.assert_is(200, "abc");
        assert_eq!(encoded.field("cache-control"), Some("private, no-store"));
        assert_eq!((origin.count("/large"), origin.count("/gzip")), (nth, nth));
    }
}

/// Says when the fragments are there, then uses the form: it gets the focus and is sent at once. Then another one without a
/// token takes its place, as where a script navigates.
const VISITOR: &str = "<script>
    let left = 3;
    const told = ({ target, detail }) => {
        fetch('/told?' + target.getAttribute('src') + '=' + detail.ok + '-' + target.textContent);
        if (--left === 0) setTimeout(use, 100);
    };
    const use = () => {
        const form = document.querySelector('form');
        form.querySelector('[name=words]').focus();
        form.requestSubmit();
        document.querySelector('iframe').onload = again;
    };
    const again = () => {
        const form = document.querySelector('form');
        form.outerHTML = form.outerHTML.replace('visitors', '').replace('target', 'class');
        document.querySelector('form').requestSubmit();
    };
    document.addEventListener('microcache:include', told);
    </script>";

#[test]
fn the_browser_completes_a_page() {
    let origin = Origin::start();
    let lines = r##"ignore_cookies = ["session"]
edge_assembly = "browser"
[[routes]]
match = { path = "/shop" }
holes = [
    { select = "#cart", include = "/cart-box" }, { select = "#broken", include = "/broken" }, { select = "#name", include = "/name" },
]
tokens = [{ select = "input[name=_token]", from = "/token" }, { variable = "own.nonce", from = "/nonce" }]
[[routes]]
ignore_cookies = []
"##;
    let proxy = Proxy::with_config(&config(&origin, lines));
    let page = format!(
        "<!doctype html><body>{VISITOR}<div id=cart>nothing</div><p id=broken>old</p><p id=name>nobody</p>
        <script>var own = {{\"nonce\":\"first\"}};</script>
        <iframe name=frame></iframe>
        <form method=post action=/sent target=frame><input name=words value=a><input type=hidden name=_token value=first></form>
        <script>
        document.querySelector('form').addEventListener('submit', () => fetch('/told?nonce=' + own.nonce));
        </script>"
    );
    origin.on("/shop").reply(Reply::ok(&[HTML, FRESH], page));
    let fragment = |text: &'static str| Reply::ok(&[HTML, "Cache-Control: no-store"], text);
    origin.on("/cart-box").reply(fragment(
        "<b>3</b> items<script>fetch('/told?ran')</script>",
    ));
    origin.on("/name").reply(fragment(
        "Ada<microcache-include src=/account>!</microcache-include>",
    ));
    origin.on("/broken").reply(Reply::new(500));
    let session = "Set-Cookie: session=own; Path=/";
    let form = "<form><input name=_token value=visitors></form>";
    origin.on("/token").reply(Reply::ok(&[HTML, session], form));
    let json = "Content-Type: application/json";
    origin
        .on("/nonce")
        .reply(Reply::ok(&[json], "{\"nonce\":\"own\"}"));
    origin.on("/sent").reply(Reply::ok(&[HTML], "sent"));
    let url = format!("http://{}/shop", proxy.address());
    let Some(_browser) = Browser::open(&url, &[], "a page that is completed in the browser") else {
        return;
    };
    origin.wait_for("/told?/name=true-Ada!", 1);
    origin.wait_for("/told?/broken=false-old", 1);
    origin.wait_for("/told?nonce=own", 1);
    for nth in 1..=2 {
        let sent = origin.wait_for("/sent", nth);
        let body = String::from_utf8(sent.body()).expect("text");
        assert_eq!(body, "words=a&_token=visitors", "{nth}");
        assert_eq!(sent.field("cookie"), Some("session=own"));
    }
    // The first response began the session, and the second one belongs to it.
    assert_eq!(origin.seen("/token")[0].field("cookie"), None);
    assert_eq!(
        origin.seen("/nonce")[0].field("cookie"),
        Some("session=own")
    );
    assert_eq!(origin.count("/told?ran"), 0);
    assert_eq!(origin.count("/account"), 0);
    assert_eq!(origin.count("/shop"), 1);
    // A form that was sent may have begun another session.
    assert_eq!(origin.count("/token"), 2);
}
