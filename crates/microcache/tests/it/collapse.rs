//! Any number of simultaneous misses make one origin request; no request waits for the response of another
//! client.

use std::time::{Duration, Instant};

use crate::support::{Gate, Origin, Proxy, Reply, eventually};

const FRESH: &str = "Cache-Control: max-age=100";

fn proxy(origin: &Origin) -> Proxy {
    Proxy::start(origin, &["--threads", "2"])
}

/// Numbers its answers, and waits before each of them.
fn numbered(origin: &Origin, gate: &Gate, fields: &'static [&'static str]) {
    let (gate, mut count) = (gate.clone(), 0);
    origin.on("/").answer(move |_| {
        count += 1;
        Reply::ok(fields, count.to_string()).after(&gate)
    });
}

/// An origin, a proxy that serves on one thread, and a gate.
fn on_one_thread() -> (Origin, Proxy, Gate) {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    (origin, proxy, Gate::default())
}

#[test]
fn a_hundred_misses_make_one_request() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    let gate = Gate::default();
    numbered(&origin, &gate, &[]);
    let mut clients: Vec<_> = (0..100).map(|_| proxy.ask("/")).collect();
    proxy.settle();
    gate.open();
    let mut collapsed = 0;
    for client in &mut clients {
        let response = client.response();
        response.assert_is(200, "1");
        collapsed += usize::from(response.cache().has("collapsed"));
    }
    assert_eq!(origin.count("/"), 1);
    assert!(collapsed > 0, "nobody waited");
}

#[test]
fn without_collapsing_every_miss_is_a_request_and_is_stored() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "2", "--collapse", "false"]);
    let gate = Gate::default();
    numbered(&origin, &gate, &[FRESH]);
    let mut clients: Vec<_> = (0..10).map(|_| proxy.ask("/")).collect();
    origin.wait_for("/", 10);
    gate.open();
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.status, 200);
        assert_eq!(response.cache().get("detail"), Some("collapse-off"));
        assert!(!response.cache().has("collapsed"));
    }
    proxy.get("/").assert_hit();
    assert_eq!(origin.count("/"), 10);
}

#[test]
fn different_urls_do_not_wait_for_each_other() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    let gate = Gate::default();
    origin
        .on("/slow")
        .reply(Reply::new(200).body("slow").after(&gate));
    origin.on("/fast").reply(Reply::new(200).body("fast"));
    let mut slow = proxy.ask("/slow");
    origin.wait_for("/slow", 1);
    proxy.get("/fast").assert_is(200, "fast");
    gate.open();
    slow.response().assert_is(200, "slow");
}

#[test]
fn joiners_stream_the_bytes_received_so_far() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    let gate = Gate::default();
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[FRESH, "Content-Length: 10"])
            .send("first")
            .pause(&gate)
            .send("after"),
    );
    let mut clients: Vec<_> = (0..5).map(|_| proxy.ask("/")).collect();
    for client in &mut clients {
        assert!(client.head().start.starts_with("HTTP/1.1 200"));
        assert_eq!(client.bytes(5), b"first");
    }
    let mut late = proxy.ask("/");
    late.head();
    assert_eq!(
        late.bytes(5),
        b"first",
        "one who comes in the middle gets what there is"
    );
    clients.push(late);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.bytes(5), b"after");
    }
    assert_eq!(origin.count("/"), 1);
    proxy.get("/").assert_hit();
}

#[test]
fn joiners_stream_a_body_of_unknown_length() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    let gate = Gate::default();
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[FRESH, "Transfer-Encoding: chunked"])
            .chunk("first")
            .pause(&gate)
            .chunk("after")
            .send("0\r\n\r\n"),
    );
    let mut clients: Vec<_> = (0..3).map(|_| proxy.ask("/")).collect();
    for client in &mut clients {
        client.head();
        assert_eq!(client.chunk(), "first");
    }
    gate.open();
    for client in &mut clients {
        assert_eq!(client.chunk(), "after");
        assert_eq!(client.bytes(5), b"0\r\n\r\n");
    }
    let hit = proxy.get("/");
    hit.assert_is(200, "firstafter");
    hit.assert_hit();
    assert_eq!(
        hit.field("content-length"),
        Some("10"),
        "by now the length is known"
    );
}

#[test]
fn a_stalled_reader_of_a_shared_body_is_disconnected() {
    const LENGTH: usize = 8 << 20;
    let origin = Origin::start();
    let flags = ["--max-object", "1KiB", "--slow-reader-timeout", "100ms"];
    let proxy = Proxy::start(&origin, &flags);
    let gate = Gate::default();
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[FRESH, "Transfer-Encoding: chunked"])
            .chunk("first")
            .pause(&gate)
            .send(format!("{LENGTH:x}\r\n"))
            .flood(LENGTH as u64)
            .send("\r\n0\r\n\r\n"),
    );
    let mut stalled = proxy.ask_and_stall("/");
    let mut other = proxy.ask("/");
    other.head();
    assert_eq!(other.chunk(), "first", "it reads the same body");
    gate.open();
    let mut received = 0;
    while received < LENGTH {
        received += other.chunk().len();
    }
    assert_eq!(other.chunk(), "");
    assert_eq!(origin.count("/"), 1);
    assert!(stalled.try_response().is_err());
}

#[test]
fn a_request_joins_once_the_variant_is_known() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    let gate = Gate::default();
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[FRESH, "Vary: User-Agent", "Content-Length: 10"])
            .send("first")
            .pause(&gate)
            .send("after"),
    );
    let mut clients = Vec::new();
    for _ in 0..5 {
        let mut client = proxy.ask_with("/", &["User-Agent: a"]);
        client.head();
        assert_eq!(client.bytes(5), b"first");
        clients.push(client);
    }
    assert_eq!(origin.count("/"), 1);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.bytes(5), b"after");
    }
}

#[test]
fn a_body_too_large_to_store_reaches_all_waiters() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-object", "1KiB", "--threads", "1"]);
    let gate = Gate::default();
    let body = "x".repeat(2000);
    // Head and body come together, so the body has turned out to be too large before the waiters have looked;
    // and its leader has left, so there is no reader yet.
    let head = format!("HTTP/1.1 200 OK\r\n{FRESH}\r\nTransfer-Encoding: chunked\r\n\r\n");
    let whole = format!("{head}7d0\r\n{body}\r\n0\r\n\r\n");
    origin.on("/").reply(Reply::raw(whole).after(&gate));
    let leader = proxy.ask("/");
    origin.wait_for("/", 1);
    let mut joiners: Vec<_> = (0..4).map(|_| proxy.ask("/")).collect();
    proxy.settle();
    drop(leader);
    proxy.settle();
    gate.open();
    for joiner in &mut joiners {
        joiner.response().assert_is(200, &body);
    }
}

#[test]
fn a_private_response_releases_all_waiters_at_once() {
    for fields in [
        &["Cache-Control: private"],
        &["Cache-Control: no-store"],
        &["Set-Cookie: a=1"],
        &["Vary: *"],
    ] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &["--threads", "1"]);
        let (first, others) = (Gate::default(), Gate::default());
        let (opening, others_opening, mut count) = (first.clone(), others.clone(), 0);
        origin.on("/").answer(move |_| {
            count += 1;
            let gate = if count == 1 {
                &opening
            } else {
                &others_opening
            };
            Reply::ok(fields, count.to_string()).after(gate)
        });
        let mut leader = proxy.ask("/");
        origin.wait_for("/", 1);
        let mut joiners: Vec<_> = (0..5).map(|_| proxy.ask("/")).collect();
        proxy.settle();
        assert_eq!(origin.count("/"), 1, "they wait");
        first.open();
        leader.response().assert_is(200, "1");
        // All of them are at the origin side by side; none of them waits for another.
        origin.wait_for("/", 6);
        others.open();
        let mut bodies: Vec<_> = joiners
            .iter_mut()
            .map(|joiner| joiner.response().text())
            .collect();
        bodies.sort();
        assert_eq!(bodies, ["2", "3", "4", "5", "6"], "{fields:?}");
    }
}

#[test]
fn after_an_uncacheable_response_no_request_queues() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1", "--hit-for-miss", "1h"]);
    let gate = Gate::default();
    let (opening, mut count) = (gate.clone(), 0);
    origin.on("/").answer(move |_| {
        count += 1;
        let reply = Reply::ok(&["Cache-Control: no-store"], count.to_string());
        if count == 1 {
            reply
        } else {
            reply.after(&opening)
        }
    });
    proxy.get("/").assert_is(200, "1");
    let mut clients: Vec<_> = (0..3).map(|_| proxy.ask("/")).collect();
    origin.wait_for("/", 4);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status, 200);
    }
}

#[test]
fn a_mark_ends_when_the_response_can_be_stored_again() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--hit-for-miss", "1h"]);
    origin
        .on("/")
        .reply(Reply::new(200).with("Cache-Control: no-store").body("mine"))
        .reply(Reply::new(200).with(FRESH).body("ours"));
    proxy.get("/").assert_is(200, "mine");
    proxy.get("/").assert_is(200, "ours");
    let third = proxy.get("/");
    third.assert_is(200, "ours");
    third.assert_hit();
}

#[test]
fn a_failed_leader_is_followed_by_one_retry() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    let (first, second) = (Gate::default(), Gate::default());
    origin
        .on("/")
        .reply(Reply::hang_up().after(&first))
        .reply(Reply::new(200).with(FRESH).body("good").after(&second));
    let mut leader = proxy.ask("/");
    origin.wait_for("/", 1);
    let mut joiners: Vec<_> = (0..5).map(|_| proxy.ask("/")).collect();
    proxy.settle();
    first.open();
    origin.wait_for("/", 2);
    proxy.settle();
    assert_eq!(origin.count("/"), 2, "one retries, the rest wait");
    second.open();
    for joiner in &mut joiners {
        joiner.response().assert_is(200, "good");
    }
    assert!(matches!(leader.response().status, 200 | 502));
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn failures_do_not_go_on_for_ever() {
    let (origin, proxy, gate) = on_one_thread();
    origin.on("/").reply(Reply::hang_up().after(&gate));
    let mut clients: Vec<_> = (0..10).map(|_| proxy.ask("/")).collect();
    origin.wait_for("/", 1);
    proxy.settle();
    gate.open();
    for client in &mut clients {
        assert_eq!(client.response().status, 502);
    }
    // Two ask for all. What they sent may be the reason, so the others then ask for themselves, once.
    assert!(
        origin.count("/") <= 10,
        "{} requests for one failing page",
        origin.count("/")
    );
}

#[test]
fn a_truncated_body_is_truncated_for_all_readers() {
    let origin = Origin::start();
    let proxy = proxy(&origin);
    let gate = Gate::default();
    origin
        .on("/")
        .reply(
            Reply::new(200)
                .with_all(&[FRESH, "Content-Length: 10"])
                .send("first")
                .pause(&gate)
                .close(),
        )
        .reply(Reply::new(200).with(FRESH).body("whole"));
    let mut clients: Vec<_> = (0..3).map(|_| proxy.ask("/")).collect();
    for client in &mut clients {
        client.head();
        assert_eq!(client.bytes(5), b"first");
    }
    gate.open();
    for client in &mut clients {
        assert!(client.is_closed());
    }
    proxy.get("/").assert_is(200, "whole");
}

#[test]
fn a_leader_that_leaves_disconnects_no_waiter() {
    let (origin, proxy, gate) = on_one_thread();
    numbered(&origin, &gate, &[]);
    let leader = proxy.ask("/");
    origin.wait_for("/", 1);
    let mut joiner = proxy.ask("/");
    proxy.settle();
    drop(leader);
    proxy.settle();
    gate.open();
    joiner.response().assert_is(200, "1");
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn a_storable_fill_continues_without_readers() {
    let (origin, proxy, gate) = on_one_thread();
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[FRESH, "Content-Length: 10"])
            .send("first")
            .pause(&gate)
            .send("after"),
    );
    let mut client = proxy.ask("/");
    client.head();
    drop(client);
    proxy.settle();
    gate.open();
    let next = proxy.get("/");
    next.assert_is(200, "firstafter");
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn a_fetch_without_clients_is_cancelled() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-half-closed-timeout", "200ms"]);
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&["Cache-Control: no-store", "Content-Length: 1000"])
            .send("first")
            .hold(),
    );
    let mut client = proxy.ask("/");
    client.head();
    let connection = origin.wait_for("/", 1).connection;
    drop(client);
    origin.wait_for_close(connection);
}

#[test]
fn a_joiner_of_another_variant_gets_its_own() {
    let (origin, proxy, gate) = on_one_thread();
    let opening = gate.clone();
    origin.on("/").answer(move |request| {
        let color = request.field("user-agent").unwrap().to_owned();
        Reply::ok(&[FRESH, "Vary: User-Agent"], color).after(&opening)
    });
    let mut red = proxy.ask_with("/", &["User-Agent: red"]);
    origin.wait_for("/", 1);
    let mut others: Vec<_> = ["blue", "red", "green"]
        .map(|color| {
            (
                color,
                proxy.ask_with("/", &[&format!("User-Agent: {color}")]),
            )
        })
        .into();
    proxy.settle();
    gate.open();
    red.response().assert_is(200, "red");
    for (color, client) in &mut others {
        client.response().assert_is(200, color);
    }
    assert_eq!(origin.count("/"), 3);
}

#[test]
fn a_body_that_arrives_drop_by_drop_is_not_shared_for_ever() {
    let origin = Origin::start();
    let flags = ["--threads", "1", "--fill-timeout", "500ms"];
    let proxy = Proxy::start(&origin, &flags);
    let (first, last) = (Gate::default(), Gate::default());
    let dripping = Reply::new(200)
        .with_all(&[FRESH, "Transfer-Encoding: chunked"])
        .chunk("a")
        .pause(&first)
        .chunk("b")
        .pause(&last)
        .chunk("c")
        .send("0\r\n\r\n");
    let quick = Reply::new(200).with(FRESH).body("quick");
    origin.on("/").reply(dripping).reply(quick);
    let mut clients = [proxy.ask("/"), proxy.ask("/")];
    for client in &mut clients {
        client.head();
        assert_eq!(client.chunk(), "a");
    }
    assert_eq!(origin.count("/"), 1);
    let requested = Instant::now();
    eventually("the time to be up", || {
        (requested.elapsed() > Duration::from_millis(500)).then_some(())
    });
    first.open();
    for client in &mut clients {
        assert_eq!(client.chunk(), "b");
    }
    proxy.get("/").assert_is(200, "quick");
    last.open();
    for client in &mut clients {
        assert_eq!(
            client.chunk(),
            "c",
            "those who have the beginning get the end"
        );
    }
    let later = proxy.get("/");
    later.assert_is(200, "quick");
    later.assert_hit();
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn a_slow_reader_delays_no_other() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    let body = "x".repeat(8 << 20);
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body(&body));
    let mut slow = proxy.ask("/");
    slow.head();
    let fast = proxy.get("/");
    assert_eq!(fast.body.len(), body.len());
    assert_eq!(slow.bytes(body.len()).len(), body.len());
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn conditions_and_ranges_of_joiners_are_their_own() {
    let (origin, proxy, gate) = on_one_thread();
    origin
        .on("/")
        .reply(Reply::ok(&[FRESH, "ETag: \"a\""], "0123456789").after(&gate));
    let mut plain = proxy.ask("/");
    origin.wait_for("/", 1);
    let mut conditional = proxy.ask_with("/", &["If-None-Match: \"a\""]);
    let mut part = proxy.ask_with("/", &["Range: bytes=2-4"]);
    proxy.settle();
    gate.open();
    plain.response().assert_is(200, "0123456789");
    conditional.response().assert_is(304, "");
    part.response().assert_is(206, "234");
    assert_eq!(origin.count("/"), 1);
}
