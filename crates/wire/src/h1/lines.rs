//! Parser of field lines: validates each byte, and collects the fields that frame a message on the way.

use microcache_policy::Fields;
use microcache_policy::fields::split_list;

use super::bad_request::BadRequest;
use super::syntax::{MAX_LENGTH, TOKEN, line_end, span, value_span};

/// One `name: value` line.
pub(super) struct ParsedLine<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    /// Bytes of the line, with its end.
    pub(super) length: usize,
}

/// Parses the line at the front of `bytes`; `None` while it is incomplete.
pub(super) fn line(bytes: &[u8]) -> Result<Option<ParsedLine<'_>>, &'static str> {
    let name_end = span(bytes, TOKEN);
    match bytes.get(name_end) {
        None => return Ok(None),
        Some(b':') if name_end > 0 => {}
        Some(b':') => return Err("a field without a name"),
        Some(b' ' | b'\t') if name_end == 0 => return Err("a folded line"),
        Some(b' ' | b'\t') => return Err("white space before a colon"),
        Some(_) => return Err("an invalid byte in a field name"),
    }
    let (name, rest) = bytes.split_at(name_end);
    let rest = &rest[1..];
    let (value, rest) = rest.split_at(value_span(rest));
    Ok(line_end(rest)?.map(|()| ParsedLine {
        name,
        value: value.trim_ascii(),
        length: name_end + 1 + value.len() + 2,
    }))
}

/// Field section of a head.
pub(super) struct FieldLines<'a> {
    pub(super) fields: Fields<'a>,
    pub(super) facts: FramingFields<'a>,
    /// Bytes of the section, with the empty line that ends it.
    pub(super) length: usize,
}

/// Parses a field section of at most `limit` lines; `None` while it is incomplete.
pub(super) fn section(bytes: &[u8], limit: usize) -> Result<Option<FieldLines<'_>>, BadRequest> {
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
                        fields: Fields::new(&bytes[..at]),
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
        facts.note(&line)?;
        at += line.length;
    }
}

/// Values of the fields that frame a message or control its connection.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts")]
pub(super) struct FramingFields<'a> {
    pub(super) hosts: usize,
    pub(super) host: Option<&'a [u8]>,
    pub(super) length: Option<u64>,
    pub(super) chunked: bool,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
    pub(super) protocol: bool,
    pub(super) expect_continue: bool,
}

impl<'a> FramingFields<'a> {
    fn note(&mut self, line: &ParsedLine<'a>) -> Result<(), BadRequest> {
        let value = line.value;
        // The length alone excludes most fields.
        let is = |name: &[u8]| line.name.eq_ignore_ascii_case(name);
        match line.name.len() {
            4 if is(b"host") => {
                self.hosts += 1;
                self.host = Some(value);
            }
            6 if is(b"expect") => {
                self.expect_continue |= value.eq_ignore_ascii_case(b"100-continue");
            }
            7 if is(b"upgrade") => self.protocol |= !value.is_empty(),
            10 if is(b"connection") => self.note_connection(value),
            14 if is(b"content-length") => self.note_length(value)?,
            17 if is(b"transfer-encoding") => self.note_coding(value)?,
            _ => {}
        }
        Ok(())
    }

    fn note_connection(&mut self, value: &[u8]) {
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
