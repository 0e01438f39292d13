//! Requests that are not quite HTTP: refused, the connection closed, nothing forwarded or stored.

use crate::support::{Gate, Origin, Proxy, Reply};

/// What follows every bad request on its connection; it must never be taken for a request.
const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nHost: example.com\r\n\r\n";

const HOST: &str = "Host: example.com\r\n";

struct Row<'a> {
    name: &'a str,
    raw: Vec<u8>,
    status: &'a [u16],
}

/// Sends each row on a connection of its own, and checks all that must follow.
fn check(tables: &[Vec<Row<'_>>]) {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin
        .on("/good")
        .reply(Reply::ok(&["Cache-Control: max-age=1000"], "good"));
    proxy.get("/good").assert_is(200, "good");
    let mut wrong = Vec::new();
    for Row { name, raw, status } in tables.iter().flatten() {
        let mut client = proxy.connect();
        client.try_send([raw.as_slice(), SMUGGLED.as_bytes()].concat());
        match client.try_response() {
            Ok(response) if !status.contains(&response.status) => {
                wrong.push(format!("{name}: {} instead of {status:?}", response.status));
            }
            Ok(_) if !client.is_closed() => wrong.push(format!("{name}: not closed")),
            Ok(_) => {}
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
        if origin.requests().len() != 1 {
            let forwarded: Vec<_> = origin
                .requests()
                .into_iter()
                .skip(1)
                .map(|seen| seen.head)
                .collect();
            panic!("{name}: reached the origin as {forwarded:?}");
        }
        let good = proxy.get("/good");
        good.assert_is(200, "good");
        good.assert_hit();
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn row<'a>(name: &'a str, raw: impl AsRef<[u8]>, status: &'a [u16]) -> Row<'a> {
    Row {
        name,
        raw: raw.as_ref().to_vec(),
        status,
    }
}

/// Rows of what is put into the same request, with the same answer.
fn each<'a>(
    request: impl Fn(&str) -> String,
    status: &'a [u16],
) -> impl Fn(&[(&'a str, &str)]) -> Vec<Row<'a>> {
    move |texts| {
        let rows = texts.iter();
        rows.map(|&(name, text)| row(name, request(text), status))
            .collect()
    }
}

/// A POST with these field lines and the body `hello`.
fn post(lines: &str) -> String {
    format!("POST /a HTTP/1.1\r\n{HOST}{lines}\r\n\r\nhello")
}

/// A GET with this field line.
fn get(line: &str) -> String {
    format!("GET /a HTTP/1.1\r\n{HOST}{line}\r\n\r\n")
}

/// A GET with this request line.
fn line(line: &str) -> String {
    format!("{line}\r\n{HOST}\r\n")
}

const BAD: &[u16] = &[400];
const BAD_OR_UNKNOWN: &[u16] = &[400, 501];

#[test]
fn content_length() {
    let bad = each(post, BAD);
    check(&[bad(&[
        ("two different", "Content-Length: 5\r\nContent-Length: 6"),
        ("two equal", "Content-Length: 5\r\nContent-Length: 5"),
        ("a list of different ones", "Content-Length: 5, 6"),
        ("a list of equal ones", "Content-Length: 5, 5"),
        ("empty", "Content-Length:"),
        ("plus", "Content-Length: +5"),
        ("minus", "Content-Length: -5"),
        ("hexadecimal", "Content-Length: 0x5"),
        ("a fraction", "Content-Length: 5.0"),
        ("an exponent", "Content-Length: 5e0"),
        ("a word", "Content-Length: five"),
        ("a number and a word", "Content-Length: 5 five"),
        ("quoted", "Content-Length: \"5\""),
        ("2^64 + 5", "Content-Length: 18446744073709551621"),
        ("2^63", "Content-Length: 9223372036854775808"),
        (
            "many digits",
            &format!("Content-Length: {}", "9".repeat(200)),
        ),
        ("an underscore is not a digit", "Content-Length: 1_0"),
        ("other digits", "Content-Length: \u{665}"),
        ("vertical tab", "Content-Length: \u{b}5"),
    ])]);
}

#[test]
fn transfer_encoding() {
    let smuggle = |te: &str| format!("POST /a HTTP/1.1\r\n{HOST}{te}\r\n\r\n0\r\n\r\n");
    let bad = each(smuggle, BAD);
    let bad_or_unknown = each(smuggle, BAD_OR_UNKNOWN);
    check(&[
        bad(&[
            (
                "after Content-Length",
                "Content-Length: 5\r\nTransfer-Encoding: chunked",
            ),
            (
                "before Content-Length",
                "Transfer-Encoding: chunked\r\nContent-Length: 5",
            ),
            (
                "with a length of 0",
                "Transfer-Encoding: chunked\r\nContent-Length: 0",
            ),
            ("a space before the colon", "Transfer-Encoding : chunked"),
            ("a folded value", "Transfer-Encoding:\r\n chunked"),
        ]),
        bad_or_unknown(&[
            ("twice chunked", "Transfer-Encoding: chunked, chunked"),
            (
                "twice chunked in two lines",
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
            ),
            ("identity", "Transfer-Encoding: identity"),
            (
                "identity afterwards",
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
            ),
            ("chunked not last", "Transfer-Encoding: chunked, gzip"),
            ("another before chunked", "Transfer-Encoding: gzip, chunked"),
            ("gzip", "Transfer-Encoding: gzip"),
            ("xchunked", "Transfer-Encoding: xchunked"),
            ("chunkedx", "Transfer-Encoding: chunkedx"),
            ("chunk", "Transfer-Encoding: chunk"),
            ("quoted", "Transfer-Encoding: \"chunked\""),
            ("with a parameter", "Transfer-Encoding: chunked;q=1"),
            ("vertical tab", "Transfer-Encoding: \u{b}chunked"),
            ("empty", "Transfer-Encoding:"),
            ("a comma alone", "Transfer-Encoding: ,"),
        ]),
        vec![row(
            "HTTP/1.0",
            format!("POST /a HTTP/1.0\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            BAD,
        )],
    ]);
}

#[test]
fn field_lines() {
    let bad = each(get, BAD);
    check(&[
        bad(&[
            ("a space before the colon", "X-A : 1"),
            ("a tab before the colon", "X-A\t: 1"),
            ("an empty name", ": 1"),
            ("no colon", "X-A"),
            ("a space in the name", "X A: 1"),
            ("brackets in the name", "X(A): 1"),
            ("an at sign in the name", "X@A: 1"),
            ("a quote in the name", "\"X\": 1"),
            ("a byte over 127 in the name", "X-\u{e9}: 1"),
            ("NUL in the name", "X\0A: 1"),
            ("NUL in a value", "X-A: 1\x002"),
            ("a control byte in a value", "X-A: 1\x012"),
            ("DEL in a value", "X-A: 1\x7f2"),
            ("a bare CR in a value", "X-A: 1\rX-B: 2"),
            ("a bare CR at the end of a value", "X-A: 1\r"),
            ("a bare LF in a value", "X-A: 1\nX-B: 2"),
            ("a folded line", "X-A: 1\r\n 2"),
            ("a folded line with a tab", "X-A: 1\r\n\t2"),
            ("a line that is only white space", "X-A: 1\r\n "),
        ]),
        vec![
            row(
                "white space before the first field",
                format!("GET /a HTTP/1.1\r\n {HOST}\r\n"),
                BAD,
            ),
            row(
                "lines ended by LF",
                "GET /a HTTP/1.1\nHost: example.com\n\n",
                BAD,
            ),
            row(
                "a head ended by LF",
                format!("GET /a HTTP/1.1\r\n{HOST}\n"),
                BAD,
            ),
            row(
                "lines ended by CR",
                "GET /a HTTP/1.1\rHost: example.com\r\r",
                BAD,
            ),
            row("LF CR", "GET /a HTTP/1.1\n\rHost: example.com\n\r\n\r", BAD),
        ],
    ]);
}

#[test]
fn host() {
    let host = |lines: &str| format!("GET /a HTTP/1.1\r\n{lines}\r\n");
    let bad = each(host, BAD);
    check(&[bad(&[
        ("none", ""),
        ("two", "Host: a.example\r\nHost: b.example\r\n"),
        ("the same twice", "Host: a.example\r\nHost: a.example\r\n"),
        ("one hidden in Connection", "Connection: Host\r\n"),
        ("a space", "Host: a b\r\n"),
        ("a list", "Host: a.example, b.example\r\n"),
        ("user information", "Host: user@a.example\r\n"),
        ("a path", "Host: a.example/b\r\n"),
        ("a query", "Host: a.example?b\r\n"),
        ("a fragment", "Host: a.example#b\r\n"),
        ("a backslash", "Host: a.example\\b\r\n"),
        ("a word for a port", "Host: a.example:http\r\n"),
        ("two ports", "Host: a.example:80:80\r\n"),
        ("two colons", "Host: a.example::\r\n"),
        ("a colon", "Host: :\r\n"),
        ("a quote", "Host: \"a.example\"\r\n"),
        ("a control byte", "Host: a\x01b\r\n"),
        ("angle brackets", "Host: <a>\r\n"),
    ])]);
}

#[test]
fn request_line() {
    let bad = each(line, BAD);
    let bad_or_another_version = each(line, &[400, 505]);
    check(&[
        bad(&[
            ("a fragment", "GET /a#b HTTP/1.1"),
            ("a space in the target", "GET /a b HTTP/1.1"),
            ("a tab in the target", "GET /a\tb HTTP/1.1"),
            ("a control byte in the target", "GET /a\x01b HTTP/1.1"),
            ("NUL in the target", "GET /a\0b HTTP/1.1"),
            ("DEL in the target", "GET /a\x7fb HTTP/1.1"),
            ("a bare CR in the target", "GET /a\rb HTTP/1.1"),
            ("a quote in the target", "GET /a\"b HTTP/1.1"),
            ("angle brackets in the target", "GET /<a> HTTP/1.1"),
            ("a backslash in the target", "GET /a\\b HTTP/1.1"),
            ("a caret in the path", "GET /a^b HTTP/1.1"),
            ("a backquote in the path", "GET /a`b HTTP/1.1"),
            ("braces in the path", "GET /{a} HTTP/1.1"),
            ("a bar in the path", "GET /a|b HTTP/1.1"),
            ("a bar in the path before a query", "GET /a|b?c HTTP/1.1"),
            ("a quote in the query", "GET /a?\"b HTTP/1.1"),
            ("angle brackets in the query", "GET /a?<b> HTTP/1.1"),
            ("a letter beyond ASCII", "GET /\u{e4} HTTP/1.1"),
            ("one in the query", "GET /a?\u{e4} HTTP/1.1"),
            ("no slash", "GET a HTTP/1.1"),
            ("a backslash", "GET \\a HTTP/1.1"),
            ("no target", "GET HTTP/1.1"),
            ("an empty target", "GET  HTTP/1.1"),
            ("a star for GET", "GET * HTTP/1.1"),
            ("another scheme", "GET ftp://example.com/a HTTP/1.1"),
            ("absolute-form without a host", "GET http:///a HTTP/1.1"),
            (
                "absolute-form with user information",
                "GET http://u@example.com/a HTTP/1.1",
            ),
            (
                "absolute-form with a fragment",
                "GET http://example.com/a#b HTTP/1.1",
            ),
            ("two spaces after the method", "GET  /a HTTP/1.1"),
            ("two spaces after the target", "GET /a  HTTP/1.1"),
            ("a space at the end", "GET /a HTTP/1.1 "),
            ("a space in front", " GET /a HTTP/1.1"),
            ("tabs for spaces", "GET\t/a\tHTTP/1.1"),
            ("a bad method", "G(T /a HTTP/1.1"),
            ("no method", "/a HTTP/1.1"),
            ("lower case version", "GET /a http/1.1"),
        ]),
        bad_or_another_version(&[
            ("no version", "GET /a"),
            ("HTTP/0.9", "GET /a HTTP/0.9"),
            ("HTTP/2.0", "GET /a HTTP/2.0"),
            ("HTTP/1.10", "GET /a HTTP/1.10"),
            ("HTTP/11", "GET /a HTTP/11"),
            ("HTTP/1", "GET /a HTTP/1"),
            ("HTTP/1,1", "GET /a HTTP/1,1"),
        ]),
        vec![
            row(
                "what begins like the preface of HTTP/2",
                "PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
                &[400, 505],
            ),
            row(
                "TLS",
                b"\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n",
                BAD,
            ),
            row("many empty lines", "\r\n".repeat(100), BAD),
            row(
                "CONNECT",
                "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
                &[400, 403, 405, 501],
            ),
        ],
    ]);
}

#[test]
fn sizes() {
    let long = |n: usize| "x".repeat(n);
    let fields = "X-A: 1\r\n".repeat(500);
    check(&[vec![
        row(
            "a long target",
            line(&format!("GET /{} HTTP/1.1", long(10_000))),
            &[414],
        ),
        row(
            "a very long target",
            line(&format!("GET /{} HTTP/1.1", long(200_000))),
            &[414, 431],
        ),
        row(
            "a long field",
            get(&format!("X-A: {}", long(40_000))),
            &[431],
        ),
        row("a long name", get(&format!("{}: 1", long(40_000))), &[431]),
        row(
            "many fields",
            format!("GET /a HTTP/1.1\r\n{HOST}{fields}\r\n"),
            &[431],
        ),
        row(
            "a long method",
            line(&format!("{} /a HTTP/1.1", long(40_000))),
            &[400, 414, 431, 501],
        ),
    ]]);
}

#[test]
fn a_head_without_end_is_cut_off() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    let start = format!("GET /a HTTP/1.1\r\n{HOST}X: ");
    for (start, piece) in [
        (start.as_str(), "x"),
        (&start, "y\r\nX: "),
        ("GET /", "x"),
        ("", "\r\n"),
    ] {
        let mut client = proxy.connect();
        client.send([start, &piece.repeat(100_000 / piece.len())].concat());
        let response = client.response();
        assert!(
            matches!(response.status, 400 | 414 | 431),
            "{start:?} {piece:?}: {response:?}"
        );
        assert!(client.is_closed(), "{start:?} {piece:?}");
    }
    assert!(origin.requests().is_empty());
}

/// Chunked bodies that are wrong somewhere, after a good head that may already be forwarded.
#[test]
fn chunked_bodies() {
    let bodies: [(&str, &[u8]); 34] = [
        ("not hexadecimal", b"zz\r\nhello\r\n0\r\n\r\n"),
        ("empty size", b"\r\nhello\r\n0\r\n\r\n"),
        ("negative", b"-5\r\nhello\r\n0\r\n\r\n"),
        ("plus", b"+5\r\nhello\r\n0\r\n\r\n"),
        ("0x", b"0x5\r\nhello\r\n0\r\n\r\n"),
        ("an underscore", b"0_5\r\nhello\r\n0\r\n\r\n"),
        ("a space in front", b" 5\r\nhello\r\n0\r\n\r\n"),
        ("2^64 + 5", b"10000000000000005\r\nhello\r\n0\r\n\r\n"),
        (
            "seventeen digits",
            b"00000000000000005\r\nhello\r\n0\r\n\r\n",
        ),
        ("a huge size", b"fffffffffffffffffff\r\nhello\r\n0\r\n\r\n"),
        ("size ended by LF", b"5\nhello\r\n0\r\n\r\n"),
        ("size ended by CR", b"5\rhello\r\n0\r\n\r\n"),
        ("size ended by CR CR LF", b"5\r\r\nhello\r\n0\r\n\r\n"),
        ("data ended by LF", b"5\r\nhello\n0\r\n\r\n"),
        ("data ended by anything", b"5\r\nhelloXX0\r\n\r\n"),
        ("data longer than its size", b"5\r\nhello!\r\n0\r\n\r\n"),
        ("LF in an extension", b"5;a\nb\r\nhello\r\n0\r\n\r\n"),
        ("CR in an extension", b"5;a\rb\r\nhello\r\n0\r\n\r\n"),
        ("NUL in an extension", b"5;a\0b\r\nhello\r\n0\r\n\r\n"),
        ("an extension without a name", b"5;\r\nhello\r\n0\r\n\r\n"),
        (
            "an extension with a second colon",
            b"5;;a\r\nhello\r\n0\r\n\r\n",
        ),
        ("two words in an extension", b"5;a b\r\nhello\r\n0\r\n\r\n"),
        (
            "an extension without a value",
            b"5;a=\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "an open quote in an extension",
            b"5;a=\"b\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "more after a quote in an extension",
            b"5;a=\"b\"c\r\nhello\r\n0\r\n\r\n",
        ),
        ("2^63", b"8000000000000000\r\nhello\r\n0\r\n\r\n"),
        ("the last chunk ended by LF", b"0\n\r\n"),
        ("trailers ended by LF", b"0\r\nX-A: 1\n\r\n"),
        ("no colon in a trailer", b"0\r\nX-A\r\n\r\n"),
        ("a folded trailer", b"0\r\nX-A: 1\r\n 2\r\n\r\n"),
        ("a space before a trailer's colon", b"0\r\nX-A : 1\r\n\r\n"),
        ("NUL in a trailer", b"0\r\nX-A: \0\r\n\r\n"),
        ("LF alone after the last chunk", b"0\r\n\n"),
        (
            "anything after the last chunk",
            b"0\r\nGET /smuggled HTTP/1.1\r\n\r\n",
        ),
    ];
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    for (name, body) in bodies {
        origin.on("/a").reply(Reply::new(200).body("x"));
        let mut client = proxy.connect();
        let head = format!("POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n");
        client.try_send([head.as_bytes(), body, SMUGGLED.as_bytes()].concat());
        let response = client.try_response();
        assert!(
            response
                .as_ref()
                .is_ok_and(|response| response.status == 400),
            "{name}: {response:?}"
        );
        assert!(client.is_closed(), "{name}: not closed");
        assert_eq!(origin.count("/smuggled"), 0, "{name}");
    }
}

#[test]
fn endless_chunk_extensions_and_trailers_are_refused() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.on("/a").reply(Reply::new(200).body("x"));
    let head = format!("POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n");
    let extension = format!("5;{}\r\nhello\r\n0\r\n\r\n", "x".repeat(20_000));
    let small_extensions = format!(
        "{}0\r\n\r\n",
        format!("1;{}\r\nx\r\n", "x".repeat(200)).repeat(200)
    );
    let trailers = format!("0\r\n{}\r\n", "X-A: 1\r\n".repeat(5000));
    for body in [extension, small_extensions, trailers] {
        let mut client = proxy.connect();
        client.try_send(format!("{head}{body}"));
        let refused = client
            .try_response()
            .map_or(true, |response| (400..500).contains(&response.status));
        assert!(refused, "{}…", &body[..20]);
    }
}

#[test]
fn a_get_with_a_body_never_desynchronises() {
    // Pingora CVE-2025-4366: the body of a request that was a hit became the next request.
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    for target in ["/hit", "/next"] {
        let reply = Reply::ok(&["Cache-Control: max-age=1000"], target);
        origin.on(target).reply(reply);
        proxy.get(target).assert_is(200, target);
    }
    let chunked = format!("{:x}\r\n{SMUGGLED}\r\n0\r\n\r\n", SMUGGLED.len());
    let bodies = [
        format!("Content-Length: {}\r\n\r\n{SMUGGLED}", SMUGGLED.len()),
        format!("Transfer-Encoding: chunked\r\n\r\n{chunked}"),
    ];
    for method in ["GET", "HEAD", "OPTIONS", "DELETE", "POST"] {
        for body in &bodies {
            let mut client = proxy.connect();
            client.send(format!(
                "{method} /hit HTTP/1.1\r\n{HOST}{body}GET /next HTTP/1.1\r\n{HOST}\r\n"
            ));
            let first = if method == "HEAD" {
                client.response_to_head()
            } else {
                client.response()
            };
            assert_eq!(first.status, 200, "{method}: {first:?}");
            // Either the body was drained, or the connection was closed.
            if let Ok(second) = client.try_response() {
                second.assert_is(200, "/next");
            }
            assert_eq!(origin.count("/smuggled"), 0, "{method}");
        }
    }
}

#[test]
fn an_early_answer_does_not_turn_the_rest_of_a_body_into_a_request() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--upload-buffer", "0"]);
    origin.on("/a").reply(
        Reply::new(403)
            .with("Connection: close")
            .body("no")
            .early()
            .close(),
    );
    let mut client = proxy.connect();
    client.send(format!(
        "POST /a HTTP/1.1\r\n{HOST}Content-Length: {}\r\n\r\n",
        SMUGGLED.len()
    ));
    assert_eq!(client.response().status, 403);
    client.try_send(SMUGGLED);
    assert!(client.is_closed());
    assert_eq!(origin.count("/smuggled"), 0);
}

#[test]
fn forbidden_trailers_do_not_become_fields() {
    // ATS CVE-2024-35161: trailers that frame or route a message.
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.on("/a").reply(Reply::new(200).body("x"));
    let trailers =
        "Content-Length: 99\r\nTransfer-Encoding: chunked\r\nHost: evil.example\r\nX-Fine: 1\r\n";
    let response = proxy.request(format!(
        "POST /a HTTP/1.1\r\n{HOST}Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n{trailers}\r\n"
    ));
    assert!(matches!(response.status, 200 | 400), "{response:?}");
    if response.status == 200 {
        let seen = &origin.seen("/a")[0];
        let names: Vec<String> = seen
            .trailers()
            .into_iter()
            .map(|(name, _)| name.to_lowercase())
            .collect();
        assert!(names.iter().all(|name| name == "x-fine"), "{names:?}");
    }
}

#[test]
fn no_raw_mode_before_a_101() {
    // Pingora CVE-2026-2833: bytes after an Upgrade request were passed on before the origin agreed.
    // RFC 9931: nor are they read as a request if it does not agree.
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-body-size", "1KiB"]);
    let (gate, asks) = (
        Gate::default(),
        "Connection: upgrade\r\nUpgrade: websocket\r\n",
    );
    let next = format!("GET /smuggled HTTP/1.1\r\n{HOST}\r\n");
    origin.on("/").reply(Reply::new(200).body("no"));
    origin
        .on("/slow")
        .reply(Reply::new(200).body("no").after(&gate));
    for (target, rest, status) in [
        ("/", format!("\r\n{next}"), 200),
        ("/", format!("Content-Length: 3\r\n\r\nabc{next}"), 200),
        ("/", format!("Content-Length: 1025\r\n\r\n{next}"), 413),
        ("/slow", "\r\n".to_owned(), 200),
    ] {
        let mut client = proxy.connect();
        client.send(format!("GET {target} HTTP/1.1\r\n{HOST}{asks}{rest}"));
        if target == "/slow" {
            origin.wait_for(target, 1);
            client.send(&next);
            gate.open();
        }
        assert_eq!(client.response().status, status, "{rest}");
        assert!(client.is_closed(), "{rest}");
    }
    assert_eq!(origin.count("/smuggled"), 0);
    // Where nothing followed, the connection serves the next request.
    let mut client = proxy.connect();
    for _ in 0..2 {
        client.send(format!("GET / HTTP/1.1\r\n{HOST}{asks}\r\n"));
        client.response().assert_is(200, "no");
    }
}

#[test]
fn good_requests_that_look_odd_are_served() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    let rows = [
        (
            "an empty line first",
            "\r\nGET /a HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            "no space after the colon",
            "GET /a HTTP/1.1\r\nHost:a\r\n\r\n",
        ),
        (
            "much white space around a value",
            "GET /a HTTP/1.1\r\nHost: \t a \t \r\n\r\n",
        ),
        (
            "tab in a value",
            "GET /a HTTP/1.1\r\nHost: a\r\nX-A: 1\t2\r\n\r\n",
        ),
        (
            "an empty value",
            "GET /a HTTP/1.1\r\nHost: a\r\nX-A:\r\n\r\n",
        ),
        (
            "odd but legal name",
            "GET /a HTTP/1.1\r\nHost: a\r\n!#$%&'*+-.^_`|~09: 1\r\n\r\n",
        ),
        ("IPv6", "GET /a HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"),
        (
            "a name with a dot",
            "GET /a HTTP/1.1\r\nHost: a.example.\r\n\r\n",
        ),
        (
            "a length of 0",
            "GET /a HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            "leading zeros in the length",
            "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 005\r\n\r\nhello",
        ),
        (
            "upper case chunked",
            "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: CHUNKED\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "a chunk extension",
            "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "leading zeros in a chunk size",
            "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0005\r\nhello\r\n00\r\n\r\n",
        ),
        ("an unknown method", "BREW /a HTTP/1.1\r\nHost: a\r\n\r\n"),
        ("an empty port", "GET /a HTTP/1.1\r\nHost: a:\r\n\r\n"),
        (
            "an empty port in absolute-form",
            "GET http://a:/a HTTP/1.1\r\nHost: a\r\n\r\n",
        ),
        (
            "white space in a chunk extension",
            "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5; a = \"b;\\\"c\" ; d\r\nhello\r\n0\r\n\r\n",
        ),
        (
            "an offer of HTTP/2",
            "GET /a HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c/1.0\r\n\r\n",
        ),
        (
            "a quoted offer of HTTP/2",
            "GET /a HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: \"x, h2c, y\"\r\n\r\n",
        ),
    ];
    origin
        .on("/a")
        .reply(Reply::new(200).with("Cache-Control: no-store").body("x"));
    for (name, raw) in rows {
        let response = proxy.request(raw);
        assert_eq!(
            (response.status, response.text().as_str()),
            (200, "x"),
            "{name}: {response:?}"
        );
    }
    // The first one with X-A is sent again with it; from then on they go whole at once.
    assert_eq!(origin.count("/a"), rows.len() + 1);
    for seen in origin.seen("/a") {
        assert_eq!(seen.field("upgrade"), None, "{:?}", seen.head);
        assert!(!seen.field("host").is_some_and(|host| host.ends_with(':')));
    }
}

#[test]
fn characters_that_browsers_leave_unencoded_are_accepted_in_a_query() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    for target in ["/a?family=a|b", "/a?f={x:[1]}", "/a?a^b`c\\d", "/100%?%zz"] {
        origin.on(target).reply(Reply::new(200).body("x"));
        proxy.get(target).assert_is(200, "x");
        assert_eq!(origin.count(target), 1);
    }
}

#[test]
fn a_refused_head_has_no_content() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    for (raw, status) in [
        ("HEAD / HTTP/1.1\r\n\r\n", 400),
        ("\r\nHEAD /a|b HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("HEAD / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
        (
            "HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n",
            501,
        ),
    ] {
        let mut client = proxy.connect();
        client.send(raw);
        let refused = client.response_to_head();
        assert_eq!(refused.status, status, "{raw}");
        assert!(refused.field("content-length").is_some(), "{refused:?}");
        assert!(client.is_closed(), "{raw}: content after a HEAD");
    }
}
