//! Reading responses: where each one ends, what its head says about it, and its content for those who want it.

use std::mem::MaybeUninit;

use super::chunked::Chunked;
use crate::load::cache_status;
use crate::load::outcome::Outcome;

/// A head that is longer is malformed.
const MAX_HEAD: usize = 64 * 1024;
/// A head of more fields is malformed.
const MAX_FIELDS: usize = 128;

/// Reads one response after the other.
#[derive(Debug, Default)]
pub(in crate::load) struct Reader {
    state: Awaited,
    /// The part of a head that has come so far, when it came in pieces.
    partial: Vec<u8>,
    /// Whether the request was a HEAD.
    bodiless: bool,
}

#[derive(Debug, Default)]
enum Awaited {
    /// Nothing of the response has come.
    #[default]
    Begin,
    Head,
    Body(Head, Body),
}

#[derive(Debug)]
enum Body {
    Length(u64),
    Chunked(Chunked),
    UntilClose,
}

/// What is of interest in a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) struct Head {
    pub(in crate::load) status: u16,
    pub(in crate::load) outcome: Outcome,
    pub(in crate::load) keeps_alive: bool,
    /// Whether the content is `text/event-stream`.
    pub(in crate::load) is_event_stream: bool,
}

/// How far a response has come.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::load) enum Read {
    /// There is more to come.
    Some,
    /// That was all of it; so many of the bytes were its own.
    All(Head, usize),
}

/// It is not HTTP.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::load) struct Malformed;

impl Reader {
    /// Expects the response to a new request.
    pub(in crate::load) fn expect(&mut self, bodiless: bool) {
        self.state = Awaited::Begin;
        self.partial.clear();
        self.bodiless = bodiless;
    }

    /// Whether nothing of the response has come.
    pub(super) fn has_nothing(&self) -> bool {
        matches!(self.state, Awaited::Begin)
    }

    /// What the head says, once it has come, as long as the response is not complete.
    pub(in crate::load) fn head(&self) -> Option<Head> {
        match self.state {
            Awaited::Body(head, _) => Some(head),
            Awaited::Begin | Awaited::Head => None,
        }
    }

    /// Reads what has come.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Read, Malformed> {
        self.read_content(bytes, &mut |_| ())
    }

    /// Reads what has come, and hands out what of it is content.
    pub(in crate::load) fn read_content(
        &mut self,
        bytes: &[u8],
        content: &mut impl FnMut(&[u8]),
    ) -> Result<Read, Malformed> {
        if let Awaited::Body(head, body) = &mut self.state {
            return match body.read(bytes, content)? {
                Some(own) => Ok(Read::All(*head, own)),
                None => Ok(Read::Some),
            };
        }
        self.state = Awaited::Head;
        if self.partial.is_empty() {
            return self.read_head(bytes, content);
        }
        let before = self.partial.len();
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        // A head that was not complete before ends in the new bytes, so the response's own bytes reach beyond the old ones.
        match self.read_head(&all, content)? {
            Read::All(head, own) => Ok(Read::All(head, own.saturating_sub(before))),
            Read::Some => Ok(Read::Some),
        }
    }

    /// Whether the response is complete now that the server has closed the connection.
    pub(in crate::load) fn close(&self) -> Option<Head> {
        match &self.state {
            Awaited::Body(head, Body::UntilClose) => Some(*head),
            _ => None,
        }
    }

    fn read_head(
        &mut self,
        bytes: &[u8],
        content: &mut impl FnMut(&[u8]),
    ) -> Result<Read, Malformed> {
        let mut start = 0;
        loop {
            let Some((head, body, length)) = parse(&bytes[start..], self.bodiless)? else {
                if bytes.len() - start > MAX_HEAD {
                    return Err(Malformed);
                }
                self.partial.extend_from_slice(&bytes[start..]);
                return Ok(Read::Some);
            };
            start += length;
            if head.status >= 200 {
                return self.begin_body(head, body, start, &bytes[start..], content);
            }
            // Nothing that is sent asks for another protocol (RFC 9110 §15.2.2).
            if head.status == 101 {
                return Err(Malformed);
            }
        }
    }

    fn begin_body(
        &mut self,
        head: Head,
        mut body: Body,
        before: usize,
        bytes: &[u8],
        content: &mut impl FnMut(&[u8]),
    ) -> Result<Read, Malformed> {
        if let Some(own) = body.read(bytes, content)? {
            return Ok(Read::All(head, before + own));
        }
        self.state = Awaited::Body(head, body);
        Ok(Read::Some)
    }
}

impl Body {
    /// Hands out the content. Returns how many of the bytes were the body's own, once it is complete.
    fn read(
        &mut self,
        bytes: &[u8],
        content: &mut impl FnMut(&[u8]),
    ) -> Result<Option<usize>, Malformed> {
        match self {
            Self::Length(left) => {
                let own = (*left).min(bytes.len() as u64);
                *left -= own;
                content(&bytes[..own as usize]);
                Ok((*left == 0).then_some(own as usize))
            }
            Self::Chunked(chunked) => {
                let own = chunked.advance(bytes, content).ok_or(Malformed)?;
                Ok((*chunked == Chunked::Done).then_some(own))
            }
            Self::UntilClose => {
                content(bytes);
                Ok(None)
            }
        }
    }
}

/// A whole head, the body it announces, and the head's length; `None` while it is not complete.
fn parse(bytes: &[u8], bodiless: bool) -> Result<Option<(Head, Body, usize)>, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut fields,
    );
    let length = match parsed.map_err(|_| Malformed)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let status = response.code.filter(|code| *code >= 100).ok_or(Malformed)?;
    let mut head = Head {
        status,
        outcome: Outcome::None,
        keeps_alive: response.version == Some(1),
        is_event_stream: false,
    };
    let mut framing = Framing::default();
    for field in response.headers.iter() {
        read_field(field, &mut head, &mut framing)?;
    }
    let body = if bodiless || status < 200 || status == 204 || status == 304 {
        Body::Length(0)
    } else {
        framing.body()
    };
    if matches!(body, Body::UntilClose) {
        head.keeps_alive = false;
    }
    Ok(Some((head, body, length)))
}

/// What the fields say about the body's end.
#[derive(Default)]
struct Framing {
    length: Option<u64>,
    /// Whether there is a coding, and whether chunked is the last one.
    coded: Option<bool>,
}

impl Framing {
    /// RFC 9112 §6.3.
    fn body(&self) -> Body {
        match (self.coded, self.length) {
            (Some(true), _) => Body::Chunked(Chunked::BEGIN),
            (None, Some(length)) => Body::Length(length),
            (Some(false), _) | (None, None) => Body::UntilClose,
        }
    }
}

fn read_field(
    field: &httparse::Header<'_>,
    head: &mut Head,
    framing: &mut Framing,
) -> Result<(), Malformed> {
    let (name, value) = (field.name, field.value);
    // The length of a name is compared before its letters: most fields are none of these.
    match name.len() {
        14 if name.eq_ignore_ascii_case("content-length") => {
            let length = number(value).ok_or(Malformed)?;
            if framing.length.is_some_and(|before| before != length) {
                return Err(Malformed);
            }
            framing.length = Some(length);
        }
        17 if name.eq_ignore_ascii_case("transfer-encoding") => {
            let last = value.rsplit(|&b| b == b',').next().unwrap_or_default();
            framing.coded = Some(last.trim_ascii().eq_ignore_ascii_case(b"chunked"));
        }
        10 if name.eq_ignore_ascii_case("connection") => {
            for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
                if option.eq_ignore_ascii_case(b"close") {
                    head.keeps_alive = false;
                } else if option.eq_ignore_ascii_case(b"keep-alive") {
                    head.keeps_alive = true;
                }
            }
        }
        12 if name.eq_ignore_ascii_case("cache-status") => {
            head.outcome = cache_status::outcome(value);
        }
        12 if name.eq_ignore_ascii_case("content-type") => {
            let media_type = value.split(|&b| b == b';').next().unwrap_or_default();
            head.is_event_stream = media_type
                .trim_ascii()
                .eq_ignore_ascii_case(b"text/event-stream");
        }
        _ => {}
    }
    Ok(())
}

fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads a response in pieces of every size, with the next response's first bytes behind it.
    fn check(response: &str, status: u16, outcome: Outcome, keeps_alive: bool) {
        let head = Head {
            status,
            outcome,
            keeps_alive,
            is_event_stream: false,
        };
        let own = response.len();
        let bytes = format!("{response}HTTP/1.1");
        for step in 1..=bytes.len() {
            let mut reader = Reader::default();
            reader.expect(false);
            let mut before = 0;
            let mut found = None;
            for piece in bytes.as_bytes().chunks(step) {
                match reader.read(piece).expect("it is well-formed") {
                    Read::Some => before += piece.len(),
                    Read::All(head, own) => {
                        found = Some((head, before + own));
                        break;
                    }
                }
            }
            assert_eq!(found, Some((head, own)), "{response:?} in steps of {step}");
        }
    }

    #[test]
    fn responses_end_where_they_say() {
        let ok = "HTTP/1.1 200 OK\r\n";
        let none = Outcome::None;
        check(
            &format!("{ok}Content-Length: 5\r\n\r\nhello"),
            200,
            none,
            true,
        );
        check(&format!("{ok}content-length: 0\r\n\r\n"), 200, none, true);
        check(
            &format!("{ok}Connection: x, Close\r\nContent-Length: 1\r\n\r\n."),
            200,
            none,
            false,
        );
        check(
            &format!("{ok}Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"),
            200,
            none,
            true,
        );
        check(
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n",
            304,
            none,
            true,
        );
        check("HTTP/1.1 204 No Content\r\n\r\n", 204, none, true);
        check(
            "HTTP/1.0 404 No\r\nContent-Length: 1\r\n\r\n.",
            404,
            none,
            false,
        );
        check(
            "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n.",
            200,
            none,
            true,
        );
        check(
            "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
            200,
            none,
            true,
        );
    }

    #[test]
    fn the_outcome_is_the_last_one_that_is_said() {
        check(
            "HTTP/1.1 200 OK\r\nCache-Status: a; fwd=miss\r\nCache-Status: b; hit\r\nContent-Length: 0\r\n\r\n",
            200,
            Outcome::Hit,
            true,
        );
    }

    #[test]
    fn content_is_handed_out() {
        let response = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\
            content-type: Text/Event-Stream; charset=utf-8\r\n\r\n3\r\nabc\r\n2\r\nde\r\n";
        for step in 1..=response.len() {
            let mut reader = Reader::default();
            reader.expect(false);
            let mut content = Vec::new();
            for piece in response.as_bytes().chunks(step) {
                let mut keep = |bytes: &[u8]| content.extend_from_slice(bytes);
                assert_eq!(reader.read_content(piece, &mut keep), Ok(Read::Some));
            }
            assert_eq!(content, b"abcde", "in steps of {step}");
            assert!(reader.head().is_some_and(|head| head.is_event_stream));
        }
    }

    #[test]
    fn a_body_may_end_with_the_connection() {
        let mut reader = Reader::default();
        reader.expect(false);
        assert!(reader.has_nothing());
        assert_eq!(reader.read(b"HTTP/1.1 200 OK\r\n\r\nabc"), Ok(Read::Some));
        assert_eq!(reader.read(b"def"), Ok(Read::Some));
        let head = reader.close().expect("it is complete");
        assert!(!head.keeps_alive);
        reader.expect(false);
        assert_eq!(reader.close(), None);
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc";
        assert_eq!(reader.read(cut), Ok(Read::Some));
        assert_eq!(reader.close(), None);
    }

    #[test]
    fn the_answer_to_a_head_has_no_body() {
        let mut reader = Reader::default();
        reader.expect(true);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert!(matches!(reader.read(head), Ok(Read::All(_, own)) if own == head.len()));
    }

    #[test]
    fn what_is_not_http_is_malformed() {
        for bytes in [
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 099 What\r\n\r\n",
        ] {
            let mut reader = Reader::default();
            reader.expect(false);
            assert_eq!(reader.read(bytes.as_bytes()), Err(Malformed), "{bytes:?}");
        }
    }

    #[test]
    fn a_head_without_an_end_is_malformed() {
        let mut reader = Reader::default();
        reader.expect(false);
        assert_eq!(reader.read(b"HTTP/1.1 200 OK\r\nX: "), Ok(Read::Some));
        let piece = [b'x'; 1024];
        let refused = (0..80).any(|_| reader.read(&piece) == Err(Malformed));
        assert!(refused);
    }
}
