//! Which responses turned out too large to be kept.
//!
//! A mark in memory would leave with what memory holds, or after a moment. These last, so that who
//! goes on with a download or moves about in a film gets the part that is asked for.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use microcache_policy::Time;

use crate::sync::Mutex;

/// What is remembered at most. Each has its place, and gives it up to the next one with the same.
const PLACES: usize = 1 << 16;
const SHARDS: usize = 64;

/// Keys and selections whose responses are too large, each for a while.
#[derive(Debug)]
pub(crate) struct Oversized {
    shards: Box<[Mutex<Box<[Mark]>>]>,
    hasher: RandomState,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    hash: u64,
    until: Time,
}

impl Oversized {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
        }
    }

    /// Remembers it.
    pub(crate) fn note(&self, key: &[u8], selection: &[u8], until: Time) {
        let hash = self.hash(key, selection);
        let mut places = self.shards[hash as usize % SHARDS].lock();
        // What nobody needs takes no memory.
        if places.is_empty() {
            *places = vec![Mark::default(); PLACES / SHARDS].into();
        }
        places[place(hash)] = Mark { hash, until };
    }

    /// Forgets it: it is smaller now.
    pub(crate) fn forget(&self, key: &[u8], selection: &[u8]) {
        let hash = self.hash(key, selection);
        let mut places = self.shards[hash as usize % SHARDS].lock();
        if let Some(mark) = places.get_mut(place(hash))
            && mark.hash == hash
        {
            *mark = Mark::default();
        }
    }

    /// Whether the latest response was too large, not long ago.
    pub(crate) fn contains(&self, key: &[u8], selection: &[u8], now: Time) -> bool {
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
        let oversized = Oversized::new();
        let (now, until) = (Time::from_secs(10), Time::from_secs(20));
        assert!(!oversized.contains(b"key", b"en", now));
        oversized.note(b"key", b"en", until);
        assert!(oversized.contains(b"key", b"en", now));
        assert!(!oversized.contains(b"key", b"de", now));
        assert!(!oversized.contains(b"keye", b"n", now));
        assert!(!oversized.contains(b"key", b"en", until));
        oversized.forget(b"key", b"en");
        assert!(!oversized.contains(b"key", b"en", now));
    }

    #[test]
    fn more_than_there_is_room_for_is_no_harm() {
        let oversized = Oversized::new();
        let (now, until) = (Time::from_secs(10), Time::from_secs(20));
        for number in 0..2 * PLACES as u64 {
            oversized.note(&number.to_be_bytes(), b"", until);
        }
        let last = (2 * PLACES as u64 - 1).to_be_bytes();
        assert!(oversized.contains(&last, b"", now));
    }
}
