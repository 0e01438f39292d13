//! QUERY over both protocols, beside a client that never finishes its content.

use crate::support::http2::{self, DATA, END_STREAM, Http2};
use crate::support::{Origin, Proxy, Reply, Seen};

fn query(content: &str) -> String {
    let length = content.len();
    format!(
        "QUERY /q HTTP/1.1\r\nHost: example.com\r\nContent-Type: text/x\r\nContent-Length: {length}\r\n\r\n{content}"
    )
}

#[test]
fn equal_content_is_answered_from_the_cache_over_both_protocols() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-concurrent", "1", "--ttl", "100s"]);
    let found = |content| Reply::ok(&["Accept-Query: \"text/x\""], format!("found {content}"));
    let script = origin.on("/q");
    script
        .reply(found("select 1"))
        .reply(found("select 2"))
        .reply(found("select 3"));
    let mut stalled = proxy.connect();
    stalled.send(&query("select 1")[..85]);
    let first = proxy.request(query("select 1"));
    first.assert_is(200, "found select 1");
    assert_eq!(first.field("accept-query"), Some("\"text/x\""));
    proxy.request(query("select 1")).assert_hit();
    proxy
        .request(query("select 2"))
        .assert_is(200, "found select 2");
    let mut client = Http2::connect(proxy.address());
    for (content, is_hit) in [("select 1", true), ("select 3", false), ("select 3", true)] {
        let length = content.len().to_string();
        let fields = [("content-type", "text/x"), ("content-length", &length[..])];
        let stream = client.begin("QUERY", "/q", &fields);
        client.send(http2::frame(DATA, END_STREAM, stream, content.as_bytes()));
        let answer = client.answer(stream);
        answer.assert_is(200, &format!("found {content}"));
        assert_eq!(answer.is_hit(), is_hit, "{content}");
    }
    // The rest of the content arrives after all.
    stalled.send(&query("select 1")[85..]);
    stalled.response().assert_hit();
    let asked: Vec<_> = origin.seen("/q").iter().map(Seen::body).collect();
    assert_eq!(asked, [b"select 1", b"select 2", b"select 3"]);
}
