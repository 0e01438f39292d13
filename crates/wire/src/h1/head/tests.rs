//! Raw bytes in, verdicts out.

use microcache_policy::{FieldLine, KnownName};
use proptest::prelude::*;

use super::*;

/// One row per incident or smuggling vector: fields of a request that is otherwise in order.
#[rustfmt::skip]
const TWO_READINGS: &[(&str, u16, &[u8])] = &[
    ("both framings (CVE-2026-2833)", 400, b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"),
    ("both framings, the other way round", 400, b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"),
    ("two lengths", 400, b"Content-Length: 3\r\nContent-Length: 4\r\n"),
    ("two equal lengths", 400, b"Content-Length: 3\r\nContent-Length: 3\r\n"),
    ("a list of lengths", 400, b"Content-Length: 3, 3\r\n"),
    ("a signed length", 400, b"Content-Length: +3\r\n"),
    ("a negative length", 400, b"Content-Length: -3\r\n"),
    ("a hexadecimal length", 400, b"Content-Length: 0x3\r\n"),
    ("a quoted length", 400, b"Content-Length: \"3\"\r\n"),
    ("an inner space in a length", 400, b"Content-Length: 1 3\r\n"),
    ("an empty length (HAProxy CVE-2023-40225)", 400, b"Content-Length:\r\n"),
    ("a blank length", 400, b"Content-Length: \t \r\n"),
    ("a length over 64 bits (HAProxy CVE-2021-40346)", 400, b"Content-Length: 18446744073709551616\r\n"),
    ("a length of 2^63", 400, b"Content-Length: 9223372036854775808\r\n"),
    ("a long length", 400, b"Content-Length: 99999999999999999999999999999\r\n"),
    ("an unknown coding", 501, b"Transfer-Encoding: gzip\r\n"),
    ("a list of codings", 501, b"Transfer-Encoding: gzip, chunked\r\n"),
    ("chunked twice in one line", 501, b"Transfer-Encoding: chunked, chunked\r\n"),
    ("chunked twice", 400, b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
    ("identity", 501, b"Transfer-Encoding: identity\r\n"),
    ("a parameter", 501, b"Transfer-Encoding: chunked;q=1\r\n"),
    ("nearly chunked", 501, b"Transfer-Encoding: xchunked\r\n"),
    ("a quoted coding", 501, b"Transfer-Encoding: \"chunked\"\r\n"),
    ("an empty coding", 400, b"Transfer-Encoding:\r\n"),
    ("a vertical tab before the coding", 400, b"Transfer-Encoding: \x0bchunked\r\n"),
    ("an empty name (HAProxy CVE-2023-25725)", 400, b": x\r\n"),
    ("a space before the colon", 400, b"Content-Length : 3\r\n"),
    ("a tab before the colon", 400, b"Transfer-Encoding\t: chunked\r\n"),
    ("no colon", 400, b"Content-Length 3\r\n"),
    ("an empty line with a space", 400, b" \r\n"),
    ("obs-fold", 400, b"X: 1\r\n 2\r\n"),
    ("obs-fold with a tab", 400, b"Transfer-Encoding:\r\n\tchunked\r\n"),
    ("a bare LF after a field", 400, b"X: 1\nContent-Length: 3\r\n"),
    ("a bare CR in a value", 400, b"X: 1\rContent-Length: 3\r\n"),
    ("CR CR LF", 400, b"X: 1\r\r\n"),
    ("a NUL in a value", 400, b"X: a\0b\r\n"),
    ("a NUL in a name", 400, b"X\0: a\r\n"),
    ("a DEL in a value", 400, b"X: a\x7fb\r\n"),
    ("an escape in a value", 400, b"X: a\x1bb\r\n"),
    ("a byte over 0x7f in a name", 400, b"X\x80: a\r\n"),
    ("a parenthesis in a name", 400, b"X(): a\r\n"),
    ("two Hosts", 400, b"Host: other\r\n"),
];

/// Whole requests.
#[rustfmt::skip]
const BAD_REQUESTS: &[(&str, u16, &[u8])] = &[
    ("no Host", 400, b"GET / HTTP/1.1\r\n\r\n"),
    ("an empty Host", 400, b"GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    ("user information in Host", 400, b"GET / HTTP/1.1\r\nHost: u@h\r\n\r\n"),
    ("a list in Host", 400, b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n"),
    ("a path in Host", 400, b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n"),
    ("a space in Host", 400, b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n"),
    ("a port that is no number", 400, b"GET / HTTP/1.1\r\nHost: a:b\r\n\r\n"),
    ("a port and nothing else in Host", 400, b"GET / HTTP/1.1\r\nHost: :\r\n\r\n"),
    ("two colons in Host", 400, b"GET / HTTP/1.1\r\nHost: a::\r\n\r\n"),
    ("two Hosts with HTTP/1.0", 400, b"GET / HTTP/1.0\r\nHost: a\r\nHost: a\r\n\r\n"),
    ("chunked with HTTP/1.0 (CVE-2026-2835)", 400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    ("a fragment (ATS CVE-2021-27577)", 400, b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a space in the target", 400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("two spaces", 400, b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a tab", 400, b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a NUL in the target", 400, b"GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a bare CR in the target", 400, b"GET /\rX HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a DEL in the target", 400, b"GET /\x7f HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a quote in the target", 400, b"GET /\" HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a backslash in the target", 400, b"GET /a\\b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a bar in the path", 400, b"GET /a|b HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a byte over 0x7f in the target", 400, b"GET /a?\x80 HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a space after the version", 400, b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n"),
    ("a bare LF after the version", 400, b"GET / HTTP/1.1\nHost: a\r\n\r\n"),
    ("HTTP/0.9", 400, b"GET /\r\n\r\n"),
    ("a version in lower case", 400, b"GET / http/1.1\r\nHost: a\r\n\r\n"),
    ("a version of two digits", 400, b"GET / HTTP/1.10\r\nHost: a\r\n\r\n"),
    ("HTTP/1.2", 505, b"GET / HTTP/1.2\r\nHost: a\r\n\r\n"),
    ("the HTTP/2 preface", 505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    ("a TLS greeting", 400, b"\x16\x03\x01\x02\x00\x01\x00"),
    ("a leading space", 400, b" GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("three empty lines", 400, b"\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a leading bare LF", 400, b"\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("a method that is no token", 400, b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n"),
    ("the end of the head with a bare LF", 400, b"GET / HTTP/1.1\r\nHost: a\r\n\n"),
    ("the end of the head with a bare CR", 400, b"GET / HTTP/1.1\r\nHost: a\r\n\rX"),
];

/// Requests, whether their connection goes on, and where their body ends.
#[rustfmt::skip]
const PERSISTENCE: &[(&[u8], bool, Framing)] = &[
    (b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", true, Framing::None),
    (b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Close\r\n\r\n", false, Framing::None),
    (b"GET / HTTP/1.0\r\n\r\n", false, Framing::None),
    (b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true, Framing::None),
    (b"GET / HTTP/1.0\r\nConnection: keep-alive, close\r\n\r\n", false, Framing::None),
    (b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", true, Framing::Length(0)),
    (b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 9223372036854775807\r\n\r\n", true, Framing::Length(i64::MAX as u64)),
];

/// A response, whether it answers a HEAD, and what is to be read from it.
type ResponseRow = (&'static [u8], bool, u16, Framing, Option<u64>, bool);

#[rustfmt::skip]
const RESPONSES: &[ResponseRow] = &[
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", false, 200, Framing::Length(3), Some(3), true),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, 200, Framing::None, Some(3), true),
    (b"HTTP/1.1 304 \r\nContent-Length: 3\r\n\r\n", false, 304, Framing::None, Some(3), true),
    (b"HTTP/1.1 204\r\n\r\n", false, 204, Framing::None, None, true),
    (b"HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n", false, 204, Framing::None, None, false),
    (b"HTTP/1.1 103 Early\r\nLink: </a>\r\n\r\n", false, 103, Framing::None, None, true),
    (b"HTTP/1.1 200 OK\r\n\r\n", false, 200, Framing::UntilClose, None, false),
    (b"HTTP/1.1 200 OK\r\n\r\n", true, 200, Framing::None, None, true),
    (b"HTTP/1.1 200 \t\xff\r\nTransfer-Encoding: chunked\r\n\r\n", false, 200, Framing::Chunked, None, true),
    (b"HTTP/1.1 599 x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", false, 599, Framing::Length(0), Some(0), false),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n", false, 200, Framing::Length(1), Some(1), false),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\nConnection: keep-alive\r\n\r\n", false, 200, Framing::Length(1), Some(1), true),
];

fn refusal(raw: &[u8]) -> Option<(u16, &'static str)> {
    match parse_request(raw, &HeadLimits::default(), &mut FieldIndex::default()) {
        Ok(Some(_)) => None,
        Ok(None) => panic!("incomplete: {}", raw.escape_ascii()),
        Err(refused) => Some((refused.status(), refused.reason())),
    }
}

#[test]
fn requests_that_could_be_read_in_two_ways_are_refused() {
    for &(incident, status, fields) in TWO_READINGS {
        let raw = [b"POST / HTTP/1.1\r\nHost: a\r\n", fields, b"\r\n"].concat();
        let got = refusal(&raw);
        assert_eq!(
            got.map(|(status, _)| status),
            Some(status),
            "{incident}: {got:?}"
        );
    }
}

#[test]
fn request_lines_and_hosts_that_are_refused() {
    for &(fault, status, raw) in BAD_REQUESTS {
        let got = refusal(raw);
        assert_eq!(
            got.map(|(status, _)| status),
            Some(status),
            "{fault}: {got:?}"
        );
    }
}

#[test]
fn a_head_above_its_limit_is_refused_before_it_is_complete() {
    let limits = HeadLimits {
        head: 200,
        target: 50,
        fields: 3,
    };
    let start = b"GET / HTTP/1.1\r\nHost: a\r\n";
    for (fault, status, raw) in [
        ("the target", 414, [b"GET /", &[b'x'; 50][..]].concat()),
        ("the head", 431, [&start[..], b"X: ", &[b'x'; 200]].concat()),
        (
            "the number of fields",
            431,
            [&start[..], b"A: 1\r\nB: 2\r\nC"].concat(),
        ),
        ("the method", 431, vec![b'X'; 200]),
        (
            "a complete head",
            431,
            [&start[..], b"X: ", &[b'x'; 200], b"\r\n\r\n"].concat(),
        ),
    ] {
        let refused = parse_request(&raw, &limits, &mut FieldIndex::default()).unwrap_err();
        assert_eq!(refused.status(), status, "{fault}");
    }
    let largest = [&start[..], b"X: ", &[b'x'; 200 - 25 - 7], b"\r\n\r\n"].concat();
    assert_eq!(largest.len(), 200);
    let mut index = FieldIndex::default();
    let parsed = parse_request(&largest, &limits, &mut index).unwrap();
    assert_eq!(parsed.map(|(_, length)| length), Some(200));
    let endless = [b"HTTP/1.1 200 OK\r\nX: ", &[b'x'; 200][..]].concat();
    assert!(parse_response(&endless, false, &limits, &mut FieldIndex::default()).is_err());
}

#[test]
fn a_request_head_is_parsed() {
    let raw = b"\r\nPATCH /a?b=c|d HTTP/1.1\r\nhOsT: ex.org:80\r\nX:  1\t\r\nEmpty:\r\n\
        Transfer-Encoding:\tChunked \r\nConnection: x, Upgrade\r\nConnection: close\r\n\
        Upgrade: websocket\r\nExpect: 100-Continue\r\n\r\nrest";
    let mut index = FieldIndex::default();
    let (head, length) = parse_request(raw, &HeadLimits::default(), &mut index)
        .unwrap()
        .unwrap();
    assert_eq!(&raw[length..], b"rest");
    assert_eq!(head.method, b"PATCH");
    assert_eq!(head.target, b"/a?b=c|d");
    assert_eq!(head.host, Some(&b"ex.org:80"[..]));
    assert_eq!(head.framing, Framing::Chunked);
    assert_eq!(head.fields.get("x"), Some(&b"1"[..]));
    assert_eq!(head.fields.get("empty"), Some(&b""[..]));
    assert!(head.upgrade && head.expect_continue);
    assert!(!head.keep_alive && !head.http10);
}

#[test]
fn connections_persist_by_their_version() {
    for &(raw, keep_alive, framing) in PERSISTENCE {
        let mut index = FieldIndex::default();
        let (head, length) = parse_request(raw, &HeadLimits::default(), &mut index)
            .unwrap()
            .unwrap();
        assert_eq!(length, raw.len());
        assert_eq!(
            (head.keep_alive, head.framing),
            (keep_alive, framing),
            "{}",
            raw.escape_ascii()
        );
    }
    for host in ["a", "a:", "a:80", "[::1]:"] {
        let raw = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let mut index = FieldIndex::default();
        let (head, _) = parse_request(raw.as_bytes(), &HeadLimits::default(), &mut index)
            .unwrap()
            .unwrap();
        assert_eq!(head.host, Some(host.trim_end_matches(':').as_bytes()));
    }
    let old =
        b"GET / HTTP/1.0\r\nConnection: upgrade\r\nUpgrade: x\r\nExpect: 100-continue\r\n\r\n";
    let mut index = FieldIndex::default();
    let (head, _) = parse_request(old, &HeadLimits::default(), &mut index)
        .unwrap()
        .unwrap();
    assert!(!head.upgrade && !head.expect_continue);
}

#[test]
fn responses_are_framed_by_status_method_and_fields() {
    for &(raw, to_head, status, framing, length, keep_alive) in RESPONSES {
        let mut index = FieldIndex::default();
        let (head, taken) = parse_response(raw, to_head, &HeadLimits::default(), &mut index)
            .unwrap()
            .unwrap();
        assert_eq!(taken, raw.len());
        assert_eq!(
            (head.status, head.framing, head.length, head.keep_alive),
            (status, framing, length, keep_alive),
            "{}",
            raw.escape_ascii()
        );
    }
}

#[test]
fn malformed_responses_are_refused() {
    for raw in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"[..],
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3, 3\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX : 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: 1\n\r\n",
        b"HTTP/1.1 200 OK\nX: 1\r\n\r\n",
        b"HTTP/1.1 200 O\0K\r\n\r\n",
        b"HTTP/1.1 200OK\r\n\r\n",
        b"HTTP/1.1 2000\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 20# OK\r\n\r\n",
        b"HTTP/1.1 099 x\r\n\r\n",
        b"HTTP/1.1 600 x\r\n\r\n",
        b"HTTP/1.1  200 OK\r\n\r\n",
        b"HTTP/1.2 200 OK\r\n\r\n",
        b"HTTP/2.0 200 OK\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"ICY 200 OK\r\n\r\n",
        b"<html>",
    ] {
        let mut index = FieldIndex::default();
        let parsed = parse_response(raw, false, &HeadLimits::default(), &mut index);
        assert!(parsed.is_err(), "{}", raw.escape_ascii());
    }
}

fn parts(line: FieldLine<'_>) -> (&[u8], Option<KnownName>, &[u8]) {
    (line.name(), line.known(), line.value())
}

/// Lines that mutations of a head begin with.
fn field_line() -> impl Strategy<Value = Vec<u8>> {
    let lines = prop::sample::select(vec![
        &b"Host: b\r\n"[..],
        b"Connection:  keep-alive\t\r\n",
        b"X:1\r\n",
        b"Upgrade-Insecure-Requests: 1\r\n",
        b"A-Name-That-Is-Unknown-And-Longer-Than-Others: \r\n",
        b"Cookie: a=b; c=d\r\n",
        b"\r\n",
    ]);
    let change = (any::<prop::sample::Index>(), any::<u8>());
    (lines, prop::option::weighted(0.1, change)).prop_map(|(line, change)| {
        let mut line = line.to_vec();
        if let Some((at, byte)) = change {
            let at = at.index(line.len());
            line[at] = byte;
        }
        line
    })
}

fn head_start() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(vec![
        &b"GET / HTTP/1.1\r\nHost: a\r\n"[..],
        b"HTTP/1.1 200 OK\r\n",
        b"",
    ])
    .prop_map(<[u8]>::to_vec)
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(
        start in head_start(),
        lines in prop::collection::vec(field_line(), 0..6),
        rest: Vec<u8>,
    ) {
        let raw = [start, lines.concat(), rest].concat();
        let mut index = FieldIndex::default();
        if let Ok(Some((head, length))) = parse_request(&raw, &HeadLimits::default(), &mut index) {
            prop_assert!(length <= raw.len());
            prop_assert!(head.fields.iter().all(|(name, _)| !name.is_empty()));
            let text = Fields::new(head.fields.as_block());
            prop_assert!(head.fields.lines().map(parts).eq(text.lines().map(parts)));
        }
        if let Ok(Some((_, length))) = parse_response(&raw, false, &HeadLimits::default(), &mut index) {
            prop_assert!(length <= raw.len());
        }
    }

    #[test]
    fn every_prefix_of_a_good_head_is_merely_incomplete(
        method in "[A-Z]{1,9}",
        target in "/[!$-;=?-Z\\[\\]_a-z~]{0,40}",
        fields in prop::collection::vec(("X-[!#$%&'*+.^_`|~0-9a-zA-Z-]{0,20}", "[ -~\t]{0,60}"), 0..20),
        tail in prop::sample::select(vec!["", "Content-Length: 5\r\n", "Transfer-Encoding: chunked\r\n"]),
        empty_lines in 0..=MAX_LEADING_LINES,
    ) {
        let lines = fields.iter().map(|(n, v)| format!("{n}:{v}\r\n")).collect::<Vec<_>>().concat();
        let skipped = "\r\n".repeat(empty_lines);
        let request = format!("{skipped}{method} {target} HTTP/1.1\r\nHost: h\r\n{lines}{tail}\r\n");
        let response = format!("HTTP/1.1 200 {target}\r\n{lines}{tail}\r\n");
        let limits = HeadLimits::default();
        let mut index = FieldIndex::default();
        for end in 0..request.len() {
            prop_assert!(parse_request(&request.as_bytes()[..end], &limits, &mut index).unwrap().is_none());
        }
        for end in 0..response.len() {
            prop_assert!(parse_response(&response.as_bytes()[..end], false, &limits, &mut index).unwrap().is_none());
        }
        let (head, length) = parse_request(request.as_bytes(), &limits, &mut index).unwrap().unwrap();
        prop_assert_eq!(length, request.len());
        prop_assert_eq!(head.target, target.as_bytes());
        for ((name, value), (n, v)) in fields.iter().zip(head.fields.iter().skip(1)) {
            prop_assert_eq!(name.as_bytes(), n);
            prop_assert_eq!(value.as_bytes().trim_ascii(), v);
        }
        prop_assert!(parse_response(response.as_bytes(), false, &limits, &mut index).unwrap().is_some());
    }
}
