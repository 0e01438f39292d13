//! WebSocket client (RFC 6455), limited to what a subscriber needs: handshake, incoming messages and pongs.

use memchr::memmem;

use super::parse_output::{ParseOutput, StreamStatus};

/// Sample key of RFC 6455 §1.3, whose Sec-WebSocket-Accept is known without SHA-1.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPTED: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
/// Maximum size of the response head, in bytes.
const MAX_HEAD: usize = 64 * 1024;
const MAX_FIELDS: usize = 64;
/// Maximum size of a message, in bytes.
const LONGEST: usize = 16 * 1024 * 1024;
/// Maximum payload of a control frame, in bytes (RFC 6455 §5.5).
const LONGEST_CONTROL: usize = 125;

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

/// Header fields of the handshake.
pub(super) const FIELDS: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
];

/// Incremental parser of one WebSocket.
#[derive(Debug, Default)]
pub(super) struct WebSocketParser {
    is_open: bool,
    /// Incomplete response head or frame.
    partial: Vec<u8>,
    /// Fragments of the current message.
    message: Option<Vec<u8>>,
}

/// WebSocket frame (RFC 6455 §5.2).
struct WebSocketFrame<'a> {
    is_last: bool,
    opcode: u8,
    payload: &'a [u8],
}

/// Violation of RFC 6455.
#[derive(Debug, PartialEq, Eq)]
struct MalformedFrame;

impl WebSocketParser {
    pub(super) fn read(&mut self, bytes: &[u8], found: &mut ParseOutput<'_>) -> StreamStatus {
        if self.partial.is_empty() {
            return self.read_all(bytes, found);
        }
        let mut all = std::mem::take(&mut self.partial);
        all.extend_from_slice(bytes);
        self.read_all(&all, found)
    }

    fn read_all(&mut self, mut bytes: &[u8], found: &mut ParseOutput<'_>) -> StreamStatus {
        if !self.is_open {
            let Some(end) = memmem::find(bytes, b"\r\n\r\n") else {
                self.partial.extend_from_slice(bytes);
                return if bytes.len() > MAX_HEAD {
                    StreamStatus::Malformed
                } else {
                    StreamStatus::Opening
                };
            };
            let (head, rest) = bytes.split_at(end + 4);
            match opened(head) {
                StreamStatus::Open => self.is_open = true,
                other => return other,
            }
            bytes = rest;
        }
        loop {
            match WebSocketFrame::parse(bytes) {
                Err(MalformedFrame) => return StreamStatus::Malformed,
                Ok(None) => {
                    self.partial.extend_from_slice(bytes);
                    return StreamStatus::Open;
                }
                Ok(Some((frame, length))) => {
                    match self.take(&frame, found) {
                        Ok(StreamStatus::Open) => {}
                        Ok(other) => return other,
                        Err(MalformedFrame) => return StreamStatus::Malformed,
                    }
                    bytes = &bytes[length..];
                }
            }
        }
    }

    fn take(
        &mut self,
        frame: &WebSocketFrame<'_>,
        found: &mut ParseOutput<'_>,
    ) -> Result<StreamStatus, MalformedFrame> {
        match (frame.opcode, &mut self.message) {
            (TEXT | BINARY, None) if frame.is_last => found.event(frame.payload),
            (TEXT | BINARY, message @ None) => *message = Some(frame.payload.to_vec()),
            (CONTINUATION, Some(message)) => {
                if message.len() + frame.payload.len() > LONGEST {
                    return Err(MalformedFrame);
                }
                message.extend_from_slice(frame.payload);
                if frame.is_last {
                    found.event(message);
                    self.message = None;
                }
            }
            (PING, _) => pong(frame.payload, &mut found.replies),
            (PONG, _) => {}
            (CLOSE, _) => return Ok(StreamStatus::Ended),
            _ => return Err(MalformedFrame),
        }
        Ok(StreamStatus::Open)
    }
}

/// Evaluates the response to the handshake.
fn opened(head: &[u8]) -> StreamStatus {
    let mut fields = [httparse::EMPTY_HEADER; MAX_FIELDS];
    let mut response = httparse::Response::new(&mut fields);
    if !matches!(response.parse(head), Ok(httparse::Status::Complete(_))) {
        return StreamStatus::Malformed;
    }
    let mut fields = response.headers.iter();
    let is_accepted = fields.any(|field| {
        field.name.eq_ignore_ascii_case("sec-websocket-accept") && field.value == ACCEPTED
    });
    match response.code {
        Some(101) if is_accepted => StreamStatus::Open,
        Some(101) | None => StreamStatus::NoEvents,
        Some(status) => StreamStatus::Refused(status),
    }
}

impl<'a> WebSocketFrame<'a> {
    /// Parses the first frame. Returns it with its length in bytes; `None` while it is incomplete.
    fn parse(bytes: &'a [u8]) -> Result<Option<(Self, usize)>, MalformedFrame> {
        let &[first, second, ref rest @ ..] = bytes else {
            return Ok(None);
        };
        // Reserved bits need an extension, and a server must not mask (RFC 6455 §5.1).
        if first & 0x70 != 0 || second & 0x80 != 0 {
            return Err(MalformedFrame);
        }
        let (length, rest) = match (second, rest) {
            (126, [a, b, rest @ ..]) => (usize::from(u16::from_be_bytes([*a, *b])), rest),
            (127, rest) => match rest.split_first_chunk::<8>() {
                Some((length, rest)) => {
                    let length = u64::from_be_bytes(*length);
                    (usize::try_from(length).map_err(|_| MalformedFrame)?, rest)
                }
                None => return Ok(None),
            },
            (126, _) => return Ok(None),
            (length, rest) => (usize::from(length), rest),
        };
        let (is_last, opcode) = (first & 0x80 != 0, first & 0x0f);
        let is_control = opcode & 0x8 != 0;
        if length > LONGEST || is_control && (length > LONGEST_CONTROL || !is_last) {
            return Err(MalformedFrame);
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

/// Appends a pong. A client must mask its frames (RFC 6455 §5.3); a mask of zeros leaves the payload
/// unchanged.
fn pong(payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&[0x80 | PONG, 0x80 | payload.len() as u8, 0, 0, 0, 0]);
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::super::document::RunIdentity;
    use super::*;

    const HEAD: &str = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";

    /// State of a WebSocket after these bytes, its number of messages, and its replies.
    fn check(frames: &[u8], step: StreamStatus, events: u64, replies: &[u8]) {
        let run = RunIdentity::begin();
        let bytes = [HEAD.as_bytes(), frames].concat();
        for size in [1, 3, 100, bytes.len()] {
            let mut found = ParseOutput::new(&run);
            let mut reader = WebSocketParser::default();
            let mut last = StreamStatus::Opening;
            for piece in bytes.chunks(size) {
                last = reader.read(piece, &mut found);
                if !matches!(last, StreamStatus::Opening | StreamStatus::Open) {
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
        check(b"", StreamStatus::Open, 0, b"");
        check(b"\x81\x02hi\x82\x00\x81\x05hel", StreamStatus::Open, 2, b"");
        let long = [b"\x81\x7e\x01\x2c", &[b'x'; 300][..]].concat();
        check(&long, StreamStatus::Open, 1, b"");
        let longer = [b"\x81\x7f\0\0\0\0\0\x01\0\0", &vec![b'x'; 65536][..]].concat();
        check(&longer, StreamStatus::Open, 1, b"");
    }

    #[test]
    fn messages_come_in_fragments() {
        check(
            b"\x01\x01a\x00\x01b\x89\x00\x80\x01c",
            StreamStatus::Open,
            1,
            b"\x8a\x80\0\0\0\0",
        );
    }

    #[test]
    fn pings_are_answered_and_an_end_is_an_end() {
        check(
            b"\x89\x02hi\x8a\x00",
            StreamStatus::Open,
            0,
            b"\x8a\x82\0\0\0\0hi",
        );
        check(b"\x81\x02hi\x88\x02\x03\xe8", StreamStatus::Ended, 1, b"");
    }

    #[test]
    fn frames_that_no_server_may_send_are_malformed() {
        for frames in [
            &b"\x81\x82\0\0\0\0hi"[..],    // masked
            b"\xc1\x02hi",                 // compressed without negotiation
            b"\x00\x02hi",                 // continuation without a first fragment
            b"\x01\x02hi\x81\x02hi",       // message interleaved with another
            b"\x09\x02hi",                 // fragmented ping
            b"\x89\x7e\x01\x00",           // oversized ping
            b"\x83\x00",                   // reserved opcode
            b"\x81\x7f\x01\0\0\0\0\0\0\0", // oversized message
        ] {
            check(frames, StreamStatus::Malformed, 0, b"");
        }
    }

    #[test]
    fn a_response_that_is_no_websocket_is_refused() {
        let run = RunIdentity::begin();
        for (head, step) in [
            ("HTTP/1.1 404 No\r\n\r\n", StreamStatus::Refused(404)),
            (
                "HTTP/1.1 101 It\r\nSec-WebSocket-Accept: x\r\n\r\n",
                StreamStatus::NoEvents,
            ),
            ("nonsense\r\n\r\n", StreamStatus::Malformed),
        ] {
            let mut reader = WebSocketParser::default();
            assert_eq!(
                reader.read(head.as_bytes(), &mut ParseOutput::new(&run)),
                step,
                "{head}"
            );
        }
    }
}
