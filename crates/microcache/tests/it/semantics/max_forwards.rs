//! RFC 9110 §7.6.2: how far OPTIONS and TRACE may go.

use crate::support::{Origin, Proxy, Reply};

fn start() -> (Origin, Proxy) {
    let origin = Origin::start();
    origin.on("/a?b").reply(Reply::new(200).body("x"));
    let proxy = Proxy::start(&origin, &[]);
    (origin, proxy)
}

#[test]
fn it_counts_down_on_the_way() {
    let (origin, proxy) = start();
    for method in ["OPTIONS", "TRACE"] {
        for (received, sent) in [("1", "0"), ("70", "69"), ("nonsense", "nonsense")] {
            let field = format!("Max-Forwards: {received}");
            proxy
                .send(method, "/a?b", &[&field, "Connection: max-forwards"])
                .assert_is(200, "x");
            let seen = origin.seen("/a?b").pop().unwrap();
            assert_eq!(seen.method, method);
            assert_eq!(seen.head.all("max-forwards"), [sent], "{method} {received}");
        }
    }
}

#[test]
fn options_that_may_go_no_further_are_answered_here() {
    let (origin, proxy) = start();
    for target in ["/a?b", "*"] {
        let response = proxy.send("OPTIONS", target, &["Max-Forwards: 0"]);
        response.assert_is(204, "");
        assert_eq!(response.field("allow"), None, "that is the origin's to say");
        assert_eq!(response.cache().get("detail"), Some("max-forwards"));
        assert!(!response.cache().has("fwd"), "{response:?}");
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn a_trace_that_may_go_no_further_shows_the_way_and_no_secrets() {
    let (origin, proxy) = start();
    let fields = [
        "Via: 1.1 outer",
        "Cookie: secret",
        "Authorization: secret",
        "X-Client-Certificate: secret",
        "Max-Forwards: 0",
    ];
    let response = proxy.send("TRACE", "/a?b", &fields);
    response.assert_is(
        200,
        "TRACE /a?b HTTP/1.1\r\nHost: example.com\r\nVia: 1.1 outer\r\nMax-Forwards: 0\r\n\r\n",
    );
    assert_eq!(response.field("content-type"), Some("message/http"));
    assert!(origin.requests().is_empty());
}

#[test]
fn the_connection_continues_after_it() {
    let (_origin, proxy) = start();
    let mut client = proxy.ask("/a?b");
    client.response().assert_is(200, "x");
    for _ in 0..2 {
        client.send("OPTIONS /a?b HTTP/1.1\r\nHost: example.com\r\nMax-Forwards: 0\r\n\r\n");
        client.response().assert_is(204, "");
    }
    client.get("/a?b").assert_is(200, "x");
}

#[test]
fn other_methods_do_not_know_it() {
    let (origin, proxy) = start();
    proxy
        .get_with("/a?b", &["Max-Forwards: 0"])
        .assert_is(200, "x");
    proxy
        .send("POST", "/a?b", &["Max-Forwards: 0", "Content-Length: 0"])
        .assert_is(200, "x");
    let seen = origin.seen("/a?b");
    // A GET that is for everyone says nothing of its own.
    assert_eq!(seen[0].head.all("max-forwards"), [""; 0]);
    assert_eq!(seen[1].head.all("max-forwards"), ["0"]);
}
