//! Large bodies from memory: every byte arrives, to clients that pipeline and to clients that read slowly.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Client, Origin, Proxy, Reply, request};

const FRESH: &str = "Cache-Control: max-age=1000";

fn bytes(seed: usize, length: usize) -> Vec<u8> {
    (0..length)
        .map(|n| (n / 3 + n / 1000 + seed) as u8)
        .collect()
}

fn page(origin: &Origin, target: &str, body: &[u8]) {
    origin
        .on(target)
        .reply(Reply::new(200).with(FRESH).body(body));
}

#[test]
fn pipelined_and_slowly_taken() {
    const TIMES: usize = 5;
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    for length in [49_151, 49_152, 57_000, 256 << 10, (256 << 10) + 1, 672_864] {
        let target = format!("/{length}");
        let expected = bytes(0, length);
        page(&origin, &target, &expected);
        for mut client in [
            Client::connect(proxy.address()),
            Client::connect_narrow(proxy.address()),
        ] {
            client.send(request("GET", &target, &[]).repeat(TIMES));
            for time in 0..TIMES {
                assert!(client.response().body == expected, "{length}, time {time}");
            }
            client.send(request("GET", &target, &["Range: bytes=1-49999"]).repeat(TIMES));
            for time in 0..TIMES {
                let part = client.response().body;
                assert!(
                    part == expected[1..length.min(50_000)],
                    "part of {length}, time {time}"
                );
            }
            client.send(request("HEAD", &target, &[]));
            assert!(client.response_to_head().body.is_empty());
        }
        assert_eq!(origin.count(&target), 1, "{length}");
    }
}

#[test]
fn a_replaced_body_is_not_confused_with_its_predecessor() {
    const LENGTH: usize = 100_000;
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1", "--memory", "4MiB"]);
    let mut client = Client::connect(proxy.address());
    let latest = Arc::new(AtomicUsize::new(0));
    let seed = Arc::clone(&latest);
    origin.on("/page").answer(move |_| {
        let body = bytes(seed.load(Ordering::SeqCst), LENGTH);
        Reply::new(200).with(FRESH).body(body)
    });
    for seed in 0..100 {
        let expected = bytes(seed, LENGTH);
        latest.store(seed, Ordering::SeqCst);
        // What is stored is no longer valid then.
        proxy.send("POST", "/page", &[]);
        for time in 0..4 {
            assert!(
                client.get("/page").body == expected,
                "body {seed}, time {time}"
            );
        }
    }
}
