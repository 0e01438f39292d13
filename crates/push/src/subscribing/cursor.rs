//! The position of a subscriber in the sequence of changes.

use crate::changes::version::{DocumentVersion, EventId};

/// Value of [`Cursor::gap_at`] without a gap event.
const NO_GAP: u64 = u64::MAX;

/// The position named by a client's last event id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResumePoint {
    /// A well-formed id, which may still be of another epoch or forgotten.
    At(EventId),
    /// An id without a position, malformed or a placeholder: the subscriber is reset.
    Unknown,
}

impl ResumePoint {
    /// Parses a last event id.
    pub(crate) fn parse(text: &str) -> Self {
        text.parse().map_or(Self::Unknown, Self::At)
    }
}

/// A subscriber's position in the sequence of changes.
#[derive(Debug)]
pub(crate) struct Cursor {
    /// The epoch of the position.
    epoch: u64,
    state: CursorState,
    /// The position at the last gap event, so that one event announces all gaps before the next delivery.
    gap_at: u64,
}

/// The progress of a subscriber. `seen` is the number of the last change delivered or skipped, and
/// `resumed_at` the position of its reconnect: a delta never builds on versions delivered before that, which
/// may belong to a subscription to other documents.
#[derive(Debug)]
enum CursorState {
    /// Catching up: changes up to `snapshot_through` are sent as full snapshots (the subscriber has no base
    /// version), later ones are replayed from the history.
    Replaying {
        seen: u64,
        snapshot_through: u64,
        resumed_at: u64,
    },
    /// Up to date when `caught_up` was the newest change, and following since.
    Live {
        seen: u64,
        caught_up: u64,
        resumed_at: u64,
    },
    /// In one of the states above, but another node has delivered a change that has not arrived here and may
    /// be lost.
    Ahead(Box<Self>),
    /// A reset event is due; snapshots of all documents follow it.
    Reset,
}

impl CursorState {
    /// Returns the state of a subscriber that has no documents, when `newest` is the newest change.
    const fn initial(newest: u64) -> Self {
        Self::Replaying {
            seen: 0,
            snapshot_through: newest,
            resumed_at: 0,
        }
    }

    fn seen(&self) -> u64 {
        match self {
            Self::Replaying { seen, .. } | Self::Live { seen, .. } => *seen,
            Self::Ahead(state) => state.seen(),
            Self::Reset => 0,
        }
    }

    /// Returns the snapshot bound, unless the snapshot is complete; zero otherwise.
    fn snapshot_through(&self) -> u64 {
        match self {
            Self::Replaying {
                snapshot_through, ..
            } => *snapshot_through,
            Self::Ahead(state) => state.snapshot_through(),
            Self::Live { .. } | Self::Reset => 0,
        }
    }

    /// Returns the newest change when the subscriber was last up to date; zero if it is catching up.
    fn caught_up(&self) -> u64 {
        match self {
            Self::Live { caught_up, .. } => *caught_up,
            Self::Ahead(state) => state.caught_up(),
            Self::Replaying { .. } | Self::Reset => 0,
        }
    }

    fn resumed_at(&self) -> u64 {
        match self {
            Self::Replaying { resumed_at, .. } | Self::Live { resumed_at, .. } => *resumed_at,
            Self::Ahead(state) => state.resumed_at(),
            Self::Reset => 0,
        }
    }

    fn advance(&mut self, number: u64) {
        match self {
            Self::Replaying { seen, .. } | Self::Live { seen, .. } => *seen = number,
            Self::Ahead(state) => state.advance(number),
            Self::Reset => {}
        }
    }

    fn mark_caught_up(&mut self, newest: u64) {
        match self {
            Self::Replaying {
                seen, resumed_at, ..
            }
            | Self::Live {
                seen, resumed_at, ..
            } => {
                let seen = (*seen).max(newest);
                // Before the first change there is nothing to be up to date with.
                if seen > 0 {
                    *self = Self::Live {
                        seen,
                        caught_up: seen,
                        resumed_at: *resumed_at,
                    };
                }
            }
            Self::Ahead(state) => state.mark_caught_up(newest),
            Self::Reset => {}
        }
    }

    fn fall_behind(&mut self) {
        match self {
            Self::Live {
                seen, resumed_at, ..
            } => {
                *self = Self::Replaying {
                    seen: *seen,
                    snapshot_through: 0,
                    resumed_at: *resumed_at,
                };
            }
            Self::Ahead(state) => state.fall_behind(),
            Self::Replaying { .. } | Self::Reset => {}
        }
    }
}

impl Cursor {
    /// Creates the cursor of a subscriber that has no documents.
    pub(crate) const fn new(epoch: u64, newest: u64) -> Self {
        Self {
            epoch,
            state: CursorState::initial(newest),
            gap_at: NO_GAP,
        }
    }

    /// Resumes at a position that is valid here, when `newest` is the newest change.
    pub(crate) fn resume(&mut self, id: EventId, newest: u64) {
        self.state = CursorState::Replaying {
            seen: id.version.number,
            snapshot_through: id.snapshot_through.min(newest),
            resumed_at: id.version.number,
        };
    }

    /// Returns the position to resume from.
    pub(crate) fn event_id(&self) -> EventId {
        let (seen, snapshot_through) = (self.seen(), self.state.snapshot_through());
        EventId {
            version: DocumentVersion {
                epoch: self.epoch,
                number: seen,
            },
            snapshot_through: if seen < snapshot_through {
                snapshot_through
            } else {
                0
            },
        }
    }

    /// Returns the number of the last change delivered or skipped.
    pub(crate) fn seen(&self) -> u64 {
        self.state.seen()
    }

    /// Returns the change up to which deletions and gaps need not be announced.
    pub(crate) fn known_through(&self) -> u64 {
        self.seen().max(self.state.snapshot_through())
    }

    /// Returns whether a change is part of the initial snapshot.
    pub(crate) fn is_in_snapshot(&self, number: u64) -> bool {
        number <= self.state.snapshot_through()
    }

    /// Returns whether the subscriber has been up to date since it started, was reset or joined a topic.
    pub(crate) fn is_live(&self) -> bool {
        self.state.caught_up() > 0
    }

    /// Returns whether the version with this number was delivered, given the last tracked version of its
    /// document.
    pub(crate) fn has_delivered(&self, number: u64, tracked: u64) -> bool {
        self.state.resumed_at() < number && number <= tracked.max(self.state.caught_up())
    }

    /// Moves past a change that was delivered or skipped.
    pub(crate) fn advance(&mut self, number: u64) {
        self.state.advance(number);
    }

    /// Moves to the newest change, with nothing left to deliver.
    pub(crate) fn mark_caught_up(&mut self, newest: u64) {
        self.state.mark_caught_up(newest);
    }

    /// Marks the subscriber as not up to date, since it joins another topic.
    pub(crate) fn fall_behind(&mut self) {
        self.state.fall_behind();
    }

    /// Adopts the current epoch. Only for a subscriber without document patterns: the ids of versions that it has
    /// received would change.
    pub(crate) const fn adopt_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// Marks the position as possibly lost: another node has delivered a change that is missing here.
    pub(crate) fn mark_ahead(&mut self) {
        if !matches!(self.state, CursorState::Ahead(_) | CursorState::Reset) {
            let state = std::mem::replace(&mut self.state, CursorState::Reset);
            self.state = CursorState::Ahead(Box::new(state));
        }
    }

    /// Returns whether another node has delivered a change that is missing here.
    pub(crate) const fn is_ahead(&self) -> bool {
        matches!(self.state, CursorState::Ahead(_))
    }

    /// Ends the state of being ahead, after all such changes have arrived.
    pub(crate) fn mark_arrived(&mut self) {
        if let CursorState::Ahead(state) = &mut self.state {
            let state = std::mem::replace(&mut **state, CursorState::Reset);
            self.state = state;
        }
    }

    /// Makes a reset event due: the position is unusable.
    pub(crate) fn invalidate(&mut self) {
        self.state = CursorState::Reset;
    }

    /// Returns whether a reset event is due: the position is unusable, of another epoch, or before a deletion
    /// that is forgotten.
    pub(crate) fn needs_reset(&self, epoch: u64, forgotten_through: u64) -> bool {
        matches!(self.state, CursorState::Reset)
            || self.epoch != epoch
            || self.known_through() < forgotten_through
    }

    /// Starts again without documents, after the reset event.
    pub(crate) fn reset(&mut self, epoch: u64, newest: u64) {
        *self = Self::new(epoch, newest);
    }

    /// Records a gap event at this position; returns false if there was one already.
    pub(crate) fn announce_gap(&mut self) -> bool {
        let seen = self.seen();
        std::mem::replace(&mut self.gap_at, seen) != seen
    }

    /// Allows another gap event at this position, after a delivery outside of the order.
    pub(crate) const fn forget_gap(&mut self) {
        self.gap_at = NO_GAP;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_is_resumed_where_it_was_left() {
        let mut cursor = Cursor::new(0xab, 20);
        assert_eq!(cursor.event_id().to_string(), "ab.0-20");
        cursor.advance(7);
        let id = cursor.event_id();
        assert_eq!(id.to_string(), "ab.7-20");
        let mut back = Cursor::new(0xab, 30);
        back.resume(id, 30);
        assert_eq!(back.event_id(), id);
        assert!(back.is_in_snapshot(20) && !back.is_in_snapshot(21));
        back.mark_caught_up(30);
        assert_eq!(back.event_id().to_string(), "ab.30");
        assert_eq!(ResumePoint::parse("ab.7-20"), ResumePoint::At(id));
        for other in ["", "-", "7", "ab.7-"] {
            assert_eq!(ResumePoint::parse(other), ResumePoint::Unknown, "{other}");
        }
    }

    #[test]
    fn deltas_build_on_the_versions_delivered_since_the_reconnect() {
        let mut cursor = Cursor::new(1, 10);
        assert!(!cursor.has_delivered(5, 0), "it has no base version");
        assert!(cursor.has_delivered(5, 5));
        cursor.mark_caught_up(10);
        assert!(cursor.has_delivered(5, 0) && !cursor.has_delivered(11, 0));
        let id = cursor.event_id();
        cursor.resume(id, 10);
        cursor.mark_caught_up(12);
        assert!(!cursor.has_delivered(10, 10) && cursor.has_delivered(11, 0));
        cursor.fall_behind();
        assert!(!cursor.is_live() && !cursor.has_delivered(11, 0));
    }

    #[test]
    fn a_cursor_that_is_ahead_keeps_its_position_until_the_changes_arrive_or_are_lost() {
        let mut cursor = Cursor::new(1, 10);
        cursor.mark_caught_up(10);
        cursor.mark_ahead();
        cursor.advance(11);
        assert!(cursor.is_ahead() && cursor.is_live());
        assert_eq!(cursor.event_id().to_string(), "1.11");
        cursor.mark_arrived();
        assert!(!cursor.is_ahead() && !cursor.needs_reset(1, 11));
        assert!(cursor.needs_reset(1, 12) && cursor.needs_reset(2, 0));
        cursor.mark_ahead();
        cursor.invalidate();
        assert!(!cursor.is_ahead() && cursor.needs_reset(1, 0));
        cursor.reset(2, 12);
        assert_eq!(cursor.event_id().to_string(), "2.0-12");
        assert!(!cursor.needs_reset(2, 12));
    }

    #[test]
    fn one_gap_event_announces_all_gaps_before_the_next_delivery() {
        let mut cursor = Cursor::new(1, 0);
        assert!(cursor.announce_gap() && !cursor.announce_gap());
        cursor.advance(1);
        assert!(cursor.announce_gap() && !cursor.announce_gap());
        cursor.forget_gap();
        assert!(cursor.announce_gap());
    }
}
