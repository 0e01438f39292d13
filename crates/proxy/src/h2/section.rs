//! Field sections of requests, held against RFC 9113 §8 while they are decoded.

use std::ops::Range;

use microcache_policy::{Fields, FieldsBuf};

use super::priority::Priority;
use super::tunnel;
use crate::h1::Limits;
use crate::h1::body::may_trail;
use crate::h1::syntax::{MAX_LENGTH, TOKEN, span, target_span, value_span};
use crate::h1::target::authority;

/// What each field counts beyond its bytes (RFC 9113 §6.5.2).
const OVERHEAD: usize = 32;

/// A field section. One serves all connections of a thread, so that reading a head allocates nothing.
#[derive(Debug, Default)]
pub(super) struct Section {
    /// `name: value\r\n`, as everybody reads fields here.
    lines: Vec<u8>,
    /// The values of all cookie fields, joined (RFC 9113 §8.2.3).
    cookies: Vec<u8>,
    /// What the pseudo-header fields say, and `host`.
    words: Vec<u8>,
    method: Option<Range<usize>>,
    scheme: Option<Range<usize>>,
    authority: Option<Range<usize>>,
    path: Option<Range<usize>>,
    protocol: Option<Range<usize>>,
    host: Option<Range<usize>>,
    length: Option<u64>,
    expects_continue: bool,
    priority: Priority,
    is_trailer: bool,
    /// There was a field that is no pseudo-header field.
    begun: bool,
    fields: usize,
    size: usize,
    limits: Limits,
    wrong: Option<Wrong>,
}

/// Why a section is no request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// It breaks a rule of HTTP/2: RFC 9113 §8.1.1 wants the stream reset.
    Malformed(&'static str),
    /// It is answered with this status.
    Refused(u16, &'static str),
}

/// A request head.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestHead<'a> {
    pub(super) method: &'a [u8],
    pub(super) host: &'a [u8],
    pub(super) target: &'a [u8],
    pub(super) fields: Fields<'a>,
    /// What `content-length` says.
    pub(super) length: Option<u64>,
    pub(super) expects_continue: bool,
    pub(super) priority: Priority,
    /// An extended CONNECT (RFC 8441), which is an upgrade in HTTP/1.
    pub(super) is_tunnel: bool,
}

impl Section {
    /// Begins another one.
    pub(super) fn begin(&mut self, is_trailer: bool, limits: Limits) {
        let (mut lines, mut cookies, mut words) = (
            std::mem::take(&mut self.lines),
            std::mem::take(&mut self.cookies),
            std::mem::take(&mut self.words),
        );
        lines.clear();
        cookies.clear();
        words.clear();
        *self = Self {
            lines,
            cookies,
            words,
            is_trailer,
            limits,
            ..Self::default()
        };
    }

    /// Takes a field. What is wrong with the section is said at its end: it is read to there in any case.
    pub(super) fn take(&mut self, name: &[u8], value: &[u8]) {
        self.fields += 1;
        self.size = self
            .size
            .saturating_add(name.len() + value.len() + OVERHEAD);
        if self.wrong.is_some() {
            return;
        }
        let taken = if self.size > self.limits.head {
            Err(Wrong::Refused(431, "the head is too large"))
        } else if name.starts_with(b":") {
            self.pseudo(name, value)
        } else if self.fields > self.limits.fields.saturating_add(5) {
            Err(Wrong::Refused(431, "too many fields"))
        } else {
            self.field(name, value)
        };
        self.wrong = taken.err();
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), Wrong> {
        const TWICE: Wrong = Wrong::Malformed("a pseudo-header field that is there twice");
        const LATE: Wrong = Wrong::Malformed("a pseudo-header field behind others");
        if self.begun {
            return Err(LATE);
        }
        let place = match name {
            _ if self.is_trailer => None,
            b":method" => Some(&mut self.method),
            b":scheme" => Some(&mut self.scheme),
            b":authority" => Some(&mut self.authority),
            b":path" => Some(&mut self.path),
            b":protocol" => Some(&mut self.protocol),
            _ => None,
        };
        let place = place.ok_or(Wrong::Malformed("a pseudo-header field that is none"))?;
        let start = self.words.len();
        self.words.extend_from_slice(value);
        match place.replace(start..self.words.len()) {
            Some(_) => Err(TWICE),
            None => Ok(()),
        }
    }

    fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), Wrong> {
        const NAME: Wrong = Wrong::Malformed("a field name that may not be");
        const VALUE: Wrong = Wrong::Malformed("a field value that may not be");
        self.begun = true;
        let is_name = span(name, TOKEN) == name.len()
            && !name.is_empty()
            && !name.iter().any(u8::is_ascii_uppercase);
        if !is_name {
            return Err(NAME);
        }
        let white = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if value_span(value) != value.len() || white(value.first()) || white(value.last()) {
            return Err(VALUE);
        }
        match name {
            // RFC 9113 §8.2.2.
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding"
            | b"upgrade" => {
                return Err(Wrong::Malformed("a field of the connection"));
            }
            b"te" if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(Wrong::Malformed("te that is not trailers"));
            }
            b"cookie" => {
                if !self.cookies.is_empty() {
                    self.cookies.extend_from_slice(b"; ");
                }
                self.cookies.extend_from_slice(value);
                return Ok(());
            }
            b"host" => return self.host(value),
            b"content-length" => self.content_length(value)?,
            b"expect" => self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue"),
            b"priority" => self.priority = Priority::of(value),
            _ => {}
        }
        push(&mut self.lines, name, value);
        Ok(())
    }

    /// It stands for the authority where there is none, and else has to say the same.
    fn host(&mut self, value: &[u8]) -> Result<(), Wrong> {
        let start = self.words.len();
        self.words.extend_from_slice(value);
        match self.host.replace(start..self.words.len()) {
            Some(_) => Err(Wrong::Malformed("more than one host")),
            None => Ok(()),
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), Wrong> {
        const LENGTH: Wrong = Wrong::Malformed("content-length is no length");
        let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        let number = std::str::from_utf8(value).ok().filter(|_| digits);
        let length: u64 = number.and_then(|it| it.parse().ok()).ok_or(LENGTH)?;
        let same = self.length.replace(length).is_none_or(|it| it == length);
        if same && length <= MAX_LENGTH {
            Ok(())
        } else {
            Err(LENGTH)
        }
    }

    /// The end: the request that it is.
    pub(super) fn request(&mut self) -> Result<RequestHead<'_>, Wrong> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        if !self.cookies.is_empty() {
            push(&mut self.lines, b"cookie", &self.cookies);
        }
        let protocol = self.protocol.clone().and_then(|it| self.words.get(it));
        if let Some(protocol) = protocol {
            // It becomes a part of the lines.
            if protocol.is_empty() || span(protocol, TOKEN) != protocol.len() {
                return Err(Wrong::Malformed("a protocol that may not be"));
            }
            // RFC 9220 §3: 501 for one that is not known. What an HTTP/1 application makes of others is not what their
            // clients expect of a stream.
            if !protocol.eq_ignore_ascii_case(tunnel::PROTOCOL) {
                return Err(Wrong::Refused(
                    501,
                    "a protocol that is not spoken through here",
                ));
            }
            tunnel::ask_in_http1(&mut self.lines);
        }
        let is_tunnel = protocol.is_some();
        let word = |range: &Option<Range<usize>>| range.clone().and_then(|it| self.words.get(it));
        let method = word(&self.method).ok_or(Wrong::Malformed("no :method"))?;
        if method.is_empty() || span(method, TOKEN) != method.len() {
            return Err(Wrong::Malformed("a method that may not be"));
        }
        if is_tunnel && method != b"CONNECT" {
            return Err(Wrong::Malformed(":protocol without CONNECT"));
        }
        let host = host(word(&self.authority), word(&self.host))?;
        if method == b"CONNECT" && !is_tunnel {
            // RFC 9113 §8.5: there is nothing to connect to here.
            return Err(if self.scheme.is_some() || self.path.is_some() {
                Wrong::Malformed("CONNECT with a scheme or a path")
            } else {
                Wrong::Refused(405, "this method is not taken here")
            });
        }
        let scheme = word(&self.scheme).ok_or(Wrong::Malformed("no :scheme"))?;
        if !scheme.eq_ignore_ascii_case(b"https") && !scheme.eq_ignore_ascii_case(b"http") {
            return Err(Wrong::Malformed("a scheme that is not HTTP's"));
        }
        let target = word(&self.path).ok_or(Wrong::Malformed("no :path"))?;
        Ok(RequestHead {
            method: if is_tunnel { b"GET" } else { method },
            host,
            target: self.target(method, target)?,
            fields: Fields::new(&self.lines),
            length: self.length,
            expects_continue: self.expects_continue,
            priority: self.priority,
            is_tunnel,
        })
    }

    fn target<'a>(&self, method: &[u8], target: &'a [u8]) -> Result<&'a [u8], Wrong> {
        match target {
            [b'/', ..] => {}
            b"*" if method == b"OPTIONS" => {}
            _ => return Err(Wrong::Malformed("a :path that is none")),
        }
        if target.len() > self.limits.target {
            return Err(Wrong::Refused(414, "the request target is too long"));
        }
        if target_span(target) != target.len() {
            let what = "a byte that no request target may have";
            return Err(Wrong::Refused(400, what));
        }
        Ok(target)
    }

    /// The end: the trailer section that it is, without what may not be in one.
    pub(super) fn trailers(&self) -> Result<FieldsBuf, Wrong> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let mut trailers = FieldsBuf::from(Fields::new(&self.lines));
        trailers.retain(|name, _| may_trail(name));
        Ok(trailers)
    }
}

/// The host that is asked (RFC 9113 §8.3.1).
fn host<'a>(authority_word: Option<&'a [u8]>, field: Option<&'a [u8]>) -> Result<&'a [u8], Wrong> {
    let said = authority_word
        .or(field)
        .ok_or(Wrong::Malformed("no :authority and no host"))?;
    let host = authority(said).ok_or(Wrong::Refused(400, "the authority is invalid"))?;
    let same = |field| authority(field).is_some_and(|it: &[u8]| it.eq_ignore_ascii_case(host));
    if field.is_none_or(same) {
        Ok(host)
    } else {
        Err(Wrong::Malformed("host says something else than :authority"))
    }
}

fn push(lines: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    lines.extend_from_slice(name);
    lines.extend_from_slice(b": ");
    lines.extend_from_slice(value);
    lines.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests;
