//! Pending removals. Until delivered, their records are neither read nor written.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::tier::EntryId;

/// Pending removals.
pub(super) struct PendingRemovals {
    pending: Mutex<RemovalSet>,
    most: usize,
    wake: Notify,
}

#[derive(Default)]
struct RemovalSet {
    ids: HashSet<EntryId>,
    /// Number of overflows of the set. After one, all records must be removed, so the ids are dropped.
    overflows: u64,
    /// Number of overflows that have been handled.
    cleared: u64,
}

impl RemovalSet {
    fn is_everything(&self) -> bool {
        self.overflows > self.cleared
    }
}

impl PendingRemovals {
    pub(super) fn new(most: usize) -> Self {
        Self {
            pending: Mutex::default(),
            most,
            wake: Notify::new(),
        }
    }

    /// Adds a removal.
    pub(super) fn add(&self, id: EntryId) {
        let mut pending = self.pending.lock();
        pending.ids.insert(id);
        if pending.ids.len() > self.most {
            pending.ids.clear();
            pending.overflows += 1;
        }
    }

    /// Removes a delivered removal.
    pub(super) fn delivered(&self, id: EntryId) {
        self.pending.lock().ids.remove(&id);
    }

    /// Returns the number of the overflow to be handled, if any.
    pub(super) fn everything(&self) -> Option<u64> {
        let pending = self.pending.lock();
        pending.is_everything().then_some(pending.overflows)
    }

    /// Records that all records at that overflow were removed. Later removals stay pending.
    pub(super) fn everything_delivered(&self, overflow: u64) {
        self.pending.lock().cleared = overflow;
    }

    /// Returns the pending removals.
    pub(super) fn waiting(&self) -> Vec<EntryId> {
        self.pending.lock().ids.iter().copied().collect()
    }

    /// Returns whether a removal of this id may be pending.
    pub(super) fn covers(&self, id: EntryId) -> bool {
        let pending = self.pending.lock();
        pending.is_everything() || pending.ids.contains(&id)
    }

    /// Requests the delivery of pending removals.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits for [`Self::wake`].
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Describes the pending removals for reports.
    pub(super) fn degraded(&self) -> Option<String> {
        let pending = self.pending.lock();
        if pending.is_everything() {
            return Some("all records must be removed before the server is used again".to_owned());
        }
        match pending.ids.len() {
            0 => None,
            1 => Some("1 removal pending".to_owned()),
            count => Some(format!("{count} removals pending")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> EntryId {
        EntryId::of(&[number])
    }

    #[test]
    fn remembered_removals_apply_until_delivered() {
        let removals = PendingRemovals::new(2);
        removals.add(id(1));
        assert!(removals.covers(id(1)));
        assert!(!removals.covers(id(2)));
        removals.delivered(id(1));
        assert!(!removals.covers(id(1)));
        assert_eq!(removals.degraded(), None);
    }

    fn overflowing() -> PendingRemovals {
        let removals = PendingRemovals::new(2);
        for number in 0..3 {
            removals.add(id(number));
        }
        removals
    }

    #[test]
    fn one_more_than_the_bound_means_everything() {
        let removals = overflowing();
        assert!(removals.everything().is_some());
        assert!(removals.covers(id(200)));
        assert!(removals.waiting().is_empty());
    }

    #[test]
    fn removals_added_during_a_flush_stay() {
        let removals = overflowing();
        let overflow = removals.everything().unwrap();
        removals.add(id(7));
        removals.everything_delivered(overflow);
        assert!(removals.covers(id(7)));
        assert!(!removals.covers(id(8)));
    }

    #[test]
    fn an_overflow_while_everything_went_is_another_one() {
        let removals = overflowing();
        let overflow = removals.everything().unwrap();
        for number in 10..13 {
            removals.add(id(number));
        }
        removals.everything_delivered(overflow);
        assert!(removals.everything().is_some());
    }
}
