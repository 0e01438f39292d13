//! Delivery order on one stream: skipped, lost, reordered and duplicate publications.

/// Size of the window in which late deliveries are distinguished from duplicates.
const REMEMBERED: u64 = 64;

/// Delivery state of one stream. Publications are numbered from 1 without gaps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct DeliveryOrder {
    /// Greatest number received.
    newest: u64,
    /// Bitmap of the numbers before `newest`; the lowest bit is `newest - 1`.
    before: u64,
    skipped: u64,
    disordered: u64,
    duplicates: u64,
}

/// Counts of missing, reordered and duplicate deliveries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct OrderCounts {
    pub(super) skipped: u64,
    pub(super) lost: u64,
    pub(super) disordered: u64,
    pub(super) duplicates: u64,
}

impl DeliveryOrder {
    /// Records a delivery.
    pub(super) fn record(&mut self, number: u64) {
        if number > self.newest {
            let step = number - self.newest;
            self.skipped += step - 1;
            let newest = u64::from(self.newest > 0);
            let shifted = |bits: u64, by: u64| bits.checked_shl(by as u32).unwrap_or(0);
            self.before = shifted(self.before, step.min(REMEMBERED))
                | shifted(newest, (step - 1).min(REMEMBERED));
            self.newest = number;
            return;
        }
        let back = self.newest - number;
        if back == 0 {
            self.duplicates += 1;
        } else if back > REMEMBERED {
            // Outside the window it counts as reordered, since a duplicate cannot be recognised there.
            self.disordered += 1;
        } else if self.before & 1 << (back - 1) != 0 {
            self.duplicates += 1;
        } else {
            self.before |= 1 << (back - 1);
            self.skipped -= 1;
            self.disordered += 1;
        }
    }

    pub(super) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns whether this publication or a newer one was received.
    pub(super) fn has_reached(&self, number: u64) -> bool {
        self.newest >= number
    }

    /// Returns the counts, with `last` as the number of the final publication.
    pub(super) fn disorder(&self, last: u64) -> OrderCounts {
        OrderCounts {
            skipped: self.skipped,
            lost: last.saturating_sub(self.newest),
            disordered: self.disordered,
            duplicates: self.duplicates,
        }
    }
}

/// Set of publication numbers, as a bitmap.
#[derive(Clone, Debug, Default)]
pub(super) struct NumberSet(Vec<u64>);

impl NumberSet {
    /// Adds a number. Returns whether it is new.
    pub(super) fn add(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        let is_new = self.0[word] & bit == 0;
        self.0[word] |= bit;
        is_new
    }

    pub(super) fn has(&self, number: u64) -> bool {
        let word = self.0.get((number / 64) as usize);
        word.is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    /// Iterates over the numbers.
    pub(super) fn each(&self) -> impl Iterator<Item = u64> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(word, bits)| {
            let bits = (0..64).filter(move |bit| bits & 1 << bit != 0);
            bits.map(move |bit| word as u64 * 64 + bit)
        })
    }
}

impl OrderCounts {
    /// Excludes publications whose outcome is unknown: `unseen` were sent but not received on this stream,
    /// and may never have been published.
    pub(super) fn exclude(&mut self, newest: u64, unseen: impl Iterator<Item = u64>) {
        for number in unseen {
            let missing = if number < newest {
                &mut self.skipped
            } else {
                &mut self.lost
            };
            *missing = missing.saturating_sub(1);
        }
    }

    pub(super) fn add(&mut self, other: Self) {
        self.skipped += other.skipped;
        self.lost += other.lost;
        self.disordered += other.disordered;
        self.duplicates += other.duplicates;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected counts: skipped, lost, reordered, duplicate.
    fn check(numbers: &[u64], newest: u64, expected: [u64; 4]) {
        let mut order = DeliveryOrder::default();
        for &number in numbers {
            order.record(number);
        }
        let [skipped, lost, disordered, duplicates] = expected;
        let wanted = OrderCounts {
            skipped,
            lost,
            disordered,
            duplicates,
        };
        assert_eq!(order.disorder(newest), wanted, "{numbers:?}");
    }

    #[test]
    fn order_errors_are_distinguished() {
        check(&[1, 2, 3], 3, [0, 0, 0, 0]);
        check(&[], 3, [0, 3, 0, 0]);
        check(&[1, 2], 3, [0, 1, 0, 0]);
        check(&[1, 3], 3, [1, 0, 0, 0]);
        check(&[3], 5, [2, 2, 0, 0]);
        check(&[1, 3, 2], 3, [0, 0, 1, 0]);
        check(&[1, 2, 2, 1], 2, [0, 0, 0, 2]);
        check(&[3, 1, 1], 3, [1, 0, 1, 1]);
    }

    #[test]
    fn a_failed_publication_is_not_missing() {
        let mut order = DeliveryOrder::default();
        let mut seen = NumberSet::default();
        for number in [1, 3, 70] {
            order.record(number);
            assert!(seen.add(number) && !seen.add(number) && seen.has(number));
        }
        assert_eq!(seen.each().collect::<Vec<_>>(), [1, 3, 70]);
        let mut disorder = order.disorder(72);
        let doubtful = [2, 3, 71].into_iter().filter(|number| !seen.has(*number));
        disorder.exclude(order.newest(), doubtful);
        assert_eq!((disorder.skipped, disorder.lost), (66, 1));
    }

    #[test]
    fn a_word_far_back_is_out_of_order() {
        check(&[1, 65, 1], 65, [63, 0, 0, 1]);
        check(&[1, 65, 2], 65, [62, 0, 1, 0]);
        check(&[1, 66, 1], 66, [64, 0, 1, 0]);
        check(&[200, 1], 200, [199, 0, 1, 0]);
    }
}
