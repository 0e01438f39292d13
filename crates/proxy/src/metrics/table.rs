//! A bounded top-k table of URLs with their counts.
//!
//! The space-saving sketch (Metwally, Agrawal, El Abbadi 2005): a new URL replaces the one with the lowest
//! count, and starts with that count. No count is too low, none is too high by more than its start, and any
//! URL with more than one in [`PLACES`] of the total is in the table. Those bounds hold for counted amounts;
//! the uncertainty of sampled ones is tracked apart ([`Spread`]).

use super::url::{DisplayUrl, RequestUrl};

/// Capacity of a table.
pub(super) const PLACES: usize = 100;

/// A count with its error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Counted amount, samples scaled up.
    pub seen: u64,
    /// Maximum overestimate; with samples also the maximum underestimate.
    pub error: u64,
}

/// Statistical error of sampled amounts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread {
    variance: u128,
    /// Largest amount of a single request.
    unit: u64,
}

impl Spread {
    fn add(&mut self, amount: u64, one_in: u64) {
        self.unit = self.unit.max(amount / one_in);
        if one_in > 1 {
            // Variance of an n-fold estimate from a sample of one in n.
            let variance = u128::from(amount) * u128::from(amount - amount / one_in);
            self.variance = self.variance.saturating_add(variance);
        }
    }

    /// Returns true if some of the amounts are sampled.
    pub(super) const fn has_samples(self) -> bool {
        self.variance > 0
    }

    pub(super) fn join(&mut self, other: Self) {
        self.variance = self.variance.saturating_add(other.variance);
        self.unit = self.unit.max(other.unit);
    }

    /// Returns three standard deviations, with two additional samples, since an empty sample says little.
    pub(super) fn error(self, one_in: u64) -> u64 {
        let sample = u128::from(self.unit.saturating_mul(one_in));
        let unseen = sample.saturating_mul(sample).saturating_mul(2);
        let deviation = self.variance.saturating_add(unseen).isqrt();
        u64::try_from(3 * deviation).unwrap_or(u64::MAX)
    }
}

/// URLs with their counts. A miss updates four tables, and on a large site most of its URLs are new to them,
/// so the minimum is kept in a heap.
#[derive(Default)]
pub(super) struct TopTable {
    /// Half of each hash, contiguous, so that many are compared at once.
    marks: Vec<u32>,
    places: Vec<TopEntry>,
    /// Min-heap of indices into `places`.
    heap: Vec<u8>,
}

struct TopEntry {
    hash: u64,
    amount: Amount,
    spread: Spread,
    url: DisplayUrl,
    /// Position in the heap.
    rank: usize,
}

impl TopTable {
    /// Adds an amount to the URL with this hash, for a request sampled as one in `one_in`.
    pub(super) fn add(&mut self, hash: u64, named: RequestUrl<'_>, amount: u64, one_in: u64) {
        if let Some(at) = self.find(hash) {
            let place = &mut self.places[at];
            place.amount.seen = place.amount.seen.saturating_add(amount);
            place.spread.add(amount, one_in);
            self.sink(self.places[at].rank);
        } else if self.places.len() < PLACES {
            self.begin(hash, named, amount, one_in);
        } else {
            let at = usize::from(self.heap[0]);
            let place = &mut self.places[at];
            let least = place.amount.seen;
            place.hash = hash;
            place.url.set(named);
            place.amount = Amount {
                seen: least.saturating_add(amount),
                error: least,
            };
            place.spread = Spread::default();
            place.spread.add(amount, one_in);
            self.marks[at] = mark(hash);
            self.sink(0);
        }
    }

    pub(super) fn clear(&mut self) {
        self.marks.clear();
        self.places.clear();
        self.heap.clear();
    }

    /// Hash, url, count and uncertainty of each.
    pub(super) fn all(&self) -> impl Iterator<Item = (u64, &DisplayUrl, Amount, Spread)> {
        let places = self.places.iter();
        places.map(|place| (place.hash, &place.url, place.amount, place.spread))
    }

    fn find(&self, hash: u64) -> Option<usize> {
        const TOGETHER: usize = 16;
        let mark = mark(hash);
        let mut at = 0;
        for chunk in self.marks.chunks(TOGETHER) {
            // Counted, not searched: a loop without an early exit is vectorised.
            if chunk.iter().filter(|one| **one == mark).count() > 0 {
                let entries = &self.places[at..at + chunk.len()];
                if let Some(found) = entries.iter().position(|place| place.hash == hash) {
                    return Some(at + found);
                }
            }
            at += chunk.len();
        }
        None
    }

    fn begin(&mut self, hash: u64, named: RequestUrl<'_>, amount: u64, one_in: u64) {
        let mut spread = Spread::default();
        spread.add(amount, one_in);
        let rank = self.heap.len();
        self.heap.push(self.places.len() as u8);
        self.marks.push(mark(hash));
        self.places.push(TopEntry {
            hash,
            amount: Amount {
                seen: amount,
                error: 0,
            },
            spread,
            url: DisplayUrl::new(named),
            rank,
        });
        self.rise(rank);
    }

    fn amount_of(&self, rank: usize) -> u64 {
        self.places[usize::from(self.heap[rank])].amount.seen
    }

    /// Restores the heap after the count at `rank` has grown.
    fn sink(&mut self, mut rank: usize) {
        let heavy = self.amount_of(rank);
        loop {
            let children = 2 * rank + 1..(2 * rank + 3).min(self.heap.len());
            let least = children.map(|child| (self.amount_of(child), child)).min();
            match least {
                Some((amount, child)) if amount < heavy => {
                    self.swap(rank, child);
                    rank = child;
                }
                _ => return,
            }
        }
    }

    /// Restores the heap after an entry was appended at `rank`.
    fn rise(&mut self, mut rank: usize) {
        while rank > 0 && self.amount_of(rank) < self.amount_of((rank - 1) / 2) {
            self.swap(rank, (rank - 1) / 2);
            rank = (rank - 1) / 2;
        }
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        for rank in [one, other] {
            self.places[usize::from(self.heap[rank])].rank = rank;
        }
    }
}

const fn mark(hash: u64) -> u32 {
    hash as u32
}

#[cfg(test)]
mod tests {
    use microcache_policy::Scheme;
    use proptest::prelude::*;

    use super::*;

    const NAMED: RequestUrl<'_> = RequestUrl {
        scheme: Scheme::Http,
        host: b"a.example",
        target: b"/",
    };

    proptest! {
        /// Compares with a reference table that is scanned for the least entry.
        #[test]
        fn the_least_gives_its_place_up(adds in prop::collection::vec((0..300_u64, 0..50_u64), 0..2000)) {
            let mut table = TopTable::default();
            let mut known: Vec<(u64, Amount)> = Vec::new();
            for (url, amount) in adds {
                // Marks that are alike are not enough.
                let hash = (url << 30) | (url % 3);
                table.add(hash, NAMED, amount, 1);
                let least = known.iter().map(|(_, it)| it.seen).min().unwrap_or(0);
                if let Some((_, it)) = known.iter_mut().find(|(one, _)| *one == hash) {
                    it.seen += amount;
                } else if known.len() < PLACES {
                    known.push((hash, Amount { seen: amount, error: 0 }));
                } else {
                    // Of several that are least, it is the one that the table has left out.
                    let gone = known.iter().position(|(one, it)| it.seen == least && table.find(*one).is_none());
                    let gone = gone.expect("one of the least has gone");
                    known[gone] = (hash, Amount { seen: least + amount, error: least });
                }
                prop_assert!((1..table.heap.len()).all(|rank| table.amount_of((rank - 1) / 2) <= table.amount_of(rank)));
            }
            let mut all: Vec<_> = table.all().map(|(hash, _, amount, _)| (hash, amount)).collect();
            all.sort_unstable_by_key(|(hash, _)| *hash);
            known.sort_unstable_by_key(|(hash, _)| *hash);
            prop_assert_eq!(all, known);
        }
    }
}
