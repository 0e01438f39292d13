//! Parsers of request and response heads: in place, in one pass, without allocation.

use microcache_policy::{FieldIndex, Fields};

use super::bad_request::BadRequest;
use super::lines::{FieldLines, section};
use super::syntax::{TOKEN, line_end, span, target_span, value_span};
use super::target::authority;

/// Most empty lines accepted before a request line, as some clients send one after a body (RFC 9112 §2.2).
const MAX_LEADING_LINES: usize = 2;

/// Limits of a message head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadLimits {
    /// Size of the whole head, in bytes.
    pub head: usize,
    /// Size of the request target, in bytes.
    pub target: usize,
    /// Number of field lines.
    pub fields: usize,
}

impl Default for HeadLimits {
    fn default() -> Self {
        Self {
            head: 32 * 1024,
            target: 8 * 1024,
            fields: 100,
        }
    }
}

/// Framing of a body (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// `Content-Length`, in bytes.
    Length(u64),
    /// Chunked transfer coding.
    Chunked,
    /// End of the connection; responses only.
    UntilClose,
}

/// Head of a request.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct RequestHead<'a> {
    /// Method: a token.
    pub method: &'a [u8],
    /// Request target as received; see [`split_target`](super::split_target).
    pub target: &'a [u8],
    /// HTTP/1.0 if `true`, else HTTP/1.1.
    pub http10: bool,
    /// All field lines.
    pub fields: Fields<'a>,
    /// Framing of the body.
    pub framing: Framing,
    /// Keep-alive: another request may follow on the connection.
    pub keep_alive: bool,
    /// Value of Host, without an empty port; always present in HTTP/1.1.
    pub host: Option<&'a [u8]>,
    /// An upgrade to another protocol is requested (RFC 9110 §7.8).
    pub upgrade: bool,
    /// The client expects a 100 before it sends the body.
    pub expect_continue: bool,
}

/// Head of a response.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// Status code, 100 to 599.
    pub status: u16,
    /// HTTP/1.0 if `true`, else HTTP/1.1.
    pub http10: bool,
    /// All field lines.
    pub fields: Fields<'a>,
    /// Framing of the body.
    pub framing: Framing,
    /// Value of Content-Length, also on responses without a body.
    pub length: Option<u64>,
    /// Keep-alive: another request may follow on the connection.
    pub keep_alive: bool,
}

/// Parses the request head at the front of `buf`, and returns it with its length in bytes; `None` while it is
/// incomplete. The fields refer to `index`, whose memory the next head may use.
///
/// Fails with [`BadRequest`] as soon as a rule is violated, without waiting for the rest.
#[expect(
    clippy::inline_always,
    reason = "a hit pays for the call, which others make only now and then"
)]
#[inline(always)]
pub fn parse_request<'a>(
    buf: &'a [u8],
    limits: &HeadLimits,
    index: &'a mut FieldIndex,
) -> Result<Option<(RequestHead<'a>, usize)>, BadRequest> {
    let mut head = buf;
    for _ in 0..MAX_LEADING_LINES {
        head = head.strip_prefix(b"\r\n").unwrap_or(head);
    }
    let skipped = buf.len() - head.len();
    if head == b"\r" && skipped < 2 * MAX_LEADING_LINES {
        return Ok(None);
    }
    match request(head, limits, index)? {
        Some((_, length)) if length > limits.head => Err(BadRequest::HEAD_TOO_LARGE),
        Some((request, length)) => Ok(Some((request, skipped + length))),
        None if head.len() >= limits.head => Err(BadRequest::HEAD_TOO_LARGE),
        None => Ok(None),
    }
}

#[expect(
    clippy::inline_always,
    reason = "a hit pays for the call, which others make only now and then"
)]
#[inline(always)]
fn request<'a>(
    buf: &'a [u8],
    limits: &HeadLimits,
    index: &'a mut FieldIndex,
) -> Result<Option<(RequestHead<'a>, usize)>, BadRequest> {
    let Some(line) = request_line(buf, limits)? else {
        return Ok(None);
    };
    let Some(section) = section(&buf[line.length..], limits.fields, index)? else {
        return Ok(None);
    };
    let FieldLines { fields, facts, .. } = section;
    facts.check_framing(line.http10)?;
    let host = match facts.host {
        _ if facts.hosts > 1 => return Err(BadRequest::malformed("more than one Host")),
        Some(host) => Some(authority(host).ok_or(BadRequest::malformed("Host is invalid"))?),
        None if !line.http10 => return Err(BadRequest::malformed("HTTP/1.1 without Host")),
        None => None,
    };
    let framing = match facts.length {
        _ if facts.chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::None,
    };
    let head = RequestHead {
        method: line.method,
        target: line.target,
        http10: line.http10,
        fields,
        framing,
        keep_alive: facts.persistent(line.http10),
        host,
        upgrade: !line.http10 && facts.upgrade && facts.protocol,
        // RFC 9110 §10.1.1: an expectation from HTTP/1.0 is ignored.
        expect_continue: !line.http10 && facts.expect_continue,
    };
    Ok(Some((head, line.length + section.length)))
}

struct RequestLine<'a> {
    method: &'a [u8],
    target: &'a [u8],
    http10: bool,
    length: usize,
}

#[expect(
    clippy::inline_always,
    reason = "a hit pays for the call, which others make only now and then"
)]
#[inline(always)]
fn request_line<'a>(
    buf: &'a [u8],
    limits: &HeadLimits,
) -> Result<Option<RequestLine<'a>>, BadRequest> {
    let method_length = span(buf, TOKEN);
    let Some((method, [separator, rest @ ..])) = buf.split_at_checked(method_length) else {
        return Ok(None);
    };
    if method.is_empty() || *separator != b' ' {
        return Err(BadRequest::malformed("the request line has no method"));
    }
    let target_length = target_span(rest);
    if target_length > limits.target {
        return Err(BadRequest::TARGET_TOO_LONG);
    }
    let Some((target, [separator, rest @ ..])) = rest.split_at_checked(target_length) else {
        return Ok(None);
    };
    if *separator != b' ' {
        return Err(BadRequest::malformed(
            "an invalid byte in the request target",
        ));
    }
    if target.is_empty() {
        return Err(BadRequest::malformed("the request target is empty"));
    }
    Ok(request_version(rest)?.map(|http10| RequestLine {
        method,
        target,
        http10,
        length: method.len() + target.len() + 2 + VERSION_LINE.len(),
    }))
}

/// End of a request line; `#` is any digit.
const VERSION_LINE: &[u8] = b"HTTP/#.#\r\n";

/// Parses the version; `true` is HTTP/1.0.
#[inline]
fn request_version(rest: &[u8]) -> Result<Option<bool>, BadRequest> {
    if rest.starts_with(b"HTTP/1.1\r\n") {
        return Ok(Some(false));
    }
    if rest.starts_with(b"HTTP/1.0\r\n") {
        return Ok(Some(true));
    }
    if !fits(rest, VERSION_LINE) {
        return Err(BadRequest::malformed("the request line has no version"));
    }
    match rest.get(5..8) {
        None | Some(b"1.0" | b"1.1") => Ok(None),
        Some(_) => Err(BadRequest::VERSION),
    }
}

/// Returns `true` if `bytes`, complete or not, match `pattern`, in which `#` is any digit.
fn fits(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes
        .iter()
        .zip(pattern)
        .all(|(byte, expected)| match expected {
            b'#' => byte.is_ascii_digit(),
            _ => byte == expected,
        })
}

/// Parses the response head at the front of `buf`, and returns it with its length in bytes; `None` while it is
/// incomplete. `to_head`: the request was a HEAD, whose responses have no body. The fields refer to `index`, whose memory
/// the next head may use.
///
/// Fails with the reason if the head violates RFC 9112.
pub fn parse_response<'a>(
    buf: &'a [u8],
    to_head: bool,
    limits: &HeadLimits,
    index: &'a mut FieldIndex,
) -> Result<Option<(ResponseHead<'a>, usize)>, &'static str> {
    match response(buf, to_head, limits, index)? {
        Some((_, length)) if length > limits.head => Err(BadRequest::HEAD_TOO_LARGE.reason()),
        None if buf.len() >= limits.head => Err(BadRequest::HEAD_TOO_LARGE.reason()),
        parsed => Ok(parsed),
    }
}

fn response<'a>(
    buf: &'a [u8],
    to_head: bool,
    limits: &HeadLimits,
    index: &'a mut FieldIndex,
) -> Result<Option<(ResponseHead<'a>, usize)>, &'static str> {
    let Some(line) = status_line(buf)? else {
        return Ok(None);
    };
    let section = section(&buf[line.length..], limits.fields, index);
    let Some(section) = section.map_err(|bad| bad.reason())? else {
        return Ok(None);
    };
    let FieldLines { fields, facts, .. } = section;
    facts
        .check_framing(line.http10)
        .map_err(|bad| bad.reason())?;
    let bodiless = matches!(line.status, 100..=199 | 204);
    let framing = match facts.length {
        _ if bodiless || line.status == 304 || to_head => Framing::None,
        _ if facts.chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    };
    // A sender that announces a body on a status that has none may send it anyway. Its bytes would then be read as
    // the next response, so the connection is not reused.
    let contradicts_itself = bodiless && (facts.chunked || facts.length.is_some_and(|n| n > 0));
    let head = ResponseHead {
        status: line.status,
        http10: line.http10,
        fields,
        framing,
        length: facts.length.filter(|_| !bodiless),
        keep_alive: facts.persistent(line.http10)
            && framing != Framing::UntilClose
            && !contradicts_itself,
    };
    Ok(Some((head, line.length + section.length)))
}

struct StatusLine {
    status: u16,
    http10: bool,
    length: usize,
}

/// Beginning of a status line; `#` is any digit.
const STATUS_LINE: &[u8] = b"HTTP/1.# ###";

fn status_line(buf: &[u8]) -> Result<Option<StatusLine>, &'static str> {
    if !fits(buf, STATUS_LINE) {
        return Err("not an HTTP/1 status line");
    }
    let Some((line, rest)) = buf.split_at_checked(STATUS_LINE.len()) else {
        return Ok(None);
    };
    let http10 = match line[7] {
        b'0' => true,
        b'1' => false,
        _ => return Err("an unknown HTTP version"),
    };
    let status = line[9..]
        .iter()
        .fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'));
    if !(100..=599).contains(&status) {
        return Err("the status is out of range");
    }
    // RFC 9112 §4 requires the space even without a reason phrase; many servers omit it.
    let reason = match rest.first() {
        Some(b' ') => value_span(rest),
        Some(b'\r' | b'\n') | None => 0,
        Some(_) => return Err("not an HTTP/1 status line"),
    };
    Ok(line_end(&rest[reason..])?.map(|()| StatusLine {
        status,
        http10,
        length: line.len() + reason + 2,
    }))
}

#[cfg(test)]
mod tests;
