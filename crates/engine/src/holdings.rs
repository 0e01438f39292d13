//! Holdings per client address, to find the address with most: when a limit is reached, it gives
//! way.

use std::collections::{BTreeSet, HashMap};

use foldhash::fast::RandomState;
use microcache_policy::Network;

/// Numbered items by the address that holds them. Every operation takes logarithmic time.
#[derive(Debug, Default)]
pub struct Holdings {
    /// The only item, if it came first: it needs no maps.
    lone: Option<(Network, u64)>,
    of: HashMap<Network, BTreeSet<u64>, RandomState>,
    by_count: BTreeSet<(usize, Network)>,
}

impl Holdings {
    /// Adds `number`; a greater number counts as newer.
    pub fn add(&mut self, network: Network, number: u64) {
        if let Some((holder, held)) = self.lone.take() {
            self.insert(holder, held);
        } else if self.of.is_empty() {
            self.lone = Some((network, number));
            return;
        }
        self.insert(network, number);
    }

    fn insert(&mut self, network: Network, number: u64) {
        let held = self.of.entry(network).or_default();
        if held.insert(number) {
            let count = held.len();
            self.by_count.remove(&(count - 1, network));
            self.by_count.insert((count, network));
        }
    }

    /// Removes `number`. Returns whether it was there.
    pub fn remove(&mut self, network: Network, number: u64) -> bool {
        if self.lone == Some((network, number)) {
            self.lone = None;
            return true;
        }
        let Some(held) = self.of.get_mut(&network) else {
            return false;
        };
        let was_held = held.remove(&number);
        if was_held {
            let count = held.len();
            self.by_count.remove(&(count + 1, network));
            if count == 0 {
                self.of.remove(&network);
            } else {
                self.by_count.insert((count, network));
            }
        }
        was_held
    }

    /// The number of holdings of this address.
    pub fn count(&self, network: Network) -> usize {
        match self.lone {
            Some((holder, _)) => usize::from(holder == network),
            None => self.of.get(&network).map_or(0, BTreeSet::len),
        }
    }

    /// Returns true if this address may have one more while so many are free: it has fewer than that. So no
    /// address has them all.
    pub fn may_add(&self, network: Network, free: usize) -> bool {
        self.count(network) < free
    }

    /// The number of holdings of the address with most.
    pub fn most(&self) -> usize {
        let most = self.by_count.last().map(|(most, _)| *most);
        most.unwrap_or(usize::from(self.lone.is_some()))
    }

    /// The oldest item of this address.
    pub fn oldest(&self, network: Network) -> Option<u64> {
        match self.lone {
            Some((holder, number)) => (holder == network).then_some(number),
            None => self.of.get(&network)?.first().copied(),
        }
    }

    /// All addresses with items.
    pub fn networks(&self) -> impl Iterator<Item = Network> {
        let lone = self.lone.map(|(holder, _)| holder);
        lone.into_iter().chain(self.of.keys().copied())
    }

    /// The newest holding of the address with most. `None` if `newcomer`, with one more, would have
    /// as many: an address never displaces one with no more than itself.
    pub fn newest_beyond(&self, newcomer: Network) -> Option<(Network, u64)> {
        // A lone item is of an address with no more than the newcomer.
        let &(most, network) = self.by_count.last()?;
        let newest = self.of.get(&network)?.last()?;
        (most > self.count(newcomer) + 1).then_some((network, *newest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Network = Network::from_bits(1);
    const B: Network = Network::from_bits(2);
    const C: Network = Network::from_bits(3);

    #[test]
    fn the_newest_of_the_address_with_most_gives_way() {
        let mut all = Holdings::default();
        assert_eq!(all.newest_beyond(A), None);
        for (network, number) in [(A, 1), (B, 2), (A, 3), (A, 4)] {
            all.add(network, number);
        }
        assert_eq!(all.newest_beyond(C), Some((A, 4)));
        assert_eq!(all.newest_beyond(B), Some((A, 4)));
        assert_eq!(all.most(), 3);
        assert_eq!(all.newest_beyond(A), None, "it would only displace itself");
        assert!(all.remove(A, 4) && !all.remove(A, 4) && !all.remove(C, 1));
        assert_eq!(all.newest_beyond(B), None, "they are even with one more");
        assert_eq!(all.newest_beyond(C), Some((A, 3)));
        assert_eq!((all.count(A), all.oldest(A)), (2, Some(1)));
        for (network, number) in [(A, 1), (A, 3), (B, 2)] {
            assert!(all.remove(network, number));
        }
        assert_eq!(all.networks().count() + all.by_count.len(), 0);
    }

    #[test]
    fn a_plain_list_has_the_same_holdings() {
        let mut all = Holdings::default();
        let mut list = BTreeSet::new();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        for _ in 0..20_000 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let (network, adds) = (random % 3, random >> 60 < 7);
            // An item has one holder.
            let number = (random >> 8) % 4 * 10 + network;
            let network = Network::from_bits(network);
            if adds {
                all.add(network, number);
                list.insert((network, number));
            } else {
                assert_eq!(all.remove(network, number), list.remove(&(network, number)));
            }
            let of = |one| {
                list.iter()
                    .filter(move |(network, _)| *network == one)
                    .map(|(_, number)| *number)
            };
            let networks: BTreeSet<_> = list.iter().map(|(network, _)| *network).collect();
            let most = networks
                .iter()
                .map(|one| of(*one).count())
                .max()
                .unwrap_or(0);
            assert_eq!((all.networks().collect(), all.most()), (networks, most));
            for network in [0, 1, 2].map(Network::from_bits) {
                assert_eq!(all.count(network), of(network).count());
                assert_eq!(all.oldest(network), of(network).min());
                let beyond = all.newest_beyond(network);
                assert_eq!(beyond.is_some(), of(network).count() + 1 < most);
                if let Some((other, newest)) = beyond {
                    assert_eq!((of(other).count(), of(other).max()), (most, Some(newest)));
                }
            }
        }
    }
}
