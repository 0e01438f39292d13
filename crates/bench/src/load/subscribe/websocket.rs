//! A WebSocket (RFC 6455), as a client that only listens needs it: the handshake, the messages of the server, and answers to its pings.

use memchr::memmem;

use super::reader::{Found, Step};

/// The key of the example in RFC 6455 §1.3, so that the answer to it is known without arithmetic.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPTED: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// A longer head is none.
const MAX_HEAD: usize = 64 * 1024;
const MAX_FIELDS: usize = 64;
/// A longer message is none.
const LONGEST: usize = 16 * 1024 * 1024;
/// RFC 6455 §5.5.
const LONGEST_CONTROL: usize = 125;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// What asks for one.
pub(super) const FIELDS: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
];

/// Reads one WebSocket, however its bytes are cut.
#[derive(Debug, Default)]
pub(super) struct WebSocketReader {
    is_open: bool,
    /// A part of the head, or of a frame.
    partial: Vec<u8>,
    /// The fragments of a message that have come so far.
    message: Option<Vec<u8>>,
}

/// One frame.
struct Frame<'a> {
    is_last: bool,
    opcode: u8,
    payload: &'a [u8],
}

/// It is no WebSocket.
#[derive(Debug, PartialEq, Eq)]
struct Malformed;

impl WebSocketReader {
    pub(super) fn read(&mut self, bytes: &[u8], found: &mut Found<'_>) -> Step {
        if self.partial.is_empty() {
            return self.read_all(bytes, found);
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        self.read_all(&all, found)
    }

    fn read_all(&mut self, mut bytes: &[u8], found: &mut Found<'_>) -> Step {
        if !self.is_open {
            let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
                self.partial.extend_from_slice(bytes);
                return if bytes.len() > MAX_HEAD {
                    Step::Malformed
                } else {
                    Step::Opening
                };
            };
            let (head, rest) = bytes.split_at(end + 4);
            match opened(head) {
                Step::Open => self.is_open = true,
                other => return other,
            }
            bytes = rest;
        }
        loop {
            match Frame::parse(bytes) {
                Err(Malformed) => return Step::Malformed,
                Ok(None) => {
                    self.partial.extend_from_slice(bytes);
                    return Step::Open;
                }
                Ok(Some((frame, length))) => {
                    match self.take(&frame, found) {
                        Ok(Step::Open) => {}
                        Ok(other) => return other,
                        Err(Malformed) => return Step::Malformed,
                    }
                    bytes = &bytes[length..];
                }
            }
        }
    }

    fn take(&mut self, frame: &Frame<'_>, found: &mut Found<'_>) -> Result<Step, Malformed> {
        match (frame.opcode, &mut self.message) {
            (TEXT | BINARY, None) if frame.is_last => found.event(frame.payload),
            (TEXT | BINARY, message @ None) => *message = Some(frame.payload.to_vec()),
            (CONTINUATION, Some(message)) => {
                if message.len() + frame.payload.len() > LONGEST {
                    return Err(Malformed);
                }
                message.extend_from_slice(frame.payload);
                if frame.is_last {
                    found.event(message);
                    self.message = None;
                }
            }
            (PING, _) => pong(frame.payload, &mut found.replies),
            (PONG, _) => {}
            (CLOSE, _) => return Ok(Step::Ended),
            _ => return Err(Malformed),
        }
        Ok(Step::Open)
    }
}

/// What the head of the answer says.
fn opened(head: &[u8]) -> Step {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    if !matches!(response.parse(head), Ok(httparse::Status::Complete(_))) {
        return Step::Malformed;
    }
    let mut fields = response.headers.iter();
    let is_accepted = fields.any(|field| {
        field.name.eq_ignore_ascii_case("sec-websocket-accept") && field.value == ACCEPTED
    });
    match response.code {
        Some(101) if is_accepted => Step::Open,
        Some(101) | None => Step::NoEvents,
        Some(status) => Step::Refused(status),
    }
}

impl<'a> Frame<'a> {
    /// The first frame, and its length; `None` while it is not complete.
    fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let &[first, second, ref rest @ ..] = bytes else {
            return Ok(None);
        };
        // No extension was agreed on, and a server masks nothing.
        if first & 0x70 != 0 || second & 0x80 != 0 {
            return Err(Malformed);
        }
        let (length, rest) = match (second, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (127, rest) => match rest.split_first_chunk::<8>() {
                Some((length, rest)) => {
                    let length = u64::from_be_bytes(*length);
                    (usize::try_from(length).map_err(|_| Malformed)?, rest)
                }
                None => return Ok(None),
            },
            (126, _) => return Ok(None),
            (length, rest) => (usize::from(length), rest),
        };
        let (is_last, opcode) = (first & 0x80 != 0, first & 0x0f);
        let is_control = opcode & 0x8 != 0;
        if length > LONGEST || is_control && (length > LONGEST_CONTROL || !is_last) {
            return Err(Malformed);
        }
        let before = bytes.len() - rest.len();
        Ok(rest.get(..length).map(|payload| {
            let frame = Self {
                is_last,
                opcode,
                payload,
            };
            (frame, before + length)
        }))
    }
}

/// The answer to a ping. A client has to mask what it sends; this mask changes nothing.
fn pong(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x80 | PONG, 0x80 | payload.len() as u8, 0, 0, 0, 0]);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::super::document::Run;
    use super::*;

    const HEAD: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

    /// Where a WebSocket is after these bytes behind its head, how many messages it has had, and what it answers.
    fn check(frames: &[u8], step: Step, events: u64, replies: &[u8]) {
        let run = Run::begin();
        let bytes = [HEAD.as_bytes(), frames].concat();
        for size in [1, 3, 100, bytes.len()] {
            let mut found = Found::new(&run);
            let mut reader = WebSocketReader::default();
            let mut last = Step::Opening;
            for piece in bytes.chunks(size) {
                last = reader.read(piece, &mut found);
                if !matches!(last, Step::Opening | Step::Open) {
                    break;
                }
            }
            assert_eq!(last, step, "{frames:?} in steps of {size}");
            assert_eq!(found.events, events, "{frames:?} in steps of {size}");
            assert_eq!(found.replies, replies, "{frames:?} in steps of {size}");
        }
    }

    #[test]
    fn messages_are_read() {
        check(b"", Step::Open, 0, b"");
        check(b"\x81\x02hi\x82\x00\x81\x05hel", Step::Open, 2, b"");
        let long = [b"\x81\x7e\x01\x2c", &[b'x'; 300][..]].concat();
        check(&long, Step::Open, 1, b"");
        let longer = [b"\x81\x7f\0\0\0\0\0\x01\0\0", &vec![b'x'; 65536][..]].concat();
        check(&longer, Step::Open, 1, b"");
    }

    #[test]
    fn messages_come_in_fragments() {
        check(
            b"\x01\x01a\x00\x01b\x89\x00\x80\x01c",
            Step::Open,
            1,
            b"\x8a\x80\0\0\0\0",
        );
    }

    #[test]
    fn pings_are_answered_and_an_end_is_an_end() {
        check(b"\x89\x02hi\x8a\x00", Step::Open, 0, b"\x8a\x82\0\0\0\0hi");
        check(b"\x81\x02hi\x88\x02\x03\xe8", Step::Ended, 1, b"");
    }

    #[test]
    fn what_no_server_may_send_is_malformed() {
        for frames in [
            &b"\x81\x82\0\0\0\0hi"[..],    // masked
            b"\xc1\x02hi",                 // compressed, which nobody has agreed on
            b"\x00\x02hi",                 // the rest of nothing
            b"\x01\x02hi\x81\x02hi",       // a message within another one
            b"\x09\x02hi",                 // half a ping
            b"\x89\x7e\x01\x00",           // a long ping
            b"\x83\x00",                   // what nobody knows
            b"\x81\x7f\x01\0\0\0\0\0\0\0", // longer than anything is
        ] {
            check(frames, Step::Malformed, 0, b"");
        }
    }

    #[test]
    fn what_is_no_websocket_is_refused() {
        let run = Run::begin();
        for (head, step) in [
            ("HTTP/1.1 404 No\r\n\r\n", Step::Refused(404)),
            (
                "HTTP/1.1 101 It\r\nSec-WebSocket-Accept: x\r\n\r\n",
                Step::NoEvents,
            ),
            ("nonsense\r\n\r\n", Step::Malformed),
        ] {
            let mut reader = WebSocketReader::default();
            assert_eq!(
                reader.read(head.as_bytes(), &mut Found::new(&run)),
                step,
                "{head}"
            );
        }
    }
}
