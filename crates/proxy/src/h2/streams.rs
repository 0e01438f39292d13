//! The streams of one connection: those under way, and what is remembered of those that were.

use std::collections::BTreeMap;

use super::flow::Overflow;
use super::reason::{Fault, Reason};
use super::stream::Stream;

/// How many frames of one response go out before it is another's turn, if it is of no use in parts.
const TURN: u32 = 4;

/// The streams of one connection.
#[derive(Default)]
pub(super) struct Streams {
    open: BTreeMap<u32, Stream>,
    /// The highest that was ever opened.
    last: u32,
    /// Which of the last 128 that could have been opened were; the lowest bit is the last.
    opened: u128,
    /// Which of them were ended here before the client did.
    cut_short: u128,
    /// Whose turn it is, and how many frames he has had.
    turn: u32,
    frames: u32,
}

/// What a stream is that is not open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    /// It may be opened.
    Idle,
    /// It was ended here: what still comes was sent before the client knew.
    CutShort,
    /// Both sides have ended it.
    Ended,
    /// A later one was opened before it.
    Skipped,
}

impl Streams {
    pub(super) fn last(&self) -> u32 {
        self.last
    }

    pub(super) fn len(&self) -> usize {
        self.open.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub(super) fn get(&mut self, id: u32) -> Option<&mut Stream> {
        self.open.get_mut(&id)
    }

    pub(super) fn iter(&mut self) -> impl Iterator<Item = (u32, &mut Stream)> {
        self.open.iter_mut().map(|(id, stream)| (*id, stream))
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        self.open.keys().copied().collect()
    }

    /// What a stream is that is not open.
    pub(super) fn past(&self, id: u32) -> Past {
        if id > self.last {
            return Past::Idle;
        }
        let bit = |set: u128| set.checked_shr((self.last - id) / 2).unwrap_or(0) & 1 == 1;
        if bit(self.cut_short) {
            Past::CutShort
        } else if bit(self.opened) {
            Past::Ended
        } else {
            Past::Skipped
        }
    }

    /// A stream is opened that was idle.
    pub(super) fn open(&mut self, id: u32) -> Result<(), Fault> {
        if id.is_multiple_of(2) {
            return Err(Fault::protocol("a client's stream with an even number"));
        }
        match self.past(id) {
            Past::Idle => {}
            Past::Skipped | Past::CutShort => {
                return Err(Fault::protocol("a stream that is opened too late"));
            }
            Past::Ended => {
                let what = "a stream that is opened again";
                return Err(Fault::Connection(Reason::StreamClosed, what));
            }
        }
        let by = (id - self.last).div_ceil(2);
        self.opened = self.opened.checked_shl(by).unwrap_or(0) | 1;
        self.cut_short = self.cut_short.checked_shl(by).unwrap_or(0);
        self.last = id;
        Ok(())
    }

    /// Remembers that the last one, or one that was open, was ended here before the client did.
    pub(super) fn cut_short(&mut self, id: u32) {
        let back = self.last.checked_sub(id).map(|between| between / 2);
        let bit = back.and_then(|back| 1u128.checked_shl(back));
        self.cut_short |= bit.unwrap_or(0);
    }

    pub(super) fn insert(&mut self, id: u32, stream: Stream) {
        self.open.insert(id, stream);
    }

    pub(super) fn remove(&mut self, id: u32) -> Option<Stream> {
        self.open.remove(&id)
    }

    /// The window that streams begin with has changed by so much (RFC 9113 §6.9.2).
    pub(super) fn shift_windows(&mut self, by: i64) -> Result<(), Overflow> {
        self.open
            .values_mut()
            .try_for_each(|stream| stream.window.shift(by))
    }

    /// Whether anything can be sent.
    pub(super) fn any_ready(&self, connection_open: bool) -> bool {
        self.open
            .values()
            .any(|stream| stream.is_ready(connection_open))
    }

    /// Who sends next: of those that can, the most urgent (RFC 9218 §10), and of these one after the
    /// other. Those that are of use in parts give way after each frame.
    pub(super) fn next(&mut self, connection_open: bool) -> Option<u32> {
        let ready = |stream: &Stream| stream.is_ready(connection_open);
        let urgency = |stream: &Stream| stream.priority.urgency;
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
    fn what_was_is_remembered_for_a_while() {
        let mut streams = Streams::default();
        assert_eq!(streams.past(1), Past::Idle);
        for id in [1, 5, 7] {
            streams.open(id).expect("it was idle");
        }
        streams.cut_short(5);
        let past = |streams: &Streams| [1, 3, 5, 7, 9].map(|id| streams.past(id));
        let expected = [
            Past::Ended,
            Past::Skipped,
            Past::CutShort,
            Past::Ended,
            Past::Idle,
        ];
        assert_eq!(past(&streams), expected);
        assert!(matches!(
            streams.open(2),
            Err(Fault::Connection(Reason::Protocol, _))
        ));
        assert!(matches!(
            streams.open(3),
            Err(Fault::Connection(Reason::Protocol, _))
        ));
        assert!(matches!(
            streams.open(7),
            Err(Fault::Connection(Reason::StreamClosed, _))
        ));
        streams.open(5 + 2 * 127).expect("it was idle");
        assert_eq!(
            (streams.past(5), streams.past(3)),
            (Past::CutShort, Past::Skipped)
        );
        streams.open((1 << 31) - 1).expect("it was idle");
        assert_eq!(streams.past(5), Past::Skipped);
    }
}
