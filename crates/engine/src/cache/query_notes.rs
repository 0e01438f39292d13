//! The query parameters that count for the responses of a path, as its stored responses have stated them in
//! `No-Vary-Search`.
//!
//! Equivalent urls share the entry of the simplest one. Requests learn of that only once a response has stated it, and a
//! note may be lost: so an entry answers a request for another url only if the note is older than the entry. Purges of
//! one url since then have found the entries of all equivalent ones.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use foldhash::fast::RandomState;
use microcache_policy::key::{self, KeyBuf};
use microcache_policy::{Fields, Millis, NoVarySearch, Time};

use crate::sync::{AtomicBool, AtomicU64, Mutex};

/// The number of slots. A path overwrites the previous one in its slot.
const PLACES: usize = 1 << 16;
const SHARDS: usize = 64;
/// The time, in milliseconds, that a note counts after a response has last stated it: an application may cease to.
const COUNTS_FOR: Millis = 3_600_000;

/// The `No-Vary-Search` of paths, as stated by responses that were stored for all clients.
#[derive(Debug)]
pub(crate) struct QueryNotes {
    has_any: AtomicBool,
    /// The time of the last purge of a single url with a query, in milliseconds.
    last_purge: AtomicU64,
    shards: Box<[Mutex<NoteTable>]>,
    /// The last one learnt: most sites have only one.
    latest: Mutex<Option<Arc<NoVarySearch>>>,
    hasher: RandomState,
}

/// The slots of a shard; none before its first note.
type NoteTable = Box<[Option<QueryNote>]>;

#[derive(Clone, Debug)]
struct QueryNote {
    hash: u64,
    stated: Arc<NoVarySearch>,
    /// Entries that were fetched since then answer requests for equivalent urls.
    since: Time,
    until: Time,
}

/// The key of an equivalent url, which has fewer parameters.
pub(crate) struct SimplifiedKey {
    pub(crate) key: KeyBuf,
    /// Entries that were fetched before do not answer a request for another url.
    pub(crate) since: Time,
}

impl QueryNotes {
    pub(crate) fn new() -> Self {
        Self {
            has_any: AtomicBool::new(false),
            last_purge: AtomicU64::new(0),
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            latest: Mutex::default(),
            hasher: RandomState::default(),
        }
    }

    /// Records what a stored response states about the queries of its path. `began` is the time of its fetch; `None` if
    /// another process may have fetched it, whose purges are not known.
    pub(crate) fn learn(&self, key: &[u8], response: Fields<'_>, began: Option<Time>, now: Time) {
        let Some(stated) = NoVarySearch::of(response) else {
            return;
        };
        let Some(hash) = self.hash_of(key) else {
            return;
        };
        let stated = self.shared(stated);
        let mut places = self.shards[hash as usize % SHARDS].lock();
        // Unused shards take no memory.
        if places.is_empty() {
            *places = vec![None; PLACES / SHARDS].into();
        }
        self.has_any.store(true, Ordering::Release);
        let place = &mut places[place(hash)];
        let known = place
            .as_ref()
            .filter(|note| note.hash == hash && note.stated == stated && now < note.until);
        // Read under the lock: a purge sets it before it looks for a note.
        let last_purge = Time::from_millis(self.last_purge.load(Ordering::Acquire));
        let since = match (known, began) {
            (Some(note), _) => note.since,
            (None, Some(began)) if last_purge < began => began,
            // Even one of this moment may be older than a purge, and this moment is that of the running poll.
            (None, _) => now.max(last_purge).plus(1),
        };
        *place = Some(QueryNote {
            hash,
            stated,
            since,
            until: now.plus(COUNTS_FOR),
        });
    }

    /// The key of the url that is equivalent to that of `key`, if it is another one.
    #[inline]
    pub(crate) fn simplified(&self, key: &[u8], now: Time) -> Option<SimplifiedKey> {
        if !self.has_any() || !has_query(key) {
            return None;
        }
        let (stated, since) = self.stated(key, now)?;
        let key = key::simplified(key, &stated)?;
        Some(SimplifiedKey { key, since })
    }

    /// [`Self::simplified`] for a url that is being purged.
    pub(crate) fn purged(&self, key: &[u8], now: Time) -> Option<KeyBuf> {
        if !has_query(key) {
            return None;
        }
        self.last_purge.fetch_max(now.as_millis(), Ordering::AcqRel);
        self.simplified(key, now).map(|simplified| simplified.key)
    }

    /// Returns false as long as no response has stated anything.
    pub(crate) fn has_any(&self) -> bool {
        self.has_any.load(Ordering::Relaxed)
    }

    fn stated(&self, key: &[u8], now: Time) -> Option<(Arc<NoVarySearch>, Time)> {
        let hash = self.hash_of(key)?;
        let places = self.shards[hash as usize % SHARDS].lock();
        let note = places.get(place(hash))?.as_ref()?;
        let counts = note.hash == hash && now < note.until;
        counts.then(|| (Arc::clone(&note.stated), note.since))
    }

    fn hash_of(&self, key: &[u8]) -> Option<u64> {
        let (_, host, path, _) = key::url_of(key)?;
        Some(self.hasher.hash_one((host, path)))
    }

    fn shared(&self, stated: NoVarySearch) -> Arc<NoVarySearch> {
        let mut latest = self.latest.lock();
        match &*latest {
            Some(latest) if **latest == stated => Arc::clone(latest),
            _ => Arc::clone(latest.insert(Arc::new(stated))),
        }
    }
}

fn has_query(key: &[u8]) -> bool {
    key::url_of(key).is_some_and(|(_, _, _, query)| query.is_some())
}

fn place(hash: u64) -> usize {
    (hash as usize / SHARDS) % (PLACES / SHARDS)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use microcache_policy::{FieldsBuf, Scheme};

    use super::*;
    use crate::cache::testing::key_of;

    fn at(millis: u64) -> Time {
        Time::from_millis(millis)
    }

    /// The url that requests for `target` share, and the time since when entries count.
    fn shared(notes: &QueryNotes, target: &str, now: Time) -> Option<(String, Time)> {
        let simplified = notes.simplified(&key_of(Scheme::Http, "a", target), now)?;
        let target = key::target_of(&simplified.key)?;
        Some((
            String::from_utf8_lossy(&target).into_owned(),
            simplified.since,
        ))
    }

    fn learn(notes: &QueryNotes, target: &str, stated: &str, began: Option<Time>, now: Time) {
        let mut fields = FieldsBuf::new();
        fields.push("No-Vary-Search", stated);
        let key = key_of(Scheme::Http, "a", target);
        notes.learn(&key, fields.fields(), began, now);
    }

    #[test]
    fn a_note_counts_for_the_urls_of_its_path_until_another_one_or_its_end() {
        let notes = QueryNotes::new();
        assert!(!notes.has_any());
        learn(&notes, "/p?x=1", "params=?1", Some(at(1)), at(2));
        assert!(!notes.has_any(), "invalid");
        learn(&notes, "/p?x=1", "params=(\"x\")", Some(at(1)), at(2));
        let expected = Some(("/p?id=1".to_owned(), at(1)));
        assert_eq!(shared(&notes, "/p?id=1&x=2", at(3)), expected);
        assert_eq!(shared(&notes, "/p?id=1", at(3)), None);
        assert_eq!(shared(&notes, "/q?x=2", at(3)), None);
        // Confirmed, and then changed.
        learn(&notes, "/p", "params=(\"x\")", Some(at(4)), at(5));
        assert_eq!(shared(&notes, "/p?id=1&x=2", at(2 + COUNTS_FOR)), expected);
        learn(&notes, "/p", "except=(\"x\")", Some(at(6)), at(7));
        let expected = Some(("/p?x=2".to_owned(), at(6)));
        assert_eq!(shared(&notes, "/p?id=1&x=2", at(8)), expected);
        assert_eq!(shared(&notes, "/p?id=1&x=2", at(7 + COUNTS_FOR)), None);
    }

    #[test]
    fn entries_that_a_purge_may_have_missed_do_not_count() {
        let notes = QueryNotes::new();
        let purge = |target, now| notes.purged(&key_of(Scheme::Http, "a", target), now);
        assert_eq!(purge("/p?x=1", at(5)), None, "nothing is known yet");
        learn(&notes, "/p", "params=(\"x\")", Some(at(5)), at(9));
        assert_eq!(
            shared(&notes, "/p?x=2", at(9)),
            Some(("/p".to_owned(), at(10)))
        );
        assert_eq!(
            purge("/p?x=1", at(10)),
            Some(key_of(Scheme::Http, "a", "/p")[..].into())
        );
        learn(&notes, "/q", "params=(\"x\")", Some(at(11)), at(12));
        assert_eq!(
            shared(&notes, "/q?x=2", at(12)),
            Some(("/q".to_owned(), at(11)))
        );
        // From a tier.
        learn(&notes, "/r", "params=(\"x\")", None, at(13));
        assert_eq!(
            shared(&notes, "/r?x=2", at(13)),
            Some(("/r".to_owned(), at(14)))
        );
    }

    #[test]
    fn the_table_never_grows() {
        let notes = QueryNotes::new();
        for number in 0..2 * PLACES {
            learn(&notes, &format!("/{number}"), "params=(\"x\")", None, at(1));
        }
        let held = notes.shards.iter().map(|shard| shard.lock().len());
        assert_eq!(held.sum::<usize>(), PLACES);
        let last = format!("/{}?x", 2 * PLACES - 1);
        assert!(shared(&notes, &last, at(2)).is_some());
    }
}
