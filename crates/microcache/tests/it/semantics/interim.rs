//! 1xx responses: forwarded, never stored. RFC 9110 §15.2.

use super::exact;
use crate::support::{Gate, Origin, Reply};

const FINAL: &str =
    "HTTP/1.1 200 OK\r\nCache-Control: max-age=100\r\nContent-Length: 5\r\n\r\nhello";

#[test]
fn early_hints_reach_the_client_before_the_answer() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let gate = Gate::default();
    origin.on("/").reply(
        Reply::raw("HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n")
            .pause(&gate)
            .send(FINAL),
    );
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.1\r\nHost: example.com\r\n\r\n");
    let hints = client.head();
    assert!(hints.start.starts_with("HTTP/1.1 103"), "{hints:?}");
    assert_eq!(hints.field("link"), Some("</a.css>; rel=preload"));
    gate.open();
    client.response().assert_is(200, "hello");
}

#[test]
fn hits_have_no_interim_responses() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
    origin.on("/").reply(Reply::raw(
        [hints, hints, "HTTP/1.1 102 Processing\r\n\r\n", FINAL].concat(),
    ));
    let first = proxy.get("/");
    first.assert_is(200, "hello");
    assert_eq!(
        first.field("link"),
        None,
        "fields of a 103 are not those of the answer"
    );
    let second = proxy.get("/");
    second.assert_hit();
    second.assert_is(200, "hello");
    assert!(second.interim.is_empty(), "{second:?}");
}

#[test]
fn an_http_1_0_client_gets_no_interim_response() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::raw(
        ["HTTP/1.1 103 Early Hints\r\n\r\n", FINAL].concat(),
    ));
    let response = proxy.request("GET / HTTP/1.0\r\nHost: example.com\r\n\r\n");
    response.assert_is(200, "hello");
    assert!(response.interim.is_empty(), "{response:?}");
}

#[test]
fn an_unasked_100_is_swallowed() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::raw(
        ["HTTP/1.1 100 Continue\r\n\r\n", FINAL].concat(),
    ));
    let response = proxy.get("/");
    response.assert_is(200, "hello");
    assert!(response.interim.is_empty(), "{response:?}");
    proxy.get("/").assert_hit();
}

#[test]
fn endless_interim_responses_are_cut_off_or_passed_but_never_stored() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let many = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n".repeat(2000);
    origin.on("/").reply(Reply::raw([&many, FINAL].concat()));
    let first = proxy.get("/");
    assert!(matches!(first.status, 200 | 502), "{}", first.status);
    let second = proxy.get("/");
    assert!(!second.is_hit() || second.text() == "hello", "{second:?}");
}
