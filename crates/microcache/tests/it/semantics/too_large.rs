//! What is too large to be kept: parts of it are asked for as parts.

use super::exact;
use crate::support::{Origin, Proxy, Reply, Seen};

const BODY: &str = "0123456789abcdefghij";
const FRESH: &str = "Cache-Control: max-age=1000";

/// Keeps bodies of ten bytes, and forgets at once that a url was not to be shared.
fn proxy(origin: &Origin) -> Proxy {
    let flags = [
        "--max-object",
        "10B",
        "--hit-for-miss",
        "1ms",
        "--ttl",
        "1h",
    ];
    Proxy::start(origin, &flags)
}

/// Understands ranges that begin and end somewhere.
fn with_ranges(seen: &Seen, body: &str) -> Reply {
    let length = body.len();
    let span = seen.field("range").map(|range| {
        let (first, last) = range["bytes=".len()..].split_once('-').unwrap();
        (first.parse().unwrap(), last.parse().unwrap_or(length - 1))
    });
    let reply = |status| Reply::new(status).with_all(&[FRESH, "ETag: \"a\""]);
    match span {
        None => reply(200).body(body),
        Some((first, _)) if first >= length => reply(416)
            .with(&format!("Content-Range: bytes */{length}"))
            .body(""),
        Some((first, last)) => reply(206)
            .with(&format!("Content-Range: bytes {first}-{last}/{length}"))
            .body(&body[first..=last]),
    }
}

#[test]
fn a_range_of_it_is_requested_as_a_range() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    origin.on("/").answer(|seen| with_ranges(seen, BODY));
    let part = proxy.get_with("/", &["Range: bytes=2-5"]);
    part.assert_is(206, "2345");
    assert_eq!(part.field("content-range"), Some("bytes 2-5/20"));
    assert_eq!(part.cache().get("detail"), Some("too-large"));
    assert!(!part.cache().has("stored"), "{part:?}");
    assert_eq!(origin.count("/"), 2, "the whole was asked for first");
    let rows = [
        ("bytes=0-", 206, BODY),
        ("bytes=18-19", 206, "ij"),
        ("bytes=20-", 416, ""),
    ];
    for (nth, (range, status, body)) in (3..).zip(rows) {
        let fields = [&format!("Range: {range}"), "If-Range: \"a\""];
        let part = proxy.get_with("/", &fields);
        part.assert_is(status, body);
        assert_eq!(part.cache().get("detail"), Some("too-large"), "{range}");
        let seen = origin.wait_for("/", nth);
        assert_eq!(seen.field("range"), Some(range));
        assert_eq!(seen.field("if-range"), Some("\"a\""));
    }
    assert_eq!(origin.count("/"), 5);
    let whole = proxy.get("/");
    whole.assert_is(200, BODY);
    whole.assert_forwarded("uri-miss");
}

#[test]
fn a_whole_of_unknown_length_that_outgrew_the_bound_is_remembered() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    origin.on("/").answer(|seen| match seen.field("range") {
        Some(_) => with_ranges(seen, BODY),
        None => Reply::new(200)
            .with_all(&[FRESH, "Transfer-Encoding: chunked"])
            .chunk(BODY)
            .send("0\r\n\r\n"),
    });
    proxy.get("/").assert_is(200, BODY);
    let part = proxy.get_with("/", &["Range: bytes=2-5"]);
    part.assert_is(206, "2345");
    assert_eq!(part.cache().get("detail"), Some("too-large"));
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn a_response_that_fits_after_all_is_stored_and_cut() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    let mut count = 0;
    origin.on("/").answer(move |seen| {
        count += 1;
        with_ranges(seen, if count == 1 { BODY } else { "small" })
    });
    proxy.get("/").assert_is(200, BODY);
    proxy.get("/").assert_is(200, "small");
    let part = proxy.get_with("/", &["Range: bytes=1-2"]);
    part.assert_is(206, "ma");
    part.assert_hit();
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn a_too_large_variant_is_remembered_for_its_clients_only() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    origin.on("/").answer(|seen| {
        let large = seen.field("accept-language") == Some("de");
        Reply::ok(
            &[FRESH, "Vary: Accept-Language"],
            if large { BODY } else { "small" },
        )
    });
    proxy
        .get_with("/", &["Accept-Language: de"])
        .assert_is(200, BODY);
    let english = ["Accept-Language: en"];
    assert!(proxy.get_with("/", &english).cache().has("stored"));
    proxy.get_with("/", &english).assert_hit();
    let again = proxy.get_with("/", &["Accept-Language: de"]);
    assert_eq!(again.cache().get("detail"), Some("too-large"));
}

#[test]
fn a_range_of_a_response_that_fits_is_still_cut_from_the_whole() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").answer(|seen| with_ranges(seen, BODY));
    let part = proxy.get_with("/", &["Range: bytes=2-5"]);
    part.assert_is(206, "2345");
    assert_eq!(origin.seen("/")[0].field("range"), None);
    proxy.get("/").assert_hit();
}
