//! Slow clients, too few file descriptors, signals.

use std::io::ErrorKind;

use crate::support::{Client, Gate, Origin, Proxy, Reply, eventually};

const HOST: &str = "Host: example.com\r\n";

/// The client may get a response; in any case the connection is closed.
fn assert_timed_out(mut client: Client) {
    match client.try_response() {
        Ok(response) => assert_eq!(response.status, 408, "{response:?}"),
        Err(error) => assert_ne!(error.kind(), ErrorKind::TimedOut),
    }
    assert!(client.is_closed());
}

#[test]
fn a_slow_head_is_timed_out() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-head-timeout", "200ms"]);
    for start in [
        "G",
        "GET / HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\nHost: example.com\r\nX-A: ",
    ] {
        let mut client = proxy.connect();
        client.send(start);
        assert_timed_out(client);
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn a_dripping_head_is_timed_out() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-head-timeout", "200ms"]);
    let mut client = proxy.connect();
    client.send(format!("GET / HTTP/1.1\r\n{HOST}"));
    // Each byte comes in time; the head as a whole does not.
    eventually("the proxy to give up", || {
        (!client.try_send("X: y\r\n")).then_some(())
    });
    assert!(origin.requests().is_empty());
}

#[test]
fn the_beginning_of_a_next_head_has_no_longer_than_any_other() {
    let origin = Origin::start();
    // With the time between two requests the test would not see the end of it.
    let flags = [
        "--client-head-timeout",
        "200ms",
        "--client-idle-timeout",
        "1h",
    ];
    let proxy = Proxy::start(&origin, &flags);
    let gate = Gate::default();
    let fresh = Reply::new(200).with("Cache-Control: max-age=100").body("x");
    origin.on("/miss").reply(fresh.clone().after(&gate));
    origin.on("/hit").reply(fresh);
    proxy.get("/hit").assert_is(200, "x");

    // Behind a hit, in the same bytes.
    let mut client = proxy.connect();
    client.send(format!("GET /hit HTTP/1.1\r\n{HOST}\r\nGET / HT"));
    client.response().assert_is(200, "x");
    assert_timed_out(client);

    // Behind a request that has to wait, and behind a hit that comes after it.
    for next in ["", "GET /hit HTTP/1.1\r\nHost: example.com\r\n\r\n"] {
        let mut client = proxy.connect();
        client.send(format!(
            "POST /miss HTTP/1.1\r\n{HOST}Content-Length: 0\r\n\r\n{next}GET / HT"
        ));
        gate.open();
        client.response().assert_is(200, "x");
        if !next.is_empty() {
            client.response().assert_is(200, "x");
        }
        assert_timed_out(client);
    }
}

#[test]
fn a_silent_connection_is_closed() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-idle-timeout", "200ms"]);
    origin.on("/").reply(Reply::new(200).body("x"));
    let mut client = proxy.connect();
    client.get("/").assert_is(200, "x");
    assert!(client.is_closed(), "after a request");
}

#[test]
fn a_connection_without_any_request_is_closed() {
    let origin = Origin::start();
    let flags = [
        "--client-idle-timeout",
        "200ms",
        "--client-head-timeout",
        "200ms",
    ];
    let proxy = Proxy::start(&origin, &flags);
    assert_timed_out(proxy.connect());
}

#[test]
fn a_slow_body_is_timed_out() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-body-timeout", "200ms"]);
    origin.on("/").reply(Reply::new(200).body("x"));
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Content-Length: 10\r\n\r\nsome"
    ));
    assert_timed_out(client);
    assert_eq!(origin.connections(), 0, "it never heard of it");
    // What has begun well is on its way to the origin when it stalls.
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Content-Length: 1000000\r\n\r\n{}",
        "x".repeat(100 << 10)
    ));
    let connection = origin.wait_for("/", 1).connection;
    assert_timed_out(client);
    origin.wait_for_close(connection);
}

#[test]
fn a_dripping_body_is_timed_out() {
    let origin = Origin::start();
    // A byte every few milliseconds is far from silence, and far from the rate.
    let flags = ["--client-body-timeout", "1s", "--client-body-rate", "1MB"];
    let proxy = Proxy::start(&origin, &flags);
    origin.on("/").reply(Reply::new(200).body("x"));
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Content-Length: 1000000\r\n\r\n{}",
        "x".repeat(100 << 10)
    ));
    let connection = origin.wait_for("/", 1).connection;
    eventually("the proxy to give up", || {
        (!client.try_send("x")).then_some(())
    });
    origin.wait_for_close(connection);
}

#[test]
fn a_client_that_does_not_read_is_dropped() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--client-write-timeout", "300ms"]);
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&["Cache-Control: no-store", "Content-Length: 1000000000"])
            .flood(1_000_000_000),
    );
    let mut client = proxy.ask("/");
    client.head();
    let connection = origin.seen("/")[0].connection;
    origin.wait_for_close(connection);
}

#[test]
fn slow_clients_delay_no_other() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    origin.on("/").reply(Reply::new(200).body("x"));
    let slow: Vec<_> = (0..50)
        .map(|_| {
            let mut client = proxy.connect();
            client.send("GET / HT");
            client
        })
        .collect();
    proxy.get("/").assert_is(200, "x");
    drop(slow);
}

#[test]
fn with_no_descriptor_left_it_keeps_serving_and_accepts_again() {
    let origin = Origin::start();
    let proxy = Proxy::with_descriptors(64, &origin, &["--threads", "2"]);
    origin
        .on("/miss")
        .reply(Reply::new(200).with("Cache-Control: no-store").body("x"));
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=1000"], "x"));
    proxy.get("/").assert_is(200, "x");
    for _ in 0..3 {
        let crowd: Vec<_> = (0..200).map(|_| proxy.connect()).collect();
        // One that waits for another request may have to give way, but a new one is served.
        for _ in 0..10 {
            proxy.get("/").assert_is(200, "x");
        }
        let miss = proxy.get("/miss").status;
        assert!(matches!(miss, 200 | 502 | 503), "{miss}");
        drop(crowd);
        eventually("a new connection to be served", || {
            let mut late = proxy.connect();
            late.try_send(format!("GET / HTTP/1.1\r\n{HOST}\r\n"));
            late.try_response()
                .ok()
                .filter(|response| response.status == 200)
        });
    }
    proxy.get("/").assert_is(200, "x");
}

#[test]
fn a_bound_on_connections_is_kept() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-connections", "4", "--threads", "1"]);
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=1000"], "x"));
    let mut clients: Vec<_> = (0..4).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.get("/").assert_is(200, "x");
    }
    // All of them wait for a request, so one of them gives way.
    proxy.get("/").assert_is(200, "x");
    let kept = clients.iter_mut().map(|client| client.try_get("/"));
    assert_eq!(kept.flatten().count(), 3);
    drop(clients);
    eventually("room for another", || {
        let mut late = proxy.connect();
        late.try_send(format!("GET / HTTP/1.1\r\n{HOST}\r\n"));
        late.try_response()
            .ok()
            .filter(|response| response.status == 200)
    });
}

#[test]
fn a_signal_lets_requests_under_way_finish() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &["--threads", "2"]);
    let gate = Gate::default();
    origin.on("/").reply(
        Reply::new(200)
            .with("Content-Length: 10")
            .send("first")
            .pause(&gate)
            .send("after"),
    );
    origin
        .on("/head")
        .reply(Reply::new(200).body("late").after(&gate));
    let mut body = proxy.ask("/");
    body.head();
    assert_eq!(body.bytes(5), b"first");
    let mut head = proxy.ask("/head");
    origin.wait_for("/head", 1);
    let mut idle = proxy.connect();
    proxy.terminate();
    assert!(idle.is_closed(), "idle connections are closed");
    eventually("the proxy to stop listening", || {
        std::net::TcpStream::connect(proxy.address())
            .err()
            .map(drop)
    });
    assert!(proxy.is_running(), "it waits for what is under way");
    gate.open();
    assert_eq!(body.bytes(5), b"after");
    let response = head.response();
    response.assert_is(200, "late");
    assert_eq!(response.field("connection"), Some("close"), "{response:?}");
    assert!(head.is_closed());
    assert!(proxy.wait().success());
}

#[test]
fn a_signal_right_after_the_start_is_handled() {
    let origin = Origin::start();
    for _ in 0..20 {
        let mut proxy = Proxy::start(&origin, &[]);
        proxy.terminate();
        let status = proxy.wait();
        assert!(status.success(), "{status}");
    }
}

#[test]
fn a_second_signal_ends_it() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &[]);
    origin.on("/").reply(Reply::silence());
    let _client = proxy.ask("/");
    origin.wait_for("/", 1);
    let mut idle = proxy.connect();
    proxy.terminate();
    assert!(idle.is_closed());
    assert!(proxy.is_running());
    proxy.terminate();
    proxy.wait();
}

#[test]
fn the_drain_has_an_end() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &["--drain-timeout", "200ms"]);
    origin.on("/").reply(Reply::silence());
    let _client = proxy.ask("/");
    origin.wait_for("/", 1);
    proxy.terminate();
    proxy.wait();
}

#[test]
fn with_nothing_to_do_it_ends_at_once() {
    let origin = Origin::start();
    let mut proxy = Proxy::start(&origin, &[]);
    origin.on("/").reply(Reply::new(200).body("x"));
    proxy.get("/").assert_is(200, "x");
    proxy.terminate();
    assert!(proxy.wait().success());
}

#[test]
fn the_log_and_the_health_check_describe_the_state() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--memory", "32MiB"]);
    let said = eventually("a few lines", || {
        let output = proxy.output();
        (output.contains("32 MiB") || output.contains("32MiB")).then_some(output)
    });
    assert!(said.contains(&origin.url()), "{said}");
    assert!(said.contains("curl"), "{said}");
}
