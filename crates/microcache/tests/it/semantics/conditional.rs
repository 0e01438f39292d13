//! Conditional requests answered from what is stored: RFC 9110 §13, RFC 9111 §4.3.2.

use super::exact;
use crate::support::{Origin, Reply, asctime, http_date, rfc850_date};

/// Asks for a stored response of these fields under each of the conditions.
fn check(stored: &[&str], rows: &[(&[&str], u16)]) {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(
        Reply::new(200)
            .with("Cache-Control: max-age=1000")
            .with_all(stored)
            .body("hello"),
    );
    proxy.get("/").assert_is(200, "hello");
    let mut wrong = Vec::new();
    for (conditions, status) in rows {
        let response = proxy.get_with("/", conditions);
        response.assert_hit();
        let body = if *status == 200 { "hello" } else { "" };
        let body_is_right = *status == 412 || response.text() == body;
        if response.status != *status || !body_is_right {
            wrong.push(format!("{conditions:?}: wanted {status}, got {response:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(
        origin.count("/"),
        1,
        "every one of them was answered from the cache"
    );
}

#[test]
fn if_none_match_against_a_strong_etag() {
    check(
        &["ETag: \"a\""],
        &[
            (&["If-None-Match: \"a\""], 304),
            (&["If-None-Match: W/\"a\""], 304),
            (&["If-None-Match: \"b\""], 200),
            (&["If-None-Match: \"A\""], 200),
            (&["If-None-Match: \"b\", \"a\""], 304),
            (&["If-None-Match: \"b\" , W/\"a\" ,\"c\""], 304),
            (&["If-None-Match: \"b\"", "If-None-Match: \"a\""], 304),
            (&["If-None-Match: *"], 304),
            (&["If-None-Match: \"b,\", \"c\""], 200),
            (&["If-None-Match: a"], 200),
            (&["If-None-Match:"], 200),
        ],
    );
}

#[test]
fn if_none_match_against_a_weak_etag() {
    check(
        &["ETag: W/\"a\""],
        &[
            (&["If-None-Match: W/\"a\""], 304),
            (&["If-None-Match: \"a\""], 304),
            (&["If-None-Match: w/\"a\""], 200),
            (&["If-None-Match: W/\"b\""], 200),
        ],
    );
}

#[test]
fn if_none_match_comes_before_if_modified_since() {
    let modified = format!("Last-Modified: {}", http_date(-1000));
    let since = format!("If-Modified-Since: {}", http_date(-500));
    let before = format!("If-Modified-Since: {}", http_date(-2000));
    check(
        &["ETag: \"a\"", &modified],
        &[
            (&["If-None-Match: \"b\"", &since], 200),
            (&["If-None-Match: \"a\"", &before], 304),
            (&["If-None-Match: \"a\"", &since], 304),
            (&["If-None-Match: \"b\"", &before], 200),
        ],
    );
}

#[test]
fn if_modified_since() {
    let modified = format!("Last-Modified: {}", http_date(-1000));
    let since = |date: String| format!("If-Modified-Since: {date}");
    check(
        &[&modified],
        &[
            (&[&since(http_date(-1000))], 304),
            (&[&since(http_date(-500))], 304),
            (&[&since(rfc850_date(-500))], 304),
            (&[&since(asctime(-500))], 304),
            (&[&since(http_date(-2000))], 200),
            (&[&since("yesterday".to_owned())], 200),
            (&[&since("0".to_owned())], 200),
            (&["If-None-Match: \"a\"", &since(http_date(-500))], 200),
        ],
    );
}

#[test]
fn without_last_modified_the_date_is_compared() {
    // RFC 9111 §4.3.2: a cache evaluates If-Modified-Since against Last-Modified, else against Date.
    let date = format!("Date: {}", http_date(-100));
    let later = format!("If-Modified-Since: {}", http_date(-50));
    let earlier = format!("If-Modified-Since: {}", http_date(-200));
    check(&[&date], &[(&[&later], 304), (&[&earlier], 200)]);
}

#[test]
fn a_stored_response_without_an_etag_matches_only_the_star() {
    check(
        &[],
        &[
            (&["If-None-Match: \"a\""], 200),
            (&["If-None-Match: *"], 304),
        ],
    );
}

#[test]
fn a_304_has_the_caching_fields_of_the_200() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let modified = http_date(-1000);
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[
                "Cache-Control: max-age=1000",
                "ETag: \"a\"",
                "Vary: Accept",
                "Content-Location: /x",
            ])
            .with(&format!("Expires: {}", http_date(1000)))
            .with(&format!("Last-Modified: {modified}"))
            .with_all(&["Content-Type: text/plain", "Content-Language: en"])
            .body("hello"),
    );
    proxy.get("/");
    let response = proxy.get_with("/", &["If-None-Match: \"a\""]);
    assert_eq!(response.status, 304);
    for name in [
        "cache-control",
        "etag",
        "vary",
        "content-location",
        "expires",
        "date",
        "age",
    ] {
        assert!(
            response.field(name).is_some(),
            "{name} is missing: {response:?}"
        );
    }
    assert_ne!(response.field("content-length"), Some("0"), "{response:?}");
}

#[test]
fn a_miss_ignores_the_clients_conditions_towards_the_origin() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(
        Reply::new(200)
            .with("Cache-Control: max-age=100")
            .with("ETag: \"a\"")
            .body("hello"),
    );
    let since = format!("If-Modified-Since: {}", http_date(0));
    let first = proxy.get_with("/", &["If-None-Match: \"a\"", &since]);
    assert_eq!(
        (first.status, first.text().as_str()),
        (304, ""),
        "{first:?}"
    );
    let seen = &origin.seen("/")[0];
    assert_eq!(
        (seen.field("if-none-match"), seen.field("if-modified-since")),
        (None, None)
    );
    proxy.get("/").assert_is(200, "hello");
    assert_eq!(origin.count("/"), 1, "the whole response was stored");
}

#[test]
fn conditions_of_requests_that_pass_reach_the_origin() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::new(412).body("no"));
    let response = proxy.send("PUT", "/", &["If-Match: \"a\"", "Content-Length: 0"]);
    response.assert_is(412, "no");
    assert_eq!(origin.seen("/")[0].field("if-match"), Some("\"a\""));
}

#[test]
fn personal_requests_keep_their_conditions_and_ranges() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").answer(|request| {
        match (request.field("if-none-match"), request.field("range")) {
            (Some("\"mine\""), _) => Reply::new(304).with("ETag: \"mine\""),
            (_, Some("bytes=0-1")) => Reply::new(206)
                .with("Content-Range: bytes 0-1/4")
                .body("mi"),
            _ => Reply::new(200).with("ETag: \"mine\"").body("mine"),
        }
    });
    let personal = |line: &str| proxy.get_with("/", &["Cookie: session=1", line]);
    assert_eq!(personal("If-None-Match: \"mine\"").status, 304);
    personal("If-None-Match: \"other\"").assert_is(200, "mine");
    personal("Range: bytes=0-1").assert_is(206, "mi");
    personal("X-Plain: 1").assert_is(200, "mine");
    let head = proxy.send("HEAD", "/", &["Cookie: session=1"]);
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("4")),
        "{head:?}"
    );
}

#[test]
fn conditions_do_not_apply_to_errors() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(
        Reply::new(404)
            .with("Cache-Control: max-age=100")
            .with("ETag: \"a\"")
            .body("none"),
    );
    proxy.get("/");
    let response = proxy.get_with("/", &["If-None-Match: \"a\""]);
    response.assert_is(404, "none");
    response.assert_hit();
}
