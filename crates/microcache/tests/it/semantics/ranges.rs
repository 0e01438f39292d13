//! Ranges answered from a stored whole: RFC 9110 §14.

use super::exact;
use crate::support::{Origin, Proxy, Reply, http_date};

const BODY: &str = "0123456789";

fn stored(origin: &Origin, fields: &[&str]) -> Proxy {
    let proxy = exact(origin);
    origin.on("/").reply(
        Reply::new(200)
            .with("Cache-Control: max-age=1000")
            .with_all(fields)
            .body(BODY),
    );
    proxy.get("/").assert_is(200, BODY);
    proxy
}

#[test]
fn single_ranges() {
    let origin = Origin::start();
    let proxy = stored(&origin, &["ETag: \"a\"", "Content-Type: text/plain"]);
    let max = u64::MAX;
    let rows = [
        ("bytes=0-0", "0", "bytes 0-0/10"),
        ("bytes=2-5", "2345", "bytes 2-5/10"),
        ("bytes=9-9", "9", "bytes 9-9/10"),
        ("bytes=7-", "789", "bytes 7-9/10"),
        ("bytes=0-", BODY, "bytes 0-9/10"),
        ("bytes=-3", "789", "bytes 7-9/10"),
        ("bytes=-10", BODY, "bytes 0-9/10"),
        ("bytes=-11", BODY, "bytes 0-9/10"),
        ("bytes=5-99", "56789", "bytes 5-9/10"),
        (&format!("bytes=5-{max}"), "56789", "bytes 5-9/10"),
        (&format!("bytes=-{max}"), BODY, "bytes 0-9/10"),
        ("Bytes=2-5", "2345", "bytes 2-5/10"),
    ];
    for (range, body, content_range) in rows {
        let response = proxy.get_with("/", &[&format!("Range: {range}")]);
        response.assert_is(206, body);
        response.assert_hit();
        assert_eq!(
            response.field("content-range"),
            Some(content_range),
            "{range}"
        );
        assert_eq!(response.field("etag"), Some("\"a\""), "{range}");
        assert_eq!(
            response.field("content-type"),
            Some("text/plain"),
            "{range}"
        );
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn anything_but_a_single_range_gets_the_whole_response() {
    let origin = Origin::start();
    let proxy = stored(&origin, &[]);
    let ranges = [
        "bytes=5-2",
        "bytes=a-b",
        "bytes=-",
        "bytes=",
        "bytes",
        "lines=1-2",
        "bytes=1-2-3",
        "bytes=--1",
        "bytes=+1-2",
        "bytes = 1-2",
        "0-1",
    ];
    for range in ranges {
        let response = proxy.get_with("/", &[&format!("Range: {range}")]);
        response.assert_is(200, BODY);
        assert_eq!(response.field("content-range"), None, "{range}");
    }
}

#[test]
fn several_ranges_get_the_whole_or_a_right_multipart() {
    let origin = Origin::start();
    let proxy = stored(&origin, &[]);
    let response = proxy.get_with("/", &["Range: bytes=0-1,4-5"]);
    let multipart = response
        .field("content-type")
        .is_some_and(|kind| kind.starts_with("multipart/byteranges"));
    assert!(
        response.status == 200 && response.text() == BODY || response.status == 206 && multipart,
        "{response:?}"
    );
    let many = format!("Range: bytes={}", vec!["0-"; 500].join(","));
    proxy.get_with("/", &[&many]).assert_is(200, BODY);
}

#[test]
fn unsatisfiable() {
    let origin = Origin::start();
    let proxy = stored(&origin, &[]);
    for range in [
        "bytes=10-",
        "bytes=10-20",
        "bytes=99999999999999999999-",
        "bytes=-0",
    ] {
        let response = proxy.get_with("/", &[&format!("Range: {range}")]);
        assert_eq!(response.status, 416, "{range}: {response:?}");
        assert_eq!(
            response.field("content-range"),
            Some("bytes */10"),
            "{range}"
        );
    }
    proxy.get("/").assert_is(200, BODY);
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn overflowing_ranges_leak_nothing() {
    // nginx CVE-2017-7529: sums of suffix ranges wrapped around and showed the cache's own header.
    let origin = Origin::start();
    let proxy = stored(&origin, &[]);
    let ranges = [
        "bytes=-11,-9223372036854775800",
        "bytes=-18446744073709551615",
        "bytes=-9223372036854775809",
        "bytes=18446744073709551615-18446744073709551616",
        "bytes=0-18446744073709551616",
        "bytes=1-18446744073709551615",
    ];
    for range in ranges {
        let response = proxy.get_with("/", &[&format!("Range: {range}")]);
        assert!(
            matches!(response.status, 200 | 206 | 416),
            "{range}: {response:?}"
        );
        if response.status != 416 {
            assert!(BODY.contains(&response.text()), "{range}: {response:?}");
        }
    }
}

#[test]
fn if_range() {
    let modified = http_date(-10_000);
    let origin = Origin::start();
    let proxy = stored(
        &origin,
        &["ETag: \"a\"", &format!("Last-Modified: {modified}")],
    );
    let rows = [
        ("\"a\"", 206),
        ("\"b\"", 200),
        ("W/\"a\"", 200),
        (modified.as_str(), 206),
        (&http_date(-20_000), 200),
        (&http_date(-5_000), 200),
        ("nonsense", 200),
    ];
    for (validator, status) in rows {
        let response = proxy.get_with(
            "/",
            &["Range: bytes=2-3", &format!("If-Range: {validator}")],
        );
        response.assert_is(status, if status == 206 { "23" } else { BODY });
    }
}

#[test]
fn if_range_is_never_true_of_a_weak_validator() {
    let origin = Origin::start();
    let proxy = stored(&origin, &["ETag: W/\"a\""]);
    for validator in ["W/\"a\"", "\"a\""] {
        let fields = ["Range: bytes=2-3", &format!("If-Range: {validator}")];
        proxy.get_with("/", &fields).assert_is(200, BODY);
    }
}

#[test]
fn a_precondition_comes_before_the_range() {
    let origin = Origin::start();
    let proxy = stored(&origin, &["ETag: \"a\""]);
    let response = proxy.get_with("/", &["Range: bytes=2-3", "If-None-Match: \"a\""]);
    assert_eq!(response.status, 304, "{response:?}");
}

#[test]
fn head_and_errors_have_no_ranges() {
    let origin = Origin::start();
    let proxy = stored(&origin, &[]);
    let response = proxy.send("HEAD", "/", &["Range: bytes=2-3"]);
    assert_eq!(
        (response.status, response.field("content-length")),
        (200, Some("10")),
        "{response:?}"
    );
    origin.on("/404").reply(
        Reply::new(404)
            .with("Cache-Control: max-age=100")
            .body(BODY),
    );
    proxy.get("/404");
    proxy
        .get_with("/404", &["Range: bytes=2-3"])
        .assert_is(404, BODY);
}

#[test]
fn a_fill_asks_for_the_whole_and_answers_the_part() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=100"], BODY));
    let first = proxy.get_with("/", &["Range: bytes=2-3", "If-Range: \"a\""]);
    assert!(matches!(first.status, 200 | 206), "{first:?}");
    let requested = &origin.seen("/")[0];
    assert_eq!(
        (requested.field("range"), requested.field("if-range")),
        (None, None)
    );
    let second = proxy.get_with("/", &["Range: bytes=4-"]);
    second.assert_is(206, "456789");
    second.assert_hit();
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn a_range_of_a_body_of_unknown_length_gets_the_whole() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let head = ["Cache-Control: max-age=100", "Transfer-Encoding: chunked"];
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&head)
            .chunk("01234")
            .chunk("56789")
            .send("0\r\n\r\n"),
    );
    let first = proxy.get_with("/", &["Range: bytes=2-3"]);
    assert!(
        first.status == 200 && first.text() == BODY || first.status == 206 && first.text() == "23",
        "{first:?}"
    );
    proxy
        .get_with("/", &["Range: bytes=2-3"])
        .assert_is(206, "23");
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn a_range_beyond_the_end_on_a_miss_still_fills() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=100"], BODY));
    assert_eq!(proxy.get_with("/", &["Range: bytes=10-"]).status, 416);
    proxy.get("/").assert_is(200, BODY);
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn a_range_on_a_miss_is_a_206() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=100"], BODY));
    let first = proxy.get_with("/", &["Range: bytes=2-3"]);
    first.assert_is(206, "23");
    assert_eq!(first.field("content-range"), Some("bytes 2-3/10"));
}
