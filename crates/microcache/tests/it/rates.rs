//! Rate limits of routes: the number of requests in a period, and the responses above it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use serde_json::Value;

use crate::limits::refused;
use crate::support::http2::Http2;
use crate::support::{
    Client, Gate, Origin, Proxy, Reply, Response, config_file, eventually, request,
};

const FRESH: &str = "Cache-Control: max-age=1000";
const PRIVATE: &str = "Cache-Control: no-store";
const OTHER: &str = "127.0.0.2";

/// A page that is stored, and one that is not.
fn origin() -> Origin {
    let origin = Origin::start();
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    for target in ["/alone", "/alone?key=a", "/alone?k%65y=%61", "/alone?key=b"] {
        origin
            .on(target)
            .reply(Reply::new(200).with(PRIVATE).body("y"));
    }
    origin
}

fn ask(admin: SocketAddr, method: &str, target: &str) -> Response {
    let mut client = Client::connect(admin);
    client.send(format!(
        "{method} {target} HTTP/1.1\r\nHost: {admin}\r\n\r\n"
    ));
    client.response()
}

/// The statuses of so many requests, one after the other.
fn statuses(count: usize, ask: impl Fn() -> Response) -> Vec<u16> {
    (0..count).map(|_| ask().status).collect()
}

#[test]
fn so_many_misses_are_let_through_and_any_number_of_hits() {
    let origin = origin();
    let (proxy, admin) = Proxy::operated(&origin, &["--rate", "2/h"]);
    proxy.get("/").assert_is(200, "x");
    assert_eq!(statuses(3, || proxy.get("/alone")), [200, 429, 429]);
    assert_eq!(statuses(100, || proxy.get("/")), [200; 100]);
    let answer = proxy.get("/alone");
    assert_eq!(answer.field("cache-control"), Some("no-store"));
    assert_eq!(
        answer.field("content-type"),
        Some("text/plain; charset=utf-8")
    );
    assert_eq!(answer.cache().get("detail"), Some("rate-limited"));
    assert!(!answer.cache().has("stored") && !answer.is_hit());
    assert_eq!(
        answer.field("ratelimit-policy"),
        Some("\"address\";q=2;w=3600")
    );
    let after: u64 = answer
        .field("retry-after")
        .expect("it is said")
        .parse()
        .expect("seconds");
    assert!(
        (1..=1800).contains(&after),
        "half an hour for each: {after}"
    );
    let rest = format!("\"address\";r=0;t={after}");
    assert_eq!(answer.field("ratelimit"), Some(&*rest));
    // Another address is another client; HEAD and HTTP/2 count as well.
    proxy.get_from(OTHER, "/alone", &[]).assert_is(200, "y");
    assert_eq!(proxy.send("HEAD", "/alone", &[]).status, 429);
    assert_eq!(Http2::connect(proxy.address()).get("/alone").status(), 429);
    assert_eq!(origin.count("/alone"), 2);
    // It is no error, and is counted by route and by reason.
    let stats: Value = serde_json::from_str(&ask(admin, "GET", "/v1/stats").text()).expect("JSON");
    assert_eq!(stats["requests"]["limited"], 5);
    assert_eq!(stats["requests"]["error"], 0);
    assert_eq!(refused(admin, "rate"), 5);
    let metrics = ask(admin, "GET", "/metrics").text();
    let sample = "microcache_route_requests_total{route=\"default\",outcome=\"limited\"} 5";
    assert!(metrics.contains(sample), "{metrics}");
    proxy.output_with("127.0.0.1 was answered 429: the rate limit of the route is 2/h by address");
}

#[test]
fn a_connection_continues_after_a_429() {
    let origin = origin();
    let proxy = Proxy::start(&origin, &["--rate", "1/h"]);
    let mut client = proxy.connect();
    client.get("/alone").assert_is(200, "y");
    client.send(request("GET", "/alone", &[]).repeat(3));
    for _ in 0..3 {
        assert_eq!(client.response().status, 429);
    }
    let mut http2 = Http2::connect(proxy.address());
    let streams = [(); 50].map(|()| http2.ask("GET", "/alone", &[]));
    for stream in streams {
        let answer = http2.answer(stream);
        assert_eq!((answer.status(), answer.reset), (429, None));
    }
    // What was to be sent is not read.
    let post = "POST /alone HTTP/1.1\r\nHost: example.com\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n";
    let answer = proxy.request(post);
    assert_eq!((answer.status, answer.interim.len()), (429, 0));
    assert_eq!(origin.count("/alone"), 1);
}

#[test]
fn all_requests_count_where_the_route_is_configured_so() {
    let origin = origin();
    let flags = ["--rate", "3/h", "--rate-of", "requests"];
    let proxy = Proxy::start(&origin, &flags);
    assert_eq!(statuses(5, || proxy.get("/")), [200, 200, 200, 429, 429]);
    assert_eq!(proxy.get_from(OTHER, "/", &[]).status, 200);
}

#[test]
fn waiters_count_once_each_and_refreshes_not_at_all() {
    let origin = origin();
    let gate = Gate::default();
    let slow = Reply::new(200).with("Cache-Control: max-age=0, stale-while-revalidate=1000");
    origin.on("/slow").reply(slow.body("z").after(&gate));
    let proxy = Proxy::start(&origin, &["--rate", "5/h", "--threads", "1"]);
    let mut waiting: Vec<_> = (0..8).map(|_| proxy.ask("/slow")).collect();
    origin.wait_for("/slow", 1);
    proxy.settle();
    gate.open();
    let mut statuses: Vec<_> = waiting.iter_mut().map(|it| it.response().status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
    assert_eq!(origin.count("/slow"), 1);
    // It is stale, and refreshed for clients above their limit.
    proxy.get("/slow").assert_is(200, "z");
    origin.wait_for("/slow", 2);
    assert_eq!(proxy.get("/alone").status, 429);
}

#[test]
fn each_route_has_its_own_rate_and_criterion() {
    let origin = origin();
    let text = |rest: &str| format!("origin = \"{}\"\n{rest}", origin.url());
    let routes = text(
        "[[routes]]\nname = \"keys\"\nmatch = { path = \"/alone\" }\npass = true\nrate = \"2/h\"\nburst = 1\nrate_by = \"query:key\"\n\
         [[routes]]\nname = \"rest\"\n",
    );
    let proxy = Proxy::with_config(&routes);
    // However it is written.
    assert_eq!(proxy.get("/alone?key=a").status, 200);
    assert_eq!(proxy.get("/alone?k%65y=%61").status, 429);
    assert_eq!(proxy.get("/alone?key=b").status, 200);
    // Without a key, or with two, it is the address.
    assert_eq!(proxy.get("/alone").status, 200);
    assert_eq!(proxy.get("/alone?key=c&key=d").status, 429);
    assert_eq!(statuses(9, || proxy.get("/")), [200; 9]);
    for (rate_by, same, other) in [
        ("header:X-Key", "X-Key: a", "X-Key: b"),
        (
            "cookie:session",
            "Cookie: session=a",
            "Cookie: other=1; session=b",
        ),
    ] {
        let proxy =
            Proxy::with_config(&text(&format!("rate = \"1/h\"\nrate_by = \"{rate_by}\"\n")));
        let status = |fields: &[&str]| proxy.get_with("/alone", fields).status;
        assert_eq!(
            [status(&[same]), status(&[same]), status(&[other])],
            [200, 429, 200],
            "{rate_by}"
        );
        assert_eq!(
            [status(&[]), status(&[same, other])],
            [200, 429],
            "{rate_by}"
        );
    }
    let proxy = Proxy::with_config(&text("rate = \"1/h\"\nrate_by = \"url\"\n"));
    assert_eq!(proxy.get("/alone").status, 200);
    assert_eq!(proxy.get_from(OTHER, "/alone", &[]).status, 429);
    assert_eq!(proxy.get("/alone?key=a").status, 200);
}

#[test]
fn behind_a_trusted_proxy_its_clients_are_counted() {
    let origin = origin();
    let flags = ["--rate", "1/h", "--trusted-proxies", "127.0.0.1"];
    let proxy = Proxy::start(&origin, &flags);
    let status = |address: &str| {
        let field = format!("X-Forwarded-For: {address}");
        proxy.get_with("/alone", &[&field]).status
    };
    assert_eq!(
        [
            status("192.0.2.1"),
            status("192.0.2.1"),
            status("192.0.2.2")
        ],
        [200, 429, 200]
    );
    // What a client has put before it changes nothing, and one /64 is one client.
    assert_eq!(status("6.6.6.6, 192.0.2.1"), 429);
    assert_eq!(
        [
            status("2001:db8::1"),
            status("2001:db8::2"),
            status("2001:db8:0:1::1")
        ],
        [200, 429, 200]
    );
    let forged = |address: &str| {
        let field = format!("X-Forwarded-For: {address}");
        proxy.get_from(OTHER, "/alone", &[&field]).status
    };
    assert_eq!([forged("192.0.2.3"), forged("192.0.2.4")], [200, 429]);
}

#[test]
fn ten_thousand_addresses_neither_reset_nor_block_each_other() {
    let origin = origin();
    let flags = [
        "--proxy-protocol",
        "127.0.0.1",
        "--rate",
        "5/h",
        "--rate-of",
        "requests",
        "--max-rate-keys",
        "1024",
    ];
    let (proxy, admin) = Proxy::operated(&origin, &flags);
    let status = |address: IpAddr| {
        let mut client = proxy.connect();
        let line = format!("PROXY TCP4 {address} 10.0.0.1 1 80\r\n");
        client.send(line + &request("GET", "/", &["Connection: close"]));
        client.response().status
    };
    let attacker = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
    assert_eq!(
        [(); 6].map(|()| status(attacker)),
        [200, 200, 200, 200, 200, 429]
    );
    let before = proxy.resident();
    for number in 0..10_000_u32 {
        let one = IpAddr::V4(Ipv4Addr::from_bits(0x0b00_0000 + number));
        assert_eq!(status(one), 200, "{one} is new");
    }
    // Who has asked too much is still known, though many have come since.
    assert_eq!(status(attacker), 429);
    assert_eq!(status(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 8))), 200);
    assert!(proxy.resident() < before + (8 << 20));
    let metrics = ask(admin, "GET", "/metrics").text();
    let mut lines = metrics.lines();
    let forgotten =
        lines.find_map(|line| line.strip_prefix("microcache_rate_limit_evictions_total "));
    let forgotten: u64 = forgotten.expect("a sample").parse().expect("a count");
    assert!((8_000..10_000).contains(&forgotten), "{forgotten}");
}

#[test]
fn a_reload_changes_the_rate_and_keeps_the_counts() {
    let origin = origin();
    let text = |rest: &str| format!("origin = \"{}\"\n{rest}", origin.url());
    let file = config_file(&text("rate = \"2/h\"\n"));
    let name = file.display().to_string();
    let (proxy, admin) = Proxy::operated(&origin, &["--config", &name]);
    let reload = |rest: &str| {
        std::fs::write(&file, text(rest)).expect("it can be written");
        let answer = ask(admin, "POST", "/v1/reload");
        (answer.status, answer.text())
    };
    assert_eq!(statuses(3, || proxy.get("/alone")), [200, 200, 429]);
    assert_eq!(reload("rate = \"2/h\"\nttl = \"2s\"\n").0, 200);
    assert_eq!(proxy.get("/alone").status, 429, "he is remembered");
    assert_eq!(reload("rate = \"1000/s\"\n").0, 200);
    // No client waits for as long as the other rate says.
    eventually("it to be let through", || {
        (proxy.get("/alone").status == 200).then_some(())
    });
    assert_eq!(reload("rate = \"off\"\n").0, 200);
    assert_eq!(statuses(20, || proxy.get("/alone")), [200; 20]);
    let (status, reported) =
        reload("rate = \"ten\"\nrate_by = \"ip\"\nrate_of = \"hits\"\nburst = 0\n");
    assert_eq!(status, 422);
    for what in ["10/s", "header:NAME", "misses", "from 1 to"] {
        assert!(reported.contains(what), "{what}: {reported}");
    }
    let (status, reported) = reload("[[routes]]\nburst = 3\n");
    assert!(
        status == 422 && reported.contains("`burst` has no effect without `rate`"),
        "{reported}"
    );
}

#[test]
fn explain_shows_the_remaining_requests_without_using_any() {
    let origin = origin();
    let (proxy, admin) = Proxy::operated(&origin, &["--rate", "2/h"]);
    let explained = || -> Value {
        let target = "/v1/explain?url=http://example.com/alone";
        serde_json::from_str(&ask(admin, "GET", target).text()).expect("JSON")
    };
    for _ in 0..5 {
        let reported = explained();
        assert!(
            reported
                .to_string()
                .contains("rate limit of 2/h, 2 requests left"),
            "{reported}"
        );
    }
    assert_eq!(statuses(3, || proxy.get("/alone")), [200, 200, 429]);
    let reported = explained();
    assert_eq!(reported["verdict"], "own", "{reported}");
    assert!(reported.to_string().contains("rate-limited"), "{reported}");
}
