//! One address that asks for too much: what it keeps the others from, which is nothing.

use std::net::{IpAddr, Ipv4Addr};

use crate::operators::Operator;
use crate::support::{Client, Gate, Origin, Proxy, Reply, eventually, request};

/// The address that asks for too much; tests ask from another one.
const GREEDY: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

fn greedy(proxy: &Proxy, target: &str) -> Client {
    let mut client = Client::connect_from(GREEDY, proxy.address());
    client.send(request("GET", target, &[]));
    client
}

fn assert_gives_way(client: &mut Client, detail: &str) {
    let refused = client.response();
    assert_eq!(refused.status, 503, "{}", refused.text());
    assert_eq!(refused.field("retry-after"), Some("1"));
    assert_eq!(refused.cache().get("detail"), Some(detail));
}

/// Which targets the origin was asked for, in order.
fn asked(origin: &Origin) -> Vec<String> {
    let seen = origin.requests();
    seen.iter().map(|seen| seen.target.clone()).collect()
}

#[test]
fn a_full_queue_has_room_for_another_address_and_its_turn_comes_soon() {
    let origin = Origin::start();
    let flags = [
        "--max-concurrent",
        "1",
        "--max-queue",
        "6",
        "--threads",
        "1",
    ];
    let proxy = Proxy::start(&origin, &flags);
    let gate = Gate::default();
    origin
        .on("/slow/0")
        .reply(Reply::new(200).body("slow").after(&gate));
    let mut many = vec![greedy(&proxy, "/slow/0")];
    origin.wait_for("/slow/0", 1);
    for number in 1..=6 {
        let target = format!("/slow/{number}");
        let reply = || Reply::new(200).with("Cache-Control: no-store").body("slow");
        origin.on(&target).reply(reply());
        many.push(greedy(&proxy, &target));
        proxy.settle();
    }
    origin.on("/login").reply(Reply::new(200).body("welcome"));
    let mut visitor = proxy.ask("/login");
    let mut newest = many.pop().expect("there are seven");
    assert_gives_way(&mut newest, "origin-busy");
    gate.open();
    visitor.response().assert_is(200, "welcome");
    for client in &mut many {
        client.response().assert_is(200, "slow");
    }
    assert_eq!(asked(&origin)[..3], ["/slow/0", "/slow/1", "/login"]);
}

#[test]
fn slow_uploads_of_one_address_leave_room_for_those_of_others() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--queue-timeout", "60s"]);
    origin.on("/upload").reply(Reply::new(200).body("thanks"));
    let beginning = vec![b'x'; 256 << 10];
    let upload = |length: usize| {
        let length = format!("Content-Length: {length}\r\nHost: example.com\r\n");
        format!("POST /upload HTTP/1.1\r\n{length}\r\n")
    };
    let slow: Vec<_> = (0..40)
        .map(|_| {
            let mut client = Client::connect_from(GREEDY, proxy.address());
            client.send(upload(100 << 20));
            client.send(&beginning);
            client
        })
        .collect();
    // Half of the 32 places for uploads.
    eventually("they have their places", || {
        (origin.connections() >= 16).then_some(())
    });
    proxy.settle();
    assert_eq!(origin.connections(), 16);
    let mut visitor = proxy.connect();
    visitor.send(upload(beginning.len()));
    visitor.send(&beginning);
    visitor.response().assert_is(200, "thanks");
    drop(slow);
}

#[test]
fn one_address_does_not_make_the_stampede_that_waiting_prevents() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-waiters", "20", "--threads", "1"]);
    let gate = Gate::default();
    let page = Reply::new(200)
        .with("Cache-Control: max-age=60")
        .body("page");
    origin.on("/").reply(page.after(&gate));
    let mut visitor = proxy.ask("/");
    origin.wait_for("/", 1);
    let mut waiting: Vec<_> = (0..2).map(|_| greedy(&proxy, "/")).collect();
    proxy.settle();
    for _ in 0..30 {
        assert_gives_way(&mut greedy(&proxy, "/"), "too-many-wait");
    }
    waiting.push(proxy.ask("/"));
    proxy.settle();
    gate.open();
    visitor.response().assert_is(200, "page");
    for client in &mut waiting {
        client.response().assert_is(200, "page");
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn where_as_many_wait_as_may_the_address_with_most_gives_way() {
    let origin = Origin::start();
    let trusted = ["--trusted-proxies", "127.0.0.1", "--threads", "1"];
    let proxy = Proxy::start(&origin, &[&trusted[..], &["--max-waiters", "11"]].concat());
    let gate = Gate::default();
    let page = Reply::new(200)
        .with("Cache-Control: max-age=60")
        .body("page");
    origin.on("/").reply(page.after(&gate));
    let ask = |visitor: u8| proxy.ask_with("/", &[&format!("X-Forwarded-For: 192.0.2.{visitor}")]);
    let mut leader = ask(100);
    origin.wait_for("/", 1);
    // Two of each but the last, in order.
    let mut waiting = Vec::new();
    for visitor in [1, 2, 3, 4, 5, 5, 4, 3, 2, 1, 6] {
        waiting.push(ask(visitor));
        proxy.settle();
    }
    let newcomer = ask(7);
    proxy.settle();
    // Of those that have two, one has lost its newest.
    let mut refused = 0;
    gate.open();
    for client in waiting.iter_mut().chain([&mut leader]) {
        let answer = client.response();
        refused += usize::from(answer.status == 503);
        assert!(matches!(answer.status, 200 | 503), "{}", answer.text());
    }
    assert_eq!(refused, 1);
    { newcomer }.response().assert_is(200, "page");
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn the_address_with_most_fetches_gives_way_and_none_goes_uncollapsed() {
    let origin = Origin::start();
    // One in each part of the table.
    let flags = [
        "--max-fetches",
        "64",
        "--max-concurrent",
        "1",
        "--threads",
        "1",
    ];
    let proxy = Proxy::start(&origin, &flags);
    let gate = Gate::default();
    origin
        .on("/first")
        .reply(Reply::new(200).body("first").after(&gate));
    let mut first = proxy.ask("/first");
    origin.wait_for("/first", 1);
    let mut many: Vec<_> = (0..300)
        .map(|number| {
            let target = format!("/slow/{number}");
            origin.on(&target).reply(Reply::new(200).body("slow"));
            greedy(&proxy, &target)
        })
        .collect();
    proxy.settle();
    gate.open();
    first.response().assert_is(200, "first");
    let mut answered = 0;
    for client in &mut many {
        let answer = client.response();
        match answer.status {
            200 => answered += 1,
            503 => assert_eq!(answer.cache().get("detail"), Some("too-many-wait")),
            other => panic!("{other}: {}", answer.text()),
        }
    }
    assert!((1..=64).contains(&answered), "{answered}");
    assert_eq!(origin.requests().len(), 1 + answered);
}

#[test]
fn what_nobody_waits_for_any_more_is_not_sent() {
    let origin = Origin::start();
    let (proxy, admin) = Proxy::operated(&origin, &["--max-concurrent", "1", "--threads", "1"]);
    let gate = Gate::default();
    origin
        .on("/slow")
        .reply(Reply::new(200).body("slow").after(&gate));
    origin.on("/left").reply(Reply::new(200).body("left"));
    origin.on("/wanted").reply(Reply::new(200).body("wanted"));
    let mut slow = proxy.ask("/slow");
    origin.wait_for("/slow", 1);
    let gone: Vec<_> = (0..3).map(|_| proxy.ask("/left")).collect();
    let leader = proxy.ask("/wanted");
    proxy.settle();
    let mut waits = proxy.ask("/wanted");
    proxy.settle();
    let queued = || {
        let stats = Operator::at(admin).get("/v1/stats");
        stats["upstreams"][0]["queued"].as_u64()
    };
    eventually("both wait", || (queued() == Some(2)).then_some(()));
    drop(leader);
    gone.into_iter().for_each(Client::reset);
    eventually("one is left", || (queued() == Some(1)).then_some(()));
    gate.open();
    slow.response().assert_is(200, "slow");
    waits.response().assert_is(200, "wanted");
    assert_eq!(asked(&origin), ["/slow", "/wanted"]);
    let stats = Operator::at(admin).get("/v1/stats");
    assert_eq!(stats["origin"]["requests"], 2, "{}", stats["origin"]);
    assert_eq!(stats["origin"]["failures"], 0, "{}", stats["origin"]);
}

#[test]
fn one_address_watches_a_quarter_of_the_pages() {
    const WATCH: &str = "/.well-known/microcache/watch";
    let origin = Origin::start();
    let flags = ["--watch", "stored", "--watch-max-pages", "8"];
    let proxy = Proxy::start(&origin, &flags);
    let watch = |mut client: Client, page: &str| {
        let target = format!("{WATCH}?url={page}");
        client.send(request("GET", &target, &["Accept: text/event-stream"]));
        let started = client.head().start;
        let status: u16 = started[9..12].parse().expect("a status");
        (status, client)
    };
    let from = |address| Client::connect_from(address, proxy.address());
    let mut streams: Vec<_> = (0..2)
        .map(|page| watch(from(GREEDY), &format!("/page/{page}")))
        .collect();
    streams.push(watch(from(GREEDY), "/page/1"));
    assert!(streams.iter().all(|(status, _)| *status == 200));
    assert_eq!(watch(from(GREEDY), "/page/2").0, 503);
    assert_eq!(watch(proxy.connect(), "/page/2").0, 200);
    // What it has let go of it may have again, once a second has passed since the last.
    drop(streams);
    let again = eventually("it may watch another page", || {
        let (status, stream) = watch(from(GREEDY), "/page/3");
        (status == 200).then_some(stream)
    });
    drop(again);
}
