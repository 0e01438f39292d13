//! Which ids were removed lately, so that what was on its way meanwhile is not stored.

use std::collections::VecDeque;

use crate::tier::EntryId;

/// So many are remembered.
const REMEMBERED: usize = 4096;

/// A moment, as far as removals go: how many there had been.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment(u64);

/// The latest removals, numbered.
#[derive(Default)]
pub(super) struct Removals {
    latest: VecDeque<EntryId>,
    count: u64,
}

impl Removals {
    /// This moment.
    pub(super) const fn now(&self) -> Moment {
        Moment(self.count)
    }

    pub(super) fn note(&mut self, id: EntryId) {
        if self.latest.len() == REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back(id);
        self.count += 1;
    }

    /// Whether this id may have been removed since then. Of what is longer ago than it can
    /// remember, it says yes.
    pub(super) fn since(&self, then: Moment, id: EntryId) -> bool {
        let since = self.count.saturating_sub(then.0);
        since > self.latest.len() as u64
            || self
                .latest
                .iter()
                .rev()
                .take(since as usize)
                .any(|gone| *gone == id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removal_is_seen_by_those_that_began_before_it() {
        let (one, other) = (EntryId::of(b"one"), EntryId::of(b"other"));
        let mut removals = Removals::default();
        let before = removals.now();
        removals.note(one);
        assert!(removals.since(before, one));
        assert!(!removals.since(before, other));
        assert!(!removals.since(removals.now(), one));
    }

    #[test]
    fn what_is_forgotten_counts_as_removed() {
        let mut removals = Removals::default();
        (0..=REMEMBERED).for_each(|_| removals.note(EntryId::of(b"others")));
        assert!(removals.since(Moment(0), EntryId::of(b"one")));
        assert!(!removals.since(Moment(1), EntryId::of(b"one")));
    }
}
