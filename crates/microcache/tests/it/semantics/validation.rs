//! Asking the origin about a stale response, and what its 304 does: RFC 9111 §4.3.

use super::{EXACT, exact};
use crate::support::{Origin, Proxy, Reply, http_date};

/// Stored and at once stale.
const EXPIRED: &str = "Cache-Control: max-age=0";
const FRESH: &str = "Cache-Control: max-age=100";

#[test]
fn both_validators_are_sent() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let modified = http_date(-1000);
    origin
        .on("/")
        .reply(Reply::ok(
            &[
                EXPIRED,
                "ETag: W/\"a\"",
                &format!("Last-Modified: {modified}"),
            ],
            "hello",
        ))
        .reply(Reply::new(304).with_all(&[FRESH, "ETag: W/\"a\""]));
    proxy.get("/").assert_is(200, "hello");
    let second = proxy.get("/");
    second.assert_is(200, "hello");
    second.assert_forwarded("stale");
    assert_eq!(second.cache().get("fwd-status"), Some("304"));
    let requested = &origin.seen("/")[1];
    assert_eq!(requested.field("if-none-match"), Some("W/\"a\""));
    assert_eq!(
        requested.field("if-modified-since"),
        Some(modified.as_str())
    );
    let third = proxy.get("/");
    third.assert_hit();
    third.assert_is(200, "hello");
}

#[test]
fn without_a_validator_the_request_is_plain() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::new(200).with(EXPIRED).body("hello"));
    proxy.get("/");
    proxy.get("/").assert_is(200, "hello");
    let requested = &origin.seen("/")[1];
    assert!(
        !requested
            .head
            .names()
            .iter()
            .any(|name| name.to_lowercase().starts_with("if-")),
        "{:?}",
        requested.head
    );
}

#[test]
fn a_304_updates_every_stored_field_but_the_framing() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(
            Reply::new(200)
                .with_all(&[
                    EXPIRED,
                    "ETag: \"a\"",
                    "X-Kept: 1",
                    "X-Changed: 1",
                    "X-Twice: 1",
                    "X-Twice: 2",
                ])
                .with("Content-Type: text/plain")
                .body("hello"),
        )
        .reply(
            Reply::new(304)
                .with_all(&[
                    FRESH,
                    "ETag: \"a\"",
                    "X-Changed: 2",
                    "X-New: 3",
                    "X-Twice: 3",
                ])
                .with_all(&[
                    "Content-Length: 9999",
                    "Content-Encoding: gzip",
                    "Content-Range: bytes 0-1/2",
                ])
                .with("Content-Type: text/html"),
        );
    proxy.get("/");
    for response in [proxy.get("/"), proxy.get("/")] {
        response.assert_is(200, "hello");
        assert_eq!(
            response.head.all("cache-control"),
            ["max-age=100"],
            "{response:?}"
        );
        assert_eq!(response.head.all("x-kept"), ["1"], "{response:?}");
        assert_eq!(response.head.all("x-changed"), ["2"], "{response:?}");
        assert_eq!(response.head.all("x-twice"), ["3"], "{response:?}");
        assert_eq!(response.head.all("x-new"), ["3"], "{response:?}");
        assert_eq!(response.head.all("content-length"), ["5"], "{response:?}");
        assert_eq!(response.head.all("content-range"), [""; 0], "{response:?}");
        assert_eq!(
            response.head.all("content-encoding"),
            [""; 0],
            "RFC 9111 §3.2: {response:?}"
        );
    }
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn a_304_for_another_validator_is_not_accepted() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&[EXPIRED, "ETag: \"a\""], "old"))
        .reply(Reply::new(304).with_all(&[FRESH, "ETag: \"b\""]))
        .reply(Reply::ok(&[FRESH, "ETag: \"b\""], "new"));
    proxy.get("/").assert_is(200, "old");
    let second = proxy.get("/");
    assert!(
        second.text() != "old" || second.field("etag") == Some("\"a\""),
        "{second:?}"
    );
    let third = proxy.get("/");
    assert_eq!(third.text(), "new", "{third:?}");
    assert_eq!(third.field("etag"), Some("\"b\""));
}

#[test]
fn a_200_replaces_the_entry() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&[EXPIRED, "ETag: \"a\"", "X-Old: 1"], "old"))
        .reply(Reply::ok(&[FRESH, "ETag: \"b\""], "new"));
    proxy.get("/").assert_is(200, "old");
    let second = proxy.get("/");
    second.assert_is(200, "new");
    second.assert_forwarded("stale");
    let third = proxy.get("/");
    third.assert_hit();
    third.assert_is(200, "new");
    assert_eq!(third.field("x-old"), None);
}

#[test]
fn no_cache_asks_every_time_and_keeps_the_body() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let fields = ["Cache-Control: no-cache", "ETag: \"a\""];
    origin
        .on("/")
        .reply(Reply::new(200).with_all(&fields).body("hello"))
        .reply(Reply::new(304).with_all(&fields));
    for expected in 1..=3 {
        proxy.get("/").assert_is(200, "hello");
        assert_eq!(origin.count("/"), expected);
    }
    assert_eq!(origin.seen("/")[2].field("if-none-match"), Some("\"a\""));
}

#[test]
fn the_clients_own_condition_is_answered_after_revalidation() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&[EXPIRED, "ETag: \"a\""], "hello"))
        .reply(Reply::new(304).with_all(&[EXPIRED, "ETag: \"a\""]));
    proxy.get("/");
    assert_eq!(proxy.get_with("/", &["If-None-Match: \"a\""]).status, 304);
    proxy
        .get_with("/", &["If-None-Match: \"b\""])
        .assert_is(200, "hello");
    assert!(
        origin.seen("/")[2]
            .field("if-none-match")
            .unwrap()
            .contains("\"a\"")
    );
}

#[test]
fn a_304_that_forbids_storing_is_still_an_answer() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&[EXPIRED, "ETag: \"a\""], "hello"))
        .reply(Reply::new(304).with_all(&["Cache-Control: no-store", "ETag: \"a\""]))
        .reply(Reply::new(200).body("later"));
    proxy.get("/");
    proxy.get("/").assert_is(200, "hello");
    proxy.get("/").assert_is(200, "later");
}

#[test]
fn validation_of_one_variant_does_not_disturb_another() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &EXACT);
    origin.on("/").answer(|request| {
        let color = request.field("x-color").unwrap_or("none").to_owned();
        let etag = format!("ETag: \"{color}\"");
        if request.field("if-none-match") == Some(&format!("\"{color}\"")) {
            return Reply::new(304).with_all(&[FRESH, "Vary: X-Color", &etag]);
        }
        Reply::ok(&[EXPIRED, "Vary: X-Color", &etag], color)
    });
    for _ in 0..3 {
        for color in ["red", "blue"] {
            proxy
                .get_with("/", &[&format!("X-Color: {color}")])
                .assert_is(200, color);
        }
    }
}
