//! The numbers of all nodes' changes, as far as Redis remembers them.
//!
//! When Redis loses its newest changes, no node may have received them, but a subscriber of another node may.

use std::collections::VecDeque;
use std::task::Waker;

/// Limit of known numbers, about as many as Redis remembers.
const MAX_NUMBERS: usize = 64 * 1024;
/// Limit of waiting tasks. Others notice the number at their next event.
const MAX_WAITING: usize = 1024;

/// The numbers of the newest changes.
#[derive(Debug, Default)]
pub(crate) struct ChangeNumbers {
    /// In order.
    numbers: VecDeque<u64>,
    /// Later changes have larger numbers.
    through: u64,
    /// Tasks of subscribers to which another node has delivered a later change.
    waiting: Vec<(u64, Waker)>,
}

impl ChangeNumbers {
    /// Adds the number of the next change.
    pub(crate) fn add(&mut self, number: u64) {
        if self.numbers.len() == MAX_NUMBERS {
            self.numbers.pop_front();
        }
        self.numbers.push_back(number);
    }

    /// Declares that no other change exists up to this number; returns the tasks that wait for it.
    pub(crate) fn advance(&mut self, through: u64) -> Vec<Waker> {
        self.through = self.through.max(through);
        let is_over = |it: &mut (u64, Waker)| it.0 <= self.through;
        let wakeups = self.waiting.extract_if(.., is_over);
        wakeups.map(|(_, waker)| waker).collect()
    }

    /// Returns whether it is still unknown if a change has this number.
    pub(crate) const fn is_pending(&self, number: u64) -> bool {
        number > self.through
    }

    /// Registers a waker for when it is known.
    pub(crate) fn register(&mut self, number: u64, waker: &Waker) {
        let waits = |it: &(u64, Waker)| it.0 == number && it.1.will_wake(waker);
        if self.waiting.len() < MAX_WAITING && !self.waiting.iter().any(waits) {
            self.waiting.push((number, waker.clone()));
        }
    }

    /// Replaces the numbers; returns the tasks that wait for them.
    pub(crate) fn replace(&mut self, numbers: Self) -> Vec<Waker> {
        let waiting = std::mem::take(&mut self.waiting);
        *self = Self { waiting, ..numbers };
        self.advance(0)
    }

    /// Returns whether the change with this number is lost: it is in the known range but does not exist.
    pub(crate) fn is_lost(&self, number: u64) -> bool {
        let is_known = |first: &u64| (*first..=self.through).contains(&number);
        self.numbers.front().is_some_and(is_known) && self.numbers.binary_search(&number).is_err()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    /// A waker with an identity: there may be several no-op wakers.
    struct DistinctWaker;

    impl Wake for DistinctWaker {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn older_and_future_changes_are_not_lost() {
        let mut numbers = ChangeNumbers::default();
        assert!(!numbers.is_lost(0) && !numbers.is_lost(5));
        for number in [10, 12, 15] {
            numbers.add(number);
        }
        let wakeups = numbers.advance(20);
        assert!(wakeups.is_empty());
        for known in [0, 9, 10, 12, 15, 21] {
            assert!(!numbers.is_lost(known), "{known}");
        }
        for lost in [11, 13, 16, 20] {
            assert!(numbers.is_lost(lost), "{lost}");
        }
        for number in 0..MAX_NUMBERS as u64 {
            numbers.add(30 + number);
        }
        assert!(!numbers.is_lost(11), "it is out of range");
    }

    #[test]
    fn waiting_for_a_later_change_ends_when_it_is_known() {
        let (mut numbers, waker) = (
            ChangeNumbers::default(),
            &Waker::from(Arc::new(DistinctWaker)),
        );
        for number in [5, 5, 7] {
            assert!(numbers.is_pending(number));
            numbers.register(number, waker);
        }
        for (through, wakeups) in [(4, 0), (5, 1), (6, 0)] {
            assert_eq!(numbers.advance(through).len(), wakeups, "{through}");
        }
        let mut loaded = ChangeNumbers::default();
        let _ = loaded.advance(7);
        assert_eq!(numbers.replace(loaded).len(), 1);
        assert!(!numbers.is_pending(7));
        for number in 0..2 * MAX_WAITING as u64 {
            numbers.register(8 + number, waker);
        }
        assert_eq!(numbers.advance(u64::MAX).len(), MAX_WAITING);
    }
}
