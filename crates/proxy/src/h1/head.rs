//! Request and response heads: read in place, in one pass, without allocation.

use microcache_policy::Fields;

use super::lines::{Section, section};
use super::syntax::{TOKEN, line_end, span, target_span, value_span};
use super::target::authority;

/// Empty lines some clients send after a body (RFC 9112 §2.2); more of them are noise.
const MAX_LEADING_LINES: usize = 2;

/// How large a head may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All of it, in bytes.
    pub head: usize,
    /// The request target, in bytes.
    pub target: usize,
    /// The number of field lines.
    pub fields: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            head: 32 * 1024,
            target: 8 * 1024,
            fields: 100,
        }
    }
}

/// Where a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// There is none.
    None,
    /// After so many bytes.
    Length(u64),
    /// After the last chunk.
    Chunked,
    /// Where the connection ends; responses only.
    UntilClose,
}

/// A request head.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub struct RequestHead<'a> {
    /// The method, a token.
    pub method: &'a [u8],
    /// The target as it came; see [`split_target`](super::split_target).
    pub target: &'a [u8],
    /// Whether the version is 1.0; else it is 1.1.
    pub http10: bool,
    /// Every field line.
    pub fields: Fields<'a>,
    /// Where the body ends.
    pub framing: Framing,
    /// Whether another request may follow on the connection.
    pub keep_alive: bool,
    /// The Host field, without an empty port; always there with HTTP/1.1.
    pub host: Option<&'a [u8]>,
    /// The client asks for another protocol (RFC 9110 §7.8).
    pub upgrade: bool,
    /// The client waits for a 100 before it sends the body.
    pub expect_continue: bool,
}

/// A response head.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// 100 to 599.
    pub status: u16,
    /// Whether the version is 1.0; else it is 1.1.
    pub http10: bool,
    /// Every field line.
    pub fields: Fields<'a>,
    /// Where the body ends.
    pub framing: Framing,
    /// What Content-Length says, on answers without a body too.
    pub length: Option<u64>,
    /// Whether another request may follow on the connection.
    pub keep_alive: bool,
}

/// Why a request is refused. The connection cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadRequest {
    status: u16,
    reason: &'static str,
}

impl BadRequest {
    pub(super) const UNKNOWN_CODING: Self = Self {
        status: 501,
        reason: "a transfer coding other than chunked",
    };
    pub(super) const TOO_MANY_FIELDS: Self = Self {
        status: 431,
        reason: "too many fields",
    };
    /// A method that is not taken.
    pub(crate) const METHOD: Self = Self {
        status: 405,
        reason: "this method is not taken here",
    };
    /// Requests are taken by TLS only.
    pub(crate) const NOT_TLS: Self = Self {
        status: 400,
        reason: "this port takes requests by TLS: the address begins with https://",
    };
    /// The head did not arrive in time.
    pub(crate) const TIMEOUT: Self = Self {
        status: 408,
        reason: "the request head did not arrive in time",
    };
    const HEAD_TOO_LARGE: Self = Self {
        status: 431,
        reason: "the head is too large",
    };
    const TARGET_TOO_LONG: Self = Self {
        status: 414,
        reason: "the request target is too long",
    };
    const VERSION: Self = Self {
        status: 505,
        reason: "a version other than HTTP/1.0 or HTTP/1.1",
    };

    pub(super) const fn malformed(reason: &'static str) -> Self {
        Self {
            status: 400,
            reason,
        }
    }

    /// The status to answer with: 400, 405, 408, 414, 431, 501 or 505.
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// What is wrong, for the log and the error page.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
}

/// Reads the request head at the front of `buf`, and how many bytes it took. `None` while it is
/// incomplete; what already breaks a rule is refused without waiting for the rest.
#[expect(
    clippy::inline_always,
    reason = "a hit pays for the call, which others make only now and then"
)]
#[inline(always)]
pub fn parse_request<'a>(
    buf: &'a [u8],
    limits: &Limits,
) -> Result<Option<(RequestHead<'a>, usize)>, BadRequest> {
    let mut head = buf;
    for _ in 0..MAX_LEADING_LINES {
        head = head.strip_prefix(b"\r\n").unwrap_or(head);
    }
    let skipped = buf.len() - head.len();
    if head == b"\r" && skipped < 2 * MAX_LEADING_LINES {
        return Ok(None);
    }
    match request(head, limits)? {
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
    limits: &Limits,
) -> Result<Option<(RequestHead<'a>, usize)>, BadRequest> {
    let Some(line) = request_line(buf, limits)? else {
        return Ok(None);
    };
    let Some(section) = section(&buf[line.length..], limits.fields)? else {
        return Ok(None);
    };
    let Section { fields, facts, .. } = section;
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
fn request_line<'a>(buf: &'a [u8], limits: &Limits) -> Result<Option<RequestLine<'a>>, BadRequest> {
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
            "a byte that no request target may have",
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

/// What ends a request line; `#` is any digit.
const VERSION_LINE: &[u8] = b"HTTP/#.#\r\n";

/// Whether the version is 1.0.
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

/// Whether `bytes`, as far as it reaches, follows `pattern`, in which `#` is any digit.
fn fits(bytes: &[u8], pattern: &[u8]) -> bool {
    bytes
        .iter()
        .zip(pattern)
        .all(|(byte, expected)| match expected {
            b'#' => byte.is_ascii_digit(),
            _ => byte == expected,
        })
}

/// Reads the response head at the front of `buf`, and how many bytes it took; `None` while it is
/// incomplete. `to_head` says that the request was a HEAD, whose answers have no body.
pub fn parse_response<'a>(
    buf: &'a [u8],
    to_head: bool,
    limits: &Limits,
) -> Result<Option<(ResponseHead<'a>, usize)>, &'static str> {
    match response(buf, to_head, limits)? {
        Some((_, length)) if length > limits.head => Err(BadRequest::HEAD_TOO_LARGE.reason),
        None if buf.len() >= limits.head => Err(BadRequest::HEAD_TOO_LARGE.reason),
        parsed => Ok(parsed),
    }
}

fn response<'a>(
    buf: &'a [u8],
    to_head: bool,
    limits: &Limits,
) -> Result<Option<(ResponseHead<'a>, usize)>, &'static str> {
    let Some(line) = status_line(buf)? else {
        return Ok(None);
    };
    let Some(section) = section(&buf[line.length..], limits.fields).map_err(|bad| bad.reason)?
    else {
        return Ok(None);
    };
    let Section { fields, facts, .. } = section;
    facts.check_framing(line.http10).map_err(|bad| bad.reason)?;
    let bodiless = matches!(line.status, 100..=199 | 204);
    let framing = match facts.length {
        _ if bodiless || line.status == 304 || to_head => Framing::None,
        _ if facts.chunked => Framing::Chunked,
        Some(length) => Framing::Length(length),
        None => Framing::UntilClose,
    };
    // Whoever announces a body where none can be may well send it, as the next answer's beginning.
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

/// What begins a status line; `#` is any digit.
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
    // RFC 9112 §4 wants the space before the reason even if there is no reason; many leave it out.
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
