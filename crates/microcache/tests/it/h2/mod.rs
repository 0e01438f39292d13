//! HTTP/2 on the plain listener, by clients that know that it is spoken there.

mod attacks;
mod clients;

use std::sync::Arc;
use std::time::Duration;

use crate::log_access::{end, lines};
use crate::support::http2::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, GO_AWAY, HEADERS, Http2, PING, RESET,
    SETTINGS, WINDOW_UPDATE, frame,
};
use crate::support::{
    CertificateFile, Client, Folder, Gate, Origin, Proxy, Reply, eventually, request, trusting,
};

const FRESH: &str = "Cache-Control: max-age=1000";
/// RFC 9113 §7.
const PROTOCOL_ERROR: u32 = 1;
const INTERNAL_ERROR: u32 = 2;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const COMPRESSION_ERROR: u32 = 9;

fn start() -> (Origin, Proxy) {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    (origin, proxy)
}

#[test]
fn both_versions_ask_for_the_same_and_get_the_same() {
    let (origin, proxy) = start();
    let reply = Reply::new(200).with_all(&[FRESH, "X-Name: Value", "Content-Type: text/plain"]);
    origin.on("/a").reply(reply.body("page"));
    let mut client = Http2::connect(proxy.address());
    let miss = client.get("/a");
    miss.assert_is(200, "page");
    assert!(!miss.is_hit());
    proxy.get("/a").assert_hit();
    let hit = client.get("/a");
    hit.assert_is(200, "page");
    assert!(hit.is_hit() && hit.field("age").is_some(), "{hit:?}");
    assert_eq!(hit.field("x-name"), Some("Value"));
    assert_eq!(hit.field("content-length"), Some("4"));
    let stream = client.ask("HEAD", "/a", &[]);
    let head = client.answer(stream);
    head.assert_is(200, "");
    assert_eq!(head.field("content-length"), Some("4"));
    assert_eq!(origin.count("/a"), 1);
    let seen = origin.wait_for("/a", 1);
    assert_eq!(seen.field("host"), Some("example.com"));
}

/// Its stream is over before anything else is done about it.
#[test]
fn after_a_response_without_content_the_connection_continues() {
    let (origin, proxy) = start();
    let none = Reply::new(204).with("Cache-Control: no-store");
    origin.on("/none").reply(none);
    let mut client = Http2::connect(proxy.address());
    for _ in 0..3 {
        client.get("/none").assert_is(204, "");
    }
    assert_eq!(origin.count("/none"), 3);
}

/// A proxy in front may send what several clients have written on one connection.
#[test]
fn behind_a_request_a_preface_is_none() {
    let (origin, proxy) = start();
    origin
        .on("/a")
        .reply(Reply::new(200).with(FRESH).body("page"));
    proxy.get("/a").assert_is(200, "page");
    let preface = String::from_utf8_lossy(http2::PREFACE);
    let mut client = proxy.connect();
    client.send(request("GET", "/a", &[]) + &preface);
    client.response().assert_hit();
    assert_eq!(client.response().status, 505);
    assert!(client.is_closed());
    let mut client = proxy.connect();
    client.get("/a").assert_hit();
    client.send(http2::PREFACE);
    assert_eq!(client.response().status, 505);
    // One that comes in pieces is one.
    let mut client = Http2::silent(proxy.address());
    for byte in http2::PREFACE {
        client.send([*byte]);
    }
    client.send(frame(SETTINGS, 0, 0, &[]));
    client.until(SETTINGS);
}

#[test]
fn requests_of_both_protocols_share_a_fetch() {
    let (origin, proxy) = start();
    let gate = Gate::default();
    let reply = Reply::new(200).with(FRESH).body("page").after(&gate);
    origin.on("/slow").reply(reply);
    origin
        .on("/quick")
        .reply(Reply::new(200).with(FRESH).body("quick"));
    let mut client = Http2::connect(proxy.address());
    let slow: Vec<_> = (0..20).map(|_| client.ask("GET", "/slow", &[])).collect();
    let mut other = proxy.ask("/slow");
    // No stream waits behind the waiting ones.
    client.get("/quick").assert_is(200, "quick");
    origin.wait_for("/slow", 1);
    gate.open();
    for (_, answer) in client.answers(&slow).iter().filter(|(id, _)| **id != 0) {
        answer.assert_is(200, "page");
    }
    other.response().assert_is(200, "page");
    assert_eq!(origin.count("/slow"), 1);
}

#[test]
fn large_bodies_go_as_far_as_the_windows_allow() {
    let (origin, proxy) = start();
    let body: String = (0..200_000_u32)
        .map(|n| char::from(b'a' + (n % 26) as u8))
        .collect();
    origin
        .on("/stored")
        .reply(Reply::new(200).with(FRESH).body(&body));
    origin
        .on("/passed")
        .reply(Reply::new(200).with("Cache-Control: no-store").body(&body));
    for target in ["/stored", "/stored", "/passed"] {
        let mut client = Http2::connect_with_window(proxy.address(), 1000);
        let stream = client.ask("GET", target, &[]);
        let (mut received, mut room) = (Vec::new(), 1000_usize);
        loop {
            let data = client.until(DATA);
            assert_eq!(data.stream, stream);
            received.extend_from_slice(&data.payload);
            let left = room.checked_sub(data.payload.len());
            room = left.expect("no more than the window allows");
            if data.flags & END_STREAM != 0 {
                break;
            }
            if room == 0 {
                client.open(0, 1000);
                client.open(stream, 1000);
                room = 1000;
            }
        }
        assert!(
            received == body.as_bytes(),
            "{target}: {} bytes",
            received.len()
        );
    }
    // A window that is opened in SETTINGS counts for the streams that are there (RFC 9113 §6.9.2).
    let mut client = Http2::connect_with_window(proxy.address(), 0);
    let stream = client.ask("GET", "/stored", &[]);
    client.until(HEADERS);
    client.send(frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 5]));
    let data = client.until(DATA);
    assert_eq!((data.stream, data.payload.len()), (stream, 5));
    // Pages of the proxy itself have no more room.
    let mut client = Http2::connect_with_window(proxy.address(), 10);
    let stream = client.ask("GET", "/a b", &[]);
    let data = client.until(DATA);
    let seen = (data.stream, data.payload.len(), data.flags & END_STREAM);
    assert_eq!(seen, (stream, 10, 0));
    client.open(stream, 1000);
    let data = client.until(DATA);
    assert_eq!((data.stream, data.flags & END_STREAM), (stream, END_STREAM));
}

#[test]
fn one_response_after_the_other_has_its_turn() {
    let (origin, proxy) = start();
    let body = "x".repeat(300_000);
    for target in ["/1", "/2", "/urgent"] {
        origin
            .on(target)
            .reply(Reply::new(200).with(FRESH).body(&body));
        proxy.get(target).assert_is(200, &body);
    }
    let mut client = Http2::connect_with_window(proxy.address(), 1 << 20);
    let first = client.ask("GET", "/1", &[("priority", "i")]);
    let second = client.ask("GET", "/2", &[("priority", "i")]);
    let urgent = client.ask("GET", "/urgent", &[("priority", "u=0")]);
    // The initial window of the connection, shared by all.
    let mut before = 0;
    while before < 65_535 {
        before += client.until(DATA).payload.len();
    }
    client.open(0, 1 << 20);
    let mut order = Vec::new();
    while order.iter().filter(|(_, ends)| *ends).count() < 3 {
        let data = client.until(DATA);
        order.push((data.stream, data.flags & END_STREAM != 0));
    }
    let end = |id| {
        order
            .iter()
            .position(|&(it, ends)| it == id && ends)
            .expect("an end")
    };
    assert!(end(urgent) < end(first).min(end(second)), "{order:?}");
    let (last_of_first, first_of_second) = (
        end(first),
        order
            .iter()
            .position(|&(id, _)| id == second)
            .expect("some"),
    );
    assert!(first_of_second < last_of_first, "{order:?}");
}

#[test]
fn content_trailers_and_cookies_reach_the_origin() {
    let (origin, proxy) = start();
    origin.on("/").reply(Reply::new(200).body("taken"));
    let body = "x".repeat(300_000);
    let mut client = Http2::connect(proxy.address());
    let fields = [("cookie", "a=1"), ("te", "trailers"), ("cookie", "b=2")];
    let stream = client.begin("POST", "/", &fields);
    // Never more than the windows allow, which the proxy opens as the origin takes it.
    let (mut room, mut connection) = (65_535_usize, 256 * 1024);
    let mut rest = body.as_bytes();
    while !rest.is_empty() {
        let length = rest.len().min(10_000).min(room).min(connection);
        let piece = rest.split_off(..length).expect("as much");
        client.send(frame(DATA, 0, stream, piece));
        (room, connection) = (room - length, connection - length);
        while room < 10_000 {
            let update = client.until(WINDOW_UPDATE);
            let by = u32::from_be_bytes(update.payload.try_into().unwrap()) as usize;
            *(if update.stream == 0 {
                &mut connection
            } else {
                &mut room
            }) += by;
        }
    }
    let trailers = http2::block(&[("x-sum", "5")]);
    client.send(frame(HEADERS, END_STREAM | END_HEADERS, stream, &trailers));
    client.answer(stream).assert_is(200, "taken");
    let seen = origin.wait_for("/", 1);
    assert!(seen.body() == body.as_bytes());
    assert_eq!(seen.field("cookie"), Some("a=1; b=2"));
    assert_eq!(seen.trailers(), [("x-sum".to_owned(), "5".to_owned())]);
}

#[test]
fn interim_responses_and_trailers_reach_the_client() {
    let (origin, proxy) = start();
    let hints = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\n";
    let chunked = "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\
                   Trailer: X-Sum\r\n\r\n4\r\npage\r\n0\r\nX-Sum: 5\r\n\r\n";
    origin.on("/").reply(Reply::raw(hints).send(chunked));
    let mut client = Http2::connect(proxy.address());
    let answer = client.get("/");
    answer.assert_is(200, "page");
    let statuses: Vec<_> = answer.heads.iter().map(|head| head[0].1.as_str()).collect();
    assert_eq!(statuses, ["103", "200", "5"], "{answer:?}");
    assert_eq!(answer.heads[2], [("x-sum".to_owned(), "5".to_owned())]);
    assert_eq!(answer.field("transfer-encoding"), None);
}

#[test]
fn content_that_waits_for_a_100_is_sent_when_it_is_wanted() {
    let (origin, proxy) = start();
    origin.on("/").reply(Reply::new(200).body("taken"));
    let mut client = Http2::connect(proxy.address());
    let stream = client.begin("PUT", "/", &[("expect", "100-continue")]);
    let head = client.until(HEADERS);
    assert_eq!((head.stream, head.flags & END_STREAM), (stream, 0));
    client.send(frame(DATA, END_STREAM, stream, b"content"));
    client.answer(stream).assert_is(200, "taken");
    assert_eq!(origin.wait_for("/", 1).body(), b"content");
}

/// Begins an extended CONNECT (RFC 8441 §4).
fn open_tunnel(client: &mut Http2, protocol: &str, target: &str) -> u32 {
    let fields = [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":path", target),
        (":authority", "example.com"),
        ("sec-websocket-version", "13"),
    ];
    let stream = client.stream();
    client.send(frame(HEADERS, END_HEADERS, stream, &http2::block(&fields)));
    stream
}

#[test]
fn only_a_protocol_switch_opens_a_tunnel() {
    let (origin, proxy) = start();
    let other = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: foo\r\n\r\n";
    origin.on("/other").reply(Reply::raw(other).hold());
    // Bytes that a browser would read as a frame of the application's.
    for (target, status) in [("/page", 200), ("/empty", 204), ("/part", 206)] {
        let reply = Reply::new(status).with(FRESH);
        let has_content = status != 204;
        origin.on(target).reply(if has_content {
            reply.body("\u{1}\u{5}hello")
        } else {
            reply
        });
    }
    origin
        .on("/moved")
        .reply(Reply::new(302).with("Location: /page"));
    origin.on("/gone").reply(Reply::new(410).body("gone"));
    proxy.get("/page").assert_is(200, "\u{1}\u{5}hello");
    let mut client = Http2::connect(proxy.address());
    for target in ["/page", "/empty", "/part", "/other"] {
        let stream = open_tunnel(&mut client, "websocket", target);
        let answer = client.answer(stream);
        let expected = "The application does not speak this protocol here.\n";
        answer.assert_is(502, expected);
    }
    let moved = open_tunnel(&mut client, "websocket", "/moved");
    assert_eq!(client.answer(moved).status(), 302);
    let gone = open_tunnel(&mut client, "websocket", "/gone");
    client.answer(gone).assert_is(410, "gone");
    // No other protocol comes to the application at all.
    let before = origin.requests().len();
    for protocol in ["foo", "connect-udp", "webtransport", "h2c"] {
        let stream = open_tunnel(&mut client, protocol, "/page");
        assert_eq!(client.answer(stream).status(), 501, "{protocol}");
    }
    assert_eq!(origin.requests().len(), before);
    client.get("/page").assert_is(200, "\u{1}\u{5}hello");
}

#[test]
fn where_it_was_agreed_on_nothing_else_is_spoken() {
    let origin = Origin::start();
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("page"));
    let certificate = CertificateFile::new(&["example.com"]);
    let flags = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let proxy = Proxy::start(&origin, &flags);
    let connect = |protocol: &[u8]| {
        let mut config = (*trusting(&[&certificate])).clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        Client::connect_by_tls(proxy.tls_address(), &Arc::new(config), "example.com")
            .expect("a session")
    };
    let requested = request("GET", "/", &[]);
    let mut client = connect(b"http/1.1");
    client.send(&requested);
    client.response().assert_is(200, "page");
    for bytes in [
        &*requested,
        "PRI * HTTP/1.1\r\n\r\n",
        "no HTTP at all\r\n\r\n",
    ] {
        let mut client = connect(b"h2");
        client.send(bytes);
        // Settings may come first; then it says why it leaves, and does.
        let code = loop {
            let head = client.bytes(9);
            let payload = client.bytes(usize::from(head[1]) << 8 | usize::from(head[2]));
            if head[3] == GO_AWAY {
                break u32::from(payload[7]);
            }
        };
        assert_eq!(code, PROTOCOL_ERROR, "{bytes}");
        assert!(client.is_closed(), "{bytes}");
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn a_websocket_is_a_stream_among_others() {
    let (origin, proxy) = start();
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\
                     Upgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\nearly";
    origin.on("/socket").reply(Reply::raw(switching).echo());
    origin.on("/no").reply(Reply::new(403).body("no"));
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("page"));
    let mut client = Http2::connect(proxy.address());
    let open = |client: &mut Http2, target| open_tunnel(client, "websocket", target);
    let socket = open(&mut client, "/socket");
    let head = client.until(HEADERS);
    assert_eq!((head.stream, head.flags & END_STREAM), (socket, 0));
    assert_eq!(client.until(DATA).payload, b"early");
    for word in ["one", "two"] {
        client.send(frame(DATA, 0, socket, word.as_bytes()));
        assert_eq!(client.until(DATA).payload, word.as_bytes());
        client.get("/").assert_is(200, "page");
    }
    let seen = origin.wait_for("/socket", 1);
    assert_eq!(seen.method, "GET");
    assert_eq!(seen.field("upgrade"), Some("websocket"));
    assert_eq!(seen.field("sec-websocket-version"), Some("13"));
    assert_eq!(seen.field("sec-websocket-key").map(str::len), Some(24));
    client.send(frame(DATA, END_STREAM, socket, b"end"));
    let answer = client.answer(socket);
    answer.assert_is(0, "end");
    origin.wait_for_close(seen.connection);
    let refused = open(&mut client, "/no");
    client.answer(refused).assert_is(403, "no");
}

#[test]
fn large_bodies_come_from_files_too() {
    let (origin, folder) = (Origin::start(), Folder::new());
    let body = "0123456789".repeat(40_000);
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body(&body));
    let disk = format!("{},64MiB", folder.file("disk"));
    let flags = ["--memory", "1MiB", "--disk", &disk];
    let proxy = Proxy::start(&origin, &flags);
    let mut client = Http2::connect(proxy.address());
    client.get("/").assert_is(200, &body);
    eventually("the body to be on disk", || {
        proxy.get("/").is_hit().then_some(())
    });
    let streams: Vec<_> = (0..20).map(|_| client.ask("GET", "/", &[])).collect();
    let mut answers = client.answers(&streams);
    for stream in streams {
        let answer = answers.remove(&stream).expect("an answer");
        answer.assert_is(200, &body);
        assert!(answer.is_hit());
    }
    let part = client.ask("GET", "/", &[("range", "bytes=200000-200004")]);
    client.answer(part).assert_is(206, "01234");
}

#[test]
fn a_request_that_is_given_up_is_given_up_at_the_origin() {
    let (origin, proxy) = start();
    origin.on("/").reply(Reply::silence());
    origin.on("/upload").reply(Reply::silence());
    let mut client = Http2::connect(proxy.address());
    let requested = client.ask("GET", "/", &[("cookie", "session=1")]);
    let upload = client.begin("POST", "/upload", &[]);
    client.send(frame(DATA, 0, upload, &[b'x'; 1000]));
    for (stream, target) in [(requested, "/"), (upload, "/upload")] {
        let connection = origin.wait_for(target, 1).connection;
        client.send(frame(RESET, 0, stream, &8u32.to_be_bytes()));
        origin.wait_for_close(connection);
    }
    assert!(!origin.wait_for("/upload", 1).is_complete());
    origin.on("/a").reply(Reply::new(200).body("a"));
    client.get("/a").assert_is(200, "a");
}

#[test]
fn half_a_body_is_no_body() {
    let (origin, proxy) = start();
    let half = |length: &str| {
        Reply::new(200)
            .with_all(&[FRESH, length])
            .send("half")
            .close()
    };
    origin.on("/").reply(half("Content-Length: 100"));
    let mut client = Http2::connect(proxy.address());
    let answer = client.get("/");
    assert!(
        answer.reset == Some(INTERNAL_ERROR) || answer.status() == 502,
        "{answer:?}"
    );
    assert!(!answer.ended || answer.status() == 502);
}

#[test]
fn violations_cost_the_stream_or_the_connection() {
    let (origin, proxy) = start();
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("page"));
    origin.on("/wait").reply(Reply::silence());
    let mut client = Http2::connect(proxy.address());
    for fields in [
        &[("Upper", "x")][..],
        &[("connection", "close")],
        &[("transfer-encoding", "chunked")],
        &[("te", "gzip")],
        &[(":path", "/")],
        &[("host", "other.example")],
        &[("content-length", "5")],
        &[("x", "a\r\nb: c")],
    ] {
        let stream = client.ask("GET", "/", fields);
        let answer = client.answer(stream);
        assert_eq!(answer.reset, Some(PROTOCOL_ERROR), "{fields:?}");
    }
    let long = "x".repeat(40_000);
    for (method, target, fields, status) in [
        ("GET", "/a b", &[][..], 400),
        ("GET", &format!("/{}", "x".repeat(9000)), &[], 414),
        (
            "GET",
            "/",
            &[("x", &long[..15_000]), ("y", &long[..15_000])],
            200,
        ),
    ] {
        let stream = client.stream();
        let block = http2::head(method, target, fields);
        let mut parts = block.chunks(16_384).peekable();
        let mut kind = HEADERS;
        while let Some(part) = parts.next() {
            let last = if parts.peek().is_none() {
                END_HEADERS
            } else {
                0
            };
            let ends = if kind == HEADERS { END_STREAM } else { 0 };
            client.send(frame(kind, last | ends, stream, part));
            kind = CONTINUATION;
        }
        assert_eq!(client.answer(stream).status(), status, "{target}");
    }
    let many: Vec<_> = (0..150).map(|_| ("x", "y")).collect();
    let stream = client.ask("GET", "/", &many);
    assert_eq!(client.answer(stream).status(), 431);
    // More and less content than announced.
    for (content, flags) in [(&b"toolong"[..], 0), (b"few", END_STREAM)] {
        let stream = client.begin("POST", "/wait", &[("content-length", "5")]);
        client.send(frame(DATA, flags, stream, content));
        assert_eq!(client.answer(stream).reset, Some(PROTOCOL_ERROR));
    }
    client.get("/").assert_is(200, "page");
    for (bytes, code) in [
        (
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0xff]),
            COMPRESSION_ERROR,
        ),
        (frame(DATA, 0, 1, b"x"), PROTOCOL_ERROR),
        (frame(CONTINUATION, 0, 1, b"x"), PROTOCOL_ERROR),
        (
            frame(HEADERS, END_HEADERS, 2, &http2::head("GET", "/", &[])),
            PROTOCOL_ERROR,
        ),
        (
            frame(WINDOW_UPDATE, 0, 0, &0x7fff_ffff_u32.to_be_bytes()),
            FLOW_CONTROL_ERROR,
        ),
    ] {
        let mut client = Http2::connect(proxy.address());
        client.send(bytes);
        assert_eq!(client.end(), Some(code));
    }
    let mut client = Http2::connect(proxy.address());
    client.get("/").assert_is(200, "page");
    client.send(frame(DATA, 0, 1, b"x"));
    assert_eq!(client.end(), Some(STREAM_CLOSED));
}

#[test]
fn more_streams_than_allowed_are_refused_and_the_others_served() {
    let (origin, proxy) = start();
    let gate = Gate::default();
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("page").after(&gate));
    let mut client = Http2::connect(proxy.address());
    let streams: Vec<_> = (0..129).map(|_| client.ask("GET", "/", &[])).collect();
    let refused = client.until(RESET);
    assert_eq!(
        (refused.stream, refused.payload),
        (streams[128], REFUSED_STREAM.to_be_bytes().to_vec())
    );
    gate.open();
    for stream in &client.answers(&streams[..128]) {
        assert!(*stream.0 == 0 || stream.1.status() == 200);
    }
}

#[test]
fn a_stopping_server_sends_goaway_and_finishes_its_streams() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &["--threads", "1"]);
    let gate = Gate::default();
    let slow = |gate| Reply::ok(&["Cache-Control: no-store"], "page").after(gate);
    origin.on("/").reply(slow(&gate));
    origin
        .on("/now")
        .reply(Reply::new(200).with("Cache-Control: no-store").body("now"));
    let mut idle = Http2::connect(proxy.address());
    idle.get("/now").assert_is(200, "now");
    let mut client = Http2::connect(proxy.address());
    let requested = client.ask("GET", "/", &[]);
    origin.wait_for("/", 1);
    proxy.terminate();
    assert_eq!(idle.end(), Some(0));
    // A stream that the client opened before it knew is served.
    client.send(frame(PING, 0, 0, b"12345678"));
    let notice = client.until(GO_AWAY);
    assert_eq!(
        notice.payload,
        [&[0x7f, 0xff, 0xff, 0xff][..], &[0; 4]].concat()
    );
    let late = client.ask("GET", "/now", &[]);
    client.answer(late).assert_is(200, "now");
    client.send(frame(PING, 1, 0, b"lastcall"));
    let last = client.until(GO_AWAY);
    assert_eq!(last.payload, [&late.to_be_bytes()[..], &[0; 4]].concat());
    gate.open();
    client.answer(requested).assert_is(200, "page");
    assert_eq!(client.end(), None);
    assert!(proxy.wait().success());
}

#[test]
fn a_client_that_is_silent_or_stops_in_the_middle_is_not_waited_for() {
    let origin = Origin::start();
    let flags = [
        "--client-idle-timeout",
        "300ms",
        "--client-head-timeout",
        "300ms",
    ];
    let proxy = Proxy::start(&origin, &flags);
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("page"));
    let mut idle = Http2::connect(proxy.address());
    idle.get("/").assert_is(200, "page");
    assert_eq!(idle.end(), Some(0));
    let head = http2::head("GET", "/", &[]);
    for unfinished in [
        frame(HEADERS, END_STREAM, 1, &head),
        frame(HEADERS, END_STREAM | END_HEADERS, 1, &head)[..20].to_vec(),
    ] {
        let mut client = Http2::connect(proxy.address());
        client.send(&unfinished);
        assert_eq!(client.end(), Some(11));
    }
}

/// A proxy with a write timeout of 400 ms, a stored body of 100,000 bytes at `/large`, and an empty one at `/empty`.
fn before_closed_windows() -> (Origin, Proxy) {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-write-timeout", "400ms"]);
    let body = "x".repeat(100_000);
    origin
        .on("/large")
        .reply(Reply::new(200).with(FRESH).body(&body));
    origin
        .on("/empty")
        .reply(Reply::new(200).with_all(&[FRESH, "Content-Length: 0"]));
    proxy.get("/large").assert_is(200, &body);
    (origin, proxy)
}

#[test]
fn a_closed_window_costs_its_stream_only() {
    let (_origin, proxy) = before_closed_windows();
    let mut client = Http2::connect_with_window(proxy.address(), 10);
    let stream = client.ask("GET", "/large", &[]);
    let reset = client.until(RESET);
    assert_eq!(
        (reset.stream, reset.payload),
        (stream, CANCEL.to_be_bytes().to_vec())
    );
    client.get("/empty").assert_is(200, "");
}

#[test]
fn a_closed_window_of_the_connection_blocks_nothing_once_its_stream_is_cancelled() {
    let write_timeout = Duration::from_millis(400);
    let (_origin, proxy) = before_closed_windows();
    let mut client = Http2::connect(proxy.address());
    let stream = client.ask("GET", "/large", &[]);
    let mut window = 65_535;
    while window > 0 {
        window -= client.until(DATA).payload.len();
    }
    client.send(frame(RESET, 0, stream, &CANCEL.to_be_bytes()));
    std::thread::sleep(2 * write_timeout);
    client.get("/empty").assert_is(200, "");
}

#[test]
fn the_access_log_names_the_protocol() {
    let folder = Folder::new();
    let log = folder.file("access.log");
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &["--access-log", &log]);
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("page"));
    let mut client = Http2::connect(proxy.address());
    client.get("/").assert_is(200, "page");
    client.get("/").assert_is(200, "page");
    drop(client);
    end(&mut proxy);
    let lines = lines(&log);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(
        lines.iter().all(|line| line.contains("HTTP/2.0")),
        "{lines:?}"
    );
}
