//! What clients may take: connections, requests, heads and bodies; and what is said of what is refused.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::support::http2::{self, HEADERS, Http2, RESET, frame};
use crate::support::{
    CertificateFile, Client, Gate, Origin, Proxy, Reply, config_file, eventually, request,
};

const FRESH: &str = "Cache-Control: max-age=1000";
const HOST: &str = "Host: example.com\r\n";

/// Addresses of this machine.
const MANY: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// The number of rejections for this reason, as reported to operators.
pub(crate) fn refused(admin: SocketAddr, reason: &str) -> u64 {
    let mut client = Client::connect(admin);
    client.send(format!("GET /metrics HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    let text = client.response().text();
    let sample = format!("microcache_refused_total{{reason=\"{reason}\"}} ");
    let count = text.lines().find_map(|line| line.strip_prefix(&sample));
    count.expect("a sample").parse().expect("a count")
}

/// A proxy with operators, and an origin that has a page.
fn start(flags: &[&str]) -> (Origin, Proxy, SocketAddr) {
    let origin = Origin::start();
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    let (proxy, admin) = Proxy::operated(&origin, flags);
    proxy.get("/").assert_is(200, "x");
    (origin, proxy, admin)
}

#[test]
fn one_address_does_not_use_up_the_limits_of_others() {
    let flags = ["--max-connections-per-address", "10", "--threads", "2"];
    let (origin, proxy, admin) = start(&flags);
    let gate = Gate::default();
    let slow = Reply::new(200).with("Cache-Control: no-store");
    origin.on("/slow").reply(slow.body("slow").after(&gate));
    // Ten that have requests: an eleventh is closed, and others are answered.
    let mut busy: Vec<_> = (0..10)
        .map(|number| {
            let client = proxy.ask_with("/slow", &["Cookie: session=1"]);
            origin.wait_for("/slow", number + 1);
            client
        })
        .collect();
    for _ in 0..5 {
        let mut eleventh = Client::connect_from(MANY, proxy.address());
        assert!(eleventh.try_get("/").is_err());
        let mut other = Client::connect_from(OTHER, proxy.address());
        other.get("/").assert_is(200, "x");
    }
    let counted = refused(admin, "address");
    assert!(counted >= 5, "{counted}");
    let line = "127.0.0.1 has 10 connections and none of them is idle";
    let said = proxy.output_with(line);
    assert_eq!(said.matches(line).count(), 1, "{said}");
    gate.open();
    for client in &mut busy {
        client.response().assert_is(200, "slow");
    }
    // Now they wait, and give way to new ones of the same address.
    for _ in 0..5 {
        eventually("a place", || proxy.connect().try_get("/").ok()).assert_hit();
    }
    let kept = busy.iter_mut().map(|client| client.try_get("/"));
    assert!(kept.flatten().count() < 10);
}

#[test]
fn a_trusted_proxy_may_have_any_number_of_connections() {
    let flags = [
        "--max-connections-per-address",
        "2",
        "--trusted-proxies",
        "127.0.0.1",
    ];
    let (_origin, proxy, admin) = start(&flags);
    let mut clients: Vec<_> = (0..20).map(|_| proxy.connect()).collect();
    for client in &mut clients {
        client.get("/").assert_hit();
    }
    let mut stranger: Vec<_> = (0..2)
        .map(|_| Client::connect_from(OTHER, proxy.address()))
        .collect();
    for client in stranger.iter_mut().chain(&mut clients) {
        client.get("/").assert_hit();
    }
    assert_eq!(refused(admin, "address"), 0);
}

#[test]
fn a_reload_changes_the_limits_and_keeps_the_counts() {
    let origin = Origin::start();
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    let text = |limits: &str| format!("origin = \"{}\"\n{limits}\n", origin.url());
    let file = config_file(&text("max_target_size = \"1KiB\""));
    let name = file.display().to_string();
    let (proxy, admin) = Proxy::operated(&origin, &["--config", &name]);
    let long = format!("/?{}", "x".repeat(2000));
    assert_eq!(proxy.get(&long).status, 414);
    let mut kept = proxy.connect();
    kept.get("/").assert_is(200, "x");
    std::fs::write(&file, text("max_requests_per_connection = 3")).expect("it can be written");
    let mut operator = Client::connect(admin);
    operator.send(format!("POST /v1/reload HTTP/1.1\r\nHost: {admin}\r\n\r\n"));
    assert_eq!(operator.response().status, 200);
    assert_ne!(proxy.get(&long).status, 414);
    assert_eq!(refused(admin, "target"), 1);
    // The one that was open has had one of three.
    assert_eq!(kept.get("/").field("connection"), None);
    assert_eq!(kept.get("/").field("connection"), Some("close"));
    assert!(kept.is_closed());
}

#[test]
fn a_connection_has_so_many_requests() {
    let (origin, proxy, _) = start(&["--max-requests-per-connection", "3", "--threads", "1"]);
    let miss = Reply::new(200).with("Cache-Control: no-store").body("y");
    origin.on("/miss").reply(miss);
    // Hits, misses, and requests that are sent ahead: what comes behind the last is not answered.
    let mut client = proxy.connect();
    client.send(request("GET", "/", &[]).repeat(5));
    for _ in 0..2 {
        assert_eq!(client.response().field("connection"), None);
    }
    assert_eq!(client.response().field("connection"), Some("close"));
    assert!(client.is_closed());
    let mut client = proxy.connect();
    for target in ["/miss", "/", "/miss"] {
        assert_eq!(client.get(target).status, 200);
    }
    assert!(client.is_closed());
    // GOAWAY names the last stream.
    let mut client = Http2::connect(proxy.address());
    let streams = [(); 4].map(|()| client.ask("GET", "/miss", &[]));
    let answers = client.answers(&streams[..3]);
    for stream in &streams[..3] {
        answers[stream].assert_is(200, "y");
    }
    // Its stream was refused without fault, and the fourth may be sent again.
    assert!(matches!(client.end(), None | Some(0)));
    assert_eq!(origin.count("/miss"), 5);
}

#[test]
fn a_head_is_bounded_in_bytes_fields_and_time() {
    let flags = ["--client-head-timeout", "300ms", "--threads", "1"];
    let (_origin, proxy, admin) = start(&flags);
    let before = proxy.resident();
    for (field, reason) in [
        (format!("X: {}\r\n", "x".repeat(64 * 1024)), "head"),
        ("X: y\r\n".repeat(200), "head"),
    ] {
        let count = refused(admin, reason);
        let mut clients: Vec<_> = (0..50).map(|_| proxy.connect()).collect();
        for client in &mut clients {
            client.try_send(format!("GET / HTTP/1.1\r\n{HOST}{field}"));
            client.try_send("\r\n");
            assert_eq!(client.response().status, 431);
        }
        assert_eq!(refused(admin, reason), count + 50);
    }
    // A head that comes byte by byte delays no other, and times out.
    let mut slow: Vec<_> = (0..50)
        .map(|_| {
            let mut client = proxy.connect();
            client.send("GET / HT");
            client
        })
        .collect();
    proxy.get("/").assert_hit();
    for client in &mut slow {
        assert_eq!(client.response().status, 408);
    }
    assert!(refused(admin, "head-timeout") >= 50);
    assert!(proxy.resident() < before + (32 << 20));
    let said = proxy.output_with("127.0.0.1 was answered 431: ");
    assert!(said.lines().count() < 40, "not a line for each: {said}");
}

#[test]
fn a_body_is_bounded_by_its_route() {
    let origin = Origin::start();
    for target in ["/", "/upload/x"] {
        let taken = Reply::new(200).body("taken");
        origin.on(target).reply(taken);
    }
    let (proxy, admin) = Proxy::operated_by_file(&format!(
        "origin = \"{}\"\nmax_body_size = \"1KiB\"\n[[routes]]\nmatch = {{ path = \"/upload/*\" }}\nmax_body_size = \"1MiB\"\n",
        origin.url()
    ));
    let post = |target: &str, length: usize| {
        let body = "x".repeat(length);
        format!("POST {target} HTTP/1.1\r\n{HOST}Content-Length: {length}\r\n\r\n{body}")
    };
    proxy.request(post("/", 1024)).assert_is(200, "taken");
    proxy
        .request(post("/upload/x", 100_000))
        .assert_is(200, "taken");
    for (target, length) in [("/", 1025), ("/upload/x", (1 << 20) + 1)] {
        let mut client = proxy.connect();
        client.try_send(post(target, length));
        let answer = client.response();
        assert_eq!(answer.status, 413);
        assert_eq!(answer.cache().get("detail"), Some("request-body"));
        assert!(client.is_closed());
    }
    // A client that asks first does not send it at all.
    let mut client = proxy.connect();
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Content-Length: 9999\r\nExpect: 100-continue\r\n\r\n"
    ));
    let answer = client.response();
    assert_eq!((answer.status, answer.interim.len()), (413, 0));
    // Of bodies without a length the application receives no more than the limit.
    let mut client = proxy.connect();
    let chunk = format!("200\r\n{}\r\n", "x".repeat(0x200));
    client.send(format!(
        "POST / HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n"
    ));
    for _ in 0..3 {
        client.try_send(&chunk);
    }
    assert_eq!(client.response().status, 413);
    let mut client = Http2::connect(proxy.address());
    let stream = client.begin("POST", "/", &[("content-length", "2000")]);
    assert_eq!(client.answer(stream).status(), 413);
    let stream = client.begin("POST", "/", &[]);
    client.send(frame(http2::DATA, http2::END_STREAM, stream, &[b'x'; 2000]));
    assert_eq!(client.answer(stream).status(), 413);
    client.get("/").assert_is(200, "taken");
    assert_eq!(refused(admin, "body"), 6);
    let complete = origin
        .seen("/")
        .iter()
        .filter(|seen| seen.is_complete())
        .count();
    assert_eq!((complete, origin.count("/upload/x")), (2, 1));
}

#[test]
fn http2_has_bounds_with_names() {
    let flags = ["--http2-max-streams", "4", "--http2-max-resets", "10"];
    let (origin, proxy, admin) = start(&flags);
    let gate = Gate::default();
    let slow = Reply::new(200).with("Cache-Control: no-store").body("slow");
    origin.on("/slow").reply(slow.after(&gate));
    let mut client = Http2::connect(proxy.address());
    let streams = [(); 5].map(|()| client.ask("GET", "/slow", &[]));
    // REFUSED_STREAM: it may be sent again.
    assert_eq!(client.answer(streams[4]).reset, Some(7));
    gate.open();
    let answers = client.answers(&streams[..4]);
    for stream in &streams[..4] {
        answers[stream].assert_is(200, "slow");
    }
    assert_eq!(refused(admin, "http2-stream"), 1);
    origin.on("/wait").reply(Reply::silence());
    let mut client = Http2::connect(proxy.address());
    for _ in 0..20 {
        let stream = client.stream();
        let head = http2::head("GET", "/wait", &[]);
        let flags = http2::END_HEADERS | http2::END_STREAM;
        client.try_send(frame(HEADERS, flags, stream, &head));
        client.try_send(frame(RESET, 0, stream, &8u32.to_be_bytes()));
    }
    assert_eq!(client.end(), Some(11));
    assert_eq!(refused(admin, "http2"), 1);
    proxy.get("/").assert_hit();
}

#[test]
fn handshakes_that_come_to_nothing_are_counted() {
    let certificate = CertificateFile::new(&["example.com"]);
    let tls = ["--tls", certificate.name(), "--tls-listen", "127.0.0.1:0"];
    let (_origin, proxy, admin) = start(&[&tls[..], &["--client-head-timeout", "300ms"]].concat());
    let mut late = Client::connect(proxy.tls_address());
    // The beginning of a record that never comes.
    late.send([22, 3, 1, 1, 0]);
    let mut garbage = Client::connect(proxy.tls_address());
    garbage.send([22, 3, 1, 0, 4, 99, 0, 0, 0]);
    eventually("both to be counted", || {
        let counted = ["handshake", "handshake-timeout"].map(|why| refused(admin, why));
        (counted == [1, 1]).then_some(())
    });
}
