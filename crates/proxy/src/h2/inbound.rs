//! Receiving half of a connection: the bytes of the client become frames, in the order that RFC 9113 demands, and
//! fragments become field blocks. It has no access to streams, output or the socket.

use bytes::{Buf, BytesMut};
use microcache_policy::Time;

use super::flood_limits::BLOCK_FRAMES;
use super::frame::{self, Frame};
use super::hpack::{Decoder, Scratch};
use super::reason::{ErrorCode, ProtocolError};
use super::section::FieldSection;
use crate::config::ClientTimeouts;

/// Connection preface of a client (RFC 9113 §3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Received bytes, up to the frames and field blocks that they form.
pub(super) struct Inbound {
    /// Input that is not consumed yet; usually none.
    rest: BytesMut,
    preface: PrefaceState,
    decoder: Decoder,
    block: Option<FragmentedBlock>,
    /// Time since when a frame or a field block is incomplete.
    partial: Option<Time>,
}

/// Progress of the connection preface (RFC 9113 §3.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PrefaceState {
    /// The preface is expected.
    AwaitingPreface,
    /// The first SETTINGS frame is expected.
    AwaitingSettings,
    Complete,
}

/// Field block that arrives in several frames.
pub(super) struct FragmentedBlock {
    pub(super) stream: u32,
    /// `END_STREAM` of its HEADERS frame.
    pub(super) ends: bool,
    pub(super) bytes: Vec<u8>,
    frames: u32,
}

impl Inbound {
    /// Input of a connection whose preface is expected, or is in `rest`.
    pub(super) fn new(rest: BytesMut, now: Time) -> Self {
        Self {
            rest,
            preface: PrefaceState::AwaitingPreface,
            decoder: Decoder::default(),
            block: None,
            partial: Some(now),
        }
    }

    /// Takes the input that was not consumed before; `None` if there is none.
    pub(super) fn take_rest(&mut self) -> Option<BytesMut> {
        (!self.rest.is_empty()).then(|| std::mem::take(&mut self.rest))
    }

    /// Returns `true` if the beginning of a frame was kept.
    pub(super) fn has_rest(&self) -> bool {
        !self.rest.is_empty()
    }

    /// Keeps the part of `input` that was not consumed.
    pub(super) fn keep(&mut self, mut input: BytesMut, used: usize) {
        input.advance(used);
        // An idle connection owns no buffer.
        self.rest = if input.is_empty() {
            BytesMut::new()
        } else {
            input
        };
    }

    /// Keeps a copy of input behind what is kept already.
    pub(super) fn append(&mut self, input: &[u8]) {
        self.rest.extend_from_slice(input);
    }

    /// Consumes the preface if it is still expected. Returns its length; `None` while it is incomplete.
    pub(super) fn take_preface(&mut self, input: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if self.preface != PrefaceState::AwaitingPreface {
            return Ok(Some(0));
        }
        if input.starts_with(PREFACE) {
            self.preface = PrefaceState::AwaitingSettings;
            return Ok(Some(PREFACE.len()));
        }
        if PREFACE.starts_with(input) {
            return Ok(None);
        }
        Err(ProtocolError::protocol("not the HTTP/2 preface"))
    }

    /// Returns the frame at the front of `input`, or its error, with its size in bytes; `None` while it is
    /// incomplete.
    pub(super) fn next_frame<'i>(
        &mut self,
        input: &'i [u8],
    ) -> Option<(Result<Frame<'i>, ProtocolError>, usize)> {
        match frame::read(input) {
            Ok(None) => None,
            Ok(Some((frame, length))) => {
                Some((self.check_order(Some(frame)).map(|()| frame), length))
            }
            Err(bad) => Some((self.check_order(None).and(Err(bad.fault)), bad.length)),
        }
    }

    /// Checks the order of frames: SETTINGS first, and no other frame within a field block.
    fn check_order(&mut self, frame: Option<Frame<'_>>) -> Result<(), ProtocolError> {
        if self.preface == PrefaceState::AwaitingSettings {
            // RFC 9113 §3.4.
            if !matches!(frame, Some(Frame::Settings(_))) {
                return Err(ProtocolError::protocol(
                    "a connection that does not begin with SETTINGS",
                ));
            }
            self.preface = PrefaceState::Complete;
        }
        match (&self.block, frame) {
            (Some(block), Some(Frame::Continuation { stream, .. })) if stream == block.stream => {
                Ok(())
            }
            (Some(_), _) => Err(ProtocolError::protocol("a frame inside a field block")),
            (None, Some(Frame::Continuation { .. })) => {
                Err(ProtocolError::protocol("CONTINUATION without HEADERS"))
            }
            (None, _) => Ok(()),
        }
    }

    /// Records that `used` of `length` bytes were consumed. The timeout of an incomplete frame or field block
    /// restarts with each frame.
    pub(super) fn consumed(&mut self, used: usize, length: usize, now: Time) {
        let incomplete = used < length || self.block.is_some();
        self.partial = match self.partial {
            Some(since) if incomplete && used == 0 => Some(since),
            _ => incomplete.then_some(now),
        };
    }

    /// Begins a field block that continues in further frames.
    pub(super) fn begin_block(&mut self, stream: u32, ends: bool, fragment: &[u8]) {
        self.block = Some(FragmentedBlock {
            stream,
            ends,
            bytes: fragment.to_vec(),
            frames: 1,
        });
    }

    /// Adds a fragment to the field block. Returns the block once it is complete.
    ///
    /// Fails if it exceeds `most` bytes, or too many frames.
    pub(super) fn continue_block(
        &mut self,
        fragment: &[u8],
        complete: bool,
        most: usize,
    ) -> Result<Option<FragmentedBlock>, ProtocolError> {
        let Some(mut block) = self.block.take() else {
            return Ok(None);
        };
        block.frames += 1;
        block.bytes.extend_from_slice(fragment);
        // A block can only be decoded as a whole, so exceeding its limit is a connection error.
        if block.frames > BLOCK_FRAMES || block.bytes.len() > most {
            let what = "a field block without an end";
            return Err(ProtocolError::Connection(ErrorCode::EnhanceYourCalm, what));
        }
        if complete {
            return Ok(Some(block));
        }
        self.block = Some(block);
        Ok(None)
    }

    /// Decodes a complete field block.
    pub(super) fn decode(
        &mut self,
        block: &[u8],
        strings: &mut Scratch,
        section: &mut FieldSection,
    ) -> Result<(), ProtocolError> {
        let decoded = self
            .decoder
            .decode(block, strings, |name, value| section.take(name, value));
        decoded.map_err(|bad| ProtocolError::Connection(ErrorCode::Compression, bad.0))
    }

    /// Returns the deadline of an incomplete frame or field block. `in_request`: content is expected, which has
    /// the longer timeout.
    pub(super) fn deadline(&self, timeouts: &ClientTimeouts, in_request: bool) -> Option<Time> {
        let span = if in_request && self.block.is_none() {
            timeouts.body.max(timeouts.head)
        } else {
            timeouts.head
        };
        self.partial
            .map(|since| since.plus(span.as_millis() as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::super::write;
    use super::*;

    fn begun() -> Inbound {
        let mut inbound = Inbound::new(BytesMut::new(), Time::default());
        assert_eq!(inbound.take_preface(PREFACE), Ok(Some(PREFACE.len())));
        inbound
    }

    fn is_accepted(inbound: &mut Inbound, frame: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut bytes = Vec::new();
        frame(&mut bytes);
        let (frame, length) = inbound.next_frame(&bytes).expect("it is complete");
        assert_eq!(length, bytes.len());
        frame.is_ok()
    }

    #[test]
    fn the_preface_may_arrive_in_pieces() {
        let mut inbound = Inbound::new(BytesMut::new(), Time::default());
        assert_eq!(inbound.take_preface(&PREFACE[..10]), Ok(None));
        assert!(inbound.take_preface(b"PRI * HTTP/1").is_err());
        assert_eq!(inbound.take_preface(PREFACE), Ok(Some(PREFACE.len())));
        assert_eq!(inbound.take_preface(b"\0\0\0"), Ok(Some(0)));
    }

    #[test]
    fn settings_come_first() {
        let ping = |out: &mut Vec<u8>| write::ping(out, [0; 8]);
        assert!(!is_accepted(&mut begun(), ping));
        assert!(!is_accepted(&mut begun(), write::settings_taken));
        let mut inbound = begun();
        assert!(is_accepted(&mut inbound, |out| write::settings(out, &[])));
        assert!(is_accepted(&mut inbound, ping));
    }

    #[test]
    fn only_its_own_fragments_continue_a_field_block() {
        // CONTINUATION without content.
        let fragment =
            |stream| move |out: &mut Vec<u8>| out.extend([0, 0, 0, 9, 0, 0, 0, 0, stream]);
        let mut inbound = begun();
        assert!(is_accepted(&mut inbound, |out| write::settings(out, &[])));
        assert!(!is_accepted(&mut inbound, fragment(1)));
        inbound.begin_block(1, true, b"ab");
        assert!(!is_accepted(&mut inbound, |out| write::ping(out, [0; 8])));
        assert!(!is_accepted(&mut inbound, fragment(3)));
        assert!(is_accepted(&mut inbound, fragment(1)));
        assert!(matches!(inbound.continue_block(b"c", false, 4), Ok(None)));
        let block = inbound.continue_block(b"d", true, 4).unwrap().unwrap();
        assert_eq!(
            (block.stream, block.ends, &block.bytes[..]),
            (1, true, &b"abcd"[..])
        );
        inbound.begin_block(3, true, b"abc");
        assert!(inbound.continue_block(b"de", true, 4).is_err());
        inbound.begin_block(5, true, b"");
        let refused_at = (2..100).find(|_| inbound.continue_block(b"", false, 4).is_err());
        assert_eq!(refused_at, Some(BLOCK_FRAMES + 1));
    }

    #[test]
    fn the_timeout_restarts_with_each_frame() {
        let timeouts = ClientTimeouts::default();
        let deadline = |since: Time| Some(since.plus(timeouts.head.as_millis() as u64));
        let [start, later, latest] = [0, 10, 20].map(Time::from_millis);
        let mut inbound = Inbound::new(BytesMut::new(), start);
        assert_eq!(inbound.deadline(&timeouts, false), deadline(start));
        inbound.consumed(0, 5, later);
        assert_eq!(inbound.deadline(&timeouts, false), deadline(start));
        inbound.consumed(9, 12, later);
        assert_eq!(inbound.deadline(&timeouts, false), deadline(later));
        inbound.consumed(0, 5, latest);
        assert_eq!(inbound.deadline(&timeouts, false), deadline(later));
        inbound.consumed(12, 12, latest);
        assert_eq!(inbound.deadline(&timeouts, false), None);
    }
}
