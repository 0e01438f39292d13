//! Removals that have not been delivered. Until they are, what they are about is not touched.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::tier::EntryId;

/// What is still to be removed.
pub(super) struct Removals {
    pending: Mutex<Pending>,
    most: usize,
    wake: Notify,
}

#[derive(Default)]
struct Pending {
    ids: HashSet<EntryId>,
    /// How often there were more than could be remembered. All records have to go then, and which
    /// these were need not be known any more.
    overflows: u64,
    /// How many of the overflows are made good.
    cleared: u64,
}

impl Pending {
    fn is_everything(&self) -> bool {
        self.overflows > self.cleared
    }
}

impl Removals {
    pub(super) fn new(most: usize) -> Self {
        Self {
            pending: Mutex::default(),
            most,
            wake: Notify::new(),
        }
    }

    /// Remembers one.
    pub(super) fn add(&self, id: EntryId) {
        let mut pending = self.pending.lock();
        pending.ids.insert(id);
        if pending.ids.len() > self.most {
            pending.ids.clear();
            pending.overflows += 1;
        }
    }

    /// Forgets one.
    pub(super) fn delivered(&self, id: EntryId) {
        self.pending.lock().ids.remove(&id);
    }

    /// The overflow for which everything has to go, if there was one.
    pub(super) fn everything(&self) -> Option<u64> {
        let pending = self.pending.lock();
        pending.is_everything().then_some(pending.overflows)
    }

    /// Everything there was at that overflow is gone. What was remembered since stays.
    pub(super) fn everything_delivered(&self, overflow: u64) {
        self.pending.lock().cleared = overflow;
    }

    /// Those that are remembered now.
    pub(super) fn waiting(&self) -> Vec<EntryId> {
        self.pending.lock().ids.iter().copied().collect()
    }

    /// Whether what lies under an id may be something that was removed.
    pub(super) fn covers(&self, id: EntryId) -> bool {
        let pending = self.pending.lock();
        pending.is_everything() || pending.ids.contains(&id)
    }

    /// Asks for what is remembered to be delivered.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Returns after [`Self::wake`].
    pub(super) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// What reports should say about it.
    pub(super) fn degraded(&self) -> Option<String> {
        let pending = self.pending.lock();
        if pending.is_everything() {
            return Some("everything has to be removed before it is used again".to_owned());
        }
        let count = pending.ids.len();
        (count > 0).then(|| format!("{count} removals are not delivered yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u8) -> EntryId {
        EntryId::of(&[number])
    }

    #[test]
    fn what_is_remembered_is_covered_until_it_is_delivered() {
        let removals = Removals::new(2);
        removals.add(id(1));
        assert!(removals.covers(id(1)));
        assert!(!removals.covers(id(2)));
        removals.delivered(id(1));
        assert!(!removals.covers(id(1)));
        assert_eq!(removals.degraded(), None);
    }

    fn overflowing() -> Removals {
        let removals = Removals::new(2);
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
    fn what_came_while_everything_went_stays() {
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
