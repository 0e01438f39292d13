//! Limits of connections per address.
//!
//! At its limit, a client's idle connections are closed for a new one, longest idle first; without any, the new
//! one is refused. So one address cannot take all connections, and browsers behind it lose only connections
//! that are idle.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use microcache_policy::{Millis, Network, Time};
use parking_lot::Mutex;

/// Least time in milliseconds between two searches for idle connections of an address, whose cost grows with
/// their number.
const SEARCH_INTERVAL: Millis = 50;

/// Number of connections per address, and their limit.
pub(crate) struct AddressLimits {
    most: AtomicUsize,
    counts: Mutex<HashMap<Network, AddressCount>>,
}

#[derive(Default)]
struct AddressCount {
    open: usize,
    /// Time of the last search that found no idle connection.
    fruitless_search: Option<Time>,
}

/// One connection of a client; counted until it is dropped.
pub(crate) struct AddressPermit {
    addresses: Arc<AddressLimits>,
    network: Network,
}

impl AddressLimits {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: AtomicUsize::new(most),
            counts: Mutex::default(),
        }
    }

    /// Changes the limit. Open connections stay.
    pub(crate) fn resize(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Admits one more connection. At the limit, `close_idle` closes idle ones and returns their number.
    pub(crate) fn admit(
        self: &Arc<Self>,
        network: Network,
        now: Time,
        close_idle: impl FnOnce() -> usize,
    ) -> Option<AddressPermit> {
        let most = self.most();
        let is_full = {
            let mut counts = self.counts.lock();
            let count = counts.entry(network).or_default();
            let is_full = count.open >= most;
            let looked = |at: Time| now.since(at) < SEARCH_INTERVAL;
            if is_full && count.fruitless_search.is_some_and(looked) {
                return None;
            }
            // Counted before the closed ones are gone: the lock is not held during the search.
            count.open += 1;
            is_full
        };
        let permit = AddressPermit {
            addresses: Arc::clone(self),
            network,
        };
        if is_full && close_idle() == 0 {
            if let Some(count) = self.counts.lock().get_mut(&network) {
                count.fruitless_search = Some(now);
            }
            return None;
        }
        Some(permit)
    }
}

impl Drop for AddressPermit {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.addresses.counts.lock().entry(self.network) {
            let count = entry.get_mut();
            count.open -= 1;
            if count.open == 0 {
                entry.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(last: u8) -> Network {
        Network::of([10, 0, 0, last].into())
    }

    fn at(millis: u64) -> Time {
        Time::from_millis(1_000_000 + millis)
    }

    #[test]
    fn each_has_so_many_and_gives_them_back() {
        let all = Arc::new(AddressLimits::new(2));
        let none = || 0;
        let one = all.admit(network(1), at(0), none);
        let two = all.admit(network(1), at(0), none);
        assert!(one.is_some() && two.is_some());
        assert!(all.admit(network(1), at(0), none).is_none());
        assert!(all.admit(network(2), at(0), none).is_some());
        drop(one);
        assert!(all.admit(network(1), at(0), none).is_some());
        drop(two);
        assert!(all.counts.lock().is_empty(), "no entry without connections");
        all.resize(0);
        assert!(all.admit(network(1), at(0), none).is_none());
    }

    #[test]
    fn an_address_at_its_limit_closes_idle_connections_and_is_searched_seldom() {
        let all = Arc::new(AddressLimits::new(1));
        let first = all.admit(network(1), at(0), || panic!("there is room"));
        let second = all.admit(network(1), at(0), || 1);
        assert!(second.is_some(), "another one leaves for it");
        assert!(all.admit(network(1), at(1), || 0).is_none());
        let none = all.admit(network(1), at(50), || panic!("it was looked a moment ago"));
        assert!(none.is_none());
        assert!(all.admit(network(1), at(51), || 1).is_some());
        drop((first, second));
    }
}
