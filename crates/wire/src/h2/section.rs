//! Field sections of requests, validated against RFC 9113 §8 while they are decoded.

use std::ops::Range;

use microcache_policy::syntax::is_token;
use microcache_policy::{Fields, FieldsBuf, KnownName, names};

use super::extended_connect::{PROTOCOL, ask_in_http1};
use super::priority::Priority;
use super::section_lines::SectionLines;
use crate::h1::HeadLimits;
use crate::h1::body::may_trail;
use crate::h1::syntax::{MAX_LENGTH, is_value, target_span};
use crate::h1::target::authority;

/// Overhead of each field in bytes (RFC 9113 §6.5.2).
const OVERHEAD: usize = 32;

/// Field section. One per thread serves all connections, so that decoding a head allocates nothing.
#[derive(Debug, Default)]
pub struct FieldSection {
    /// Regular fields.
    lines: SectionLines,
    /// Values of all cookie fields, joined (RFC 9113 §8.2.3).
    cookies: Vec<u8>,
    /// Values of the pseudo-header fields and of `host`.
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
    /// A regular field was seen: no more pseudo-header fields may follow.
    begun: bool,
    fields: usize,
    size: usize,
    limits: HeadLimits,
    wrong: Option<SectionError>,
}

/// Error of a request's field section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SectionError {
    /// Malformed: the stream is reset (RFC 9113 §8.1.1).
    Malformed(&'static str),
    /// Refused with this status and reason.
    Refused(u16, &'static str),
}

/// Head of a request.
#[derive(Clone, Copy, Debug)]
pub struct DecodedHead<'a> {
    /// Method: a token; GET for an extended CONNECT.
    pub method: &'a [u8],
    /// Authority, without an empty port.
    pub host: &'a [u8],
    /// Path and query, or `*`.
    pub target: &'a [u8],
    /// Regular fields as field lines, cookies joined.
    pub fields: Fields<'a>,
    /// Value of `content-length`.
    pub length: Option<u64>,
    /// The client expects a 100 before it sends the content.
    pub expects_continue: bool,
    /// Parameters of the field `priority`.
    pub priority: Priority,
    /// Extended CONNECT (RFC 8441), which is an upgrade in HTTP/1.
    pub is_tunnel: bool,
}

impl FieldSection {
    /// Clears the section for the next one.
    pub fn begin(&mut self, is_trailer: bool, limits: HeadLimits) {
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

    /// Adds a field. Errors are reported at the end, as the section must be decoded to its end.
    pub fn take(&mut self, name: &[u8], value: &[u8]) {
        self.fields += 1;
        self.size = self
            .size
            .saturating_add(name.len() + value.len() + OVERHEAD);
        if self.wrong.is_some() {
            return;
        }
        let taken = if self.size > self.limits.head {
            Err(SectionError::Refused(431, "the head is too large"))
        } else if name.starts_with(b":") {
            self.pseudo(name, value)
        } else if self.fields > self.limits.fields.saturating_add(5) {
            Err(SectionError::Refused(431, "too many fields"))
        } else {
            self.field(name, value)
        };
        self.wrong = taken.err();
    }

    fn pseudo(&mut self, name: &[u8], value: &[u8]) -> Result<(), SectionError> {
        const TWICE: SectionError = SectionError::Malformed("a duplicate pseudo-header field");
        const LATE: SectionError =
            SectionError::Malformed("a pseudo-header field after regular fields");
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
        let place = place.ok_or(SectionError::Malformed("an unknown pseudo-header field"))?;
        let start = self.words.len();
        self.words.extend_from_slice(value);
        match place.replace(start..self.words.len()) {
            Some(_) => Err(TWICE),
            None => Ok(()),
        }
    }

    fn field(&mut self, name: &[u8], value: &[u8]) -> Result<(), SectionError> {
        const NAME: SectionError = SectionError::Malformed("an invalid field name");
        const VALUE: SectionError = SectionError::Malformed("an invalid field value");
        self.begun = true;
        let known = KnownName::of(name);
        let is_valid_name = match known {
            Some(known) => known.as_str().as_bytes() == name,
            None => is_token(name) && !name.iter().any(u8::is_ascii_uppercase),
        };
        if !is_valid_name {
            return Err(NAME);
        }
        let white = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
        if !is_value(value) || white(value.first()) || white(value.last()) {
            return Err(VALUE);
        }
        match known {
            // RFC 9113 §8.2.2.
            Some(
                names::CONNECTION
                | names::KEEP_ALIVE
                | names::PROXY_CONNECTION
                | names::TRANSFER_ENCODING
                | names::UPGRADE,
            ) => {
                return Err(SectionError::Malformed("a connection-specific field"));
            }
            Some(names::TE) if !value.eq_ignore_ascii_case(b"trailers") => {
                return Err(SectionError::Malformed("te other than trailers"));
            }
            Some(names::COOKIE) => {
                if !self.cookies.is_empty() {
                    self.cookies.extend_from_slice(b"; ");
                }
                self.cookies.extend_from_slice(value);
                return Ok(());
            }
            Some(names::HOST) => return self.host(value),
            Some(names::CONTENT_LENGTH) => self.content_length(value)?,
            Some(names::EXPECT) => {
                self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            Some(names::PRIORITY) => self.priority = Priority::of(value),
            _ => {}
        }
        self.lines.push(name, known, value);
        Ok(())
    }

    /// Takes `host` for the authority where that is absent; otherwise both must be equal.
    fn host(&mut self, value: &[u8]) -> Result<(), SectionError> {
        let start = self.words.len();
        self.words.extend_from_slice(value);
        match self.host.replace(start..self.words.len()) {
            Some(_) => Err(SectionError::Malformed("more than one host")),
            None => Ok(()),
        }
    }

    fn content_length(&mut self, value: &[u8]) -> Result<(), SectionError> {
        const LENGTH: SectionError = SectionError::Malformed("content-length is not a number");
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

    /// Ends the section, and returns it as a request head.
    pub fn request(&mut self) -> Result<DecodedHead<'_>, SectionError> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        if !self.cookies.is_empty() {
            self.lines
                .push(b"cookie", Some(names::COOKIE), &self.cookies);
        }
        let protocol = self.protocol.clone().and_then(|it| self.words.get(it));
        if let Some(protocol) = protocol {
            // It is appended to the lines.
            if !is_token(protocol) {
                return Err(SectionError::Malformed("an invalid :protocol"));
            }
            // RFC 9220 §3: 501 for an unknown protocol. Others cannot be translated to an HTTP/1 upgrade.
            if !protocol.eq_ignore_ascii_case(PROTOCOL) {
                return Err(SectionError::Refused(501, "an unsupported :protocol"));
            }
            ask_in_http1(&mut self.lines);
        }
        let is_tunnel = protocol.is_some();
        let word = |range: &Option<Range<usize>>| range.clone().and_then(|it| self.words.get(it));
        let method = word(&self.method).ok_or(SectionError::Malformed("no :method"))?;
        if !is_token(method) {
            return Err(SectionError::Malformed("an invalid method"));
        }
        if is_tunnel && method != b"CONNECT" {
            return Err(SectionError::Malformed(":protocol without CONNECT"));
        }
        let host = host(word(&self.authority), word(&self.host))?;
        if method == b"CONNECT" && !is_tunnel {
            // RFC 9113 §8.5: CONNECT is not supported.
            return Err(if self.scheme.is_some() || self.path.is_some() {
                SectionError::Malformed("CONNECT with a scheme or a path")
            } else {
                SectionError::Refused(405, "this method is not supported")
            });
        }
        let scheme = word(&self.scheme).ok_or(SectionError::Malformed("no :scheme"))?;
        if !scheme.eq_ignore_ascii_case(b"https") && !scheme.eq_ignore_ascii_case(b"http") {
            return Err(SectionError::Malformed(
                "a scheme other than http and https",
            ));
        }
        let target = word(&self.path).ok_or(SectionError::Malformed("no :path"))?;
        Ok(DecodedHead {
            method: if is_tunnel { b"GET" } else { method },
            host,
            target: self.target(method, target)?,
            fields: self.lines.fields(),
            length: self.length,
            expects_continue: self.expects_continue,
            priority: self.priority,
            is_tunnel,
        })
    }

    fn target<'a>(&self, method: &[u8], target: &'a [u8]) -> Result<&'a [u8], SectionError> {
        match target {
            [b'/', ..] => {}
            b"*" if method == b"OPTIONS" => {}
            _ => return Err(SectionError::Malformed("an invalid :path")),
        }
        if target.len() > self.limits.target {
            return Err(SectionError::Refused(414, "the request target is too long"));
        }
        if target_span(target) != target.len() {
            let what = "an invalid byte in the request target";
            return Err(SectionError::Refused(400, what));
        }
        Ok(target)
    }

    /// Ends the section, and returns it as trailers, without fields that are not allowed there.
    pub fn trailers(&self) -> Result<FieldsBuf, SectionError> {
        if let Some(wrong) = self.wrong {
            return Err(wrong);
        }
        let mut trailers = FieldsBuf::from(self.lines.fields());
        trailers.retain(|name, _| may_trail(name));
        Ok(trailers)
    }
}

/// Returns the host of the request (RFC 9113 §8.3.1).
fn host<'a>(
    authority_word: Option<&'a [u8]>,
    field: Option<&'a [u8]>,
) -> Result<&'a [u8], SectionError> {
    let said = authority_word
        .or(field)
        .ok_or(SectionError::Malformed("no :authority and no host"))?;
    let host = authority(said).ok_or(SectionError::Refused(400, "the authority is invalid"))?;
    let same = |field| authority(field).is_some_and(|it: &[u8]| it.eq_ignore_ascii_case(host));
    if field.is_none_or(same) {
        Ok(host)
    } else {
        Err(SectionError::Malformed("host differs from :authority"))
    }
}

#[cfg(test)]
mod tests;
