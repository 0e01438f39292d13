//! What one stream has seen of what was published, in which order.

/// How far back it is remembered what was seen.
const REMEMBERED: u64 = 64;

/// One stream's view of the publications, which are numbered from 1 on without gaps.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Order {
    /// The greatest number that was seen.
    newest: u64,
    /// Of the numbers before it, which were seen: the lowest bit stands for the one just before it.
    before: u64,
    skipped: u64,
    disordered: u64,
    duplicates: u64,
}

/// What is wrong with the order of what streams have seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Disorder {
    pub(super) skipped: u64,
    pub(super) lost: u64,
    pub(super) disordered: u64,
    pub(super) duplicates: u64,
}

impl Order {
    /// Takes what has come.
    pub(super) fn saw(&mut self, number: u64) {
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
            // Nobody knows of it any more; that it comes this late is wrong enough.
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

    /// Whether it has seen this one, or one that is newer.
    pub(super) fn has_reached(&self, number: u64) -> bool {
        self.newest >= number
    }

    /// What was wrong, if this was the last publication.
    pub(super) fn disorder(&self, last: u64) -> Disorder {
        Disorder {
            skipped: self.skipped,
            lost: last.saturating_sub(self.newest),
            disordered: self.disordered,
            duplicates: self.duplicates,
        }
    }
}

/// Which publications a stream has seen: a bit for each.
#[derive(Clone, Debug, Default)]
pub(super) struct Numbers(Vec<u64>);

impl Numbers {
    /// Whether it is a new one.
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

    /// All of them.
    pub(super) fn each(&self) -> impl Iterator<Item = u64> {
        let words = self.0.iter().enumerate();
        words.flat_map(|(word, bits)| {
            let bits = (0..64).filter(move |bit| bits & 1 << bit != 0);
            bits.map(move |bit| word as u64 * 64 + bit)
        })
    }
}

impl Disorder {
    /// These were sent, and nobody knows whether they were published: a stream that has not seen one misses nothing.
    pub(super) fn forgive(&mut self, newest: u64, unseen: impl Iterator<Item = u64>) {
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

    /// Skipped, lost, in another order, twice.
    fn check(numbers: &[u64], newest: u64, expected: [u64; 4]) {
        let mut order = Order::default();
        for &number in numbers {
            order.saw(number);
        }
        let [skipped, lost, disordered, duplicates] = expected;
        let wanted = Disorder {
            skipped,
            lost,
            disordered,
            duplicates,
        };
        assert_eq!(order.disorder(newest), wanted, "{numbers:?}");
    }

    #[test]
    fn what_is_wrong_is_told_apart() {
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
    fn what_may_not_have_been_published_is_not_missing() {
        let mut order = Order::default();
        let mut seen = Numbers::default();
        for number in [1, 3, 70] {
            order.saw(number);
            assert!(seen.add(number) && !seen.add(number) && seen.has(number));
        }
        assert_eq!(seen.each().collect::<Vec<_>>(), [1, 3, 70]);
        let mut disorder = order.disorder(72);
        let doubtful = [2, 3, 71].into_iter().filter(|number| !seen.has(*number));
        disorder.forgive(order.newest(), doubtful);
        assert_eq!((disorder.skipped, disorder.lost), (66, 1));
    }

    #[test]
    fn what_is_far_back_is_out_of_order() {
        check(&[1, 65, 1], 65, [63, 0, 0, 1]);
        check(&[1, 65, 2], 65, [62, 0, 1, 0]);
        check(&[1, 66, 1], 66, [64, 0, 1, 0]);
        check(&[200, 1], 200, [199, 0, 1, 0]);
    }
}
