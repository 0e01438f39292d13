//! Subscriptions by WebSocket: documents and pages, in both languages, by friends and by enemies.

mod frames;
mod model;
mod sites;

use std::process::Command;
use std::time::Duration;

use crate::push::{Kept, Live, SECRET, tag};
use crate::support::http2::{self, DATA, END_HEADERS, HEADERS, Http2};
use crate::support::websocket::{
    BINARY, CLOSE, FIN, PING, PONG, TEXT, UPGRADE, WebSocket, frame as ws_frame,
};
use crate::support::{
    Client, Origin, Proxy, Reply, Signal, eventually, has_python_module, request,
};

const WATCH: &str = "/.well-known/microcache/watch";

fn open(live: &Live, target: &str) -> WebSocket {
    WebSocket::open(&live.0, target, &[])
}

/// The message about a document without its id.
fn message(event: &str, url: &str, rest: &str) -> String {
    format!(r#""event":"{event}","url":"{url}","type":"application/json",{rest}}}"#)
}

#[track_caller]
fn expect(socket: &mut WebSocket, end: &str) {
    let text = socket.text();
    assert!(text.ends_with(end), "{text}\n{end}");
}

fn expect_put(socket: &mut WebSocket, url: &str, value: &str) {
    expect(socket, &message("put", url, &format!("\"value\":{value}")));
}

#[test]
fn websockets_deliver_the_same_as_event_streams() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "1");
    let watch = format!("{WATCH}?url=/live/x&url=/live/news/*&deltas=1");
    let mut events = live.subscribe(&watch, &[]);
    let mut socket = open(&live, &watch);
    let mut one = open(&live, "/live/x");
    let merge = ["Content-Type: application/merge-patch+json"];
    let wide = format!("{{\"a\":{{\"b\":1}},\"c\":\"{}\"}}", "x".repeat(70_000));
    for step in 0..6 {
        let answer = match step {
            0 => None,
            1 => Some(live.put("/live/news/1", &wide)),
            2 => Some(live.publish("PATCH", "/live/news/1", &merge, r#"{"a":{"b":2}}"#)),
            3 => Some(live.put("/live/x", "\"\u{e4}\"")),
            4 => Some(live.publish("DELETE", "/live/news/1", &[], "")),
            _ => Some(live.publish("PUT", "/live/news/2", &["Content-Type: image/png"], "\0")),
        };
        assert!(answer.is_none_or(|it| it.status < 300));
        let event = events.data();
        assert_eq!(socket.text(), event, "{step}");
        if event.contains("\"/live/x\"") {
            assert_eq!(one.text(), event);
        }
    }
}

#[test]
fn an_invalid_handshake_gets_an_error_response() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--push-max-subscribers", "1"]);
    live.put("/live/x", "1");
    let without = |left_out: &str| -> Vec<&str> {
        let all = UPGRADE.into_iter();
        all.filter(|it| !it.starts_with(left_out)).collect()
    };
    let status = |target: &str, fields: &[&str]| live.0.get_with(target, fields).status;
    let old = live
        .0
        .get_with("/live/x", &without("Sec-WebSocket-Version"));
    assert_eq!(old.status, 426);
    assert_eq!(old.field("sec-websocket-version"), Some("13"));
    assert_eq!(status("/live/x", &without("Sec-WebSocket-Key")), 400);
    // It asks for nothing but the document then.
    assert_eq!(status("/live/x", &without("Connection")), 200);
    assert_eq!(status("/live//x", &UPGRADE), 404);
    assert_eq!(status(&format!("{WATCH}?url=/other"), &UPGRADE), 400);
    let content = [&UPGRADE[..], &["Content-Length: 0"]].concat();
    assert_eq!(status("/live/x", &without("Upgrade")), 200);
    let mut client = live.0.ask_with("/live/x", &content);
    let head = client.head();
    assert_eq!(head.start, "HTTP/1.1 101 Switching Protocols");
    // There is room for one, and the next is refused while it still speaks HTTP.
    let full = live.0.get_with("/live/x", &UPGRADE);
    assert_eq!((full.status, full.field("retry-after")), (503, Some("1")));
    drop(client);
    eventually("room", || {
        let mut client = live.0.ask_with("/live/x", &UPGRADE);
        client.head().start.contains("101").then_some(())
    });
}

#[test]
fn urls_come_and_go_while_it_is_open() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/a/1", "1");
    live.put("/live/b", "2");
    for target in ["/live/", WATCH] {
        let mut socket = open(&live, target);
        let mut say = |order: &str, url: &str, answers: &[&str]| {
            if !order.is_empty() {
                socket.say(&format!("{{\"{order}\": \"{url}\"}}"));
            }
            for answer in answers {
                let text = socket.text();
                assert!(text.contains(answer), "{text}\n{answer}");
            }
        };
        let told_of = |kind: &str, url: &str| format!("\"event\":\"{kind}\",\"url\":\"{url}\"");
        let subscribed = told_of("subscribed", "/live/a/*");
        say(
            "subscribe",
            "/live/a/*",
            &[&told_of("put", "/live/a/1"), &subscribed],
        );
        // Some of it is known already.
        live.put("/live/a/2", "1");
        let more = [
            &*told_of("put", "/live/a/2"),
            &*told_of("subscribed", "/live/a/2"),
        ];
        say("subscribe", "/live/a/2", &more);
        say("subscribe", "/live/a/2", &[&told_of("error", "/live/a/2")]);
        let gone = live.publish("DELETE", "/live/a/2", &[], "");
        assert_eq!(gone.status, 204);
        say("", "", &[&told_of("delete", "/live/a/2")]);
        say("get", "/live/b", &[r#""value":2,"etag":"#]);
        say("get", "/live/none", &[r#""url":"/live/none","status":404"#]);
        say("get", "/live/*", &["\"status\":400"]);
        say("subscribe", "/other", &["\"status\":400"]);
        say("subscribe", "/live//x", &["\"status\":400"]);
        say("unsubscribe", "/live/none", &["\"status\":404"]);
        say(
            "unsubscribe",
            "/live/a/*",
            &[&told_of("unsubscribed", "/live/a/*")],
        );
        live.put("/live/a/1", "3");
        live.put("/live/a/1", "1");
        say(
            "unsubscribe",
            "/live/a/2",
            &[&told_of("unsubscribed", "/live/a/2")],
        );
        say("nonsense", "/live/x", &["\"status\":400"]);
        // Nothing of that has ended it.
        say(
            "subscribe",
            "/live/b",
            &[&told_of("put", "/live/b"), "\"subscribed\""],
        );
    }
}

#[test]
fn a_socket_has_the_bounds_of_a_subscription() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    let mut socket = open(&live, "/live/");
    let mut say = |url: String, expected: &str| {
        socket.say(&format!("{{\"subscribe\": \"{url}\"}}"));
        let text = socket.text();
        assert!(text.contains(expected), "{text}");
    };
    for number in 0..8 {
        say(format!("/live/{number}*"), "subscribed");
    }
    say("/live/8*".to_owned(), "at most 8 patterns");
    for number in 8..100 {
        say(format!("/live/{number}"), "subscribed");
    }
    say("/live/x".to_owned(), "at most 100 URLs");
}

#[test]
fn a_returning_client_gets_the_missed_changes_after_a_restart() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let seen = {
        let mut live = kept.start(&origin, &[]);
        live.put("/live/a", "1");
        let seen = tag(&live.put("/live/b", "2"));
        live.0.signal(Signal::KILL);
        live.0.wait();
        seen
    };
    let live = kept.start(&origin, &[]);
    live.put("/live/a", "3");
    let seen = seen.trim_matches('"');
    let watch = format!("{WATCH}?url=/live/a&url=/live/b&last_event_id={seen}");
    let mut socket = open(&live, &watch);
    expect_put(&mut socket, "/live/a", "3");
    live.put("/live/b", "4");
    expect_put(&mut socket, "/live/b", "4");
    let mut unknown = open(&live, &format!("{WATCH}?url=/live/a&last_event_id=1.1"));
    assert_eq!(unknown.text(), r#"{"event":"reset"}"#);
    expect_put(&mut unknown, "/live/a", "3");
}

#[test]
fn a_subscription_before_the_first_turn_hides_no_missed_change() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    for (number, url) in ["/live/a", "/live/b", "/live/c"].into_iter().enumerate() {
        live.put(url, &number.to_string());
    }
    let watch = format!("{WATCH}?url=/live/a&url=/live/b");
    let order = ws_frame(FIN | TEXT, br#"{"subscribe":"/live/c"}"#);
    let mut client = live.0.connect();
    client.send([request("GET", &watch, &UPGRADE).as_bytes(), &order].concat());
    let mut socket = WebSocket::agreed(client);
    // The connection breaks at that event, and before `subscribed`.
    let (mut message, mut seen) = (Vec::new(), None);
    while !message.contains(&"/live/c".to_owned()) {
        let event: serde_json::Value = serde_json::from_str(&socket.text()).expect("JSON");
        message.push(event["url"].as_str().expect("a url").to_owned());
        seen = event["id"].as_str().map(str::to_owned).or(seen);
    }
    let seen = seen.map(|seen| format!("&last_event_id={seen}"));
    let mut socket = open(&live, &(watch + &seen.unwrap_or_default()));
    if !message.contains(&"/live/a".to_owned()) {
        expect_put(&mut socket, "/live/a", "0");
    }
    expect_put(&mut socket, "/live/b", "1");
}

#[test]
fn pages_of_the_application_are_watched_too() {
    let origin = Origin::start();
    let fresh = "Cache-Control: max-age=1";
    origin
        .on("/news?a=1")
        .reply(Reply::new(200).with(fresh).body("news"));
    let proxy = Proxy::start(&origin, &["--watch", "refresh"]);
    let mut socket = WebSocket::open(&proxy, &format!("{WATCH}?url=/news%3Fa=1"), &[]);
    let page = r#"{"event":"page","url":"/news?a=1","version":""#;
    assert!(socket.text().starts_with(page));
    // A page that is asked for later, of which a version is known.
    origin
        .on("/other")
        .reply(Reply::new(200).with(fresh).body("other"));
    socket.say(r#"{"subscribe": "/other"}"#);
    assert!(
        socket
            .text()
            .contains(r#""event":"subscribed","url":"/other""#)
    );
    assert!(
        socket
            .text()
            .starts_with(r#"{"event":"page","url":"/other""#)
    );
    origin
        .on("/other")
        .reply(Reply::new(200).with(fresh).body("another"));
    assert!(
        socket
            .text()
            .starts_with(r#"{"event":"page","url":"/other""#)
    );
    socket.say(r#"{"unsubscribe": "/other"}"#);
    assert!(socket.text().contains("\"unsubscribed\""));
    socket.say(r#"{"get": "/news?a=1"}"#);
    assert!(socket.text().contains("pages can only be fetched by HTTP"));
}

#[test]
fn another_language_is_spoken_too() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/John", r#"{"email":"j@example.com"}"#);
    let protocol = ["Sec-WebSocket-Protocol: piper-protocol"];
    for target in ["/live/", "/live/anything"] {
        let mut client = live.0.connect();
        client.send(request("GET", target, &[&UPGRADE[..], &protocol].concat()));
        let head = client.head();
        assert_eq!(head.field("sec-websocket-protocol"), Some("piper-protocol"));
        drop(client);
    }
    let mut socket = WebSocket::open(&live.0, "/live/", &protocol);
    let say = |socket: &mut WebSocket, command: &str, answers: &[&str]| {
        socket.say(command);
        for answer in answers {
            assert_eq!(socket.text(), *answer, "{command}");
        }
    };
    let john = r#"{"email":"j@example.com"}"#;
    say(&mut socket, "get John", &[john]);
    let long = "\u{1}".repeat(2000);
    say(
        &mut socket,
        &format!("GET {long}"),
        &[r#"{"error":"a URL may have at most 1024 bytes"}"#],
    );
    say(
        &mut socket,
        "GET Jane",
        &[r#"{"error":"there is no such document","rid":"Jane"}"#],
    );
    say(
        &mut socket,
        "SUBSCRIBE Jane",
        &[r#"{"error":"not found","rid":"Jane"}"#],
    );
    live.put("/live/Jane", "2");
    assert_eq!(socket.text(), "2");
    say(&mut socket, "subscribe *", &[john]);
    live.put("/live/Jack", "3");
    say(&mut socket, "GET *", &[]);
    let mut all: Vec<_> = (0..4).map(|_| socket.text()).collect();
    all.sort();
    assert_eq!(all, ["2", "3", "3", john]);
    say(
        &mut socket,
        "SUBSCRIBE (= a 1)",
        &[r#"{"error":"filters are not supported"}"#],
    );
    say(&mut socket, "UNSUBSCRIBE", &[]);
    say(&mut socket, "SUBSCRIBE Jack mine", &["3"]);
    let already = r#"{"error":"already subscribed","rid":"Jack"}"#;
    say(&mut socket, "SUBSCRIBE Jack ours", &[already]);
    let unknown = r#"{"error":"not subscribed","rid":"ours"}"#;
    say(&mut socket, "UNSUBSCRIBE ours", &[unknown]);
    assert_eq!(live.publish("DELETE", "/live/Jack", &[], "").status, 204);
    assert_eq!(socket.text(), r#"{"admin":"remove","rid":"Jack"}"#);
    live.put("/live/John", "4");
    say(&mut socket, "UNSUBSCRIBE mine", &[]);
    say(&mut socket, "GET John", &["4"]);
    live.put("/live/Jack", "5");
    say(&mut socket, "GET John", &["4"]);
}

#[test]
fn it_is_a_stream_of_http2_too() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "1");
    let mut client = Http2::connect(live.0.address());
    let stream = client.stream();
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":path", "/live/x"),
        (":authority", "example.com"),
        ("sec-websocket-version", "13"),
    ];
    client.send(http2::frame(
        HEADERS,
        END_HEADERS,
        stream,
        &http2::block(&fields),
    ));
    let head = client.until(HEADERS);
    assert_eq!(head.stream, stream);
    let put = |value: &str| message("put", "/live/x", &format!("\"value\":{value}"));
    let text = |client: &mut Http2| {
        let data = client.until(DATA).payload;
        assert_eq!(data[0], FIN | TEXT);
        String::from_utf8(data[2..].to_vec()).expect("UTF-8")
    };
    let first = text(&mut client);
    assert!(first.ends_with(&put("1")), "{first}");
    live.put("/live/x", "2");
    let second = text(&mut client);
    assert!(second.ends_with(&put("2")), "{second}");
    let order = ws_frame(FIN | TEXT, br#"{"get":"/live/none"}"#);
    client.send(http2::frame(DATA, 0, stream, &order));
    let third = text(&mut client);
    assert!(third.contains("\"status\":404"), "{third}");
    client.send(http2::frame(
        DATA,
        0,
        stream,
        &ws_frame(FIN | CLOSE, &[3, 232]),
    ));
    let answer = client.answer(stream);
    assert_eq!(answer.body, [FIN | CLOSE, 2, 3, 232]);
    assert!(answer.ended);
}

#[test]
fn a_stalled_client_costs_nothing_and_gets_the_latest() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "0");
    let mut stalled = open(&live, "/live/x");
    let mut reading = open(&live, "/live/x");
    let before = live.0.resident();
    let page = |number: u32| format!("\"{number}:{}\"", "x".repeat(200_000));
    expect_put(&mut reading, "/live/x", "0");
    for number in 1..=300 {
        assert_eq!(live.put("/live/x", &page(number)).status, 204);
        if number % 10 == 0 {
            let end = message("put", "/live/x", &format!("\"value\":{}", page(number)));
            while !reading.text().ends_with(&end) {}
        }
    }
    // Events of sixty megabytes were published; a few of the newest versions are kept for all together.
    let grown = live.0.resident().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown}");
    expect_put(&mut stalled, "/live/x", "0");
    let end = message("put", "/live/x", &format!("\"value\":{}", page(300)));
    let mut late = 0;
    while !stalled.text().ends_with(&end) {
        late += 1;
    }
    assert!(
        late < 299,
        "it was told {late} versions that were out of date"
    );
}

#[test]
fn long_commands_of_many_clients_cost_little_memory() {
    const MANY: usize = 300;
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--max-connections-per-address", "1000"]);
    live.put("/live/x", "1");
    let mut sockets: Vec<_> = (0..MANY).map(|_| open(&live, "/live/")).collect();
    let before = live.0.resident();
    // All but the end of an order that is as long as one may be.
    let order = ws_frame(FIN | TEXT, &[b' '; 8192]);
    let (most, last) = order.split_at(order.len() - 1);
    for socket in &mut sockets {
        socket.client().send(most);
    }
    let mut modest = open(&live, "/live/x");
    expect_put(&mut modest, "/live/x", "1");
    live.put("/live/x", "2");
    expect_put(&mut modest, "/live/x", "2");
    let grown = live.0.resident().saturating_sub(before);
    assert!(grown < (MANY as u64) * 48 * 1024, "{grown}");
    // Each is listened to when it comes to the end of its sentence.
    for socket in &mut sockets {
        socket.client().send(last);
        expect(
            socket,
            r#""why":"unknown command; use {\"subscribe\": URL}, {\"unsubscribe\": URL} or {\"get\": URL}"}"#,
        );
    }
}

#[test]
fn a_client_that_reads_no_replies_is_not_read() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "1");
    let mut greedy = open(&live, "/live/");
    greedy
        .client()
        .stream()
        .set_write_timeout(Some(Duration::from_millis(500)))
        .expect("a timeout");
    let before = live.0.resident();
    let ping = ws_frame(FIN | PING, &[b'x'; 125]);
    let order = ws_frame(FIN | TEXT, br#"{"get":"/live/x"}"#);
    let flood = [ping.repeat(400), order.repeat(400)].concat();
    // At some time it is stopped, or all of it is taken slowly: nothing of it is kept.
    let sent = (0..200)
        .take_while(|_| greedy.client().try_send(&flood))
        .count();
    assert!(sent < 200, "all of it was taken");
    let grown = live.0.resident().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown}");
    let mut modest = open(&live, "/live/x");
    expect_put(&mut modest, "/live/x", "1");
    live.put("/live/x", "2");
    expect_put(&mut modest, "/live/x", "2");
}

#[test]
fn orders_may_come_with_the_request() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    live.put("/live/x", "1");
    // More of them than what a socket takes before it is read from.
    let ping = ws_frame(FIN | PING, &[b'x'; 125]);
    let order = ws_frame(FIN | TEXT, br#"{"subscribe":"/live/x"}"#);
    let mut client = live.0.connect();
    let asks = request("GET", "/live/", &UPGRADE);
    client.send([asks.as_bytes(), &ping.repeat(300), &order].concat());
    let mut socket = WebSocket::agreed(client);
    for _ in 0..300 {
        assert_eq!(socket.frame(), (FIN | PONG, vec![b'x'; 125]));
    }
    let put = message("put", "/live/x", "\"value\":1,\"etag\":\"");
    let text = socket.text();
    assert!(text.contains(put.trim_end_matches('}')), "{text}");
    expect(&mut socket, "\"}");
}

/// What the operators' interface says of them.
fn count(admin: std::net::SocketAddr, what: &str) -> u64 {
    let mut client = Client::connect(admin);
    client.send(format!("GET /v1/stats HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    let stats: serde_json::Value = serde_json::from_slice(&client.response().body).expect("JSON");
    stats["push"][what].as_u64().expect("a number")
}

#[test]
fn a_closed_connection_leaves_nothing_behind() {
    let origin = Origin::start();
    let flags = ["--push", "/live/", "--push-directory", "none"];
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    let all: Vec<_> = (0..4)
        .map(|_| WebSocket::open(&proxy, "/live/x", &[]))
        .collect();
    eventually("four sockets", || {
        (count(admin, "sockets") == 4 && count(admin, "subscribers") == 4).then_some(())
    });
    let mut left = Vec::new();
    for (number, mut socket) in all.into_iter().enumerate() {
        match number {
            0 => socket.leave().reset(),
            1 => drop(socket),
            2 => {
                socket.send(FIN | CLOSE, [3, 232]);
                assert_eq!(socket.close_code(), 1000);
                left.push(socket);
            }
            _ => {
                // It reads on; but no order can come from it, and no farewell.
                socket.client().half_close();
                left.push(socket);
            }
        }
    }
    eventually("nobody to be there", || {
        (count(admin, "sockets") == 0 && count(admin, "subscribers") == 0).then_some(())
    });
}

#[test]
fn a_stopping_server_sends_a_close_frame() {
    let (kept, origin) = (Kept::new(), Origin::start());
    // The whole drain may be shorter than what streams have of it.
    for flag in ["--drain-stream-timeout=0s", "--drain-timeout=1s"] {
        let mut live = kept.start(&origin, &[flag]);
        live.put("/live/x", "1");
        let mut socket = open(&live, "/live/x");
        expect_put(&mut socket, "/live/x", "1");
        live.0.terminate();
        assert_eq!(socket.close_code(), 1001, "{flag}");
        assert!(live.0.wait().success());
    }
}

#[test]
fn a_stalled_client_is_disconnected_despite_other_events() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &["--client-write-timeout", "500ms"]);
    // More than what systems hold for a connection.
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    for number in 0..12 {
        assert_eq!(live.put(&format!("/live/{number}"), &large).status, 201);
    }
    let client = Client::connect_narrow(live.0.address());
    let mut socket = WebSocket::open_on(client, "/live/", &[]);
    socket.say(r#"{"subscribe": "/live/*"}"#);
    let pong = ws_frame(FIN | PONG, b"");
    let mut number = 0;
    eventually("the end of it", || {
        // It gets more events, and sends something itself: neither is read.
        number += 1;
        live.put("/live/x", &number.to_string());
        (!socket.client().try_send(&pong)).then_some(())
    });
}

#[test]
fn binary_orders_and_long_ones_are_refused() {
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    let longest = format!("{{\"get\":\"/live/{}\"}}", "x".repeat(8192 - 17));
    assert_eq!(longest.len(), 8192 - 1);
    let mut socket = open(&live, "/live/");
    socket.send(FIN | TEXT, &longest);
    assert!(socket.text().contains("\"status\":400"));
    socket.send(FIN | BINARY, "{}");
    assert_eq!(socket.close_code(), 1003);
    let mut socket = open(&live, "/live/");
    socket.send(FIN | TEXT, format!("{longest}  "));
    assert_eq!(socket.close_code(), 1009);
    // In parts, of which none is too long.
    let mut socket = open(&live, "/live/");
    socket.send(TEXT, &longest);
    socket.send(FIN, "  ");
    assert_eq!(socket.close_code(), 1009);
}

/// A client by other authors.
#[test]
fn the_library_of_another_language_subscribes() {
    let script = r#"
import asyncio, json, sys, urllib.request, websockets
async def main(address, token):
    def put(value):
        headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{address}/live/x", json.dumps(value).encode(), headers, method="PUT")
        urllib.request.urlopen(request).close()
    put(1)
    url = f"ws://{address}/live/x"
    async with websockets.connect(url, subprotocols=["microcache"], origin=f"http://{address}") as socket:
        assert socket.subprotocol == "microcache"
        assert json.loads(await socket.recv())["value"] == 1
        await asyncio.get_running_loop().run_in_executor(None, put, {"a": "\u00e4" * 100000})
        assert json.loads(await socket.recv())["value"]["a"] == "\u00e4" * 100000
        await (await socket.ping())
        await socket.send([json.dumps({"get": "/live/none"})[:5], json.dumps({"get": "/live/none"})[5:]])
        assert json.loads(await socket.recv())["status"] == 404
    assert socket.close_code == 1000
    async with websockets.connect(url, subprotocols=["piper-protocol"]) as socket:
        await socket.send("subscribe *")
        assert "a" in json.loads(await socket.recv())
    try:
        await websockets.connect(url, origin="https://evil.example")
    except websockets.InvalidStatusCode as error:
        assert error.status_code == 403
    else:
        assert False
    print("done")
asyncio.run(main(*sys.argv[1:]))
"#;
    if !has_python_module("websockets", "WebSockets with another client") {
        return;
    }
    let (kept, origin) = (Kept::new(), Origin::start());
    let live = kept.start(&origin, &[]);
    let address = live.0.address().to_string();
    let output = Command::new("/usr/bin/python3")
        .args(["-c", script, &address, SECRET])
        .output()
        .expect("python runs");
    assert!(output.stdout == b"done\n", "{output:?}");
}
