//! How many connections each client has, and how many one may have.
//!
//! A client beyond that pays with connections of its own that wait for a request, those that have waited longest first;
//! with none of them, the new one is refused. So one address does not take all the room there is, whatever it does
//! with it, and browsers behind it find their connections closed where those were of no use.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use microcache_policy::{Millis, Time};
use parking_lot::Mutex;

use microcache_policy::Network;

/// To look for connections that wait takes longer the more there are. For one address it is done so often at most.
const LOOK_AGAIN: Millis = 50;

/// The connections of each client.
pub(crate) struct Addresses {
    most: AtomicUsize,
    counts: Mutex<HashMap<Network, Count>>,
}

#[derive(Default)]
struct Count {
    open: usize,
    /// When nobody was found who could give way.
    in_vain: Option<Time>,
}

/// One of a client's connections, as long as it is kept.
pub(crate) struct Guest {
    addresses: Arc<Addresses>,
    network: Network,
}

impl Addresses {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: AtomicUsize::new(most),
            counts: Mutex::default(),
        }
    }

    /// So many of each from now on. Nobody loses one.
    pub(crate) fn rebound(&self, most: usize) {
        self.most.store(most, Ordering::Relaxed);
    }

    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }

    /// Takes one more connection in. Where there are enough, `make_room` closes some that wait, and says how many.
    pub(crate) fn admit(
        self: &Arc<Self>,
        network: Network,
        now: Time,
        make_room: impl FnOnce() -> usize,
    ) -> Option<Guest> {
        let most = self.most();
        let is_full = {
            let mut counts = self.counts.lock();
            let count = counts.entry(network).or_default();
            let is_full = count.open >= most;
            let looked = |at: Time| now.since(at) < LOOK_AGAIN;
            if is_full && count.in_vain.is_some_and(looked) {
                return None;
            }
            // Counted before those leave that are told to: the lock is not held while they are looked for.
            count.open += 1;
            is_full
        };
        let guest = Guest {
            addresses: Arc::clone(self),
            network,
        };
        if is_full && make_room() == 0 {
            if let Some(count) = self.counts.lock().get_mut(&network) {
                count.in_vain = Some(now);
            }
            return None;
        }
        Some(guest)
    }
}

impl Drop for Guest {
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
        let all = Arc::new(Addresses::new(2));
        let none = || 0;
        let one = all.admit(network(1), at(0), none);
        let two = all.admit(network(1), at(0), none);
        assert!(one.is_some() && two.is_some());
        assert!(all.admit(network(1), at(0), none).is_none());
        assert!(all.admit(network(2), at(0), none).is_some());
        drop(one);
        assert!(all.admit(network(1), at(0), none).is_some());
        drop(two);
        assert!(all.counts.lock().is_empty(), "nothing is kept of nobody");
        all.rebound(0);
        assert!(all.admit(network(1), at(0), none).is_none());
    }

    #[test]
    fn who_has_enough_gives_up_what_waits_and_is_not_looked_at_all_the_time() {
        let all = Arc::new(Addresses::new(1));
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
