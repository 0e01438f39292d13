//! Uploads that come slowly, or not at all: pages do not wait for them.

use crate::support::{Client, Gate, Origin, Proxy, Reply, eventually};

const HOST: &str = "Host: example.com\r\n";
/// More than is read ahead of a request.
const LARGE: usize = 100 << 20;

/// A POST whose body is as long as it says and comes no further than its beginning.
fn slow(proxy: &Proxy, fields: &str, beginning: &[u8]) -> Client {
    let mut client = proxy.connect();
    client.send(format!("POST /upload HTTP/1.1\r\n{HOST}{fields}\r\n"));
    client.send(beginning);
    client
}

/// With so many of them under way, pages are answered as without them; and so is a form that is
/// sent in one go.
fn check_pages_are_answered(what: &str, uploads: usize, fields: &str, beginning: &[u8]) {
    let origin = Origin::start();
    // No request is answered from the queue: a page that has to wait in it for long is none.
    let proxy = Proxy::start(&origin, &["--threads", "2", "--queue-timeout", "2s"]);
    origin.on("/upload").reply(Reply::new(200).body("thanks"));
    origin.on("/form").reply(Reply::new(200).body("sent"));
    let slow: Vec<_> = (0..uploads)
        .map(|_| slow(&proxy, fields, beginning))
        .collect();
    proxy.settle();
    for page in 0..70 {
        let target = format!("/page/{page}");
        origin.on(&target).reply(Reply::new(200).body("a page"));
        let response = proxy.get(&target);
        assert_eq!(response.status, 200, "{what}: {response:?}");
    }
    let form = proxy.request(format!(
        "POST /form HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\nhello"
    ));
    form.assert_is(200, "sent");
    drop(slow);
}

#[test]
fn slow_uploads_of_any_kind_keep_no_page_waiting() {
    let full = vec![b'x'; 256 << 10];
    let length = |bytes: usize| format!("Content-Length: {bytes}\r\n");
    let expecting = format!("{}Expect: 100-continue\r\n", length(LARGE));
    let chunked = "Transfer-Encoding: chunked\r\n";
    for (what, fields, beginning) in [
        ("10 KB", length(10_000), &full[..600]),
        ("10 KB, stalled", length(10_000), &[][..]),
        ("100 MB", length(LARGE), &full[..600]),
        ("100 MB, after a good beginning", length(LARGE), &full),
        ("chunked", chunked.to_owned(), b"258\r\nxxxxxx"),
        ("chunked, stalled", chunked.to_owned(), b""),
        ("asking first", expecting, b""),
    ] {
        check_pages_are_answered(what, 64, &fields, beginning);
        check_pages_are_answered(what, 200, &fields, beginning);
    }
}

#[test]
fn a_small_body_is_complete_before_the_origin_is_called() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    origin.on("/upload").reply(Reply::new(200).body("thanks"));
    let mut client = slow(&proxy, "Content-Length: 10\r\n", b"first");
    proxy.settle();
    assert_eq!(origin.connections(), 0, "nothing to say to the origin yet");
    client.send("after");
    client.response().assert_is(200, "thanks");
    let seen = &origin.seen("/upload")[0];
    assert_eq!(seen.body(), b"firstafter");
    assert_eq!(seen.field("content-length"), Some("10"));
}

#[test]
fn a_body_in_chunks_that_is_soon_there_gets_a_length() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--upload-wait", "1h"]);
    origin.on("/upload").reply(Reply::new(200).body("thanks"));
    let mut client = slow(&proxy, "Transfer-Encoding: chunked\r\n", b"3\r\nhel\r\n");
    client.send("2\r\nlo\r\n0\r\n\r\n");
    client.response().assert_is(200, "thanks");
    let seen = &origin.seen("/upload")[0];
    assert_eq!(seen.body(), b"hello");
    assert_eq!(seen.field("content-length"), Some("5"));
    assert_eq!(seen.field("transfer-encoding"), None);
}

#[test]
fn uploads_wait_for_each_other_and_none_is_lost() {
    let origin = Origin::start();
    // One address has half of them.
    let proxy = Proxy::start(&origin, &["--max-uploads", "4", "--threads", "1"]);
    let gate = Gate::default();
    origin
        .on("/upload")
        .reply(Reply::new(200).body("thanks").read_after(&gate));
    let body = vec![b'x'; 100 << 10];
    let fields = format!("Content-Length: {}\r\n", body.len() + 1);
    let mut clients: Vec<_> = (0..6).map(|_| slow(&proxy, &fields, &body)).collect();
    origin.wait_for("/upload", 2);
    proxy.settle();
    assert_eq!(origin.count("/upload"), 2, "as many as may be under way");
    gate.open();
    for client in &mut clients {
        client.send("x");
    }
    for client in &mut clients {
        client.response().assert_is(200, "thanks");
    }
    eventually("all uploads at the origin", || {
        (origin.count("/upload") == 6).then_some(())
    });
}

#[test]
fn an_upload_that_falls_too_far_behind_is_refused_without_an_origin_request() {
    let origin = Origin::start();
    let flags = [
        "--client-body-timeout",
        "200ms",
        "--client-body-rate",
        "1MB",
    ];
    let proxy = Proxy::start(&origin, &flags);
    for fields in ["Content-Length: 10\r\n", "Content-Length: 1000000\r\n"] {
        let response = slow(&proxy, fields, b"first").response();
        assert_eq!(response.status, 408, "{response:?}");
    }
    assert_eq!(origin.connections(), 0);
}
