//! What the log says while the server runs: why something does not work, and when it works again; a
//! line for each, and no flood.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Instant;

use crate::support::{Origin, Proxy, Reply, eventually, free_port};

/// Waits for a line, and says how often it is there.
fn occurrences(proxy: &Proxy, line: &str) -> usize {
    proxy.output_with(line).matches(line).count()
}

/// How often it happened, as its lines say: each for itself, and for those that were held back.
fn counted(proxy: &Proxy, line: &str) -> usize {
    let output = proxy.output();
    let more = |line: &str| {
        let (_, more) = line.rsplit_once("(and ")?;
        more.split(' ').next()?.parse().ok()
    };
    let lines = output
        .lines()
        .filter(|occurrences| occurrences.contains(line));
    lines.map(|line| 1 + more(line).unwrap_or(0)).sum()
}

/// Waits until the event was logged so often, in no more than a line for each second.
fn assert_counted(proxy: &Proxy, line: &str, times: usize, began: Instant) {
    eventually(line, || (counted(proxy, line) >= times).then_some(()));
    assert_eq!(counted(proxy, line), times, "{}", proxy.output());
    let lines = occurrences(proxy, line) as u64;
    assert!(lines <= 2 + began.elapsed().as_secs(), "{}", proxy.output());
}

#[track_caller]
fn assert_fails(proxy: &Proxy, target: &str, status: u16, why: &str) {
    let answer = proxy.get(target);
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.cache().get("detail"), Some(why), "{answer:?}");
}

#[test]
fn an_unresolvable_name_is_logged_at_the_start() {
    // No resolver has to be asked to know that there is no such name.
    let name = "a".repeat(64);
    let proxy = Proxy::before_url(&format!("http://{name}:3000"), &[]);
    let line = format!("microcache: origin {name}:3000: the name does not resolve: ");
    assert_eq!(occurrences(&proxy, &line), 1);
    for _ in 0..5 {
        assert_fails(&proxy, "/", 502, "origin-unreachable");
    }
    assert_eq!(occurrences(&proxy, &line), 1);
}

#[test]
fn a_failed_connection_and_its_recovery_are_logged_once() {
    let port = free_port();
    let proxy = Proxy::before_url(&format!("http://127.0.0.1:{port}"), &[]);
    let began = Instant::now();
    for _ in 0..20 {
        assert_fails(&proxy, "/", 502, "origin-unreachable");
    }
    let who = format!("microcache: origin 127.0.0.1:{port}");
    let refused = format!("{who}: cannot connect: Connection refused");
    assert_counted(&proxy, &refused, 20, began);
    assert_eq!(
        occurrences(&proxy, &format!("{who} is down after 3 failures")),
        1
    );
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("it is free again");
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("somebody calls");
        let read = stream.read(&mut [0; 4096]).expect("a request");
        assert!(read > 0, "it closed");
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(answer).expect("it is read");
    });
    proxy.get("/").assert_is(200, "ok");
    answering.join().expect("it answered");
    assert_eq!(occurrences(&proxy, &format!("{who} is up again")), 1);
}

#[test]
fn every_origin_failure_is_logged_and_counted() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    let impatient = Proxy::start(&origin, &["--first-byte-timeout", "50ms"]);
    origin.on("/hangs-up").reply(Reply::hang_up());
    origin
        .on("/malformed")
        .reply(Reply::raw("Good day\r\n\r\n"));
    origin.on("/silent").reply(Reply::silence());
    origin
        .on("/short")
        .reply(Reply::raw("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nshort").close());
    origin.on("/well").reply(Reply::new(200).body("well"));
    let began = Instant::now();
    for _ in 0..5 {
        assert_fails(&proxy, "/hangs-up", 502, "origin-disconnected");
        assert_fails(&proxy, "/malformed", 502, "origin-malformed");
        assert_fails(&impatient, "/silent", 504, "origin-timeout");
        // Cut short, or an error if nothing of it was passed on yet.
        let cut_short = proxy.ask("/short").try_response();
        assert!(!cut_short.is_ok_and(|answer| answer.status == 200));
    }
    let who = format!("microcache: origin {}", origin.address());
    for why in [
        ": it closed the connection without an answer",
        ": its answer was malformed: ",
        ": a response was truncated: ",
    ] {
        assert_counted(&proxy, &format!("{who}{why}"), 5, began);
    }
    let silent = format!("{who}: no answer within `first_byte_timeout`");
    assert_counted(&impatient, &silent, 5, began);
    proxy
        .get_with("/well", &["Cookie: a=b"])
        .assert_is(200, "well");
    assert!(occurrences(&proxy, &format!("{who} answers again")) >= 1);
}

#[test]
fn failed_health_checks_are_logged_with_their_result() {
    let origin = Origin::start();
    let unwell = Reply::new(503).body("no");
    let well = Reply::new(200).body("yes");
    origin.on("/health").reply(unwell).reply(well);
    let check = "health_check = { path = \"/health\", interval = \"1s\", timeout = \"1s\", rise = 1, fall = 1 }";
    let proxy = Proxy::with_config(&format!("origin = \"{}\"\n{check}\n", origin.url()));
    let who = format!("microcache: origin {}", origin.address());
    let saw = "fails its health check: GET /health was answered 503, not 200 to 399";
    assert_eq!(occurrences(&proxy, &format!("{who} {saw}")), 1);
    assert_eq!(
        occurrences(&proxy, &format!("{who} passes its health check again")),
        1
    );
}

#[test]
fn full_memory_is_logged_once() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--memory", "1MiB"]);
    let mut page = 0;
    let mut fill = || {
        page += 1;
        let target = format!("/{page}");
        let body = vec![b'x'; 30_000];
        origin
            .on(&target)
            .reply(Reply::ok(&["Cache-Control: max-age=1000"], body));
        assert_eq!(proxy.get(&target).status, 200);
    };
    let line = "microcache: memory is full (1MiB)";
    eventually(line, || {
        fill();
        proxy.output().contains(line).then_some(())
    });
    (0..100).for_each(|_| fill());
    assert_eq!(occurrences(&proxy, line), 1);
}

#[test]
fn a_full_origin_queue_is_logged_and_counted() {
    let origin = Origin::start();
    let flags = [
        "--max-concurrent",
        "1",
        "--max-queue",
        "1",
        "--queue-timeout",
        "1ms",
    ];
    let proxy = Proxy::start(&origin, &flags);
    origin.on("/slow").reply(Reply::silence());
    let _slow = proxy.ask("/slow");
    origin.wait_for("/slow", 1);
    let began = Instant::now();
    for page in 0..5 {
        let page = format!("/{page}");
        assert_fails(&proxy, &page, 503, "origin-busy");
    }
    let line = "microcache: upstream group origin is at its limit";
    assert_counted(&proxy, line, 5, began);
}

#[test]
fn an_untrusted_tls_terminator_is_logged_once() {
    const HTTPS: [&str; 1] = ["X-Forwarded-Proto: https"];
    const STANDARD: [&str; 1] = ["Forwarded: for=192.0.2.1;proto=https"];
    const LINE: &str = "microcache: 127.0.0.1 forwards a request as https";
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.on("/plain").reply(Reply::new(200).body("x"));
    origin
        .on("/")
        .reply(Reply::new(200).with("Cache-Control: no-store").body("x"));
    proxy.get("/plain").assert_is(200, "x");
    assert!(!proxy.output().contains(LINE));
    for fields in [HTTPS, STANDARD, HTTPS] {
        proxy.get_with("/", &fields).assert_is(200, "x");
    }
    assert_eq!(occurrences(&proxy, LINE), 1);
    let sent = origin.seen("/")[0]
        .field("x-forwarded-proto")
        .map(str::to_owned);
    assert_eq!(
        sent.as_deref(),
        Some("http"),
        "it is overwritten all the same"
    );

    let trusting = Proxy::start(&origin, &["--trusted-proxies", "127.0.0.1"]);
    trusting.get_with("/", &HTTPS).assert_is(200, "x");
    let seen = origin.seen("/");
    assert_eq!(
        seen.last().expect("it asked").field("x-forwarded-proto"),
        Some("https")
    );
    assert!(!trusting.output().contains(LINE));
}
