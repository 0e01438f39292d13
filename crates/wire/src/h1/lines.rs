//! Parser of field lines: validates each byte, and collects the fields that frame a message on the way.

use microcache_policy::fields::split_list;
use microcache_policy::{FieldIndex, Fields, KnownName, names};

use super::bad_request::BadRequest;
use super::syntax::{MAX_LENGTH, TOKEN, first_colon, line_end, span, value_span};

/// One `name: value` line.
pub(super) struct ParsedLine<'a> {
    pub(super) name: &'a [u8],
    /// The name, if it is known.
    known: Option<KnownName>,
    pub(super) value: &'a [u8],
    /// Bytes of the line, with its end.
    pub(super) length: usize,
}

/// Parses the line at the front of `bytes`; `None` while it is incomplete.
#[inline]
pub(super) fn line(bytes: &[u8]) -> Result<Option<ParsedLine<'_>>, &'static str> {
    let (name, known) = match known_name(bytes) {
        Some((name, known)) => (name, Some(known)),
        None => match name(bytes)? {
            Some(name) => (name, KnownName::of(name)),
            None => return Ok(None),
        },
    };
    let rest = &bytes[name.len() + 1..];
    let (value, rest) = rest.split_at(value_span(rest));
    Ok(line_end(rest)?.map(|()| ParsedLine {
        name,
        known,
        value,
        length: name.len() + 1 + value.len() + 2,
    }))
}

/// Returns the name of a line that begins with a known name and a colon. Its bytes need no check.
#[inline]
fn known_name(bytes: &[u8]) -> Option<(&[u8], KnownName)> {
    let (front, rest) = bytes.split_first_chunk()?;
    let end = match first_colon(front) {
        Some(end) => end,
        None => 16 + first_colon(rest.first_chunk()?)?,
    };
    let name = bytes.get(..end)?;
    Some((name, KnownName::of(name)?))
}

/// Parses the name of a line, up to the colon; `None` while it is incomplete.
fn name(bytes: &[u8]) -> Result<Option<&[u8]>, &'static str> {
    let name_end = span(bytes, TOKEN);
    match bytes.get(name_end) {
        None => Ok(None),
        Some(b':') if name_end > 0 => Ok(Some(&bytes[..name_end])),
        Some(b':') => Err("a field without a name"),
        Some(b' ' | b'\t') if name_end == 0 => Err("a folded line"),
        Some(b' ' | b'\t') => Err("white space before a colon"),
        Some(_) => Err("an invalid byte in a field name"),
    }
}

/// Field section of a head.
pub(crate) struct FieldLines<'a> {
    pub(crate) fields: Fields<'a>,
    pub(crate) facts: FramingFields<'a>,
    /// Bytes of the section, with the empty line that ends it.
    pub(crate) length: usize,
}

/// Parses a field section of at most `limit` lines, and makes its index; `None` while it is incomplete.
pub(crate) fn section<'a>(
    bytes: &'a [u8],
    limit: usize,
    index: &'a mut FieldIndex,
) -> Result<Option<FieldLines<'a>>, BadRequest> {
    index.clear();
    let mut facts = FramingFields::default();
    let mut at = 0;
    let mut count = 0;
    loop {
        let rest = &bytes[at..];
        match rest.first() {
            None => return Ok(None),
            Some(b'\r' | b'\n') => {
                return Ok(line_end(rest)
                    .map_err(BadRequest::malformed)?
                    .map(|()| FieldLines {
                        fields: Fields::indexed(&bytes[..at], index),
                        facts,
                        length: at + 2,
                    }));
            }
            Some(_) => {}
        }
        if count == limit {
            return Err(BadRequest::TOO_MANY_FIELDS);
        }
        count += 1;
        let Some(line) = line(rest).map_err(BadRequest::malformed)? else {
            return Ok(None);
        };
        index.push(line.name.len(), line.known, line.length);
        if let Some(known) = line.known {
            facts.note(known, line.value)?;
        }
        at += line.length;
    }
}

/// Values of the fields that frame a message or control its connection.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(crate) struct FramingFields<'a> {
    pub(super) hosts: usize,
    pub(super) host: Option<&'a [u8]>,
    pub(crate) length: Option<u64>,
    pub(crate) chunked: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    pub(super) protocol: bool,
    pub(super) expect_continue: bool,
}

impl<'a> FramingFields<'a> {
    #[inline]
    fn note(&mut self, name: KnownName, value: &'a [u8]) -> Result<(), BadRequest> {
        match name {
            names::HOST => {
                self.hosts += 1;
                self.host = Some(value.trim_ascii());
            }
            names::EXPECT => {
                self.expect_continue |= value.trim_ascii().eq_ignore_ascii_case(b"100-continue");
            }
            names::UPGRADE => self.protocol |= !value.trim_ascii().is_empty(),
            names::CONNECTION => self.note_connection(value),
            names::CONTENT_LENGTH => self.note_length(value.trim_ascii())?,
            names::TRANSFER_ENCODING => self.note_coding(value.trim_ascii())?,
            _ => {}
        }
        Ok(())
    }

    fn note_connection(&mut self, value: &[u8]) {
        // Browsers say nothing else.
        if value == b" keep-alive" {
            self.keep_alive = true;
            return;
        }
        for option in split_list(value) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
            self.upgrade |= option.eq_ignore_ascii_case(b"upgrade");
        }
    }

    /// Refuses repeated lengths. RFC 9112 §6.3 allows folding identical ones, but no legitimate sender repeats
    /// them.
    fn note_length(&mut self, value: &[u8]) -> Result<(), BadRequest> {
        if self.length.is_some() {
            return Err(BadRequest::malformed("more than one Content-Length"));
        }
        if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
            return Err(BadRequest::malformed("Content-Length is not a number"));
        }
        let length = value
            .iter()
            .try_fold(0_u64, |sum, digit| {
                sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
            })
            .filter(|&length| length <= MAX_LENGTH);
        self.length = Some(length.ok_or(BadRequest::malformed("Content-Length is too large"))?);
        Ok(())
    }

    fn note_coding(&mut self, value: &[u8]) -> Result<(), BadRequest> {
        if self.chunked {
            return Err(BadRequest::malformed("more than one Transfer-Encoding"));
        }
        if value.is_empty() {
            return Err(BadRequest::malformed("Transfer-Encoding is empty"));
        }
        if !value.eq_ignore_ascii_case(b"chunked") {
            return Err(BadRequest::UNKNOWN_CODING);
        }
        self.chunked = true;
        Ok(())
    }

    /// Refuses requests that could be smuggled: both framings at once, or chunks from HTTP/1.0 (RFC 9112 §6.1).
    pub(super) fn check_framing(&self, http10: bool) -> Result<(), BadRequest> {
        match (self.chunked, self.length) {
            (true, Some(_)) => Err(BadRequest::malformed(
                "both Content-Length and Transfer-Encoding",
            )),
            (true, None) if http10 => Err(BadRequest::malformed("Transfer-Encoding with HTTP/1.0")),
            _ => Ok(()),
        }
    }

    /// Returns `true` if the connection persists (RFC 9112 §9.3).
    pub(super) const fn persistent(&self, http10: bool) -> bool {
        !self.close && (!http10 || self.keep_alive)
    }
}
