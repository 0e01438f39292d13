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
fn targets(origin: &Origin) -> Vec<String> {
    let seen = origin.requests();
    seen.iter().map(|seen| seen.target.clone()).collect()
}

#[test]
fn a_full_queue_has_room_for_another_address_and_serves_it_soon() {
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
    assert_eq!(targets(&origin)[..3], ["/slow/0", "/slow/1", "/login"]);
}

#[test]
fn slow_uploads_of_one_address_leave_room_for_others() {
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

/// The head of an upload of so many bytes.
fn upload_of(length: usize) -> String {
    format!("POST /upload HTTP/1.1\r\nHost: example.com\r\nContent-Length: {length}\r\n\r\n")
}

/// What the proxy has sent and was not read yet; nothing where the connection goes on without.
fn unread(client: &Client) -> Option<Vec<u8>> {
    let stream = client.stream();
    let mut bytes = vec![0; 64 << 10];
    stream.set_nonblocking(true).expect("a socket");
    let peeked = stream.peek(&mut bytes);
    stream.set_nonblocking(false).expect("a socket");
    bytes.truncate(peeked.ok()?);
    Some(bytes)
}

fn has_something(client: &Client) -> bool {
    unread(client).is_some()
}

/// Whether its chunked answer has come to an end.
fn has_ended(client: &Client) -> bool {
    unread(client).is_some_and(|bytes| bytes.is_empty() || bytes.ends_with(b"0\r\n\r\n"))
}

/// An address of its own for each number.
fn address(number: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 1, number).into()
}

#[test]
fn addresses_that_hold_all_places_for_uploads_give_way_to_a_newcomer() {
    let origin = Origin::start();
    let flags = [
        "--max-uploads",
        "8",
        "--queue-timeout",
        "2s",
        "--threads",
        "1",
    ];
    let proxy = Proxy::start(&origin, &flags);
    origin.on("/upload").reply(Reply::new(200).body("thanks"));
    let beginning = vec![b'x'; 256 << 10];
    let begin = |number: u8| {
        let mut client = Client::connect_from(address(number), proxy.address());
        client.send(upload_of(100 << 20));
        client.send(&beginning);
        client
    };
    // Each takes as many as it leaves free.
    let mut slow = Vec::new();
    for (number, uploads) in [(1, 4), (2, 2), (3, 1), (4, 1)] {
        for _ in 0..uploads {
            slow.push(begin(number));
            eventually("it has its place", || {
                (origin.count("/upload") == slow.len()).then_some(())
            });
        }
    }
    let mut visitor = proxy.connect();
    visitor.send(upload_of(beginning.len()));
    visitor.send(&beginning);
    visitor.response().assert_is(200, "thanks");
    // One of the first address has ended, and no other.
    let number = eventually("one gives way", || slow.iter().position(has_something));
    proxy.settle();
    assert_eq!(slow.iter().filter(|it| has_something(it)).count(), 1);
    assert!(number < 4, "{number}");
    let ended = slow[number].response();
    assert_eq!(ended.status, 503, "{}", ended.text());
    assert_eq!(ended.field("retry-after"), Some("1"));
    assert_eq!(ended.cache().get("detail"), Some("origin-busy"));
    proxy.output_with("was ended to admit the first one of another address");
}

#[test]
fn as_many_addresses_as_there_are_places_for_uploads_hold_them_only_if_they_send() {
    let origin = Origin::start();
    let flags = [
        "--max-uploads",
        "2",
        "--queue-timeout",
        "2s",
        "--upload-wait",
        "10ms",
        "--threads",
        "1",
    ];
    let proxy = Proxy::start(&origin, &flags);
    origin.on("/upload").reply(Reply::new(200).body("thanks"));
    let head = "POST /upload HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n";
    let stalled: Vec<_> = (1..=2)
        .map(|number| {
            let mut client = Client::connect_from(address(number), proxy.address());
            client.send(head);
            client.send("3\r\nabc\r\n");
            client
        })
        .collect();
    origin.wait_for("/upload", 2);
    let mut visitor = Client::connect_from(address(3), proxy.address());
    visitor.send(head);
    visitor.send("3\r\nabc\r\n");
    origin.wait_for("/upload", 3);
    visitor.send("0\r\n\r\n");
    visitor.response().assert_is(200, "thanks");
    eventually("one gives way", || stalled.iter().position(has_something));
    proxy.settle();
    assert_eq!(stalled.iter().filter(|it| has_something(it)).count(), 1);
}

/// What is read ahead of bodies has one room for all: an address that fills it has forms of others sent on as uploads, and
/// keeps none of them out.
#[test]
fn an_address_that_fills_the_room_for_bodies_keeps_no_form_out() {
    let origin = Origin::start();
    let flags = [
        "--max-uploads",
        "8",
        "--upload-memory",
        "64KiB",
        "--threads",
        "1",
    ];
    let proxy = Proxy::start(&origin, &flags);
    origin.on("/upload").reply(Reply::new(200).body("thanks"));
    let part = vec![b'x'; 16 << 10];
    let many: Vec<_> = (0..40)
        .map(|_| {
            let mut client = Client::connect_from(GREEDY, proxy.address());
            client.send(upload_of(60 << 10));
            client.send(&part);
            proxy.settle();
            client
        })
        .collect();
    let taken = origin.count("/upload");
    assert!(
        (1..=4).contains(&taken),
        "{taken} of its uploads are with the application"
    );
    for _ in 0..5 {
        let mut visitor = proxy.connect();
        visitor.send(upload_of(8));
        visitor.send("form");
        proxy.settle();
        visitor.send("data");
        visitor.response().assert_is(200, "thanks");
    }
    drop(many);
}

/// With HTTP/2 one connection can have many.
#[test]
fn one_address_leaves_a_tenth_of_the_event_streams_to_others() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-tunnels", "20"]);
    origin.on("/events").reply(
        Reply::new(200)
            .with("Content-Type: text/event-stream")
            .hold(),
    );
    let opened = |mut client: Client| {
        client.send(request("GET", "/events", &[]));
        let start = client.head().start;
        (start.starts_with("HTTP/1.1 200"), client)
    };
    let mut streams: Vec<_> = (0..30)
        .map(|_| opened(Client::connect_from(GREEDY, proxy.address())))
        .collect();
    assert_eq!(streams.iter().filter(|(open, _)| *open).count(), 18);
    assert!(opened(proxy.connect()).0);
    let said = proxy.output_with("nine tenths");
    assert!(said.contains("trusted_proxies"), "{said}");
    streams.clear();
    eventually("it may have some again", || {
        opened(Client::connect_from(GREEDY, proxy.address()))
            .0
            .then_some(())
    });
}

#[test]
fn one_address_does_not_make_the_stampede_that_waiting_prevents() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-waiters", "20", "--threads", "1"]);
    let gate = Gate::default();
    let page = Reply::ok(&["Cache-Control: max-age=60"], "page");
    origin.on("/").reply(page.after(&gate));
    let mut visitor = proxy.ask("/");
    origin.wait_for("/", 1);
    let mut waiting: Vec<_> = (0..2).map(|_| greedy(&proxy, "/")).collect();
    proxy.settle();
    for _ in 0..30 {
        assert_gives_way(&mut greedy(&proxy, "/"), "too-many-wait");
    }
    let said = proxy.output_with("trusted_proxies");
    assert!(
        said.contains("a request from 127.0.0.2 was answered 503"),
        "{said}"
    );
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
    let page = Reply::ok(&["Cache-Control: max-age=60"], "page");
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
fn the_address_with_most_fetches_loses_one_and_no_request_bypasses_coalescing() {
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
fn a_queued_request_without_clients_is_not_sent() {
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
    assert_eq!(targets(&origin), ["/slow", "/wanted"]);
    let stats = Operator::at(admin).get("/v1/stats");
    assert_eq!(stats["origin"]["requests"], 2, "{}", stats["origin"]);
    assert_eq!(stats["origin"]["failures"], 0, "{}", stats["origin"]);
}

/// Watches a page, and says with which status that was answered.
fn watch(mut client: Client, page: &str) -> (u16, Client) {
    let target = format!("/.well-known/microcache/watch?url={page}");
    client.send(request("GET", &target, &["Accept: text/event-stream"]));
    let started = client.head().start;
    let status = started[9..12].parse().expect("a status");
    (status, client)
}

#[test]
fn addresses_that_watch_as_many_pages_as_may_be_give_way_to_one_with_fewer() {
    let origin = Origin::start();
    let flags = ["--watch", "stored", "--watch-max-pages", "8"];
    let proxy = Proxy::start(&origin, &flags);
    let mut streams = Vec::new();
    for number in 1..=4 {
        for page in 0..2 {
            let target = format!("/page/{number}/{page}");
            // So many new ones in a second.
            let stream = eventually("it is watched", || {
                let client = Client::connect_from(address(number), proxy.address());
                let (status, stream) = watch(client, &target);
                (status == 200).then_some(stream)
            });
            streams.push(stream);
        }
    }
    let newcomer = eventually("the newcomer finds room", || {
        let (status, stream) = watch(proxy.connect(), "/page/0");
        (status == 200).then_some(stream)
    });
    // The newest of the address that has most and comes last among those.
    let number = eventually("one gives way", || streams.iter().position(has_ended));
    proxy.settle();
    assert_eq!(streams.iter().filter(|it| has_ended(it)).count(), 1);
    // The address whose it was has as many as the newcomer now: it does not take that one's place.
    let number = u8::try_from(number / 2 + 1).expect("one of four");
    let client = Client::connect_from(address(number), proxy.address());
    assert_eq!(watch(client, "/page/another").0, 503);
    drop(newcomer);
}

#[test]
fn one_address_watches_a_quarter_of_the_pages() {
    let origin = Origin::start();
    let flags = ["--watch", "stored", "--watch-max-pages", "8"];
    let proxy = Proxy::start(&origin, &flags);
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
