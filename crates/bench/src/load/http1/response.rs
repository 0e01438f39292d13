//! HTTP/1.1 response parser: message framing, metadata and content.

use std::mem::MaybeUninit;

use super::chunked::ChunkedDecoder;
use crate::load::cache_status;
use crate::load::outcome::CacheOutcome;

/// Maximum size of a head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
/// Maximum number of fields in a head.
const MAX_FIELDS: usize = 128;

/// Incremental parser of consecutive responses on a connection.
#[derive(Debug, Default)]
pub(in crate::load) struct ResponseParser {
    state: ParserState,
    /// Bytes of an incomplete head.
    partial: Vec<u8>,
    /// `true` if the request was a HEAD.
    bodiless: bool,
}

#[derive(Debug, Default)]
enum ParserState {
    /// No byte of the response received yet.
    #[default]
    Begin,
    Head,
    Body(ResponseSummary, BodyFraming),
}

#[derive(Debug)]
enum BodyFraming {
    Length(u64),
    Chunked(ChunkedDecoder),
    UntilClose,
}

/// Metadata of a response head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::load) struct ResponseSummary {
    pub(in crate::load) status: u16,
    pub(in crate::load) outcome: CacheOutcome,
    pub(in crate::load) keeps_alive: bool,
    /// `true` if the media type is `text/event-stream`.
    pub(in crate::load) is_event_stream: bool,
}

/// Parser progress.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::load) enum ParseProgress {
    /// The response is incomplete.
    Partial,
    /// The response is complete. Carries the number of input bytes that belong to it.
    Complete(ResponseSummary, usize),
}

/// Response that violates HTTP/1.1 or exceeds a limit.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::load) struct MalformedResponse;

impl ResponseParser {
    /// Prepares for the response to a new request.
    pub(in crate::load) fn expect(&mut self, bodiless: bool) {
        self.state = ParserState::Begin;
        self.partial.clear();
        self.bodiless = bodiless;
    }

    /// Returns whether no byte of the response has been received.
    pub(super) fn has_nothing(&self) -> bool {
        matches!(self.state, ParserState::Begin)
    }

    /// Returns the head of an incomplete response, once it has been received.
    pub(in crate::load) fn head(&self) -> Option<ResponseSummary> {
        match self.state {
            ParserState::Body(head, _) => Some(head),
            ParserState::Begin | ParserState::Head => None,
        }
    }

    /// Parses received bytes.
    ///
    /// # Errors
    ///
    /// [`MalformedResponse`] if they are not a valid HTTP/1.1 response.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<ParseProgress, MalformedResponse> {
        self.read_content(bytes, &mut |_| ())
    }

    /// Parses received bytes and passes the content in them to `content`.
    pub(in crate::load) fn read_content(
        &mut self,
        bytes: &[u8],
        content: &mut impl FnMut(&[u8]),
    ) -> Result<ParseProgress, MalformedResponse> {
        if let ParserState::Body(head, body) = &mut self.state {
            return match body.read(bytes, content)? {
                Some(own) => Ok(ParseProgress::Complete(*head, own)),
                None => Ok(ParseProgress::Partial),
            };
        }
        self.state = ParserState::Head;
        if self.partial.is_empty() {
            return self.read_head(bytes, content);
        }
        let before = self.partial.len();
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        // The head was incomplete before, so it ends within the new bytes and the sum exceeds the old
        // length.
        match self.read_head(&all, content)? {
            ParseProgress::Complete(head, own) => {
                Ok(ParseProgress::Complete(head, own.saturating_sub(before)))
            }
            ParseProgress::Partial => Ok(ParseProgress::Partial),
        }
    }

    /// Returns the head if the close of the connection completes the response (RFC 9112 §6.3 item 8).
    pub(in crate::load) fn close(&self) -> Option<ResponseSummary> {
        match &self.state {
            ParserState::Body(head, BodyFraming::UntilClose) => Some(*head),
            _ => None,
        }
    }

    fn read_head(
        &mut self,
        bytes: &[u8],
        content: &mut impl FnMut(&[u8]),
    ) -> Result<ParseProgress, MalformedResponse> {
        let mut start = 0;
        loop {
            let Some((head, body, length)) = parse(&bytes[start..], self.bodiless)? else {
                if bytes.len() - start > MAX_HEAD {
                    return Err(MalformedResponse);
                }
                self.partial.extend_from_slice(&bytes[start..]);
                return Ok(ParseProgress::Partial);
            };
            start += length;
            if head.status >= 200 {
                return self.begin_body(head, body, start, &bytes[start..], content);
            }
            // No request has an Upgrade field, so 101 is invalid (RFC 9110 §15.2.2).
            if head.status == 101 {
                return Err(MalformedResponse);
            }
        }
    }

    fn begin_body(
        &mut self,
        head: ResponseSummary,
        mut body: BodyFraming,
        before: usize,
        bytes: &[u8],
        content: &mut impl FnMut(&[u8]),
    ) -> Result<ParseProgress, MalformedResponse> {
        if let Some(own) = body.read(bytes, content)? {
            return Ok(ParseProgress::Complete(head, before + own));
        }
        self.state = ParserState::Body(head, body);
        Ok(ParseProgress::Partial)
    }
}

impl BodyFraming {
    /// Passes content to `content`. Returns the number of bytes that belong to the body once it is complete.
    fn read(
        &mut self,
        bytes: &[u8],
        content: &mut impl FnMut(&[u8]),
    ) -> Result<Option<usize>, MalformedResponse> {
        match self {
            Self::Length(left) => {
                let own = (*left).min(bytes.len() as u64);
                *left -= own;
                content(&bytes[..own as usize]);
                Ok((*left == 0).then_some(own as usize))
            }
            Self::Chunked(chunked) => {
                let own = chunked.advance(bytes, content).ok_or(MalformedResponse)?;
                Ok((*chunked == ChunkedDecoder::Done).then_some(own))
            }
            Self::UntilClose => {
                content(bytes);
                Ok(None)
            }
        }
    }
}

/// Parses a complete head. Returns it with its body framing and its length in bytes; `None` while it is
/// incomplete.
fn parse(
    bytes: &[u8],
    bodiless: bool,
) -> Result<Option<(ResponseSummary, BodyFraming, usize)>, MalformedResponse> {
    let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        bytes,
        &mut fields,
    );
    let length = match parsed.map_err(|_| MalformedResponse)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let status = response
        .code
        .filter(|code| *code >= 100)
        .ok_or(MalformedResponse)?;
    let mut head = ResponseSummary {
        status,
        outcome: CacheOutcome::None,
        keeps_alive: response.version == Some(1),
        is_event_stream: false,
    };
    let mut framing = LengthFields::default();
    for field in response.headers.iter() {
        read_field(field, &mut head, &mut framing)?;
    }
    let body = if bodiless || status < 200 || status == 204 || status == 304 {
        BodyFraming::Length(0)
    } else {
        framing.body()
    };
    if matches!(body, BodyFraming::UntilClose) {
        head.keeps_alive = false;
    }
    Ok(Some((head, body, length)))
}

/// Fields that determine the message body length.
#[derive(Default)]
struct LengthFields {
    length: Option<u64>,
    /// `true` if `chunked` is the final transfer coding; `None` without Transfer-Encoding.
    coded: Option<bool>,
}

impl LengthFields {
    /// Message body length, RFC 9112 §6.3.
    fn body(&self) -> BodyFraming {
        match (self.coded, self.length) {
            (Some(true), _) => BodyFraming::Chunked(ChunkedDecoder::BEGIN),
            (None, Some(length)) => BodyFraming::Length(length),
            (Some(false), _) | (None, None) => BodyFraming::UntilClose,
        }
    }
}

fn read_field(
    field: &httparse::Header<'_>,
    head: &mut ResponseSummary,
    framing: &mut LengthFields,
) -> Result<(), MalformedResponse> {
    let (name, value) = (field.name, field.value);
    // Comparing lengths first skips most fields cheaply.
    match name.len() {
        14 if name.eq_ignore_ascii_case("content-length") => {
            let length = number(value).ok_or(MalformedResponse)?;
            if framing.length.is_some_and(|before| before != length) {
                return Err(MalformedResponse);
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

    /// Parses a response in pieces of every size, followed by the first bytes of the next one.
    fn check(response: &str, status: u16, outcome: CacheOutcome, keeps_alive: bool) {
        let head = ResponseSummary {
            status,
            outcome,
            keeps_alive,
            is_event_stream: false,
        };
        let own = response.len();
        let bytes = format!("{response}HTTP/1.1");
        for step in 1..=bytes.len() {
            let mut reader = ResponseParser::default();
            reader.expect(false);
            let mut before = 0;
            let mut found = None;
            for piece in bytes.as_bytes().chunks(step) {
                match reader.read(piece).expect("it is well-formed") {
                    ParseProgress::Partial => before += piece.len(),
                    ParseProgress::Complete(head, own) => {
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
        let none = CacheOutcome::None;
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
    fn the_outcome_is_that_of_the_last_member() {
        check(
            "HTTP/1.1 200 OK\r\nCache-Status: a; fwd=miss\r\nCache-Status: b; hit\r\nContent-Length: 0\r\n\r\n",
            200,
            CacheOutcome::Hit,
            true,
        );
    }

    #[test]
    fn content_is_handed_out() {
        let response = "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\
            content-type: Text/Event-Stream; charset=utf-8\r\n\r\n3\r\nabc\r\n2\r\nde\r\n";
        for step in 1..=response.len() {
            let mut reader = ResponseParser::default();
            reader.expect(false);
            let mut content = Vec::new();
            for piece in response.as_bytes().chunks(step) {
                let mut keep = |bytes: &[u8]| content.extend_from_slice(bytes);
                assert_eq!(
                    reader.read_content(piece, &mut keep),
                    Ok(ParseProgress::Partial)
                );
            }
            assert_eq!(content, b"abcde", "in steps of {step}");
            assert!(reader.head().is_some_and(|head| head.is_event_stream));
        }
    }

    #[test]
    fn a_body_may_end_with_the_connection() {
        let mut reader = ResponseParser::default();
        reader.expect(false);
        assert!(reader.has_nothing());
        assert_eq!(
            reader.read(b"HTTP/1.1 200 OK\r\n\r\nabc"),
            Ok(ParseProgress::Partial)
        );
        assert_eq!(reader.read(b"def"), Ok(ParseProgress::Partial));
        let head = reader.close().expect("it is complete");
        assert!(!head.keeps_alive);
        reader.expect(false);
        assert_eq!(reader.close(), None);
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc";
        assert_eq!(reader.read(cut), Ok(ParseProgress::Partial));
        assert_eq!(reader.close(), None);
    }

    #[test]
    fn the_answer_to_a_head_has_no_body() {
        let mut reader = ResponseParser::default();
        reader.expect(true);
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
        assert!(
            matches!(reader.read(head), Ok(ParseProgress::Complete(_, own)) if own == head.len())
        );
    }

    #[test]
    fn responses_that_are_not_http_are_malformed() {
        for bytes in [
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz",
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "HTTP/1.1 099 What\r\n\r\n",
        ] {
            let mut reader = ResponseParser::default();
            reader.expect(false);
            assert_eq!(
                reader.read(bytes.as_bytes()),
                Err(MalformedResponse),
                "{bytes:?}"
            );
        }
    }

    #[test]
    fn a_head_without_an_end_is_malformed() {
        let mut reader = ResponseParser::default();
        reader.expect(false);
        assert_eq!(
            reader.read(b"HTTP/1.1 200 OK\r\nX: "),
            Ok(ParseProgress::Partial)
        );
        let piece = [b'x'; 1024];
        let refused = (0..80).any(|_| reader.read(&piece) == Err(MalformedResponse));
        assert!(refused);
    }
}
