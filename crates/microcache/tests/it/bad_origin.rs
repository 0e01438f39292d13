//! Origins that do not speak quite HTTP: 502, 504 or stale; and never a hit made of it.

use crate::support::{Gate, Origin, Proxy, Reply, eventually};

/// For origins that stop. What answers has to be faster than that on a busy machine too.
const TIMEOUTS: [&str; 4] = [
    "--first-byte-timeout",
    "1s",
    "--between-bytes-timeout",
    "1s",
];

/// A good head of a response that would be stored.
const OK: &str = "HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\n";

/// The first answer is bad, the second one good.
fn check(rows: &[(&str, Reply)], status: u16) {
    let origin = Origin::start();
    // Who says something wrong is found out without waiting.
    let flags: &[&str] = if status == 504 { &TIMEOUTS } else { &[] };
    let proxy = Proxy::start(&origin, flags);
    let mut wrong = Vec::new();
    for (number, (name, bad)) in rows.iter().enumerate() {
        let target = format!("/{number}");
        origin
            .on(&target)
            .reply(bad.clone())
            .reply(Reply::new(200).body("good"));
        let first = proxy.get(&target);
        if first.status != status || first.is_hit() {
            wrong.push(format!("{name}: {first:?}"));
        }
        let second = proxy.get(&target);
        if (second.status, second.text().as_str()) != (200, "good") {
            wrong.push(format!("{name}, then: {second:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn status_lines_that_are_none() {
    let status = |line: &str| Reply::raw(format!("{line}\r\nContent-Length: 3\r\n\r\nbad"));
    let switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n";
    check(
        &[
            ("garbage", Reply::raw("hello world\r\n\r\n")),
            ("binary", Reply::raw(b"\x00\x01\x02\x03\r\n\r\n")),
            ("another protocol", status("ICY 200 OK")),
            ("HTTP/2", status("HTTP/2 200 OK")),
            ("HTTP/2.0", status("HTTP/2.0 200 OK")),
            ("no status", status("HTTP/1.1")),
            ("a word for a status", status("HTTP/1.1 abc OK")),
            ("two digits", status("HTTP/1.1 20 OK")),
            ("four digits", status("HTTP/1.1 2000 OK")),
            ("status 99", status("HTTP/1.1 099 OK")),
            ("status 600", status("HTTP/1.1 600 OK")),
            ("signed", status("HTTP/1.1 +20 OK")),
            ("no space", status("HTTP/1.1200 OK")),
            ("two spaces", status("HTTP/1.1  200 OK")),
            (
                "a control byte in the reason",
                status("HTTP/1.1 200 O\x01K"),
            ),
            ("a 101 nobody asked for", Reply::raw(switching)),
            (
                "a line without end",
                Reply::raw("HTTP/1.1 200 ").send("x".repeat(1_000_000)),
            ),
            ("closed within the line", Reply::raw("HTTP/1.1 2").close()),
        ],
        502,
    );
}

#[test]
fn field_lines_that_are_none() {
    let field = |line: &str| Reply::raw(format!("{OK}{line}\r\nContent-Length: 3\r\n\r\nbad"));
    check(
        &[
            ("a space before the colon", field("X-A : 1")),
            ("an empty name", field(": 1")),
            ("no colon", field("X-A")),
            ("a bad name", field("X(A: 1")),
            ("folded", field("X-A: 1\r\n 2")),
            ("NUL", field("X-A: \0")),
            ("a control byte", field("X-A: \x01")),
            ("a bare CR", field("X-A: 1\rX-B: 2")),
            ("a bare LF", field("X-A: 1\nX-B: 2")),
            (
                "lines ended by LF",
                Reply::raw("HTTP/1.1 200 OK\nContent-Length: 3\n\nbad"),
            ),
            (
                "a head without end",
                Reply::raw(OK).send("X-A: 1\r\n".repeat(100_000)),
            ),
            (
                "a field without end",
                Reply::raw(OK).send("x".repeat(1_000_000)),
            ),
            ("closed within the head", Reply::raw(OK).close()),
        ],
        502,
    );
}

#[test]
fn framing_that_is_none() {
    let framed = |lines: &str| Reply::raw(format!("{OK}{lines}\r\n\r\n3\r\nbad\r\n0\r\n\r\n"));
    let old = "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    check(
        &[
            (
                "two lengths",
                framed("Content-Length: 3\r\nContent-Length: 4"),
            ),
            (
                "a length and chunked",
                framed("Content-Length: 3\r\nTransfer-Encoding: chunked"),
            ),
            (
                "chunked and a length",
                framed("Transfer-Encoding: chunked\r\nContent-Length: 3"),
            ),
            ("a word for a length", framed("Content-Length: three")),
            ("a signed length", framed("Content-Length: +3")),
            ("a list of lengths", framed("Content-Length: 3, 3")),
            ("an empty length", framed("Content-Length:")),
            (
                "a length over 2^64",
                framed("Content-Length: 18446744073709551619"),
            ),
            ("an unknown coding", framed("Transfer-Encoding: gzip")),
            (
                "chunked twice",
                framed("Transfer-Encoding: chunked, chunked"),
            ),
            ("chunked in HTTP/1.0", Reply::raw(old)),
        ],
        502,
    );
}

#[test]
fn a_new_connection_that_is_closed_at_once() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin
        .on("/")
        .reply(Reply::hang_up())
        .reply(Reply::new(200).body("good"));
    // One that was used before may have been idle for too long: that is tried again.
    assert_eq!(proxy.get("/").status, 502);
    proxy.get("/").assert_is(200, "good");
}

#[test]
fn silence_is_a_504() {
    check(
        &[
            ("silence", Reply::silence()),
            ("a head that stops", Reply::raw(OK).hold()),
            (
                "a 103 and nothing more",
                Reply::raw("HTTP/1.1 103 Early Hints\r\n\r\n").hold(),
            ),
        ],
        504,
    );
}

/// Responses with a good beginning. The connection ends early for the client; the cache stores nothing.
#[test]
fn bodies_that_break_off() {
    let with = |head: &str, body: &str| Reply::raw(format!("{OK}{head}\r\n\r\n{body}"));
    let rows = [
        ("too few bytes", with("Content-Length: 10", "short").close()),
        ("no byte", with("Content-Length: 10", "").close()),
        (
            "a body that stops",
            with("Content-Length: 10", "short").hold(),
        ),
        (
            "no last chunk",
            with("Transfer-Encoding: chunked", "5\r\nshort\r\n").close(),
        ),
        (
            "half a chunk",
            with("Transfer-Encoding: chunked", "a\r\nshort").close(),
        ),
        (
            "half a chunk size",
            with("Transfer-Encoding: chunked", "5\r\nshort\r\n1").close(),
        ),
        (
            "half the end",
            with("Transfer-Encoding: chunked", "5\r\nshort\r\n0\r\n").close(),
        ),
        (
            "chunks that stop",
            with("Transfer-Encoding: chunked", "5\r\nshort\r\n").hold(),
        ),
        (
            "a bad chunk size",
            with("Transfer-Encoding: chunked", "5\r\nshort\r\nzz\r\n"),
        ),
        (
            "a chunk longer than its size",
            with("Transfer-Encoding: chunked", "5\r\nshortlong\r\n0\r\n\r\n"),
        ),
        (
            "a chunk ended by LF",
            with("Transfer-Encoding: chunked", "5\r\nshort\n0\r\n\r\n"),
        ),
        (
            "an overflowing chunk size",
            with(
                "Transfer-Encoding: chunked",
                "5\r\nshort\r\n10000000000000005\r\nshort\r\n",
            ),
        ),
        (
            "a bad trailer",
            with(
                "Transfer-Encoding: chunked",
                "5\r\nshort\r\n0\r\nX A: 1\r\n\r\n",
            ),
        ),
    ];
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &TIMEOUTS);
    for (number, (name, bad)) in rows.into_iter().enumerate() {
        let target = format!("/{number}");
        origin
            .on(&target)
            .reply(bad)
            .reply(Reply::new(200).body("good"));
        let first = proxy.ask(&target).try_response();
        assert!(
            first
                .as_ref()
                .map_or(true, |response| response.status >= 500),
            "{name}: {first:?}"
        );
        let second = proxy.get(&target);
        second.assert_is(200, "good");
        assert!(!second.is_hit(), "{name}");
    }
}

#[test]
fn bytes_after_a_response_are_nobodys_answer() {
    let second =
        "HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: 6\r\n\r\npoison";
    let rows = [
        (
            "too many bytes",
            format!("{OK}Content-Length: 5\r\n\r\nhello and more"),
        ),
        (
            "a second response",
            format!("{OK}Content-Length: 5\r\n\r\nhello{second}"),
        ),
        (
            "a second response after chunks",
            format!("{OK}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n{second}"),
        ),
        (
            "garbage",
            format!("{OK}Content-Length: 5\r\n\r\nhello\x00\x01"),
        ),
    ];
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    origin
        .on("/next")
        .reply(Reply::new(200).with("Cache-Control: no-store").body("next"));
    for (number, (name, raw)) in rows.into_iter().enumerate() {
        let target = format!("/{number}");
        origin
            .on(&target)
            .reply(Reply::raw(raw))
            .reply(Reply::new(200).body("good"));
        let first = proxy.get(&target);
        assert!(
            first.status == 502 || first.text() == "hello",
            "{name}: {first:?}"
        );
        for _ in 0..3 {
            proxy.get("/next").assert_is(200, "next");
        }
        let again = proxy.get(&target);
        assert!(
            !again.is_hit() && again.text() == "good",
            "{name}: {again:?}"
        );
    }
}

#[test]
fn a_late_second_response_is_not_read_either() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    let gate = Gate::default();
    let second = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison";
    origin.on("/a").reply(
        Reply::new(200)
            .body("hello")
            .pause(&gate)
            .send(second)
            .flood(1),
    );
    origin
        .on("/next")
        .reply(Reply::new(200).with("Cache-Control: no-store").body("next"));
    proxy.get("/a").assert_is(200, "hello");
    gate.open();
    eventually("all of it to be sent", || {
        (origin.flooded() == 1).then_some(())
    });
    for _ in 0..3 {
        proxy.get("/next").assert_is(200, "next");
    }
}

#[test]
fn bodies_where_there_must_be_none() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    origin
        .on("/next")
        .reply(Reply::new(200).with("Cache-Control: no-store").body("next"));
    let rows = [
        (
            "204",
            "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
        ),
        (
            "304",
            "HTTP/1.1 304 Not Modified\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
        ),
        (
            "204 with a length",
            "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\npoison",
        ),
    ];
    for (target, raw) in rows {
        let target = format!("/{}", target.replace(' ', "-"));
        origin.on(&target).reply(Reply::raw(raw));
        let first = proxy.get(&target);
        assert!(!first.text().contains("poison"), "{first:?}");
        proxy.get("/next").assert_is(200, "next");
    }
    origin.on("/head").reply(Reply::raw(
        "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison",
    ));
    proxy.send("HEAD", "/head", &[]);
    proxy.get("/next").assert_is(200, "next");
}

#[test]
fn a_body_that_ends_with_the_connection_is_whole() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin
        .on("/a")
        .reply(Reply::raw(format!("{OK}\r\nhello")).close());
    origin
        .on("/b")
        .reply(Reply::raw("HTTP/1.0 200 OK\r\n\r\nhello").close());
    proxy.get("/a").assert_is(200, "hello");
    proxy.get("/b").assert_is(200, "hello");
    proxy.get("/a").assert_is(200, "hello");
}

#[test]
fn an_origin_that_sends_byte_by_byte_is_understood() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin
        .on("/a")
        .reply(Reply::raw("").drip(format!("{OK}Content-Length: 5\r\n\r\nhello")));
    origin.on("/b").reply(Reply::raw("").drip(format!(
        "{OK}Transfer-Encoding: chunked\r\n\r\n2;x\r\nhe\r\n3\r\nllo\r\n0\r\nX-T: 1\r\n\r\n"
    )));
    for target in ["/a", "/b"] {
        proxy.get(target).assert_is(200, "hello");
        let hit = proxy.get(target);
        hit.assert_is(200, "hello");
        hit.assert_hit();
    }
}

#[test]
fn a_stall_in_a_head_does_not_hold_other_requests() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "1"]);
    origin.on("/slow").reply(Reply::raw(OK).hold());
    origin.on("/fast").reply(Reply::new(200).body("fast"));
    let _slow = proxy.ask("/slow");
    origin.wait_for("/slow", 1);
    proxy.get("/fast").assert_is(200, "fast");
}
