//! `push_memory` is a promise: what counts as taken is what the process really takes.

use std::fmt::Write as _;

use crate::operators::Operator;
use crate::push::{Kept, SECRET};
use crate::support::{Client, Origin, Proxy, eventually};

const CAPACITY: &str = "32MiB";
/// What the process takes beside documents, more than before there were any: buffers of connections, and what is
/// remembered of the newest changes.
const BESIDE: u64 = 8 << 20;
/// What one batch brings.
const BATCH: usize = 512 << 10;

/// Puts one document after the other until no more are taken. Returns how many are.
fn fill(proxy: &Proxy, length: usize) -> usize {
    let text = "x".repeat(length);
    let each = (BATCH / (length + 100)).clamp(1, 1000);
    let mut client = proxy.connect();
    let mut count = 0;
    while put(&mut client, count, each, &text) {
        count += each;
    }
    count
}

fn put(client: &mut Client, first: usize, count: usize, text: &str) -> bool {
    let mut batch = String::from("[");
    for number in first..first + count {
        let separator = if number == first { "" } else { "," };
        write!(
            batch,
            r#"{separator}{{"url":"/live/of-some-length/{number}","text":"{text}"}}"#
        )
        .expect("memory");
    }
    batch.push(']');
    client.send(format!(
        "POST /live/batch HTTP/1.1\r\nHost: example.com\r\nAuthorization: Bearer {SECRET}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{batch}",
        batch.len()
    ));
    let response = client.response();
    assert!(
        matches!(response.status, 200 | 507),
        "{} {}",
        response.status,
        response.text()
    );
    response.status == 200
}

fn documents_use_the_counted_memory(length: usize) {
    let (origin, kept) = (Origin::start(), Kept::new());
    let token = kept.token();
    let flags = ["--push", "/live/", "--push-token-file", &token];
    let bounds = ["--push-directory", "none", "--push-memory", CAPACITY];
    let (proxy, admin) = Proxy::operated(&origin, &[&flags[..], &bounds].concat());
    let before = proxy.resident();
    let count = fill(&proxy, length);
    let stats = Operator::at(admin).get("/v1/stats");
    let charged = stats["push"]["bytes"].as_u64().expect("a number");
    assert!(charged > (32 << 20) * 9 / 10, "{charged}");
    // What was freed meanwhile is given back within seconds, by an allocator that looks when it is used.
    let most = charged * 115 / 100 + BESIDE;
    let mut least = u64::MAX;
    eventually("what is freed to be given back", || {
        proxy.get("/live/of-some-length/0");
        let used = proxy.resident().saturating_sub(before);
        if used < least {
            least = used;
            println!("{count} of {length} bytes: {used}, of which {charged} are counted");
        }
        (used <= most).then_some(())
    });
    // What is not taken is not counted either.
    assert!(least > charged * 7 / 10, "{least} of {charged}");
}

#[test]
fn documents_of_a_hundred_bytes_use_the_counted_memory() {
    documents_use_the_counted_memory(100);
}

#[test]
fn documents_of_a_kilobyte_use_the_counted_memory() {
    documents_use_the_counted_memory(1024);
}

#[test]
fn documents_of_twenty_kilobytes_use_the_counted_memory() {
    documents_use_the_counted_memory(20 << 10);
}
