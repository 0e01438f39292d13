//! Parser of field lines: validates each byte, and collects the fields that frame a message on the way.

use microcache_policy::fields::split_list;
use microcache_policy::{FieldIndex, Fields, KnownName, NameSet, names};

use super::bad_request::BadRequest;
use super::syntax::{MAX_LENGTH, TOKEN, first_colon, line_end, printable_end, span, value_span};

/// One `name: value` line.
pub(super) struct ParsedLine<'a> {
    pub(super) name: &'a [u8],
    pub(super) value: &'a [u8],
    /// Bytes of the line, with its end.
    pub(super) length: usize,
}

/// Parses the line at the front of `bytes`; `None` while it is incomplete.
pub(super) fn line(bytes: &[u8]) -> Result<Option<ParsedLine<'_>>, &'static str> {
    let Some(name) = name(bytes)? else {
        return Ok(None);
    };
    let rest = &bytes[name.len() + 1..];
    let (value, rest) = rest.split_at(value_span(rest));
    Ok(line_end(rest)?.map(|()| ParsedLine {
        name,
        value,
        length: name.len() + 1 + value.len() + 2,
    }))
}

/// A complete line as nearly all are: with a known name and a value of printable characters.
struct UsualLine<'a> {
    name: KnownName,
    name_length: usize,
    /// The place of the line's end.
    end: usize,
    /// The bytes behind the line.
    rest: &'a [u8],
}

/// Parses a usual line; [`line`] judges the others.
#[expect(
    clippy::inline_always,
    reason = "a browser's head has fifteen lines, and each pays for a call"
)]
#[inline(always)]
fn usual_line(bytes: &[u8]) -> Option<UsualLine<'_>> {
    let (name, known) = known_name(bytes)?;
    let end = printable_end(bytes, name.len() + 1)?;
    let (line_end, rest) = bytes.get(end..)?.split_first_chunk()?;
    (line_end == b"\r\n").then_some(UsualLine {
        name: known,
        name_length: name.len(),
        end,
        rest,
    })
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
    let mut rest = bytes;
    loop {
        if let Some(line) = usual_line(rest)
            && index.line_count() < limit
        {
            index.push(line.name_length, Some(line.name), line.end + 2);
            if FRAMING.contains(line.name) {
                facts.note(line.name, &rest[line.name_length + 1..line.end])?;
            }
            rest = line.rest;
            continue;
        }
        match rest.first() {
            None => return Ok(None),
            Some(b'\r' | b'\n') => {
                let end = line_end(rest).map_err(BadRequest::malformed)?;
                let length = bytes.len() - rest.len();
                return Ok(end.map(|()| FieldLines {
                    fields: Fields::indexed(&bytes[..length], index),
                    facts,
                    length: length + 2,
                }));
            }
            Some(_) if index.line_count() == limit => return Err(BadRequest::TOO_MANY_FIELDS),
            Some(_) => {}
        }
        let Some(line) = line(rest).map_err(BadRequest::malformed)? else {
            return Ok(None);
        };
        let known = KnownName::of(line.name);
        index.push(line.name.len(), known, line.length);
        if let Some(known) = known {
            facts.note(known, line.value)?;
        }
        rest = &rest[line.length..];
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

/// The names of these fields.
const FRAMING: NameSet = NameSet::of(&[
    names::HOST,
    names::EXPECT,
    names::UPGRADE,
    names::CONNECTION,
    names::CONTENT_LENGTH,
    names::TRANSFER_ENCODING,
]);

impl<'a> FramingFields<'a> {
    #[inline(never)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_line_is_parsed_as_any_line_is() {
        const USUAL: &[u8] = b"Accept-Language: de, en;q=0.5, fr\r\nHost: behind it\r\n";
        assert!(usual_line(USUAL).is_some());
        for at in 0..USUAL.len() {
            for byte in 0..=u8::MAX {
                let mut bytes = USUAL.to_vec();
                bytes[at] = byte;
                for end in 0..=bytes.len() {
                    let bytes = &bytes[..end];
                    let Some(one) = usual_line(bytes) else {
                        continue;
                    };
                    let other = line(bytes).expect("valid").expect("complete");
                    assert_eq!(Some(one.name), KnownName::of(other.name));
                    assert_eq!(one.name_length, other.name.len());
                    assert_eq!(&bytes[one.name_length + 1..one.end], other.value);
                    assert_eq!(one.end + 2, other.length);
                    assert_eq!(one.rest, &bytes[other.length..]);
                }
            }
        }
    }
}
