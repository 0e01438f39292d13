//! The streams of one connection, open and recently closed, and the order in which they send.

use std::collections::BTreeMap;

use super::stream::Http2Stream;
use crate::h2::flow::WindowOverflow;
use crate::h2::reason::{ErrorCode, ProtocolError};

/// DATA frames of one response before the next gets its turn, unless it is incremental.
const TURN: u32 = 4;

/// Streams by identifier.
#[derive(Default)]
pub(super) struct StreamTable {
    open: BTreeMap<u32, Http2Stream>,
    /// Highest identifier opened so far.
    last: u32,
    /// Bitmap of the last 128 identifiers: those that were opened; the lowest bit is the last.
    opened: u128,
    /// Bitmap of those that were reset here before the client ended them.
    cut_short: u128,
    /// Stream that sends, and its number of frames so far.
    turn: u32,
    frames: u32,
}

/// State of a stream that is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InactiveStream {
    /// Idle: may be opened.
    Idle,
    /// Reset here: frames in flight are ignored.
    CutShort,
    /// Closed by both sides.
    Ended,
    /// Skipped: a later one was opened first.
    Skipped,
}

impl StreamTable {
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.open.contains_key(&id)
    }

    pub(super) fn get(&mut self, id: u32) -> Option<&mut Http2Stream> {
        self.open.get_mut(&id)
    }

    pub(super) fn iter(&mut self) -> impl Iterator<Item = (u32, &mut Http2Stream)> {
        self.open.iter_mut().map(|(id, stream)| (*id, stream))
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        self.open.keys().copied().collect()
    }

    /// Returns the state of a stream that is not open.
    pub(super) fn past(&self, id: u32) -> InactiveStream {
        if id > self.last {
            return InactiveStream::Idle;
        }
        let bit = |set: u128| set.checked_shr((self.last - id) / 2).unwrap_or(0) & 1 == 1;
        if bit(self.cut_short) {
            InactiveStream::CutShort
        } else if bit(self.opened) {
            InactiveStream::Ended
        } else {
            InactiveStream::Skipped
        }
    }

    /// Opens an idle stream.
    pub(super) fn open(&mut self, id: u32) -> Result<(), ProtocolError> {
        if id.is_multiple_of(2) {
            return Err(ProtocolError::protocol(
                "a client stream with an even number",
            ));
        }
        match self.past(id) {
            InactiveStream::Idle => {}
            InactiveStream::Skipped => {
                let what = "a stream with a lower number than an earlier one";
                return Err(ProtocolError::protocol(what));
            }
            InactiveStream::Ended | InactiveStream::CutShort => {
                let what = "a stream opened twice";
                return Err(ProtocolError::Connection(ErrorCode::StreamClosed, what));
            }
        }
        let by = (id - self.last).div_ceil(2);
        self.opened = self.opened.checked_shl(by).unwrap_or(0) | 1;
        self.cut_short = self.cut_short.checked_shl(by).unwrap_or(0);
        self.last = id;
        Ok(())
    }

    /// Records that the latest or an open stream was reset here before the client ended it.
    pub(super) fn cut_short(&mut self, id: u32) {
        let back = self.last.checked_sub(id).map(|between| between / 2);
        let bit = back.and_then(|back| 1u128.checked_shl(back));
        self.cut_short |= bit.unwrap_or(0);
    }

    pub(super) fn insert(&mut self, id: u32, stream: Http2Stream) {
        self.open.insert(id, stream);
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Http2Stream> {
        self.open.remove(&id)
    }

    /// Adjusts all send windows after a change of the initial size (RFC 9113 §6.9.2).
    pub(super) fn shift_windows(&mut self, by: i64) -> Result<(), WindowOverflow> {
        self.open
            .values_mut()
            .try_for_each(|stream| stream.window.shift(by))
    }

    /// Returns `true` if any stream can send.
    pub(super) fn any_ready(&self, connection_open: bool) -> bool {
        self.open
            .values()
            .any(|stream| stream.is_ready(connection_open))
    }

    /// Returns the stream that sends next: the most urgent first (RFC 9218 §10), in turns among equals;
    /// incremental ones yield after each frame.
    pub(super) fn next(&mut self, connection_open: bool) -> Option<u32> {
        let ready = |stream: &Http2Stream| stream.is_ready(connection_open);
        let urgency = |stream: &Http2Stream| stream.priority.urgency;
        let most = self
            .open
            .values()
            .filter(|it| ready(it))
            .map(urgency)
            .min()?;
        let stays = self.open.get(&self.turn).is_some_and(|stream| {
            let turn = if stream.priority.incremental { 1 } else { TURN };
            ready(stream) && urgency(stream) == most && self.frames < turn
        });
        if !stays {
            let behind = self.open.range(self.turn + 1..).chain(&self.open);
            let mut equal = behind.filter(|(_, it)| ready(it) && urgency(it) == most);
            self.turn = *equal.next()?.0;
            self.frames = 0;
        }
        self.frames += 1;
        Some(self.turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_streams_are_remembered_for_a_while() {
        let mut streams = StreamTable::default();
        assert_eq!(streams.past(1), InactiveStream::Idle);
        for id in [1, 5, 7] {
            streams.open(id).expect("it was idle");
        }
        streams.cut_short(5);
        let past = |streams: &StreamTable| [1, 3, 5, 7, 9].map(|id| streams.past(id));
        let expected = [
            InactiveStream::Ended,
            InactiveStream::Skipped,
            InactiveStream::CutShort,
            InactiveStream::Ended,
            InactiveStream::Idle,
        ];
        assert_eq!(past(&streams), expected);
        assert!(matches!(
            streams.open(2),
            Err(ProtocolError::Connection(ErrorCode::Protocol, _))
        ));
        assert!(matches!(
            streams.open(3),
            Err(ProtocolError::Connection(ErrorCode::Protocol, _))
        ));
        assert!(matches!(
            streams.open(7),
            Err(ProtocolError::Connection(ErrorCode::StreamClosed, _))
        ));
        streams.open(5 + 2 * 127).expect("it was idle");
        assert_eq!(
            (streams.past(5), streams.past(3)),
            (InactiveStream::CutShort, InactiveStream::Skipped)
        );
        streams.open((1 << 31) - 1).expect("it was idle");
        assert_eq!(streams.past(5), InactiveStream::Skipped);
    }
}
