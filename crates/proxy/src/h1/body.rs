//! Where a body ends, and what its bytes are: the three framings of RFC 9112 §6.

use bytes::{Buf, Bytes, BytesMut};
use microcache_engine::body::{BodyError, Frame};
use microcache_policy::FieldsBuf;

use super::head::Framing;
use super::lines::{Line, line};
use super::syntax::{line_end, value_span};

/// Digits of a chunk size: what fits 64 bits.
const MAX_SIZE_DIGITS: usize = 16;
/// Chunk extensions of one body, all together. Nobody uses them; they are read over.
const MAX_EXTENSIONS: usize = 4 * 1024;
/// The trailer section.
const MAX_TRAILERS: usize = 8 * 1024;

/// Takes the framing off a body.
#[derive(Debug)]
pub struct Decoder {
    state: State,
    extensions: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length(u64),
    UntilClose,
    Size,
    Chunk(u64),
    ChunkEnd,
    Trailers,
    End,
}

/// One step of a [`Decoder`].
#[derive(Debug)]
pub enum Decoded {
    /// A piece of the body.
    Frame(Frame),
    /// More bytes must be read first.
    NeedMore,
    /// The body is over. What is left in the buffer is not part of it.
    End,
}

impl Decoder {
    /// For a body framed like this.
    pub const fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::End,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => State::Size,
            Framing::UntilClose => State::UntilClose,
        };
        Self {
            state,
            extensions: 0,
        }
    }

    /// Takes the next piece off the front of `buf`.
    pub fn decode(&mut self, buf: &mut BytesMut) -> Result<Decoded, BodyError> {
        self.step(buf).map_err(BodyError::Malformed)
    }

    fn step(&mut self, buf: &mut BytesMut) -> Result<Decoded, &'static str> {
        loop {
            if self.state == State::End {
                return Ok(Decoded::End);
            }
            if buf.is_empty() {
                return Ok(Decoded::NeedMore);
            }
            match self.state {
                State::Length(left) => {
                    let data = take(buf, left);
                    self.state = match left - data.len() as u64 {
                        0 => State::End,
                        left => State::Length(left),
                    };
                    return Ok(Decoded::Frame(Frame::Data(data)));
                }
                State::UntilClose => {
                    return Ok(Decoded::Frame(Frame::Data(buf.split().freeze())));
                }
                State::Size => match self.size_line(buf)? {
                    None => return Ok(Decoded::NeedMore),
                    Some(0) => self.state = State::Trailers,
                    Some(size) => self.state = State::Chunk(size),
                },
                State::Chunk(left) => {
                    let data = take(buf, left);
                    self.state = match left - data.len() as u64 {
                        0 => State::ChunkEnd,
                        left => State::Chunk(left),
                    };
                    return Ok(Decoded::Frame(Frame::Data(data)));
                }
                State::ChunkEnd => match line_end(buf) {
                    Err(_) => return Err("a chunk longer than its size"),
                    Ok(None) => return Ok(Decoded::NeedMore),
                    Ok(Some(())) => {
                        buf.advance(2);
                        self.state = State::Size;
                    }
                },
                State::Trailers => {
                    let Some(trailers) = trailers(buf)? else {
                        return Ok(Decoded::NeedMore);
                    };
                    self.state = State::End;
                    if !trailers.fields().as_block().is_empty() {
                        return Ok(Decoded::Frame(Frame::Trailers(trailers)));
                    }
                }
                State::End => return Ok(Decoded::End),
            }
        }
    }

    /// The peer closed. That ends a body only if nothing else does.
    pub const fn eof(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::UntilClose | State::End => {
                self.state = State::End;
                Ok(())
            }
            _ => Err(BodyError::Incomplete),
        }
    }

    /// Whether the body is over.
    pub fn is_end(&self) -> bool {
        self.state == State::End
    }

    /// How many bytes are known to follow; 0 if that is not known.
    pub const fn expected(&self) -> u64 {
        match self.state {
            State::Length(left) | State::Chunk(left) => left,
            _ => 0,
        }
    }

    /// The size line: digits, extensions that are read over, CRLF. White space is legal before an
    /// extension (RFC 9112 §7.1.1), but parsers disagree on it, so it is refused.
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
        let size = size.iter().try_fold(0_u64, |sum, digit| {
            let digit = char::from(*digit).to_digit(16)?;
            sum.checked_mul(16)?.checked_add(u64::from(digit))
        });
        self.extensions += extension;
        buf.advance(digits + extension + 2);
        size.map(Some).ok_or("a chunk size that is too large")
    }
}

fn take(buf: &mut BytesMut, limit: u64) -> Bytes {
    let length = usize::try_from(limit).map_or(buf.len(), |limit| limit.min(buf.len()));
    buf.split_to(length).freeze()
}

/// The trailer section, up to and with its empty line.
fn trailers(buf: &mut BytesMut) -> Result<Option<FieldsBuf>, &'static str> {
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
                if may_trail(&line) {
                    kept.push(line.name, line.value);
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

/// RFC 9110 §6.5.1: nothing that frames, routes, authenticates or controls a message can come
/// after it.
fn may_trail(line: &Line<'_>) -> bool {
    const FORBIDDEN: [&str; 33] = [
        "Age",
        "Authorization",
        "Cache-Control",
        "CDN-Cache-Control",
        "Connection",
        "Content-Encoding",
        "Content-Length",
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
        "TE",
        "Trailer",
        "Transfer-Encoding",
        "Upgrade",
        "Vary",
        "Via",
        "Warning",
        "WWW-Authenticate",
    ];
    let name = line.name;
    let conditional = name
        .split_at_checked(3)
        .is_some_and(|(front, _)| front.eq_ignore_ascii_case(b"If-"));
    !conditional
        && !FORBIDDEN
            .iter()
            .any(|other| name.eq_ignore_ascii_case(other.as_bytes()))
}
