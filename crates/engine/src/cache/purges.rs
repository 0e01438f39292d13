//! Purged keys and the times of their purges: a tier or another process may bring back older
//! entries.

use std::collections::{BTreeSet, HashMap};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use foldhash::fast::RandomState;
use microcache_policy::Time;
use parking_lot::RwLock;

/// The most purged keys remembered one by one.
const MAX_KEYS: usize = 64 * 1024;
/// The fewest, however little memory there is.
const MIN_KEYS: usize = 1024;
/// The memory of one record, in bytes.
const COST: usize = 96;

/// The most parts of the key space. Above the limit of keys the oldest purge is merged into its
/// part: every entry there that is as old counts as purged. Each merge costs one part's share of
/// the stored entries, never all of them.
const MAX_PARTS: usize = 256 * 1024;
const MIN_PARTS: usize = 16 * 1024;

/// Counters of searches under way. Keys that share one only keep a purge longer than necessary.
const SEARCH_COUNTERS: usize = 1024;

/// The purged keys.
#[derive(Debug)]
pub(crate) struct Purges {
    max_keys: usize,
    records: RwLock<PurgedKeys>,
    any: AtomicBool,
    /// Searches of the tiers under way, by part of the key space.
    searches: Box<[AtomicU32]>,
    hasher: RandomState,
}

/// A search of the tiers for a key, from before they are read until what they have is checked. Meanwhile no purge of
/// the key is withdrawn: the search may have read an entry before it was removed.
#[derive(Debug)]
pub(crate) struct PurgeGuard<'a>(&'a AtomicU32);

impl Drop for PurgeGuard<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Release);
    }
}

#[derive(Debug)]
struct PurgedKeys {
    /// The most parts, a power of two.
    part_count: usize,
    /// The last purge of a key, by its hash. Two keys with the same hash cost each other a miss.
    keys: HashMap<u64, Time, RandomState>,
    /// The purges of `keys` by time, oldest first.
    order: BTreeSet<(Time, u64)>,
    /// By part of the key space, the time up to which fetches of any key count as purged. Empty
    /// until needed.
    parts: Vec<Time>,
}

impl Purges {
    /// An empty record. The keys take at most `capacity` bytes, and so do the parts.
    pub(crate) fn new(capacity: usize) -> Self {
        let parts = (capacity / size_of::<Time>()).clamp(MIN_PARTS, MAX_PARTS);
        Self {
            max_keys: (capacity / COST).clamp(MIN_KEYS, MAX_KEYS),
            records: RwLock::new(PurgedKeys {
                part_count: 1 << parts.ilog2(),
                keys: HashMap::default(),
                order: BTreeSet::new(),
                parts: Vec::new(),
            }),
            any: AtomicBool::default(),
            searches: (0..SEARCH_COUNTERS).map(|_| AtomicU32::new(0)).collect(),
            hasher: RandomState::default(),
        }
    }

    /// Begins a search of the tiers.
    pub(crate) fn begin_search(&self, key: &[u8]) -> PurgeGuard<'_> {
        let searches = self.searches_of(self.hasher.hash_one(key));
        searches.fetch_add(1, Ordering::SeqCst);
        PurgeGuard(searches)
    }

    /// Records a purge of every fetch of this key begun up to `now`.
    pub(crate) fn note(&self, key: &[u8], now: Time) {
        let hash = self.hasher.hash_one(key);
        let mut records = self.records.write();
        records.take(hash);
        records.keys.insert(hash, now);
        records.order.insert((now, hash));
        if records.keys.len() > self.max_keys {
            records.merge_oldest();
        }
        self.any.store(true, Ordering::Release);
    }

    /// Drops the purge of that time, if no search is under way: no entry is left in the tiers that it covers.
    pub(crate) fn withdraw(&self, key: &[u8], noted: Time) {
        let hash = self.hasher.hash_one(key);
        if self.searches_of(hash).load(Ordering::SeqCst) > 0 {
            return;
        }
        let mut records = self.records.write();
        if records.keys.get(&hash) == Some(&noted) {
            records.take(hash);
        }
    }

    /// Returns true if a fetch of this key that began at this time is purged.
    pub(crate) fn covers(&self, key: &[u8], began: Time) -> bool {
        if !self.any.load(Ordering::Acquire) {
            return false;
        }
        let hash = self.hasher.hash_one(key);
        let records = self.records.read();
        let of_key = records.keys.get(&hash);
        let of_part = records.parts.get(records.part_of(hash));
        let is_covered = |at: &Time| *at > Time::default() && began <= *at;
        of_key.is_some_and(is_covered) || of_part.is_some_and(is_covered)
    }

    fn searches_of(&self, hash: u64) -> &AtomicU32 {
        &self.searches[hash as usize % SEARCH_COUNTERS]
    }
}

impl PurgedKeys {
    fn take(&mut self, hash: u64) {
        if let Some(at) = self.keys.remove(&hash) {
            self.order.remove(&(at, hash));
        }
    }

    /// The part of a hash; the hash table of keys uses the lower bits.
    const fn part_of(&self, hash: u64) -> usize {
        (hash >> 40) as usize & (self.part_count - 1)
    }

    fn merge_oldest(&mut self) {
        let Some((at, hash)) = self.order.pop_first() else {
            return;
        };
        self.keys.remove(&hash);
        if self.parts.is_empty() {
            self.parts = vec![Time::default(); self.part_count];
        }
        let part = self.part_of(hash);
        self.parts[part] = at.max(self.parts[part]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> [u8; 8] {
        number.to_le_bytes()
    }

    #[test]
    fn a_purge_covers_entries_that_began_before_it() {
        let purges = Purges::new(usize::MAX);
        assert!(!purges.covers(b"a", Time::from_secs(1)));
        purges.note(b"a", Time::from_secs(5));
        assert!(purges.covers(b"a", Time::from_secs(5)));
        assert!(!purges.covers(b"a", Time::from_secs(6)));
        assert!(!purges.covers(b"b", Time::from_secs(1)));
        purges.note(b"a", Time::from_secs(7));
        assert!(purges.covers(b"a", Time::from_secs(6)));
    }

    #[test]
    fn a_purge_is_not_withdrawn_during_a_search() {
        let purges = Purges::new(usize::MAX);
        let noted = Time::from_secs(5);
        purges.note(b"a", noted);
        let (first, second) = (purges.begin_search(b"a"), purges.begin_search(b"a"));
        drop(first);
        purges.withdraw(b"a", noted);
        assert!(purges.covers(b"a", Time::from_secs(1)));
        drop(second);
        purges.withdraw(b"a", noted);
        assert!(!purges.covers(b"a", Time::from_secs(1)));
    }

    #[test]
    fn a_forgotten_purge_still_covers_old_entries_at_little_cost() {
        let purges = Purges::new(usize::MAX);
        let count = MAX_KEYS as u64 + 4096;
        for number in 0..count {
            purges.note(&key(number), Time::from_secs(10 + number));
        }
        for number in [0, 1, 4095, 4096, count - 1] {
            let at = Time::from_secs(10 + number);
            assert!(purges.covers(&key(number), at), "{number}");
        }
        let others = (count..count + 10_000)
            .filter(|&number| purges.covers(&key(number), Time::from_secs(1)));
        assert!(others.count() < 1000, "the price");
    }

    #[test]
    fn purges_of_one_key_take_no_room_from_the_others() {
        let purges = Purges::new(usize::MAX);
        purges.note(b"a", Time::from_secs(1));
        for number in 0..=2 * MAX_KEYS as u64 {
            purges.note(b"b", Time::from_secs(10 + number));
        }
        assert!(purges.records.read().parts.is_empty());
        assert!(purges.covers(b"a", Time::from_secs(1)));
    }

    #[test]
    fn withdrawn_purges_occupy_no_memory() {
        let purges = Purges::new(usize::MAX);
        for number in 0..=2 * MAX_KEYS as u64 {
            let at = Time::from_secs(10 + number);
            purges.note(&key(number), at);
            purges.withdraw(&key(number), at);
        }
        assert!(purges.records.read().parts.is_empty());
        assert!(!purges.covers(&key(0), Time::from_secs(1)));
        purges.note(b"a", Time::from_secs(5));
        purges.withdraw(b"a", Time::from_secs(4));
        assert!(purges.covers(b"a", Time::from_secs(5)), "another one came");
    }

    #[test]
    fn with_little_memory_fewer_are_remembered_one_by_one_and_none_is_lost() {
        let purges = Purges::new(1 << 20);
        for number in 0..MAX_KEYS as u64 {
            purges.note(&key(number), Time::from_secs(10 + number));
        }
        let records = purges.records.read();
        assert!(records.keys.len() * COST <= 1 << 20);
        assert!(records.parts.len() * size_of::<Time>() <= 1 << 20);
        drop(records);
        for number in 0..MAX_KEYS as u64 {
            let at = Time::from_secs(10 + number);
            assert!(purges.covers(&key(number), at), "{number}");
        }
    }
}
