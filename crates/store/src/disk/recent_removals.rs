//! Recent removals by id, so that a concurrent write or read does not resurrect a removed entry.

use std::collections::VecDeque;

use crate::tier::EntryId;

/// Number of removals remembered.
const REMEMBERED: usize = 4096;

/// Point in time, as the number of preceding removals.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemovalMark(u64);

/// Recent removals, numbered.
#[derive(Default)]
pub(super) struct RecentRemovals {
    latest: VecDeque<EntryId>,
    count: u64,
}

impl RecentRemovals {
    /// Returns the current moment.
    pub(super) const fn now(&self) -> RemovalMark {
        RemovalMark(self.count)
    }

    pub(super) fn record(&mut self, id: EntryId) {
        if self.latest.len() == REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back(id);
        self.count += 1;
    }

    /// Returns whether the id may have been removed since then; always true beyond the remembered removals.
    pub(super) fn since(&self, then: RemovalMark, id: EntryId) -> bool {
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
    fn a_removal_applies_to_operations_begun_before_it() {
        let (one, other) = (EntryId::of(b"one"), EntryId::of(b"other"));
        let mut removals = RecentRemovals::default();
        let before = removals.now();
        removals.record(one);
        assert!(removals.since(before, one));
        assert!(!removals.since(before, other));
        assert!(!removals.since(removals.now(), one));
    }

    #[test]
    fn a_forgotten_id_counts_as_removed() {
        let mut removals = RecentRemovals::default();
        (0..=REMEMBERED).for_each(|_| removals.record(EntryId::of(b"others")));
        assert!(removals.since(RemovalMark(0), EntryId::of(b"one")));
        assert!(!removals.since(RemovalMark(1), EntryId::of(b"one")));
    }
}
