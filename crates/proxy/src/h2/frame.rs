//! Frames, read where they lie and held against every rule on their form (RFC 9113 §4, §6).

use super::reason::{Fault, Reason};

/// What every frame begins with.
pub const HEADER: usize = 9;
/// The longest payload that is taken: what every receiver has to take, and no more (RFC 9113 §4.2).
pub const MAX_PAYLOAD: usize = 16_384;

/// The kinds of frames that mean something here.
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

/// What the flags of frames say.
pub(super) mod flag {
    pub(in super::super) const END_STREAM: u8 = 1;
    pub(in super::super) const ACK: u8 = 1;
    pub(in super::super) const END_HEADERS: u8 = 4;
    pub(in super::super) const PADDED: u8 = 8;
    pub(in super::super) const PRIORITY: u8 = 32;
}

/// A frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame<'a> {
    /// Content.
    Data {
        /// Whose it is.
        stream: u32,
        /// Without padding.
        data: &'a [u8],
        /// How much of a window it takes: padding counts (RFC 9113 §6.1).
        flow: usize,
        /// The stream ends with it.
        ends: bool,
    },
    /// A field section, or its beginning.
    Headers {
        /// Whose it is.
        stream: u32,
        /// The field block, or its beginning.
        fragment: &'a [u8],
        /// The stream ends with it.
        ends: bool,
        /// The field block is complete.
        complete: bool,
    },
    /// The old kind of priority, which says nothing any more (RFC 9113 §5.3.2).
    Priority,
    /// A stream is given up.
    Reset {
        /// Which one.
        stream: u32,
        /// Why.
        code: u32,
    },
    /// What the other side wants: identifiers and values, six bytes each.
    Settings(&'a [u8]),
    /// It has taken what we want.
    SettingsTaken,
    /// Wants an answer with these bytes.
    Ping([u8; 8]),
    /// Such an answer.
    Pong([u8; 8]),
    /// The other side opens no more streams of ours, and leaves when there are none.
    GoAway,
    /// More may be sent, on the whole connection if the stream is 0.
    WindowUpdate {
        /// Where.
        stream: u32,
        /// How much more.
        increment: u32,
    },
    /// The next part of a field block.
    Continuation {
        /// Whose it is.
        stream: u32,
        /// The part.
        fragment: &'a [u8],
        /// It is the last.
        complete: bool,
    },
    /// How urgent a response is (RFC 9218 §7.1).
    PriorityUpdate {
        /// The request's stream.
        stream: u32,
        /// As in the field `priority`.
        value: &'a [u8],
    },
    /// Of a kind that nobody here knows (RFC 9113 §4.1).
    Unknown,
}

/// A frame that has its length, and breaks a rule of its form. The length counts the whole frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadFrame {
    /// The rule.
    pub fault: Fault,
    /// How many bytes it took.
    pub length: usize,
}

/// Reads the frame at the front of `input`, and how many bytes it took; `None` while it is incomplete.
pub fn read(input: &[u8]) -> Result<Option<(Frame<'_>, usize)>, BadFrame> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let [a, b, c, kind, flags, stream @ ..] = *header;
    let payload_length = u32::from_be_bytes([0, a, b, c]) as usize;
    // The highest bit means nothing (RFC 9113 §4.1).
    let stream = u32::from_be_bytes(stream) & 0x7fff_ffff;
    let length = HEADER + payload_length;
    let bad = |fault| BadFrame { fault, length };
    if payload_length > MAX_PAYLOAD {
        let what = "a frame that is longer than allowed";
        return Err(bad(Fault::Connection(Reason::FrameSize, what)));
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

    fn frame(self, payload: &[u8]) -> Result<Frame<'_>, Fault> {
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
                    code: number(payload).ok_or(wrong_size("RST_STREAM of another length"))?,
                }
            }
            kind::SETTINGS => self.settings(payload)?,
            kind::PUSH_PROMISE => return Err(Fault::protocol("PUSH_PROMISE from a client")),
            kind::PING => {
                self.on_no_stream()?;
                let opaque = *payload
                    .as_array()
                    .ok_or(wrong_size("PING of another length"))?;
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

    fn on_a_stream(self) -> Result<(), Fault> {
        if self.stream == 0 {
            return Err(Fault::protocol("a frame of a stream without one"));
        }
        Ok(())
    }

    fn on_no_stream(self) -> Result<(), Fault> {
        if self.stream != 0 {
            return Err(Fault::protocol("a frame of the connection on a stream"));
        }
        Ok(())
    }

    fn without_padding(self, payload: &[u8]) -> Result<&[u8], Fault> {
        if !self.has(flag::PADDED) {
            return Ok(payload);
        }
        let too_long = Fault::protocol("more padding than there is of the frame");
        let (padding, rest) = payload
            .split_first()
            .ok_or(wrong_size("a padded frame without padding"))?;
        let length = rest.len().checked_sub(usize::from(*padding));
        length.and_then(|it| rest.get(..it)).ok_or(too_long)
    }

    /// A priority of the old kind is skipped, but for what it must not be.
    fn without_priority(self, payload: &[u8]) -> Result<&[u8], Fault> {
        if !self.has(flag::PRIORITY) {
            return Ok(payload);
        }
        let (priority, fragment) = payload
            .split_first_chunk::<5>()
            .ok_or(wrong_size("HEADERS that are too short for their priority"))?;
        if depends_on(*priority) == self.stream {
            // The field block must be read even so: what comes later refers to it.
            return Err(Fault::protocol("a stream that depends on itself"));
        }
        Ok(fragment)
    }

    fn priority(self, payload: &[u8]) -> Result<Frame<'_>, Fault> {
        self.on_a_stream()?;
        let of_stream = |reason, what| Fault::Stream(self.stream, reason, what);
        let Some(priority) = payload.as_array::<5>() else {
            return Err(of_stream(Reason::FrameSize, "PRIORITY of another length"));
        };
        if depends_on(*priority) == self.stream {
            let what = "a stream that depends on itself";
            return Err(of_stream(Reason::Protocol, what));
        }
        Ok(Frame::Priority)
    }

    fn settings(self, payload: &[u8]) -> Result<Frame<'_>, Fault> {
        self.on_no_stream()?;
        match payload.len() {
            0 if self.has(flag::ACK) => Ok(Frame::SettingsTaken),
            length if self.has(flag::ACK) || length % 6 != 0 => {
                Err(wrong_size("SETTINGS of a length that they cannot have"))
            }
            _ => Ok(Frame::Settings(payload)),
        }
    }

    fn window_update(self, payload: &[u8]) -> Result<Frame<'_>, Fault> {
        let increment = number(payload).ok_or(wrong_size("WINDOW_UPDATE of another length"))?;
        let stream = self.stream;
        match increment & 0x7fff_ffff {
            0 if stream == 0 => Err(Fault::protocol("a window is opened by nothing")),
            0 => {
                let what = "a window is opened by nothing";
                Err(Fault::Stream(stream, Reason::Protocol, what))
            }
            increment => Ok(Frame::WindowUpdate { stream, increment }),
        }
    }

    fn priority_update(self, payload: &[u8]) -> Result<Frame<'_>, Fault> {
        self.on_no_stream()?;
        let (stream, value) = payload
            .split_first_chunk::<4>()
            .ok_or(wrong_size("PRIORITY_UPDATE that is too short"))?;
        match u32::from_be_bytes(*stream) & 0x7fff_ffff {
            0 => Err(Fault::protocol("PRIORITY_UPDATE of no stream")),
            stream => Ok(Frame::PriorityUpdate { stream, value }),
        }
    }
}

const fn wrong_size(what: &'static str) -> Fault {
    Fault::Connection(Reason::FrameSize, what)
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
