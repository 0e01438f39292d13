//! The numbers of all nodes' changes, as far as Redis remembers them.
//!
//! When Redis loses its newest changes, no node may have received them, but a subscriber of another node may.

use std::collections::VecDeque;
use std::task::Waker;

/// Limit of known numbers, about as many as Redis remembers.
const MOST: usize = 64 * 1024;
/// Limit of waiting tasks. Others notice the number at their next event.
const MOST_WAITING: usize = 1024;

/// The numbers of the newest changes.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// In order.
    there: VecDeque<u64>,
    /// Later changes have larger numbers.
    through: u64,
    /// Tasks of subscribers to which another node has delivered a later change.
    waiting: Vec<(u64, Waker)>,
}

impl Numbers {
    /// Adds the number of the next change.
    pub(crate) fn note(&mut self, number: u64) {
        if self.there.len() == MOST {
            self.there.pop_front();
        }
        self.there.push_back(number);
    }

    /// Declares that no other change exists up to this number; returns the tasks that wait for it.
    pub(crate) fn come_to(&mut self, through: u64) -> Vec<Waker> {
        self.through = self.through.max(through);
        let is_over = |it: &mut (u64, Waker)| it.0 <= self.through;
        let woken = self.waiting.extract_if(.., is_over);
        woken.map(|(_, waker)| waker).collect()
    }

    /// Returns whether it is still unknown if a change has this number.
    pub(crate) const fn is_to_come(&self, number: u64) -> bool {
        number > self.through
    }

    /// Registers a waker for when it is known.
    pub(crate) fn wait(&mut self, number: u64, waker: &Waker) {
        let waits = |it: &(u64, Waker)| it.0 == number && it.1.will_wake(waker);
        if self.waiting.len() < MOST_WAITING && !self.waiting.iter().any(waits) {
            self.waiting.push((number, waker.clone()));
        }
    }

    /// Replaces the numbers; returns the tasks that wait for them.
    pub(crate) fn take_over(&mut self, numbers: Self) -> Vec<Waker> {
        let waiting = std::mem::take(&mut self.waiting);
        *self = Self { waiting, ..numbers };
        self.come_to(0)
    }

    /// Returns whether the change with this number is lost: it is in the known range but does not exist.
    pub(crate) fn has_lost(&self, number: u64) -> bool {
        let is_known = |first: &u64| (*first..=self.through).contains(&number);
        self.there.front().is_some_and(is_known) && self.there.binary_search(&number).is_err()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::Wake;

    use super::*;

    /// A waker with an identity: there may be several no-op wakers.
    struct Nothing;

    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }

    #[test]
    fn what_is_older_or_to_come_is_not_lost() {
        let mut numbers = Numbers::default();
        assert!(!numbers.has_lost(0) && !numbers.has_lost(5));
        for number in [10, 12, 15] {
            numbers.note(number);
        }
        let woken = numbers.come_to(20);
        assert!(woken.is_empty());
        for there in [0, 9, 10, 12, 15, 21] {
            assert!(!numbers.has_lost(there), "{there}");
        }
        for lost in [11, 13, 16, 20] {
            assert!(numbers.has_lost(lost), "{lost}");
        }
        for number in 0..MOST as u64 {
            numbers.note(30 + number);
        }
        assert!(!numbers.has_lost(11), "nobody remembers");
    }

    #[test]
    fn who_knows_of_something_later_is_woken_when_that_is_known_here() {
        let (mut numbers, waker) = (Numbers::default(), &Waker::from(Arc::new(Nothing)));
        for number in [5, 5, 7] {
            assert!(numbers.is_to_come(number));
            numbers.wait(number, waker);
        }
        for (through, woken) in [(4, 0), (5, 1), (6, 0)] {
            assert_eq!(numbers.come_to(through).len(), woken, "{through}");
        }
        let mut loaded = Numbers::default();
        let _ = loaded.come_to(7);
        assert_eq!(numbers.take_over(loaded).len(), 1);
        assert!(!numbers.is_to_come(7));
        for number in 0..2 * MOST_WAITING as u64 {
            numbers.wait(8 + number, waker);
        }
        assert_eq!(numbers.come_to(u64::MAX).len(), MOST_WAITING);
    }
}
