//! The request fields that the responses of a url vary on, and which a coalesced fetch therefore
//! sends.
//!
//! They outlast the entry in memory: the next response of an expired page varies on the same
//! fields.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use microcache_policy::{Millis, Time, VaryNames};

use crate::sync::Mutex;

/// The number of slots. A url overwrites the previous one in its slot.
const PLACES: usize = 1 << 16;
const SHARDS: usize = 64;
/// The longest list of names in bytes.
const LONGEST: usize = 512;
/// The time, in milliseconds, that names are added to requests sent to the origin.
const VARIES_FOR: Millis = 600_000;
/// The time, in milliseconds, that names select stored responses: longer, so that a name that was
/// sent still counts when its response is stored.
const SELECTS_FOR: Millis = 2 * VARIES_FOR;

/// The request fields that the responses of urls are known to vary on.
#[derive(Debug)]
pub(crate) struct UrlNotes {
    shards: Box<[Mutex<Box<[Note]>>]>,
    hasher: RandomState,
}

#[derive(Clone, Debug, Default)]
struct Note {
    hash: u64,
    vary: VaryNames,
    sent_until: Time,
    selects_until: Time,
}

impl UrlNotes {
    pub(crate) fn new() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            hasher: RandomState::default(),
        }
    }

    /// Records the fields that a response varies on, in addition to those recently recorded.
    pub(crate) fn note_vary(&self, key: &[u8], named: &VaryNames, now: Time) {
        if named.is_empty() {
            return;
        }
        self.change(key, |note| {
            if now >= note.sent_until {
                note.vary = VaryNames::NONE;
            }
            let all = note.vary.union(named);
            note.vary = if all.as_bytes().len() > LONGEST {
                named.clone()
            } else {
                all
            };
            if note.vary.as_bytes().len() > LONGEST {
                note.vary = VaryNames::NONE;
            }
            note.sent_until = now.plus(VARIES_FOR);
            note.selects_until = now.plus(SELECTS_FOR);
        });
    }

    /// The fields that a coalesced fetch sends because the url's responses vary on them.
    pub(crate) fn sent(&self, key: &[u8], now: Time) -> VaryNames {
        let vary = self.read(key, |note| {
            (now < note.sent_until).then(|| note.vary.clone())
        });
        vary.flatten().unwrap_or_default()
    }

    /// The fields that select a url's stored responses even if they do not name them.
    pub(crate) fn selecting(&self, key: &[u8], now: Time) -> VaryNames {
        let vary = self.read(key, |note| {
            (now < note.selects_until).then(|| note.vary.clone())
        });
        vary.flatten().unwrap_or_default()
    }

    fn change(&self, key: &[u8], change: impl FnOnce(&mut Note)) {
        let hash = self.hasher.hash_one(key);
        let mut places = self.shards[hash as usize % SHARDS].lock();
        // Unused shards take no memory.
        if places.is_empty() {
            *places = vec![Note::default(); PLACES / SHARDS].into();
        }
        let note = &mut places[place(hash)];
        if note.hash != hash {
            *note = Note {
                hash,
                ..Note::default()
            };
        }
        change(note);
    }

    fn read<T>(&self, key: &[u8], read: impl FnOnce(&Note) -> T) -> Option<T> {
        let hash = self.hasher.hash_one(key);
        let places = self.shards[hash as usize % SHARDS].lock();
        let note = places.get(place(hash))?;
        (note.hash == hash).then(|| read(note))
    }
}

fn place(hash: u64) -> usize {
    (hash as usize / SHARDS) % (PLACES / SHARDS)
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    fn names(names: &str) -> VaryNames {
        VaryNames::from_bytes(names.as_bytes()).expect("names")
    }

    #[test]
    fn names_are_sent_for_a_while_and_select_for_longer() {
        let notes = UrlNotes::new();
        let at = Time::from_millis;
        notes.note_vary(b"a", &names("x"), at(1));
        notes.note_vary(b"a", &names("y"), at(2));
        assert_eq!(notes.sent(b"a", at(3)), names("x,y"));
        assert_eq!(notes.sent(b"b", at(3)), VaryNames::NONE);
        let over = at(2).plus(VARIES_FOR);
        assert_eq!(notes.sent(b"a", over), VaryNames::NONE);
        assert_eq!(notes.selecting(b"a", over), names("x,y"));
        notes.note_vary(b"a", &names("z"), over);
        assert_eq!(notes.sent(b"a", over), names("z"));
    }

    #[test]
    fn no_name_is_remembered_that_is_longer_than_the_bound() {
        let notes = UrlNotes::new();
        let now = Time::from_millis(5);
        notes.note_vary(b"a", &names(&"x".repeat(LONGEST + 1)), now);
        assert_eq!(notes.sent(b"a", now), VaryNames::NONE);
    }
}
