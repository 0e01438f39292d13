//! Decoding of message bodies: the three framings of RFC 9112 §6.

use bytes::{Buf, Bytes, BytesMut};
use microcache_policy::FieldsBuf;

use super::extension::is_extension;
use super::head::Framing;
use super::lines::line;
use super::syntax::{MAX_LENGTH, line_end, value_span};

/// Most digits of a chunk size, which is 64 bits.
const MAX_SIZE_DIGITS: usize = 16;
/// Limit of all chunk extensions of one body, in bytes. They are skipped.
const MAX_EXTENSIONS: usize = 4 * 1024;
/// Limit of a trailer section, in bytes.
const MAX_TRAILERS: usize = 8 * 1024;

/// Removes the framing of a body.
#[derive(Debug)]
pub struct BodyDecoder {
    state: BodyState,
    extensions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BodyState {
    Length(u64),
    UntilClose,
    Size,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    End,
}

/// One step of a [`BodyDecoder`].
#[derive(Debug)]
pub enum DecodedBody {
    /// Next piece of the body; never empty.
    Data(Bytes),
    /// Trailers; the end follows.
    Trailers(FieldsBuf),
    /// More input is needed.
    NeedMore,
    /// End of the body. What is left in the buffer belongs to the next message.
    End,
}

/// Error: the connection ended before the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IncompleteBody;

impl BodyDecoder {
    /// Decoder of a body with this framing.
    pub const fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => BodyState::End,
            Framing::Length(length) => BodyState::Length(length),
            Framing::Chunked => BodyState::Size,
            Framing::UntilClose => BodyState::UntilClose,
        };
        Self {
            state,
            extensions: 0,
        }
    }

    /// Decodes the next piece off the front of `buf`.
    ///
    /// Fails with the reason if the framing is malformed or a limit is exceeded.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<DecodedBody, &'static str> {
        loop {
            if self.state == BodyState::End {
                return Ok(DecodedBody::End);
            }
            if buf.is_empty() {
                return Ok(DecodedBody::NeedMore);
            }
            match self.state {
                BodyState::Length(left) => {
                    let data = take(buf, left);
                    self.state = match left - data.len() as u64 {
                        0 => BodyState::End,
                        left => BodyState::Length(left),
                    };
                    return Ok(DecodedBody::Data(data));
                }
                BodyState::UntilClose => {
                    return Ok(DecodedBody::Data(buf.split().freeze()));
                }
                BodyState::Size => match self.size_line(buf)? {
                    None => return Ok(DecodedBody::NeedMore),
                    Some(0) => self.state = BodyState::Trailers,
                    Some(size) => self.state = BodyState::Chunk(size),
                },
                BodyState::Chunk(left) => {
                    let data = take(buf, left);
                    self.state = match left - data.len() as u64 {
                        0 => BodyState::ChunkEnd,
                        left => BodyState::Chunk(left),
                    };
                    return Ok(DecodedBody::Data(data));
                }
                BodyState::ChunkEnd => match line_end(buf) {
                    Err(_) => return Err("a chunk longer than its size"),
                    Ok(None) => return Ok(DecodedBody::NeedMore),
                    Ok(Some(())) => {
                        buf.advance(2);
                        self.state = BodyState::Size;
                    }
                },
                BodyState::Trailers => {
                    let Some(trailers) = read_trailers(buf)? else {
                        return Ok(DecodedBody::NeedMore);
                    };
                    self.state = BodyState::End;
                    if !trailers.fields().as_block().is_empty() {
                        return Ok(DecodedBody::Trailers(trailers));
                    }
                }
                BodyState::End => return Ok(DecodedBody::End),
            }
        }
    }

    /// Reports the end of the connection: an error unless the framing is [`Framing::UntilClose`] or the body is
    /// complete.
    pub const fn eof(&mut self) -> Result<(), IncompleteBody> {
        match self.state {
            BodyState::UntilClose | BodyState::End => {
                self.state = BodyState::End;
                Ok(())
            }
            _ => Err(IncompleteBody),
        }
    }

    /// Returns `true` once the body is complete.
    pub fn is_end(&self) -> bool {
        self.state == BodyState::End
    }

    /// Returns the number of bytes known to follow; 0 if unknown.
    pub const fn expected(&self) -> u64 {
        match self.state {
            BodyState::Length(left) | BodyState::Chunk(left) => left,
            _ => 0,
        }
    }

    /// Parses the line with the chunk size: digits, extensions (skipped), CRLF. White space before the first
    /// extension is legal (RFC 9112 §7.1.1), but is refused, as parsers disagree on bytes behind the digits.
    fn size_line(&mut self, buf: &mut BytesMut) -> Result<Option<u64>, &'static str> {
        let digits = buf
            .iter()
            .position(|b| !b.is_ascii_hexdigit())
            .unwrap_or(buf.len());
        if digits > MAX_SIZE_DIGITS {
            return Err("a chunk size that is too large");
        }
        let (size, rest) = buf.split_at(digits);
        let extension = match rest.first() {
            None => return Ok(None),
            Some(_) if digits == 0 => return Err("a chunk without a size"),
            Some(b';') => value_span(rest),
            Some(b'\r' | b'\n') => 0,
            Some(_) => return Err("a chunk size that is not a number"),
        };
        if self.extensions + extension > MAX_EXTENSIONS {
            return Err("chunk extensions that are too long");
        }
        if line_end(&rest[extension..])?.is_none() {
            return Ok(None);
        }
        if !is_extension(&rest[..extension]) {
            return Err("an invalid chunk extension");
        }
        let size = size
            .iter()
            .try_fold(0_u64, |sum, digit| {
                let digit = char::from(*digit).to_digit(16)?;
                sum.checked_mul(16)?.checked_add(u64::from(digit))
            })
            .filter(|&size| size <= MAX_LENGTH);
        self.extensions += extension;
        buf.advance(digits + extension + 2);
        size.map(Some).ok_or("a chunk size that is too large")
    }
}

fn take(buf: &mut BytesMut, limit: u64) -> Bytes {
    let length = usize::try_from(limit).map_or(buf.len(), |limit| limit.min(buf.len()));
    buf.split_to(length).freeze()
}

/// Parses the trailer section with the empty line that ends it; `None` while it is incomplete. Fields that are not
/// allowed in trailers are left out.
///
/// Fails with the reason if a line is malformed or the section too long.
pub fn read_trailers(buf: &mut BytesMut) -> Result<Option<FieldsBuf>, &'static str> {
    let mut kept = FieldsBuf::new();
    let mut at = 0;
    loop {
        let rest = &buf[at..];
        let length = match rest.first() {
            None => None,
            Some(b'\r' | b'\n') => {
                if line_end(rest)?.is_some() {
                    buf.advance(at + 2);
                    return Ok(Some(kept));
                }
                None
            }
            Some(_) => line(rest)?.map(|line| {
                if may_trail(line.name) {
                    kept.push(line.name, line.value.trim_ascii());
                }
                line.length
            }),
        };
        at += length.unwrap_or(rest.len());
        if at > MAX_TRAILERS {
            return Err("a trailer section that is too long");
        }
        if length.is_none() {
            return Ok(None);
        }
    }
}

/// Returns `true` if a field is allowed in trailers: none for framing, routing, authentication or control of a
/// message (RFC 9110 §6.5.1).
pub(crate) fn may_trail(name: &[u8]) -> bool {
    const FORBIDDEN: [&str; 37] = [
        "Age",
        "Authorization",
        "Cache-Control",
        "CDN-Cache-Control",
        "Connection",
        "Content-Disposition",
        "Content-Encoding",
        "Content-Language",
        "Content-Length",
        "Content-Location",
        "Content-Range",
        "Content-Type",
        "Cookie",
        "Date",
        "Expect",
        "Expires",
        "Forwarded",
        "Host",
        "Keep-Alive",
        "Location",
        "Max-Forwards",
        "Pragma",
        "Proxy-Authenticate",
        "Proxy-Authorization",
        "Proxy-Connection",
        "Range",
        "Retry-After",
        "Set-Cookie",
        "Surrogate-Control",
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Vary",
        "Via",
        "Warning",
        "WWW-Authenticate",
    ];
    let conditional = name
        .split_at_checked(3)
        .is_some_and(|(front, _)| front.eq_ignore_ascii_case(b"If-"));
    !conditional
        && !FORBIDDEN
            .iter()
            .any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::h1::encode;
    use microcache_policy::Fields;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Read {
        data: Vec<u8>,
        trailers: Vec<u8>,
        left: Vec<u8>,
    }

    /// Decodes `raw` in pieces of `step` bytes; `Ok(None)` if the body is incomplete at its end.
    fn read(framing: Framing, raw: &[u8], step: usize) -> Result<Option<Read>, &'static str> {
        let mut decoder = BodyDecoder::new(framing);
        let mut buf = BytesMut::new();
        let mut data = Vec::new();
        let mut trailers = Vec::new();
        let mut pieces = raw.chunks(step);
        loop {
            match decoder.decode(&mut buf)? {
                DecodedBody::Data(bytes) => {
                    assert!(!bytes.is_empty());
                    data.extend_from_slice(&bytes);
                }
                DecodedBody::Trailers(fields) => trailers = fields.into_block(),
                DecodedBody::NeedMore => match pieces.next() {
                    Some(piece) => buf.extend_from_slice(piece),
                    None => return Ok(None),
                },
                DecodedBody::End => break,
            }
        }
        let left = [&buf[..], &pieces.collect::<Vec<_>>().concat()].concat();
        Ok(Some(Read {
            data,
            trailers,
            left,
        }))
    }

    fn check(framing: Framing, raw: &[u8], data: &[u8], trailers: &[u8], left: &[u8]) {
        let expected = Read {
            data: data.to_vec(),
            trailers: trailers.to_vec(),
            left: left.to_vec(),
        };
        for step in 1..=raw.len().max(1) {
            let got = read(framing, raw, step).unwrap();
            assert_eq!(got.as_ref(), Some(&expected), "in pieces of {step}");
        }
    }

    #[test]
    fn bodies_end_by_their_framing() {
        check(Framing::None, b"next", b"", b"", b"next");
        check(Framing::Length(0), b"next", b"", b"", b"next");
        check(Framing::Length(3), b"abcnext", b"abc", b"", b"next");
        check(Framing::Chunked, b"0\r\n\r\nnext", b"", b"", b"next");
        check(
            Framing::Chunked,
            b"3\r\nabc\r\n00A;x=\"y\"; z = a\r\n0123456789\r\n0;last\r\n\r\nnext",
            b"abc0123456789",
            b"",
            b"next",
        );
        check(
            Framing::Chunked,
            b"1\r\na\r\n0\r\nX-Sum: 1\r\nContent-Length: 9\r\nhost: b\r\nIf-Match: *\r\nSet-Cookie: a=b\r\nY:2\r\n\r\n",
            b"a",
            b"X-Sum: 1\r\nY: 2\r\n",
            b"",
        );
    }

    #[test]
    fn a_close_ends_bodies_without_other_framing_only() {
        for (framing, raw, end) in [
            (Framing::None, &b""[..], Ok(())),
            (Framing::UntilClose, b"abc", Ok(())),
            (Framing::Length(3), b"abc", Ok(())),
            (Framing::Length(3), b"ab", Err(IncompleteBody)),
            (Framing::Chunked, b"", Err(IncompleteBody)),
            (Framing::Chunked, b"3\r\nab", Err(IncompleteBody)),
            (Framing::Chunked, b"3\r\nabc\r\n", Err(IncompleteBody)),
            (Framing::Chunked, b"3\r\nabc\r\n0\r\n", Err(IncompleteBody)),
        ] {
            let mut decoder = BodyDecoder::new(framing);
            let mut buf = BytesMut::from(raw);
            while let DecodedBody::Data(_) = decoder.decode(&mut buf).unwrap() {}
            assert_eq!(decoder.eof(), end, "{framing:?} {}", raw.escape_ascii());
        }
    }

    #[test]
    fn chunks_that_could_be_read_in_two_ways_are_refused() {
        let long = [b"1;", &[b'x'; MAX_EXTENSIONS][..], b"\r\na\r\n0\r\n\r\n"].concat();
        let many = [
            b"1;xxxxxxxxxx\r\na\r\n".repeat(MAX_EXTENSIONS / 10),
            b"0\r\n\r\n".to_vec(),
        ]
        .concat();
        let trailer = [b"0\r\nX: ", &[b'x'; MAX_TRAILERS][..], b"\r\n\r\n"].concat();
        let trailers = [b"0\r\n".to_vec(), b"X: 1\r\n".repeat(MAX_TRAILERS / 6 + 1)].concat();
        for (fault, raw) in [
            ("no size", &b"\r\n"[..]),
            ("an extension without a size", b";x\r\n"),
            ("a signed size", b"+3\r\nabc\r\n"),
            ("a negative size", b"-1\r\n"),
            ("a prefixed size", b"0x3\r\nabc\r\n"),
            ("a space before the size", b" 3\r\nabc\r\n"),
            ("a space after the size", b"3 \r\nabc\r\n"),
            ("a space before an extension", b"3 ;x\r\nabc\r\n"),
            (
                "a size of 17 digits (Squid-2023:1)",
                b"00000000000000003\r\nabc\r\n",
            ),
            ("a size over 64 bits", b"10000000000000003\r\nabc\r\n"),
            ("a size of 2^63", b"8000000000000000\r\nabc\r\n"),
            ("an extension without a name", b"3;\r\nabc\r\n"),
            ("two words in an extension", b"3;a b\r\nabc\r\n"),
            ("an open quote in an extension", b"3;a=\"b\r\nabc\r\n"),
            ("a size that ends with LF", b"3\nabc\r\n"),
            ("a size that ends with CR", b"3\rabc\r\n"),
            ("an extension that ends with LF", b"3;x\nabc\r\n"),
            ("a NUL in an extension", b"3;\0\r\nabc\r\n"),
            ("a CR in an extension", b"3;a\rb\r\nabc\r\n"),
            ("a chunk longer than its size", b"3\r\nabcd\r\n0\r\n\r\n"),
            ("a chunk that ends with LF", b"3\r\nabc\n0\r\n\r\n"),
            ("a chunk that ends with CR", b"3\r\nabc\r0\r\n\r\n"),
            ("a chunk without an end", b"3\r\nabc0\r\n\r\n"),
            ("a trailer without a name", b"0\r\n: x\r\n\r\n"),
            ("a space in a trailer's name", b"0\r\nX : x\r\n\r\n"),
            ("a folded trailer", b"0\r\nX: x\r\n y\r\n\r\n"),
            ("a trailer that ends with LF", b"0\r\nX: x\n\r\n"),
            ("a trailer section that ends with LF", b"0\r\n\n"),
            (
                "something else after the last chunk",
                b"0\r\nGET / HTTP/1.1\r\n\r\n",
            ),
            ("a long extension", &long),
            ("many extensions", &many),
            ("a long trailer", &trailer),
            ("many trailers", &trailers),
        ] {
            let smallest = raw.len().div_ceil(64);
            for step in [smallest, smallest + 1, raw.len()] {
                let got = read(Framing::Chunked, raw, step);
                assert!(got.is_err(), "{fault}: {got:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(raw: Vec<u8>, step in 1_usize..9) {
            let _ = read(Framing::Chunked, &raw, step);
        }

        #[test]
        fn decoding_undoes_encoding(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 0..8),
            trailer in prop::option::of("[ -~]{0,20}"),
            step in 1_usize..400,
        ) {
            let mut raw = Vec::new();
            for piece in &pieces {
                encode::chunk(&mut raw, piece);
            }
            let mut trailers = Vec::new();
            if let Some(value) = trailer {
                trailers = format!("X-T: {}\r\n", value.trim()).into_bytes();
                encode::trailers(&mut raw, Fields::new(&trailers));
            } else {
                raw.extend_from_slice(encode::BODY_END);
            }
            raw.extend_from_slice(b"next");
            let got = read(Framing::Chunked, &raw, step).unwrap();
            let expected = Read { data: pieces.concat(), trailers, left: b"next".to_vec() };
            prop_assert_eq!(got, Some(expected));
        }
    }
}
