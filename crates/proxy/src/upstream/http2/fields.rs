//! Response heads and trailers of HTTP/2, validated by the rules of HTTP/1: their fields are written as field lines
//! and parsed by its parser, so that no field is forwarded that HTTP/1 would refuse.

use bytes::BytesMut;
use http::{HeaderMap, Response};
use microcache_policy::{FieldIndex, FieldsBuf};
use microcache_wire::h1::{parse_response, read_trailers};

use crate::upstream::exchange::{ANSWER_LIMITS, OriginHead};

/// Converts a response head, final or interim (1xx).
pub(super) fn head<B>(answer: &Response<B>, to_head: bool) -> Result<OriginHead, &'static str> {
    let mut lines = b"HTTP/1.1 ".to_vec();
    lines.extend_from_slice(answer.status().as_str().as_bytes());
    lines.extend_from_slice(b"\r\n");
    write(&mut lines, answer.headers())?;
    let mut index = FieldIndex::default();
    match parse_response(&lines, to_head, &ANSWER_LIMITS, &mut index)? {
        Some((head, length)) if length == lines.len() => Ok(OriginHead::of(&head)),
        _ => Err("a truncated head"),
    }
}

/// Converts a trailer section, without fields that are not allowed in one.
pub(super) fn trailers(fields: &HeaderMap) -> Result<FieldsBuf, &'static str> {
    let mut lines = Vec::new();
    write(&mut lines, fields)?;
    let trailers = read_trailers(&mut BytesMut::from(&*lines))?;
    trailers.ok_or("a truncated trailer section")
}

/// Writes field lines and the final empty line. The types of names and values exclude line ends.
fn write(lines: &mut Vec<u8>, fields: &HeaderMap) -> Result<(), &'static str> {
    for (name, value) in fields {
        let value = value.as_bytes();
        // RFC 9113 §8.2.1.
        let white = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if white(value.first()) || white(value.last()) {
            return Err("white space around a field value");
        }
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        lines.extend_from_slice(b"\r\n");
    }
    lines.extend_from_slice(b"\r\n");
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;
    use microcache_wire::h1::Framing;

    fn answer(status: u16, fields: &[(&str, &str)]) -> Response<()> {
        let mut answer = Response::new(());
        *answer.status_mut() = status.try_into().expect("a status");
        for (name, value) in fields {
            let name: HeaderName = name.parse().expect("a name");
            let value = HeaderValue::from_bytes(value.as_bytes()).expect("a value");
            answer.headers_mut().append(name, value);
        }
        answer
    }

    #[test]
    fn a_head_equals_that_of_http1() {
        let page = [
            ("content-type", "text/plain"),
            ("set-cookie", "a=1"),
            ("content-length", "5"),
            ("set-cookie", "b=\u{e4}"),
            ("proxy-authenticate", "Basic"),
        ];
        for (status, to_head, framing, length) in [
            (200, false, Framing::Length(5), Some(5)),
            (200, true, Framing::None, Some(5)),
            (304, false, Framing::None, Some(5)),
            (204, false, Framing::None, None),
            (103, false, Framing::None, None),
        ] {
            let head = head(&answer(status, &page), to_head).expect("a head");
            assert_eq!(
                (head.status, head.framing, head.length),
                (status, framing, length)
            );
            let fields = "content-type: text/plain\r\nset-cookie: a=1\r\nset-cookie: b=\u{e4}\r\n";
            assert_eq!(head.fields.fields().as_block(), fields.as_bytes());
        }
        let without = head(&answer(200, &[("a", "")]), false).expect("a head");
        assert_eq!(without.framing, Framing::UntilClose);
    }

    #[test]
    fn heads_that_http1_refuses_are_refused() {
        let large = "x".repeat(ANSWER_LIMITS.head);
        for (status, fields) in [
            (200, &[("content-length", "5"), ("content-length", "5")][..]),
            (200, &[("content-length", "+5")]),
            (200, &[("content-length", "9223372036854775808")]),
            (200, &[("transfer-encoding", "gzip")]),
            (200, &[("a", " b")]),
            (200, &[("a", "b\t")]),
            (200, &[("a", &large)]),
            (600, &[]),
        ] {
            assert!(head(&answer(status, fields), false).is_err(), "{fields:?}");
        }
        let many = vec![("a", "b"); ANSWER_LIMITS.fields + 1];
        assert!(head(&answer(200, &many), false).is_err());
        assert!(head(&answer(200, &many[1..]), false).is_ok());
    }

    #[test]
    fn trailers_say_nothing_that_belongs_into_a_head() {
        let sent = [
            ("x-sum", "2"),
            ("content-length", "5"),
            ("set-cookie", "a=b"),
        ];
        let kept = trailers(answer(200, &sent).headers()).expect("trailers");
        assert_eq!(kept.fields().as_block(), b"x-sum: 2\r\n");
        assert!(trailers(answer(200, &[("x-sum", "2 ")]).headers()).is_err());
    }
}
