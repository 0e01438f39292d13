//! Parser of frames: in place, with every rule on their form (RFC 9113 §4, §6).

use super::reason::{ErrorCode, ProtocolError};

/// Size of a frame header in bytes.
pub const HEADER: usize = 9;
/// Largest accepted payload in bytes: the minimum for every receiver (RFC 9113 §4.2).
pub const MAX_PAYLOAD: usize = 16_384;

/// Frame types in use.
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const PRIORITY: u8 = 2;
    pub(in super::super) const RESET: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PUSH_PROMISE: u8 = 5;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const GO_AWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
    /// RFC 9218 §7.1.
    pub(in super::super) const PRIORITY_UPDATE: u8 = 16;
}

/// Frame flags.
pub(super) mod flag {
    pub(in super::super) const END_STREAM: u8 = 1;
    pub(in super::super) const ACK: u8 = 1;
    pub(in super::super) const END_HEADERS: u8 = 4;
    pub(in super::super) const PADDED: u8 = 8;
    pub(in super::super) const PRIORITY: u8 = 32;
}

/// HTTP/2 frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// DATA.
    Data {
        /// Stream identifier.
        stream: u32,
        /// Content without padding.
        data: &'a [u8],
        /// Flow-controlled size in bytes, which includes padding (RFC 9113 §6.1).
        flow: usize,
        /// `END_STREAM`.
        ends: bool,
    },
    /// HEADERS.
    Headers {
        /// Stream identifier.
        stream: u32,
        /// Field block, or its beginning.
        fragment: &'a [u8],
        /// `END_STREAM`.
        ends: bool,
        /// `END_HEADERS`.
        complete: bool,
    },
    /// PRIORITY, deprecated and ignored (RFC 9113 §5.3.2).
    Priority,
    /// `RST_STREAM`.
    Reset {
        /// Stream identifier.
        stream: u32,
        /// Error code.
        code: u32,
    },
    /// SETTINGS: identifiers and values, six bytes each.
    Settings(&'a [u8]),
    /// SETTINGS with ACK.
    SettingsTaken,
    /// PING.
    Ping([u8; 8]),
    /// PING with ACK.
    Pong([u8; 8]),
    /// GOAWAY.
    GoAway,
    /// `WINDOW_UPDATE`.
    WindowUpdate {
        /// Stream identifier; 0 is the connection.
        stream: u32,
        /// Window increment in bytes.
        increment: u32,
    },
    /// CONTINUATION.
    Continuation {
        /// Stream identifier.
        stream: u32,
        /// Next fragment of the field block.
        fragment: &'a [u8],
        /// `END_HEADERS`.
        complete: bool,
    },
    /// `PRIORITY_UPDATE` (RFC 9218 §7.1).
    PriorityUpdate {
        /// Identifier of the prioritised stream.
        stream: u32,
        /// Value in the syntax of the field `priority`.
        value: &'a [u8],
    },
    /// Unknown type, which is ignored (RFC 9113 §4.1).
    Unknown,
}

/// Error of a complete frame that violates a rule on its form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFrame {
    /// The violated rule.
    pub fault: ProtocolError,
    /// Size of the whole frame in bytes.
    pub length: usize,
}

/// Parses the frame at the front of `input`, and returns it with its size in bytes; `None` while it is
/// incomplete.
///
/// Fails with [`BadFrame`] if the frame violates RFC 9113 §6.
pub fn read(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, BadFrame> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let [a, b, c, kind, flags, stream @ ..] = *header;
    let payload_length = u32::from_be_bytes([0, a, b, c]) as usize;
    // The reserved bit is ignored (RFC 9113 §4.1).
    let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
    let length = HEADER + payload_length;
    let bad = |fault| BadFrame { fault, length };
    if payload_length > MAX_PAYLOAD {
        let what = "a frame that exceeds SETTINGS_MAX_FRAME_SIZE";
        return Err(bad(ProtocolError::Connection(ErrorCode::FrameSize, what)));
    }
    let Some(payload) = rest.get(..payload_length) else {
        return Ok(None);
    };
    let header = Header {
        kind,
        flags,
        stream,
    };
    let frame = header.frame(payload).map_err(bad)?;
    Ok(Some((frame, length)))
}

#[derive(Clone, Copy)]
struct Header {
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Header {
    const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    fn frame(self, payload: &[u8]) -> Result<Frame<'_>, ProtocolError> {
        let stream = self.stream;
        Ok(match self.kind {
            kind::DATA => {
                self.on_a_stream()?;
                Frame::Data {
                    stream,
                    data: self.without_padding(payload)?,
                    flow: payload.len(),
                    ends: self.has(flag::END_STREAM),
                }
            }
            kind::HEADERS => {
                self.on_a_stream()?;
                Frame::Headers {
                    stream,
                    fragment: self.without_priority(self.without_padding(payload)?)?,
                    ends: self.has(flag::END_STREAM),
                    complete: self.has(flag::END_HEADERS),
                }
            }
            kind::PRIORITY => self.priority(payload)?,
            kind::RESET => {
                self.on_a_stream()?;
                Frame::Reset {
                    stream,
                    code: number(payload).ok_or(wrong_size("RST_STREAM of wrong length"))?,
                }
            }
            kind::SETTINGS => self.settings(payload)?,
            kind::PUSH_PROMISE => {
                return Err(ProtocolError::protocol("PUSH_PROMISE from a client"));
            }
            kind::PING => {
                self.on_no_stream()?;
                let opaque = *payload
                    .as_array()
                    .ok_or(wrong_size("PING of wrong length"))?;
                if self.has(flag::ACK) {
                    Frame::Pong(opaque)
                } else {
                    Frame::Ping(opaque)
                }
            }
            kind::GO_AWAY => {
                self.on_no_stream()?;
                if payload.len() < 8 {
                    return Err(wrong_size("GOAWAY that is too short"));
                }
                Frame::GoAway
            }
            kind::WINDOW_UPDATE => self.window_update(payload)?,
            kind::CONTINUATION => {
                self.on_a_stream()?;
                Frame::Continuation {
                    stream,
                    fragment: payload,
                    complete: self.has(flag::END_HEADERS),
                }
            }
            kind::PRIORITY_UPDATE => self.priority_update(payload)?,
            _ => Frame::Unknown,
        })
    }

    fn on_a_stream(self) -> Result<(), ProtocolError> {
        if self.stream == 0 {
            return Err(ProtocolError::protocol("a stream frame on stream 0"));
        }
        Ok(())
    }

    fn on_no_stream(self) -> Result<(), ProtocolError> {
        if self.stream != 0 {
            return Err(ProtocolError::protocol("a connection frame on a stream"));
        }
        Ok(())
    }

    fn without_padding(self, payload: &[u8]) -> Result<&[u8], ProtocolError> {
        if !self.has(flag::PADDED) {
            return Ok(payload);
        }
        let too_long = ProtocolError::protocol("more padding than payload");
        let (padding, rest) = payload
            .split_first()
            .ok_or(wrong_size("a padded frame without padding"))?;
        let length = rest.len().checked_sub(usize::from(*padding));
        length.and_then(|it| rest.get(..it)).ok_or(too_long)
    }

    /// Skips the priority fields of HEADERS after validating them.
    fn without_priority(self, payload: &[u8]) -> Result<&[u8], ProtocolError> {
        if !self.has(flag::PRIORITY) {
            return Ok(payload);
        }
        let (priority, fragment) = payload
            .split_first_chunk::<5>()
            .ok_or(wrong_size("HEADERS that are too short for their priority"))?;
        if depends_on(*priority) == self.stream {
            // The field block must still be decoded, as later ones depend on it.
            return Err(ProtocolError::protocol("a stream that depends on itself"));
        }
        Ok(fragment)
    }

    fn priority(self, payload: &[u8]) -> Result<Frame<'_>, ProtocolError> {
        self.on_a_stream()?;
        let of_stream = |reason, what| ProtocolError::Stream(self.stream, reason, what);
        let Some(priority) = payload.as_array::<5>() else {
            return Err(of_stream(ErrorCode::FrameSize, "PRIORITY of wrong length"));
        };
        if depends_on(*priority) == self.stream {
            let what = "a stream that depends on itself";
            return Err(of_stream(ErrorCode::Protocol, what));
        }
        Ok(Frame::Priority)
    }

    fn settings(self, payload: &[u8]) -> Result<Frame<'_>, ProtocolError> {
        self.on_no_stream()?;
        match payload.len() {
            0 if self.has(flag::ACK) => Ok(Frame::SettingsTaken),
            length if self.has(flag::ACK) || length % 6 != 0 => {
                Err(wrong_size("SETTINGS of wrong length"))
            }
            _ => Ok(Frame::Settings(payload)),
        }
    }

    fn window_update(self, payload: &[u8]) -> Result<Frame<'_>, ProtocolError> {
        let increment = number(payload).ok_or(wrong_size("WINDOW_UPDATE of wrong length"))?;
        let stream = self.stream;
        match increment & 0x7fff_ffff {
            0 if stream == 0 => Err(ProtocolError::protocol(
                "WINDOW_UPDATE with an increment of 0",
            )),
            0 => {
                let what = "WINDOW_UPDATE with an increment of 0";
                Err(ProtocolError::Stream(stream, ErrorCode::Protocol, what))
            }
            increment => Ok(Frame::WindowUpdate { stream, increment }),
        }
    }

    fn priority_update(self, payload: &[u8]) -> Result<Frame<'_>, ProtocolError> {
        self.on_no_stream()?;
        let (stream, value) = payload
            .split_first_chunk::<4>()
            .ok_or(wrong_size("PRIORITY_UPDATE that is too short"))?;
        match u32::from_be_bytes(*stream) & 0x7fff_ffff {
            0 => Err(ProtocolError::protocol("PRIORITY_UPDATE for stream 0")),
            stream => Ok(Frame::PriorityUpdate { stream, value }),
        }
    }
}

const fn wrong_size(what: &'static str) -> ProtocolError {
    ProtocolError::Connection(ErrorCode::FrameSize, what)
}

fn number(payload: &[u8]) -> Option<u32> {
    payload.as_array().map(|bytes| u32::from_be_bytes(*bytes))
}

const fn depends_on(priority: [u8; 5]) -> u32 {
    let [a, b, c, d, _] = priority;
    u32::from_be_bytes([a, b, c, d]) & 0x7fff_ffff
}

#[cfg(test)]
mod tests;
