//! Large bodies from memory, whose pages the kernel is lent once they are sent often: every byte is right, however it goes.

use std::fs;
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

#[test]
fn copies_are_bounded_and_so_are_their_descriptors() {
    const LENGTH: usize = 200_000;
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1", "--memory", "128MiB"]);
    let mut client = Client::connect(proxy.address());
    let mut most = 0;
    for number in 0..150 {
        let target = format!("/{number}");
        let expected = bytes(number, LENGTH);
        page(&origin, &target, &expected);
        for _ in 0..3 {
            assert!(client.get(&target).body == expected, "{number}");
        }
        most = most.max(copies(&proxy));
    }
    assert!((1..=32).contains(&most), "{most} copies");
}

/// How many of the process's descriptors are copies of bodies.
fn copies(proxy: &Proxy) -> usize {
    let open = fs::read_dir(format!("/proc/{}/fd", proxy.pid())).expect("its descriptors");
    let links = open.filter_map(|one| fs::read_link(one.ok()?.path()).ok());
    links
        .filter(|link| link.to_string_lossy().contains("memfd:microcache-body"))
        .count()
}
