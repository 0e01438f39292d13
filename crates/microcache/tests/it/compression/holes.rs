//! Pages with holes: their text is compressed once, and what is put into the holes is not.

use std::process::Command;

use super::{BROWSER, decoded, in_coding, page};
use crate::support::{Gate, Origin, Proxy, Reply};

const FLAGS: &[&str] = &[
    "--compress",
    "zstd,br,gzip",
    "--dictionaries",
    "--edge",
    "announced",
];
const HOLE: &str = "<esi:include src=\"/_fragment/cart\"/>";

/// A page that is stored for all.
fn shell() -> Reply {
    let body = format!("{}{HOLE}{}", page(1), page(2));
    Reply::new(200)
        .with("Content-Type: text/html")
        .with("Cache-Control: public, max-age=1000")
        .with("ETag: \"shell\"")
        .with("Surrogate-Control: content=\"ESI/1.0\"")
        .body(body)
}

fn composed(fragment: &str) -> String {
    format!("{}{fragment}{}", page(1), page(2))
}

fn cart(origin: &Origin, cache_control: &'static str) {
    origin.on("/_fragment/cart").answer(move |request| {
        let visitor = request.field("cookie").unwrap_or("none");
        let lifetime = format!("Cache-Control: {cache_control}");
        Reply::ok(
            &["Content-Type: text/html", &lifetime],
            format!("[cart of {visitor}]"),
        )
    });
}

#[test]
fn the_text_of_a_page_is_compressed_and_each_visitor_gets_a_fragment_of_their_own() {
    let origin = Origin::start();
    origin.on("/").reply(shell());
    cart(&origin, "private");
    let proxy = Proxy::start(&origin, FLAGS);
    let first = proxy.get_with("/", &[BROWSER]);
    first.assert_is(200, &composed("[cart of none]"));
    in_coding(&proxy, "/", "gzip");
    for visitor in ["session=1", "session=22222"] {
        let cookie = format!("Cookie: {visitor}");
        let expected = composed(&format!("[cart of {visitor}]"));
        let response = proxy.get_with("/", &[BROWSER, &cookie]);
        assert_eq!(response.field("content-encoding"), Some("gzip"));
        assert!(decoded(&response) == expected);
        assert!(response.body.len() < expected.len() / 3);
        // The fragment is there as it is.
        let cart = format!("[cart of {visitor}]");
        assert!(
            response
                .body
                .windows(cart.len())
                .any(|part| part == cart.as_bytes())
        );
        assert!(
            response
                .field("vary")
                .is_some_and(|vary| vary.contains("Accept-Encoding"))
        );
        assert_eq!(response.field("cache-control"), Some("private, no-cache"));
        for absent in [
            "etag",
            "content-length",
            "use-as-dictionary",
            "surrogate-control",
        ] {
            assert_eq!(response.field(absent), None, "{absent}");
        }
        let plain = proxy.get_with("/", &["Accept-Encoding: br, zstd", &cookie]);
        plain.assert_is(200, &expected);
        assert_eq!(plain.field("content-encoding"), None);
    }
    let curl = Command::new("curl")
        .args([
            "-sS",
            "--compressed",
            "-H",
            "Host: example.com",
            "-H",
            "Cookie: session=curl",
        ])
        .arg(format!("http://{}/", proxy.address()))
        .output();
    let curl = curl.expect("curl is installed");
    assert!(curl.stdout == composed("[cart of session=curl]").as_bytes());
    assert_eq!(origin.count("/"), 1);
    let asked = origin.seen("/_fragment/cart");
    assert!(
        asked
            .iter()
            .all(|request| request.field("accept-encoding") == Some("identity"))
    );
}

#[test]
fn a_page_that_is_all_in_memory_has_a_length_and_a_validator() {
    let origin = Origin::start();
    origin.on("/").reply(shell());
    cart(&origin, "public, max-age=500");
    let proxy = Proxy::start(&origin, FLAGS);
    let expected = composed("[cart of none]");
    proxy.get("/").assert_is(200, &expected);
    let plain = proxy.get("/");
    let response = in_coding(&proxy, "/", "gzip");
    assert!(decoded(&response) == expected);
    let length = response.body.len().to_string();
    assert_eq!(response.field("content-length"), Some(&length[..]));
    let tag = response.field("etag").expect("it has one");
    assert!(tag.starts_with("W/\""));
    // It names the page, whatever its coding.
    assert_eq!(plain.field("etag"), Some(tag));
    let condition = format!("If-None-Match: {tag}");
    for coding in ["Accept-Encoding: gzip", "Accept-Encoding: br"] {
        let confirmed = proxy.get_with("/", &[coding, &condition]);
        assert_eq!(confirmed.status, 304, "{coding}");
    }
    let head = proxy.send("HEAD", "/", &["Accept-Encoding: gzip"]);
    assert!(head.body.is_empty());
}

#[test]
fn an_encoded_fragment_has_failed() {
    let origin = Origin::start();
    origin.on("/").reply(shell());
    let fields = ["Content-Encoding: gzip", "Cache-Control: private"];
    origin
        .on("/_fragment/cart")
        .reply(Reply::ok(&fields, "not gzip at all"));
    let proxy = Proxy::start(&origin, FLAGS);
    proxy.get("/").assert_is(200, &composed(""));
    assert!(decoded(&in_coding(&proxy, "/", "gzip")) == composed(""));
}

#[test]
fn compressed_text_does_not_wait_for_a_fragment() {
    let origin = Origin::start();
    let gate = Gate::default();
    origin.on("/").reply(shell());
    let released = gate.clone();
    origin.on("/_fragment/cart").answer(move |request| {
        let reply = Reply::ok(&["Cache-Control: private"], "[cart]");
        match request.field("cookie") {
            Some(_) => reply.after(&released),
            None => reply,
        }
    });
    let proxy = Proxy::start(&origin, &[FLAGS, &["--edge-timeout", "1m"]].concat());
    in_coding(&proxy, "/", "gzip");
    let mut client = proxy.ask_with("/", &["Accept-Encoding: gzip", "Cookie: session=1"]);
    assert_eq!(client.head().field("content-encoding"), Some("gzip"));
    // Behind the length of the first chunk.
    let first = client.bytes(100);
    assert!(
        first.windows(3).any(|bytes| bytes == [0x1f, 0x8b, 8]),
        "{first:?}"
    );
    gate.open();
}
