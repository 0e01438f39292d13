//! Marks for responses that cannot be stored: too large, or not shareable.
//!
//! They outlast the key's entry in memory, so that a client resuming a download or seeking in a
//! video gets the range it requests.

use std::hash::BuildHasher;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use microcache_policy::Time;

use crate::sync::{AtomicBool, Mutex};

/// The number of slots. A mark overwrites the previous one in its slot.
const PLACES: usize = 1 << 16;
const SHARDS: usize = 64;

/// Marks on keys and selections, each with an expiry.
#[derive(Debug)]
pub(crate) struct Marks {
    shards: Box<[Mutex<Box<[MarkSlot]>>]>,
    hasher: RandomState,
    /// A mark has been set. Most caches never set any.
    has_any: AtomicBool,
}

#[derive(Clone, Copy, Debug, Default)]
struct MarkSlot {
    hash: u64,
    until: Time,
}

impl Marks {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
            has_any: AtomicBool::new(false),
        }
    }

    /// Returns false if no mark has ever been set.
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Acquire)
    }

    /// Sets a mark until this time.
    pub(crate) fn note(&self, key: &[u8], selection: &[u8], until: Time) {
        let hash = self.hash(key, selection);
        let mut places = self.shards[hash as usize % SHARDS].lock();
        // Unused shards take no memory.
        if places.is_empty() {
            *places = vec![MarkSlot::default(); PLACES / SHARDS].into();
        }
        places[place(hash)] = MarkSlot { hash, until };
        drop(places);
        self.has_any.store(true, Ordering::Release);
    }

    /// Clears a mark.
    pub(crate) fn forget(&self, key: &[u8], selection: &[u8]) {
        let hash = self.hash(key, selection);
        let mut places = self.shards[hash as usize % SHARDS].lock();
        if let Some(mark) = places.get_mut(place(hash))
            && mark.hash == hash
        {
            *mark = MarkSlot::default();
        }
    }

    /// Returns true if the mark is set.
    pub(crate) fn contains(&self, key: &[u8], selection: &[u8], now: Time) -> bool {
        if !self.has_any() {
            return false;
        }
        let hash = self.hash(key, selection);
        let places = self.shards[hash as usize % SHARDS].lock();
        let mark = places.get(place(hash));
        mark.is_some_and(|mark| mark.hash == hash && now < mark.until)
    }

    fn hash(&self, key: &[u8], selection: &[u8]) -> u64 {
        self.hasher.hash_one((key, selection))
    }
}

fn place(hash: u64) -> usize {
    (hash as usize / SHARDS) % (PLACES / SHARDS)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn it_is_remembered_for_its_time_and_its_selection() {
        let marks = Marks::new();
        let (now, until) = (Time::from_secs(10), Time::from_secs(20));
        assert!(!marks.contains(b"key", b"en", now));
        assert!(!marks.has_any());
        marks.note(b"key", b"en", until);
        assert!(marks.has_any());
        assert!(marks.contains(b"key", b"en", now));
        assert!(!marks.contains(b"key", b"de", now));
        assert!(!marks.contains(b"keye", b"n", now));
        assert!(!marks.contains(b"key", b"en", until));
        marks.forget(b"key", b"en");
        assert!(!marks.contains(b"key", b"en", now));
    }

    #[test]
    fn more_than_there_is_room_for_is_no_harm() {
        let marks = Marks::new();
        let (now, until) = (Time::from_secs(10), Time::from_secs(20));
        for number in 0..2 * PLACES as u64 {
            marks.note(&number.to_be_bytes(), b"", until);
        }
        let last = (2 * PLACES as u64 - 1).to_be_bytes();
        assert!(marks.contains(&last, b"", now));
    }
}
