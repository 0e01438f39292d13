//! What was purged and when: a tier may bring back what was stored before, or another process.

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, Ordering};

use foldhash::fast::RandomState;
use microcache_policy::Time;
use parking_lot::RwLock;

/// Purged keys that are remembered one by one. Beyond it the oldest are remembered together:
/// everything that is as old as they are counts as purged.
const MAX_KEYS: usize = 64 * 1024;

/// The purges so far.
#[derive(Debug, Default)]
pub(crate) struct Purges {
    records: RwLock<Records>,
    any: AtomicBool,
    hasher: RandomState,
}

#[derive(Debug, Default)]
struct Records {
    /// What began up to then is purged, whatever its key.
    everything: Time,
    /// The last purge of a key, by its hash. Two keys with one hash cost each other a miss.
    keys: HashMap<u64, Time, RandomState>,
    order: VecDeque<(u64, Time)>,
}

impl Purges {
    /// Notes that whatever has this key and began up to `now` is purged.
    pub(crate) fn note(&self, key: &[u8], now: Time) {
        let hash = self.hasher.hash_one(key);
        let mut records = self.records.write();
        records.keys.insert(hash, now);
        records.order.push_back((hash, now));
        if records.order.len() > MAX_KEYS
            && let Some((oldest, at)) = records.order.pop_front()
        {
            records.everything = records.everything.max(at);
            if records.keys.get(&oldest) == Some(&at) {
                records.keys.remove(&oldest);
            }
        }
        self.any.store(true, Ordering::Release);
    }

    /// Whether what has this key and began then is purged.
    pub(crate) fn covers(&self, key: &[u8], began: Time) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let records = self.records.read();
        let of_key = records.keys.get(&self.hasher.hash_one(key));
        began <= records.everything && records.everything > Time::default()
            || of_key.is_some_and(|&at| began <= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_began_before_a_purge_is_covered() {
        let purges = Purges::default();
        assert!(!purges.covers(b"a", Time::from_secs(1)));
        purges.note(b"a", Time::from_secs(5));
        assert!(purges.covers(b"a", Time::from_secs(5)));
        assert!(!purges.covers(b"a", Time::from_secs(6)));
        assert!(!purges.covers(b"b", Time::from_secs(1)));
        purges.note(b"a", Time::from_secs(7));
        assert!(purges.covers(b"a", Time::from_secs(6)));
    }

    #[test]
    fn what_is_forgotten_stays_purged() {
        let purges = Purges::default();
        for number in 0..=MAX_KEYS as u64 {
            purges.note(&number.to_le_bytes(), Time::from_secs(10 + number));
        }
        assert!(purges.covers(&0_u64.to_le_bytes(), Time::from_secs(10)));
        assert!(purges.covers(b"another", Time::from_secs(10)), "the price");
        assert!(!purges.covers(b"another", Time::from_secs(11)));
        assert!(purges.covers(&5_u64.to_le_bytes(), Time::from_secs(15)));
    }
}
