//! Whatever is not for the cache passes well: bodies, trailers, upgrades, streams, old clients.

use std::io::Write;
use std::thread;

use crate::support::{Gate, Origin, Proxy, Reply, eventually, request};

const NO_STORE: &str = "Cache-Control: no-store";
const HOST: &str = "Host: example.com\r\n";

/// More than all buffers between the two ends, and more than a process should ever hold.
const FLOOD: u64 = 192 << 20;

/// What the kernel's buffers of two connections may take.
const BUFFERS: u64 = 64 << 20;

fn start() -> (Origin, Proxy) {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    (origin, proxy)
}

/// Waits until a count does not grow any more.
fn standstill(mut count: impl FnMut() -> u64) -> u64 {
    let mut samples = vec![0];
    eventually("the flow to stand still", || {
        samples.push(count());
        // Half a second of samples, one every 5 ms.
        let recent = &samples[samples.len().saturating_sub(100)..];
        (recent.len() == 100 && recent[0] > 0 && recent.iter().all(|n| n == &recent[0]))
            .then(|| recent[0])
    })
}

#[test]
fn uploads_with_a_length() {
    let (origin, proxy) = start();
    origin.on("/").reply(Reply::new(201).body("done"));
    let body: Vec<u8> = (0..3_000_000_u32)
        .map(|n| n.to_le_bytes()[n as usize % 3])
        .collect();
    let mut client = proxy.connect();
    client.send(format!(
        "PUT / HTTP/1.1\r\n{HOST}Content-Length: {}\r\n\r\n",
        body.len()
    ));
    client.send(&body);
    client.response().assert_is(201, "done");
    let seen = &origin.seen("/")[0];
    assert_eq!(seen.field("content-length"), Some("3000000"));
    assert_eq!(seen.body_length(), 3_000_000);
    assert!(seen.body() == body[..1 << 20], "the bytes are the same");
}

#[test]
fn uploads_in_chunks_with_trailers() {
    let (origin, proxy) = start();
    origin.on("/").reply(Reply::new(201).body("done"));
    let response = proxy.request(format!(
        "POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         3\r\nhel\r\n2\r\nlo\r\n0\r\nX-Sum: 42\r\n\r\n"
    ));
    response.assert_is(201, "done");
    let seen = &origin.seen("/")[0];
    assert_eq!(seen.body(), b"hello");
    assert_eq!(seen.trailers(), [("X-Sum".to_owned(), "42".to_owned())]);
}

#[test]
fn an_upload_streams() {
    let (origin, proxy) = start();
    let half = vec![b'x'; 100 << 10];
    for (framing, first, second) in [
        (
            format!("Content-Length: {}", 2 * half.len()),
            &half[..],
            &half[..],
        ),
        (
            "Transfer-Encoding: chunked".to_owned(),
            b"5\r\nfirst\r\n",
            b"5\r\nafter\r\n0\r\n\r\n",
        ),
    ] {
        origin.on("/").reply(Reply::new(200).body("done"));
        let before = origin.count("/");
        let mut client = proxy.connect();
        client.send(format!("POST / HTTP/1.1\r\n{HOST}{framing}\r\n\r\n"));
        client.send(first);
        let seen = origin.wait_for("/", before + 1);
        let expected = if first.len() < 100 {
            5
        } else {
            first.len() as u64
        };
        eventually("the first half", || {
            (seen.body_length() == expected).then_some(())
        });
        client.send(second);
        client.response().assert_is(200, "done");
        assert_eq!(seen.body().len() as u64, 2 * expected);
    }
}

#[test]
fn an_upload_that_breaks_off_is_not_taken_for_a_whole_one() {
    let (origin, proxy) = start();
    let long = "x".repeat(100 << 10);
    for (framing, beginning) in [
        ("Content-Length: 1000000", long.as_str()),
        ("Transfer-Encoding: chunked", "5\r\nsome!\r\n"),
    ] {
        origin.on("/").reply(Reply::new(200).body("done"));
        let before = origin.count("/");
        let mut client = proxy.connect();
        client.send(format!(
            "POST / HTTP/1.1\r\n{HOST}{framing}\r\n\r\n{beginning}"
        ));
        let seen = origin.wait_for("/", before + 1);
        drop(client);
        origin.wait_for_close(seen.connection);
        assert!(!seen.is_complete(), "{framing}");
    }
}

#[test]
fn a_client_that_wants_to_close_gets_connection_close() {
    let (origin, proxy) = start();
    origin
        .on("/")
        .reply(Reply::new(200).with("Cache-Control: max-age=100").body("x"));
    for _ in 0..2 {
        let mut client = proxy.ask_with("/", &["Connection: close"]);
        let response = client.response();
        response.assert_is(200, "x");
        assert_eq!(response.field("connection"), Some("close"));
        assert!(client.is_closed());
    }
}

#[test]
fn a_slow_origin_holds_a_fast_upload_back() {
    let (origin, proxy) = start();
    let gate = Gate::default();
    origin
        .on("/")
        .reply(Reply::new(200).body("done").read_after(&gate));
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Content-Length: {FLOOD}\r\n\r\n"
    ));
    let mut sender = client.stream().try_clone().unwrap();
    sender.set_write_timeout(None).unwrap();
    let sent = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counter = std::sync::Arc::clone(&sent);
    let upload = thread::spawn(move || {
        let piece = vec![b'x'; 1 << 16];
        for _ in 0..FLOOD >> 16 {
            sender.write_all(&piece).unwrap();
            counter.fetch_add(1 << 16, std::sync::atomic::Ordering::SeqCst);
        }
    });
    let taken = standstill(|| sent.load(std::sync::atomic::Ordering::SeqCst));
    assert!(taken < BUFFERS, "{} MiB were taken", taken >> 20);
    assert!(proxy.resident() < BUFFERS, "{} MiB", proxy.resident() >> 20);
    gate.open();
    upload.join().unwrap();
    client.response().assert_is(200, "done");
    assert_eq!(origin.seen("/")[0].body_length(), FLOOD);
}

#[test]
fn a_slow_client_holds_a_fast_origin_back() {
    let (origin, proxy) = start();
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[NO_STORE, &format!("Content-Length: {FLOOD}")])
            .flood(FLOOD),
    );
    let mut client = proxy.ask("/");
    client.head();
    let taken = standstill(|| origin.flooded());
    assert!(taken < BUFFERS, "{} MiB were taken", taken >> 20);
    assert!(proxy.resident() < BUFFERS, "{} MiB", proxy.resident() >> 20);
    for _ in 0..FLOOD >> 20 {
        assert_eq!(client.bytes(1 << 20).len(), 1 << 20);
    }
    assert_eq!(origin.flooded(), FLOOD);
}

#[test]
fn a_response_streams() {
    let (origin, proxy) = start();
    let gate = Gate::default();
    for (target, fields) in [("/a", "Content-Length: 10"), ("/b", "Connection: close")] {
        let reply = Reply::new(200)
            .with_all(&[NO_STORE, fields])
            .send("first")
            .pause(&gate)
            .send("after");
        origin.on(target).reply(reply.close());
    }
    let mut known = proxy.ask("/a");
    known.head();
    assert_eq!(known.bytes(5), b"first");
    let mut unknown = proxy.ask("/b");
    let head = unknown.head();
    if head.field("transfer-encoding").is_some() {
        assert_eq!(unknown.chunk(), "first");
    } else {
        assert_eq!(unknown.bytes(5), b"first");
    }
    gate.open();
    assert_eq!(known.bytes(5), b"after");
}

#[test]
fn trailers_of_responses() {
    let (origin, proxy) = start();
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[NO_STORE, "Transfer-Encoding: chunked", "Trailer: X-Sum"])
            .chunk("hello")
            .send("0\r\nX-Sum: 42\r\n\r\n"),
    );
    let response = proxy.get_with("/", &["TE: trailers"]);
    response.assert_is(200, "hello");
    assert_eq!(response.trailers, [("X-Sum".to_owned(), "42".to_owned())]);
}

#[test]
fn the_origin_decides_about_expect() {
    let (origin, proxy) = start();
    origin.on("/").reply(Reply::new(200).body("done"));
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    ));
    let interim = client.head();
    assert!(interim.start.starts_with("HTTP/1.1 100"), "{interim:?}");
    client.send("hello");
    client.response().assert_is(200, "done");
    assert_eq!(origin.seen("/")[0].body(), b"hello");
}

#[test]
fn an_expectation_that_is_refused_needs_no_body() {
    let (origin, proxy) = start();
    origin.on("/").reply(
        Reply::new(413)
            .with("Connection: close")
            .body("too large")
            .early()
            .close(),
    );
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nContent-Length: 5\r\n\r\n"
    ));
    let response = client.response();
    response.assert_is(413, "too large");
    assert!(response.interim.is_empty(), "{response:?}");
}

#[test]
fn an_unknown_expectation_is_passed_on_or_refused() {
    let (origin, proxy) = start();
    origin.on("/").reply(Reply::new(200).body("x"));
    let response = proxy.send(
        "POST",
        "/",
        &["Expect: the-unexpected", "Content-Length: 0"],
    );
    assert!(matches!(response.status, 200 | 417), "{response:?}");
}

#[test]
fn an_early_answer_to_an_upload_reaches_the_client() {
    let (origin, proxy) = start();
    let early = Reply::new(403).with("Connection: close").body("no").early();
    origin.on("/").reply(early.read_body());
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Content-Length: 1000000\r\n\r\n{}",
        "x".repeat(100 << 10)
    ));
    client.response().assert_is(403, "no");
}

#[test]
fn an_upgrade_becomes_a_tunnel() {
    let (origin, proxy) = start();
    origin.on("/ws").reply(
        Reply::raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: abc\r\n\r\nearly")
            .echo(),
    );
    let mut client = proxy.connect();
    client.send(format!(
        "GET /ws HTTP/1.1\r\n{HOST}Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: xyz\r\n\r\n"
    ));
    let head = client.head();
    assert!(head.start.starts_with("HTTP/1.1 101"), "{head:?}");
    assert_eq!(head.field("sec-websocket-accept"), Some("abc"));
    assert!(
        head.field("upgrade")
            .is_some_and(|value| value.eq_ignore_ascii_case("websocket")),
        "{head:?}"
    );
    assert!(
        head.field("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("upgrade")),
        "{head:?}"
    );
    assert_eq!(client.bytes(5), b"early");
    for message in ["hello", "\0\r\n\r\n\u{ff}", "GET / HTTP/1.1\r\n\r\n"] {
        client.send(message);
        assert_eq!(client.bytes(message.len()), message.as_bytes());
    }
    let seen = &origin.seen("/ws")[0];
    assert_eq!(seen.field("upgrade"), Some("websocket"));
    assert_eq!(seen.field("sec-websocket-key"), Some("xyz"));
    assert!(
        seen.field("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("upgrade"))
    );
    drop(client);
    origin.wait_for_close(seen.connection);
}

#[test]
fn a_silent_tunnel_is_closed() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--tunnel-timeout", "300ms"]);
    origin.on("/ws").reply(
        Reply::raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
            .echo(),
    );
    let mut client = proxy.ask_with("/ws", &["Connection: Upgrade", "Upgrade: x"]);
    assert!(client.head().start.starts_with("HTTP/1.1 101"));
    client.send("hello");
    assert_eq!(client.bytes(5), b"hello");
    assert!(client.is_closed());
    origin.wait_for_close(origin.seen("/ws")[0].connection);
}

#[test]
fn tunnels_do_not_eat_the_bound() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-concurrent", "1"]);
    origin.on("/ws").reply(
        Reply::raw("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
            .echo(),
    );
    origin.on("/").reply(Reply::new(200).body("x"));
    let mut client = proxy.ask_with("/ws", &["Connection: Upgrade", "Upgrade: x"]);
    assert!(client.head().start.starts_with("HTTP/1.1 101"));
    proxy.get("/").assert_is(200, "x");
    client.send("hello");
    assert_eq!(client.bytes(5), b"hello");
}

#[test]
fn a_refused_upgrade_is_an_ordinary_answer() {
    let (origin, proxy) = start();
    origin.on("/ws").reply(Reply::new(426).body("no"));
    proxy
        .get_with("/ws", &["Connection: Upgrade", "Upgrade: websocket"])
        .assert_is(426, "no");
}

#[test]
fn an_event_stream_is_not_held_back() {
    let (origin, proxy) = start();
    let gates: [Gate; 2] = Default::default();
    origin.on("/events").reply(
        Reply::new(200)
            .with_all(&[
                "Content-Type: text/event-stream",
                "Transfer-Encoding: chunked",
            ])
            .chunk(":\n\n")
            .pause(&gates[0])
            .chunk("data: 1\n\n")
            .pause(&gates[1])
            .chunk("data: 2\n\n")
            .hold(),
    );
    let mut client = proxy.ask("/events");
    assert_eq!(
        client.head().field("content-type"),
        Some("text/event-stream")
    );
    assert_eq!(client.chunk(), ":\n\n");
    gates[0].open();
    assert_eq!(client.chunk(), "data: 1\n\n");
    gates[1].open();
    assert_eq!(client.chunk(), "data: 2\n\n");
    let connection = origin.seen("/events")[0].connection;
    drop(client);
    origin.wait_for_close(connection);
}

#[test]
fn event_streams_do_not_eat_the_bound() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-concurrent", "1"]);
    origin.on("/events").reply(
        Reply::new(200)
            .with_all(&[
                "Content-Type: text/event-stream",
                "Transfer-Encoding: chunked",
            ])
            .chunk(":\n\n")
            .hold(),
    );
    origin.on("/").reply(Reply::new(200).body("x"));
    let mut streams: Vec<_> = (0..3).map(|_| proxy.ask("/events")).collect();
    for stream in &mut streams {
        stream.head();
        assert_eq!(stream.chunk(), ":\n\n");
    }
    proxy.get("/").assert_is(200, "x");
}

#[test]
fn http_1_0_clients() {
    let (origin, proxy) = start();
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=100"], "hello"));
    for _ in 0..2 {
        let mut client = proxy.connect();
        client.send("GET / HTTP/1.0\r\n\r\n");
        client.response().assert_is(200, "hello");
        assert!(client.is_closed(), "without keep-alive");
    }
    let mut client = proxy.connect();
    for _ in 0..2 {
        client.send("GET / HTTP/1.0\r\nHost: example.com\r\nConnection: keep-alive\r\n\r\n");
        let response = client.response();
        response.assert_is(200, "hello");
        assert!(
            response
                .field("connection")
                .is_some_and(|value| value.eq_ignore_ascii_case("keep-alive")),
            "{response:?}"
        );
    }
}

#[test]
fn http_1_0_clients_get_no_chunks() {
    let (origin, proxy) = start();
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[NO_STORE, "Transfer-Encoding: chunked"])
            .chunk("hel")
            .chunk("lo")
            .send("0\r\n\r\n"),
    );
    let mut client = proxy.connect();
    client.send("GET / HTTP/1.0\r\nHost: example.com\r\nConnection: keep-alive\r\n\r\n");
    let response = client.response();
    response.assert_is(200, "hello");
    assert_eq!(response.field("transfer-encoding"), None);
}

#[test]
fn absolute_form_is_the_same_as_origin_form() {
    // Varnish VSV18: absolute-form made another key and another way to the origin.
    let (origin, proxy) = start();
    origin
        .on("/a?b")
        .reply(Reply::ok(&["Cache-Control: max-age=100"], "hello"));
    let forms = [
        "GET http://example.com/a?b HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "GET HTTP://Example.COM:80/a?b HTTP/1.1\r\nHost: example.com\r\n\r\n",
        "GET /a?b HTTP/1.1\r\nHost: example.com\r\n\r\n",
    ];
    for form in forms {
        proxy.request(form).assert_is(200, "hello");
    }
    assert_eq!(origin.count("/a?b"), 1);
    assert_eq!(origin.seen("/a?b")[0].head.all("host"), ["example.com"]);
}

#[test]
fn absolute_form_without_a_path() {
    let (origin, proxy) = start();
    for target in ["/", "/?q"] {
        origin.on(target).reply(Reply::new(200).body(target));
    }
    proxy
        .request("GET http://example.com HTTP/1.1\r\nHost: example.com\r\n\r\n")
        .assert_is(200, "/");
    proxy
        .request("GET http://example.com?q HTTP/1.1\r\nHost: example.com\r\n\r\n")
        .assert_is(200, "/?q");
}

#[test]
fn options_for_the_server_itself() {
    let (origin, proxy) = start();
    origin.on("*").reply(Reply::new(204));
    assert_eq!(proxy.send("OPTIONS", "*", &[]).status, 204);
    // RFC 9112 §3.2.4: by way of a proxy it is asked like this.
    let by_proxy = "OPTIONS http://example.com HTTP/1.1\r\nHost: example.com\r\n\r\n";
    assert_eq!(proxy.request(by_proxy).status, 204);
    assert_eq!(origin.count("*"), 2);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let (origin, proxy) = start();
    let gate = Gate::default();
    origin
        .on("/1")
        .reply(Reply::new(200).body("1").after(&gate));
    for target in ["/2", "/3"] {
        origin.on(target).reply(Reply::new(200).body(&target[1..]));
    }
    let mut client = proxy.connect();
    client.send(
        ["/1", "/2", "/3", "/2"]
            .map(|target| request("GET", target, &[]))
            .concat(),
    );
    origin.wait_for("/1", 1);
    gate.open();
    for expected in ["1", "2", "3", "2"] {
        client.response().assert_is(200, expected);
    }
}

#[test]
fn a_client_that_pipelines_and_does_not_read_is_held_back() {
    let (origin, proxy) = start();
    let body = vec![b'x'; 50_000];
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=100"], &body));
    proxy.get("/");
    let mut client = proxy.connect();
    let (mut sender, mut taken) = (client.stream().try_clone().unwrap(), 0);
    sender.set_nonblocking(true).unwrap();
    let batch = request("GET", "/", &[]).repeat(1000);
    let mut rest: &[u8] = &[];
    let standstill = standstill(|| {
        if rest.is_empty() {
            rest = batch.as_bytes();
        }
        if let Ok(n) = sender.write(rest) {
            rest = &rest[n..];
            taken += n as u64;
        }
        taken
    });
    assert!(
        standstill < BUFFERS,
        "{} MiB of requests were taken",
        standstill >> 20
    );
    assert!(proxy.resident() < BUFFERS, "{} MiB", proxy.resident() >> 20);
    client.stream().set_nonblocking(false).unwrap();
    for _ in 0..100 {
        assert_eq!(client.response().body.len(), body.len());
    }
}

#[test]
fn requests_sent_byte_by_byte() {
    let (origin, proxy) = start();
    origin.on("/").reply(Reply::new(200).body("x"));
    let mut client = proxy.connect();
    for byte in format!(
        "POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    )
    .bytes()
    {
        client.send([byte]);
    }
    client.response().assert_is(200, "x");
    assert_eq!(origin.seen("/")[0].body(), b"hello");
}

#[test]
fn the_origin_gets_the_forwarding_proxies() {
    let (origin, proxy) = start();
    origin.on("/").reply(Reply::new(200).body("x"));
    proxy.request("GET / HTTP/1.1\r\nHost: shop.example:8080\r\n\r\n");
    let seen = &origin.seen("/")[0];
    assert_eq!(seen.head.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.head.all("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.head.all("x-forwarded-host"), ["shop.example:8080"]);
    let forwarded = seen.field("forwarded").expect("Forwarded").to_lowercase();
    for part in ["for=127.0.0.1", "proto=http", "host=\"shop.example:8080\""] {
        assert!(forwarded.contains(part), "{forwarded}");
    }
}

#[test]
fn trusted_proxies_may_set_forwarding_fields() {
    let origin = Origin::start();
    origin
        .on("/")
        .reply(Reply::new(200).with(NO_STORE).body("x"));
    let fields = [
        "X-Forwarded-For: 203.0.113.7",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: shop.example",
        "Forwarded: for=203.0.113.7;proto=https;host=shop.example",
    ];
    let trusting = Proxy::start(&origin, &["--trusted-proxies", "127.0.0.0/8"]);
    trusting.get_with("/", &fields).assert_is(200, "x");
    let seen = &origin.seen("/")[0];
    assert_eq!(
        seen.head.all("x-forwarded-for").join(", "),
        "203.0.113.7, 127.0.0.1"
    );
    assert_eq!(seen.head.all("x-forwarded-proto"), ["https"]);
    assert_eq!(seen.head.all("x-forwarded-host"), ["shop.example"]);
    let forwarded = seen.head.all("forwarded").join(", ");
    assert!(
        forwarded.starts_with("for=203.0.113.7, for=127.0.0.1;") && forwarded.ends_with("=https"),
        "{forwarded}"
    );
    let flags = [
        "--trusted-proxies",
        "127.0.0.1",
        "--trusted-headers",
        "Forwarded",
    ];
    let extending = Proxy::start(&origin, &flags);
    extending.get_with("/", &fields).assert_is(200, "x");
    let forwarded = origin.seen("/")[1].head.all("forwarded").join(", ");
    assert!(
        forwarded.starts_with("for=203.0.113.7;proto=https;host=shop.example, "),
        "{forwarded}"
    );
    let wary = Proxy::start(&origin, &["--trusted-proxies", "10.0.0.0/8"]);
    wary.get_with("/", &fields);
    assert_eq!(
        origin.seen("/")[2].head.all("x-forwarded-for"),
        ["127.0.0.1"]
    );
}
