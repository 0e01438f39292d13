//! HEAD: answered from a stored GET, and what it tells about one. RFC 9111 §4.3.5.

use super::exact;
use crate::support::{Origin, Reply, request};

const FRESH: &str = "Cache-Control: max-age=100";
const EXPIRED: &str = "Cache-Control: max-age=0";

#[test]
fn head_is_answered_from_a_stored_get() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&[FRESH, "X-Field: 1"], "hello"));
    proxy.get("/");
    let mut client = proxy.connect();
    client.send("HEAD / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    let head = client.response_to_head();
    head.assert_hit();
    assert_eq!(
        (
            head.status,
            head.field("content-length"),
            head.field("x-field")
        ),
        (200, Some("5"), Some("1"))
    );
    // Had the body been sent, the next response could not be read.
    client.get("/").assert_is(200, "hello");
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn a_head_miss_stores_no_body() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("hello"));
    let head = proxy.send("HEAD", "/", &[]);
    assert_eq!(
        (head.status, head.field("content-length")),
        (200, Some("5")),
        "{head:?}"
    );
    proxy.get("/").assert_is(200, "hello");
    proxy.get("/").assert_is(200, "hello");
}

#[test]
fn answers_without_a_body_leave_the_connection_in_step() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    for target in ["/kept", "/passed"] {
        let fields = if target == "/kept" {
            [FRESH, "ETag: \"a\""]
        } else {
            ["Cache-Control: private", "ETag: \"a\""]
        };
        origin
            .on(target)
            .reply(Reply::new(200).with_all(&fields).body("hello"));
    }
    origin.on("/empty").reply(Reply::new(204).with(FRESH));
    let mut client = proxy.connect();
    for target in ["/kept", "/passed"] {
        for _ in 0..2 {
            client.send(request("HEAD", target, &[]));
            assert_eq!(
                client.response_to_head().field("content-length"),
                Some("5"),
                "{target}"
            );
            client.get(target).assert_is(200, "hello");
        }
    }
    client.send(request("GET", "/kept", &["If-None-Match: \"a\""]));
    assert_eq!(client.response().status, 304);
    for _ in 0..2 {
        client.get("/empty").assert_is(204, "");
    }
    client.get("/kept").assert_is(200, "hello");
}

#[test]
fn a_conditional_head_gets_a_304() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&[FRESH, "ETag: \"a\""], "hello"));
    proxy.get("/");
    assert_eq!(
        proxy.send("HEAD", "/", &["If-None-Match: \"a\""]).status,
        304
    );
}

#[test]
fn a_head_that_tells_of_a_change_ends_the_stored_get() {
    let changes: [&[&str]; 2] = [
        &["ETag: \"b\"", "Content-Length: 5"],
        &["ETag: \"a\"", "Content-Length: 6"],
    ];
    for change in changes {
        let origin = Origin::start();
        let proxy = exact(&origin);
        origin
            .on("/")
            .answer(move |request| match request.method.as_str() {
                "HEAD" => Reply::new(200).with(FRESH).with_all(change),
                _ if request.field("if-none-match").is_some() => {
                    Reply::new(200).with(FRESH).body("newer!")
                }
                _ => Reply::ok(&[EXPIRED, "ETag: \"a\""], "hello"),
            });
        proxy.get("/").assert_is(200, "hello");
        assert_eq!(proxy.send("HEAD", "/", &[]).status, 200);
        let next = proxy.get("/");
        assert!(
            !next.is_hit() || next.text() != "hello",
            "{change:?}: {next:?}"
        );
    }
}

#[test]
fn a_head_that_agrees_freshens_the_stored_get() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .answer(|request| match request.method.as_str() {
            "HEAD" => {
                Reply::new(200).with_all(&[FRESH, "ETag: \"a\"", "X-New: 1", "Content-Length: 5"])
            }
            _ if request.field("if-none-match").is_some() => {
                Reply::new(304).with_all(&[FRESH, "ETag: \"a\"", "X-New: 1"])
            }
            _ => Reply::ok(&[EXPIRED, "ETag: \"a\""], "hello"),
        });
    proxy.get("/");
    proxy.send("HEAD", "/", &[]);
    let next = proxy.get("/");
    next.assert_is(200, "hello");
    next.assert_hit();
    assert_eq!(next.field("x-new"), Some("1"));
    assert_eq!(origin.count("/"), 2, "the body was fetched once");
}
