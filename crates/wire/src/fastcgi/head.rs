//! Parser of the response head of CGI (RFC 3875 §6).

use microcache_policy::{FieldIndex, Fields};

use crate::h1::bad_request::BadRequest;
use crate::h1::lines::{FieldLines, section};
use crate::h1::{Framing, HeadLimits, ResponseHead};

/// Parses the head at the front of `buf`, and returns it with its length in bytes; `None` while it is incomplete.
/// `to_head`: the request was a HEAD, whose responses have no body. The fields refer to `index`, whose memory the next
/// head may use; `Status` is among them.
///
/// Fails with the reason if a byte would be refused in HTTP/1, if the head frames the body in another way than by its
/// length, or if its status is not one of a final response.
pub fn parse_head<'a>(
    buf: &'a [u8],
    to_head: bool,
    limits: &HeadLimits,
    index: &'a mut FieldIndex,
) -> Result<Option<(ResponseHead<'a>, usize)>, &'static str> {
    let section = section(buf, limits.fields, index).map_err(|bad| bad.reason())?;
    let Some(section) = section.filter(|section| section.length <= limits.head) else {
        return if buf.len() >= limits.head {
            Err(BadRequest::HEAD_TOO_LARGE.reason())
        } else {
            Ok(None)
        };
    };
    let FieldLines {
        fields,
        facts,
        length,
    } = section;
    if facts.chunked {
        return Err("Transfer-Encoding in a CGI response");
    }
    let status = status(fields)?;
    let framing = match facts.length {
        _ if to_head || matches!(status, 204 | 304) => Framing::None,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    };
    let head = ResponseHead {
        status,
        http10: false,
        fields,
        framing,
        length: facts.length.filter(|_| status != 204),
        keep_alive: false,
    };
    Ok(Some((head, length)))
}

/// Returns the status: that of `Status`, else that of a redirect, else 200.
fn status(fields: Fields<'_>) -> Result<u16, &'static str> {
    let mut named = fields.all("status");
    match (named.next(), named.next()) {
        (Some(_), Some(_)) => Err("more than one Status"),
        (Some(value), None) => code(value.trim_ascii()).ok_or("Status is invalid"),
        (None, _) if fields.contains("location") => Ok(302),
        (None, _) => Ok(200),
    }
}

/// Parses a status code, with or without a reason phrase, of a final response.
fn code(value: &[u8]) -> Option<u16> {
    let (digits, rest) = value.split_first_chunk::<3>()?;
    let is_code = digits.iter().all(u8::is_ascii_digit);
    if !is_code || rest.first().is_some_and(|&byte| byte != b' ') {
        return None;
    }
    let code = digits
        .iter()
        .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    (200..=599).contains(&code).then_some(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Status, framing, length, and bytes taken.
    type ReadHead = (u16, Framing, Option<u64>, usize);

    fn read(text: &str, to_head: bool) -> Result<Option<ReadHead>, &'static str> {
        let mut index = FieldIndex::default();
        let head = parse_head(text.as_bytes(), to_head, &HeadLimits::default(), &mut index)?;
        Ok(head.map(|(head, taken)| (head.status, head.framing, head.length, taken)))
    }

    #[test]
    fn the_status_is_named_or_implied() {
        for (lines, status, framing) in [
            ("Content-Type: text/html\r\n", 200, Framing::UntilClose),
            ("Status: 404 Not Found\r\n", 404, Framing::UntilClose),
            ("status:\t500\r\n", 500, Framing::UntilClose),
            (
                "Status: 200 \r\nContent-Length: 3\r\n",
                200,
                Framing::Length(3),
            ),
            ("Location: /a\r\n", 302, Framing::UntilClose),
            (
                "Location: /a\r\nStatus: 301 Moved\r\n",
                301,
                Framing::UntilClose,
            ),
            (
                "Status: 304 Not Modified\r\nContent-Length: 3\r\n",
                304,
                Framing::None,
            ),
            ("Status: 204\r\nContent-Length: 3\r\n", 204, Framing::None),
            ("", 200, Framing::UntilClose),
        ] {
            let text = format!("{lines}\r\n");
            let whole = read(&text, false).unwrap().unwrap();
            assert_eq!(
                (whole.0, whole.1, whole.3),
                (status, framing, text.len()),
                "{lines}"
            );
            for length in 0..text.len() {
                assert_eq!(read(&text[..length], false), Ok(None), "{lines}");
            }
            assert_eq!(read(&format!("{text}\r\nbody"), false), Ok(Some(whole)));
        }
        let (_, framing, length, _) = read("Content-Length: 3\r\n\r\n", true).unwrap().unwrap();
        assert_eq!((framing, length), (Framing::None, Some(3)));
    }

    #[test]
    fn heads_are_as_strict_as_those_of_http() {
        for (text, reason) in [
            ("Status: 404\nX: 1\n\n", "a bare LF"),
            ("X: a\rb\r\n\r\n", "a bare CR"),
            ("X: a\0\r\n\r\n", "a NUL byte"),
            ("X : a\r\n\r\n", "white space"),
            ("X: a\r\n b\r\n\r\n", "a folded line"),
            ("PHP Warning\r\n\r\n", "white space"),
            ("HTTP/1.1 200 OK\r\n\r\n", "field name"),
            ("Transfer-Encoding: chunked\r\n\r\n", "Transfer-Encoding"),
            ("Transfer-Encoding: gzip\r\n\r\n", "coding"),
            (
                "Content-Length: 3\r\nContent-Length: 3\r\n\r\n",
                "more than one Content-Length",
            ),
            ("Content-Length: -1\r\n\r\n", "not a number"),
            ("Status: 200\r\nStatus: 404\r\n\r\n", "more than one Status"),
            ("Status: \r\n\r\n", "Status is invalid"),
            ("Status: 20\r\n\r\n", "Status is invalid"),
            ("Status: 2000\r\n\r\n", "Status is invalid"),
            ("Status: 101 Switching\r\n\r\n", "Status is invalid"),
            ("Status: 600\r\n\r\n", "Status is invalid"),
            ("Status: OK\r\n\r\n", "Status is invalid"),
        ] {
            let refused = read(text, false).unwrap_err();
            assert!(refused.contains(reason), "{text:?}: {refused}");
        }
        let large = format!("X: {}", "x".repeat(HeadLimits::default().head));
        assert!(read(&large, false).is_err());
        assert!(read(&format!("{large}\r\n\r\n"), false).is_err());
    }
}
