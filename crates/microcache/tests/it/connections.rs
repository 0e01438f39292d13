//! Clients' connections: half of them closed, too many of them, and how they end with the server.

use std::net::{IpAddr, TcpStream};

use crate::operators::Operator;
use crate::support::http2::{GO_AWAY, Http2};
use crate::support::{Client, Gate, Origin, Proxy, Reply, Signal, eventually, request};

const HOST: &str = "Host: example.com\r\n";
const FRESH: &str = "Cache-Control: max-age=1000";
const SWITCHING: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";
const UPGRADE: [&str; 2] = ["Connection: Upgrade", "Upgrade: websocket"];

/// Two addresses of this machine.
const MANY: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(127, 0, 0, 2));

fn event_stream() -> Reply {
    Reply::new(200)
        .with_all(&[
            "Content-Type: text/event-stream",
            "Transfer-Encoding: chunked",
        ])
        .chunk(":\n\n")
        .hold()
}

#[test]
fn half_closed_clients_get_their_answer() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    let gate = Gate::default();
    let slow = Reply::new(200)
        .with_all(&[FRESH, "Content-Length: 10"])
        .send("first")
        .pause(&gate)
        .send("after");
    for target in ["/shared", "/alone", "/upload"] {
        origin.on(target).reply(slow.clone().after(&gate));
    }
    let shared = request("GET", "/shared", &[]);
    let alone = request("GET", "/alone", &["Cookie: session=1"]);
    let upload = format!("POST /upload HTTP/1.1\r\n{HOST}Content-Length: 5\r\n\r\nhello");
    let clients = [("/shared", shared), ("/alone", alone), ("/upload", upload)];
    let clients = clients.map(|(target, request)| {
        let mut client = proxy.connect();
        client.send(request);
        client.half_close();
        origin.wait_for(target, 1);
        client
    });
    proxy.settle();
    gate.open();
    for mut client in clients {
        client.response().assert_is(200, "firstafter");
        assert!(client.is_closed());
    }
    // A hit, and several requests ahead.
    let mut client = proxy.connect();
    client.send(request("GET", "/shared", &[]).repeat(3));
    client.half_close();
    for _ in 0..3 {
        client.response().assert_is(200, "firstafter");
    }
    assert!(client.is_closed());
}

#[test]
fn a_half_closed_client_that_gets_nothing_is_not_waited_for_for_long() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-half-closed-timeout", "200ms"]);
    origin.on("/").reply(Reply::silence());
    let mut client = proxy.ask_with("/", &["Cookie: session=1"]);
    let connection = origin.wait_for("/", 1).connection;
    client.half_close();
    origin.wait_for_close(connection);
    assert!(client.is_closed());
}

#[test]
fn a_half_closed_client_that_resets_is_gone() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&["Cache-Control: no-store", "Content-Length: 10"])
            .send("first")
            .hold(),
    );
    let client = proxy.ask("/");
    client.half_close();
    let connection = origin.wait_for("/", 1).connection;
    client.reset();
    origin.wait_for_close(connection);
}

#[test]
fn an_upload_that_is_half_closed_in_its_middle_is_not_whole() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.on("/").reply(Reply::new(200).body("x"));
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Content-Length: 10\r\n\r\nhello"
    ));
    client.half_close();
    if let Ok(response) = client.try_response() {
        assert_ne!(response.status, 200, "{response:?}");
    }
    assert!(client.is_closed());
    assert!(origin.seen("/").iter().all(|seen| !seen.is_complete()));
}

#[test]
fn a_tunnel_of_which_one_side_has_ended_gets_less_time() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-half-closed-timeout", "200ms"]);
    let never = Gate::default();
    origin
        .on("/ws")
        .reply(Reply::raw(SWITCHING).send("hello").pause(&never));
    let mut client = proxy.ask_with("/ws", &UPGRADE);
    client.head();
    assert_eq!(client.bytes(5), b"hello");
    client.half_close();
    assert!(client.is_closed());
    never.open();
}

#[test]
fn tunnels_leave_room_for_pages() {
    let origin = Origin::start();
    let proxy = Proxy::with_descriptors(400, &origin, &["--threads", "2"]);
    origin.on("/ws").reply(Reply::raw(SWITCHING).echo());
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    let mut tunnels = Vec::new();
    let mut refused = 0;
    for _ in 0..190 {
        let mut client = proxy.ask_with("/ws", &UPGRADE);
        let head = client.head();
        if head.start.starts_with("HTTP/1.1 101") {
            tunnels.push(client);
        } else {
            assert!(head.start.starts_with("HTTP/1.1 503"), "{head:?}");
            assert!(head.field("retry-after").is_some(), "{head:?}");
            refused += 1;
        }
    }
    assert!(tunnels.len() >= 45 && refused > 0, "{}", tunnels.len());
    proxy.get("/").assert_is(200, "x");
    let miss = proxy.get_with("/", &["Cookie: session=1"]);
    miss.assert_is(200, "x");
    let said = proxy.output_with("max_tunnels");
    assert_eq!(said.matches("max_tunnels").count(), 1, "{said}");
    for tunnel in &mut tunnels {
        tunnel.send("hello");
        assert_eq!(tunnel.bytes(5), b"hello");
    }
    // Who leaves makes room.
    drop(tunnels);
    eventually("room for a tunnel", || {
        let mut client = proxy.ask_with("/ws", &UPGRADE);
        client
            .head()
            .start
            .starts_with("HTTP/1.1 101")
            .then_some(())
    });
}

#[test]
fn event_streams_are_bounded_with_tunnels() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-tunnels", "2"]);
    origin.on("/events").reply(event_stream());
    origin.on("/ws").reply(Reply::raw(SWITCHING).echo());
    let mut first = proxy.ask("/events");
    first.head();
    let mut second = proxy.ask_with("/ws", &UPGRADE);
    second.head();
    for (target, fields) in [("/events", &[][..]), ("/ws", &UPGRADE)] {
        let refused = proxy.get_with(target, fields);
        assert_eq!(refused.status, 503, "{refused:?}");
        assert_eq!(refused.field("retry-after"), Some("1"));
        assert_eq!(refused.cache().get("detail"), Some("too-many-tunnels"));
    }
    assert_eq!(first.chunk(), ":\n\n");
    drop(first);
    eventually("room for an event stream", || {
        let mut client = proxy.ask("/events");
        client
            .head()
            .start
            .starts_with("HTTP/1.1 200")
            .then_some(())
    });
    second.send("hello");
    assert_eq!(second.bytes(5), b"hello");
}

/// Opens 400 connections that say `first` and nothing else, where 400 descriptors are allowed.
fn connections_of_many_idle_clients_lock_out_no_other(first: &str) {
    let origin = Origin::start();
    let proxy = Proxy::with_descriptors(400, &origin, &["--threads", "2"]);
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    let mut honest = Client::connect_from(OTHER, proxy.address());
    honest.get("/").assert_is(200, "x");
    let crowd: Vec<_> = (0..400)
        .map(|_| {
            let mut client = Client::connect_from(MANY, proxy.address());
            client.try_send(first);
            client
        })
        .collect();
    for _ in 0..5 {
        let mut late = Client::connect_from(OTHER, proxy.address());
        late.get("/").assert_is(200, "x");
    }
    // Though it has waited for longer than all others, it is not of the busiest address.
    honest.get("/").assert_is(200, "x");
    drop(crowd);
    let said = proxy.output_with("connection limit reached");
    assert_eq!(
        said.matches("connection limit reached").count(),
        1,
        "{said}"
    );
}

#[test]
fn idle_connections_give_way() {
    connections_of_many_idle_clients_lock_out_no_other("");
    connections_of_many_idle_clients_lock_out_no_other(&request("GET", "/", &[]));
}

#[test]
fn connections_with_a_part_of_a_head_give_way() {
    connections_of_many_idle_clients_lock_out_no_other("GET / HT");
}

#[test]
fn a_connection_with_a_request_does_not_give_way() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-connections", "4", "--threads", "1"]);
    let gate = Gate::default();
    let slow = Reply::new(200).with(FRESH).body("slow");
    origin.on("/slow").reply(slow.after(&gate));
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    let mut busy: Vec<_> = (0..4).map(|_| proxy.ask("/slow")).collect();
    origin.wait_for("/slow", 1);
    let mut fifth = proxy.ask("/");
    gate.open();
    for client in &mut busy {
        client.response().assert_is(200, "slow");
    }
    // One of the four gives way now, because all have been answered.
    fifth.response().assert_is(200, "x");
    let kept = busy.iter_mut().map(|client| client.try_get("/"));
    assert_eq!(kept.flatten().count(), 3);
}

#[test]
fn signals_without_a_meaning_are_ignored() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &[]);
    origin.on("/").reply(Reply::new(200).body("x"));
    for (signal, name) in [(Signal::HUP, "SIGHUP"), (Signal::USR1, "SIGUSR1")] {
        proxy.signal(signal);
        proxy.output_with(&format!("{name} is ignored"));
        assert!(proxy.is_running());
    }
    proxy.get("/").assert_is(200, "x");
    proxy.terminate();
    assert!(proxy.wait().success());
}

#[test]
fn connections_in_the_kernels_queue_are_served_before_the_end() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &["--threads", "2"]);
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    origin.on("/alone").reply(Reply::new(200).body("y"));
    proxy.get("/").assert_is(200, "x");
    // While it is frozen the kernel accepts for it.
    proxy.freeze();
    let queued: Vec<_> = (0..500)
        .map(|number| {
            if number % 10 == 0 {
                proxy.ask_with("/alone", &["Cookie: session=1"])
            } else {
                proxy.ask("/")
            }
        })
        .collect();
    proxy.terminate();
    proxy.thaw();
    for mut client in queued {
        assert_eq!(client.response().status, 200);
        assert!(client.is_closed());
    }
    assert!(proxy.wait().success());
}

#[test]
fn a_server_about_to_end_is_not_ready_first_and_serves_everything_until_the_delay_is_over() {
    let origin = Origin::start();
    let (mut proxy, admin) = Proxy::operated(&origin, &["--drain-delay", "1h", "--threads", "2"]);
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    origin.on("/alone").reply(Reply::new(200).body("y"));
    let operator = Operator::at(admin);
    let mut kept: Vec<_> = (0..4).map(|_| proxy.connect()).collect();
    for client in &mut kept {
        let response = client.get("/");
        assert_eq!((response.status, response.field("connection")), (200, None));
    }
    let mut silent = proxy.connect();
    proxy.terminate();
    eventually("not ready", || {
        let ready = operator.ask("GET", "/v1/ready", None);
        (ready.status == 503).then_some(())
    });
    assert_eq!(operator.get("/v1/stats")["draining"], true);
    let mut others: Vec<_> = (0..20).map(|_| proxy.connect()).collect();
    for client in kept.iter_mut().chain(&mut others).chain([&mut silent]) {
        client.send(request("GET", "/alone", &["Cookie: session=1"]));
        let response = client.response();
        assert_eq!(response.status, 200);
        assert_eq!(response.field("connection"), Some("close"));
        assert!(client.is_closed());
    }
    // One with HTTP/2 has its request, and gets GOAWAY with the response.
    let mut http2 = Http2::connect(proxy.address());
    http2.get("/").assert_is(200, "x");
    assert_eq!(http2.until(GO_AWAY).payload[4..], [0; 4]);
    assert_eq!(operator.ask("POST", "/v1/drain", None).status, 202);
    assert_eq!(operator.ask("POST", "/v1/upgrade", None).status, 409);
    proxy.get("/").assert_is(200, "x");
    proxy.terminate();
    assert!(proxy.wait().success());
}

#[test]
fn an_interrupt_ends_without_the_delay() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &["--drain-delay", "1h"]);
    proxy.signal(Signal::INT);
    assert!(proxy.wait().success());
    let mut proxy = Proxy::start(&origin, &["--drain-delay", "1h"]);
    proxy.terminate();
    proxy.output_with("new connections are accepted for another 3600s");
    proxy.signal(Signal::INT);
    assert!(proxy.wait().success());
}

#[test]
fn a_delay_that_is_over_ends_in_finishing() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &["--drain-delay", "10ms"]);
    proxy.terminate();
    assert!(proxy.wait().success());
    proxy.output_with("finishing the requests in progress");
}

#[test]
fn an_answer_that_did_not_close_its_connection_leaves_room_for_one_more_request() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &["--threads", "1"]);
    let gate = Gate::default();
    let begun = Reply::new(200).with("Content-Length: 2").send("a");
    origin.on("/begun").reply(begun.pause(&gate).send("b"));
    origin.on("/next").reply(Reply::new(200).body("next"));
    let mut clients: Vec<_> = (0..8)
        .map(|_| proxy.ask_with("/begun", &["Cookie: session=1"]))
        .collect();
    for client in &mut clients {
        let head = client.head();
        assert_eq!(head.field("connection"), None);
        assert_eq!(client.bytes(1), b"a");
    }
    proxy.terminate();
    eventually("a closed port", || {
        TcpStream::connect(proxy.address()).err()
    });
    gate.open();
    for client in &mut clients {
        assert_eq!(client.bytes(1), b"b");
        client.send(request("GET", "/next", &["Cookie: session=1"]));
    }
    for client in &mut clients {
        let response = client.response();
        response.assert_is(200, "next");
        assert_eq!(response.field("connection"), Some("close"));
        assert!(client.is_closed());
    }
    assert!(proxy.wait().success());
}

#[test]
fn tunnels_and_event_streams_do_not_hold_the_end_up() {
    let origin = Origin::start();
    let flags = ["--drain-stream-timeout", "200ms", "--drain-timeout", "1h"];
    let mut proxy = Proxy::start(&origin, &flags);
    let gate = Gate::default();
    origin.on("/events").reply(event_stream());
    origin.on("/ws").reply(Reply::raw(SWITCHING).echo());
    origin.on("/").reply(Reply::new(200).body("x").after(&gate));
    let mut stream = proxy.ask("/events");
    stream.head();
    let mut tunnel = proxy.ask_with("/ws", &UPGRADE);
    tunnel.head();
    let mut request = proxy.ask("/");
    origin.wait_for("/", 1);
    proxy.terminate();
    assert_eq!(stream.chunk(), ":\n\n");
    assert!(stream.is_closed());
    assert!(tunnel.is_closed());
    // What has an end is waited for.
    assert!(proxy.is_running());
    gate.open();
    request.response().assert_is(200, "x");
    assert!(proxy.wait().success());
}
