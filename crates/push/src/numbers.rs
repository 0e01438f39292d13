//! Which numbers the changes of several nodes have, as far as Redis remembers.
//!
//! When it loses its last changes, there may be no node left that had come to them; but there may be somebody who was
//! told of them.

use std::collections::VecDeque;

/// So many of the last ones are known. Redis remembers about as many.
const MOST: usize = 64 * 1024;

/// The numbers of the last changes.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    /// In order.
    there: VecDeque<u64>,
    /// Changes that are to come have later ones.
    through: u64,
}

impl Numbers {
    /// The next change has this number.
    pub(crate) fn note(&mut self, number: u64) {
        if self.there.len() == MOST {
            self.there.pop_front();
        }
        self.there.push_back(number);
    }

    /// There is no other one up to this.
    pub(crate) fn come_to(&mut self, through: u64) {
        self.through = self.through.max(through);
    }

    /// Whether no change has this number, though it would be known.
    pub(crate) fn has_lost(&self, number: u64) -> bool {
        let is_known = |first: &u64| (*first..=self.through).contains(&number);
        self.there.front().is_some_and(is_known) && self.there.binary_search(&number).is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_older_or_to_come_is_not_lost() {
        let mut numbers = Numbers::default();
        assert!(!numbers.has_lost(0) && !numbers.has_lost(5));
        for number in [10, 12, 15] {
            numbers.note(number);
        }
        numbers.come_to(20);
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
}
