//! What costs a client nothing and a server much, each mounted until the proxy has had enough. Then
//! another client is answered, and what the process holds has stayed within bounds.

use super::{FRESH, start};
use crate::support::http2::{
    self, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, PING, RESET, SETTINGS,
    WINDOW_UPDATE, frame,
};
use crate::support::{Origin, Proxy, Reply};

const ENHANCE_YOUR_CALM: u32 = 11;
/// What an attack may leave behind: buffers of connections, and what the allocator keeps.
const LEFT_BEHIND: u64 = 32 << 20;
/// Far more of anything than a connection is allowed.
const MANY: usize = 20_000;

/// Before an origin that never answers `/wait`, and has a page.
fn attacked() -> (Origin, Proxy) {
    let (origin, proxy) = start();
    origin.on("/wait").reply(Reply::silence());
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("page"));
    Http2::connect(proxy.address())
        .get("/")
        .assert_is(200, "page");
    (origin, proxy)
}

/// Sends these one after the other until the proxy closes the connection, and expects it to say why.
fn attack(proxy: &Proxy, frames: impl Iterator<Item = Vec<u8>>) {
    let before = proxy.resident();
    let mut client = Http2::connect(proxy.address());
    let mut batch = Vec::new();
    let mut goes_on = true;
    for frame in frames {
        batch.extend_from_slice(&frame);
        if batch.len() > 8192 {
            goes_on = client.try_send(std::mem::take(&mut batch));
        }
        if !goes_on {
            break;
        }
    }
    client.try_send(batch);
    if let Some(code) = client.end() {
        assert_eq!(code, ENHANCE_YOUR_CALM);
    } else {
        assert!(!goes_on, "it was sent to its end, and nothing was said");
    }
    let after = proxy.resident();
    assert!(after < before + LEFT_BEHIND, "{before} and then {after}");
    Http2::connect(proxy.address())
        .get("/")
        .assert_is(200, "page");
    proxy.get("/").assert_hit();
}

/// Numbers of streams.
fn streams() -> impl Iterator<Item = u32> {
    (0..MANY as u32).map(|n| 2 * n + 1)
}

#[test]
fn requests_that_are_given_up_at_once() {
    let (origin, proxy) = attacked();
    let head = http2::head("GET", "/wait", &[("cookie", "session=1")]);
    attack(
        &proxy,
        streams().map(|stream| {
            let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
            [ask, frame(RESET, 0, stream, &8u32.to_be_bytes())].concat()
        }),
    );
    assert!(origin.count("/wait") < 1000, "{}", origin.count("/wait"));
}

#[test]
fn streams_that_the_server_is_made_to_reset() {
    let (origin, proxy) = attacked();
    let head = http2::head("GET", "/wait", &[("cookie", "session=1")]);
    attack(
        &proxy,
        streams().map(|stream| {
            let ask = frame(HEADERS, END_HEADERS | END_STREAM, stream, &head);
            [ask, frame(WINDOW_UPDATE, 0, stream, &[0; 4])].concat()
        }),
    );
    assert!(origin.count("/wait") < 1000, "{}", origin.count("/wait"));
}

#[test]
fn field_blocks_without_an_end() {
    let (_origin, proxy) = attacked();
    for part in [&[0; 0][..], &[0x82; 4000]] {
        let first = frame(HEADERS, END_STREAM, 1, &[0x82]);
        let rest = (0..MANY).map(|_| frame(CONTINUATION, 0, 1, part));
        attack(&proxy, std::iter::once(first).chain(rest));
    }
}

#[test]
fn a_byte_that_stands_for_much() {
    let (_origin, proxy) = attacked();
    let before = proxy.resident();
    let mut client = Http2::connect(proxy.address());
    // An entry that fills the table, and then nothing but references to it.
    let mut entry = vec![0x40];
    let literal = http2::block(&[("x", &"y".repeat(4000))]);
    entry.extend_from_slice(&literal[1..]);
    let mut block = [http2::head("GET", "/", &[]), entry].concat();
    block.resize(16_384, 0xbe);
    for _ in 0..50 {
        let stream = client.stream();
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, &block));
        assert_eq!(client.answer(stream).status(), 431);
    }
    assert!(proxy.resident() < before + LEFT_BEHIND);
    client.get("/").assert_is(200, "page");
}

#[test]
fn frames_that_demand_a_reply() {
    let (_origin, proxy) = attacked();
    attack(&proxy, (0..MANY).map(|_| frame(PING, 0, 0, b"12345678")));
    attack(&proxy, (0..MANY).map(|_| frame(SETTINGS, 0, 0, &[])));
    attack(
        &proxy,
        (0..MANY).map(|_| frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 1])),
    );
}

#[test]
fn frames_that_say_nothing() {
    let (_origin, proxy) = attacked();
    let priority = [0, 0, 0, 1, 16];
    attack(
        &proxy,
        streams().map(|stream| frame(2, 0, stream + 2, &priority)),
    );
    attack(&proxy, (0..MANY).map(|_| frame(77, 0, 0, b"whatever")));
    attack(&proxy, (0..MANY).map(|_| frame(16, 0, 0, b"\0\0\0\x01u=1")));
    attack(
        &proxy,
        (0..MANY).map(|_| frame(WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes())),
    );
}

#[test]
fn content_that_is_nearly_none() {
    let (origin, proxy) = attacked();
    for (target, piece) in [("/a", &b""[..]), ("/b", b"x")] {
        origin.on(target).reply(Reply::new(200).body("taken"));
        let head = http2::head("POST", target, &[]);
        let begin = frame(HEADERS, END_HEADERS, 1, &head);
        let pieces = (0..MANY).map(|_| frame(DATA, 0, 1, piece));
        attack(&proxy, std::iter::once(begin).chain(pieces));
    }
}

#[test]
fn a_window_that_is_opened_by_a_byte_now_and_then() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-write-timeout", "500ms"]);
    let body = "x".repeat(1 << 20);
    origin
        .on("/large")
        .reply(Reply::new(200).with(FRESH).body(&body));
    proxy.get("/large").assert_is(200, &body);
    let before = proxy.resident();
    let mut client = Http2::connect_with_window(proxy.address(), 1);
    let streams: Vec<_> = (0..100).map(|_| client.ask("GET", "/large", &[])).collect();
    let mut reset = Vec::new();
    // Each byte is answered with another one, as long as the proxy puts up with it.
    while reset.len() < streams.len() {
        let Some(frame) = client.frame() else { break };
        match frame.kind {
            DATA => client.open(frame.stream, 1),
            RESET => reset.push(frame.stream),
            7 => break,
            _ => {}
        }
    }
    assert!(proxy.resident() < before + LEFT_BEHIND);
    proxy.get("/large").assert_hit();
}

#[test]
fn unread_content_is_buffered_within_the_windows() {
    let (origin, proxy) = attacked();
    let body = [b'x'; 16_000];
    origin.on("/upload").reply(Reply::silence().early());
    let before = proxy.resident();
    let mut clients: Vec<_> = (0..8).map(|_| Http2::connect(proxy.address())).collect();
    for client in &mut clients {
        // All that the windows allow: 256 KiB on the connection, 64 KiB on each stream.
        for _ in 0..4 {
            let stream = client.begin("POST", "/upload", &[]);
            for _ in 0..4 {
                client.send(frame(DATA, 0, stream, &body));
            }
        }
    }
    assert!(proxy.resident() < before + LEFT_BEHIND);
    Http2::connect(proxy.address())
        .get("/")
        .assert_is(200, "page");
}
