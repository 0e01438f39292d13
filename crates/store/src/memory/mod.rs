//! Memory tier: sharded, bounded in bytes, synchronous.

mod object;
mod table;
mod variant_matcher;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use microcache_policy::vary::VaryNames;
use microcache_policy::{Detail, DictionaryCoding, Millis, OriginView, Time};
use parking_lot::Mutex;

use crate::allocation::allocated;
use crate::encodings::{BodyEncodings, DictionaryBase, EncodingMethod, ResponseEncodings};
use crate::key_notes::KeyNotes;
use crate::key_update::KeyUpdate;
use crate::stored::{RevalidationState, Stored};
use object::Variants;
use table::{KeyHash, Table};
use variant_matcher::VariantMatcher;

pub use object::{Hit, Key, Object};

/// Limits of the memory tier.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// Capacity for bodies, heads, keys and index, in bytes.
    pub capacity: u64,
    /// Maximum size of a response, body and head, in bytes; at most a quarter of a shard.
    pub object: u64,
    /// Maximum number of variants per key.
    pub variants: usize,
}

/// Error: the response exceeds the object limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// Decision on a variant by [`Memory::revise`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// Keep unchanged.
    Keep,
    /// Mark as stale since this time.
    Expire(Time),
    /// Remove.
    Drop,
}

/// Statistics of the memory tier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Number of keys.
    pub keys: u64,
    /// Memory used, in bytes.
    pub bytes: u64,
    /// Limit of `bytes`.
    pub capacity: u64,
    /// Number of evicted keys.
    pub evicted: u64,
    /// Number of rejected responses.
    pub refused: u64,
}

/// Memory tier.
#[derive(Debug)]
pub struct Memory {
    objects: Table,
    /// Locks, striped by key, that serialize the read-modify-write of an object.
    turns: Box<[Mutex<()>]>,
    limits: MemoryLimits,
    /// Maximum number of variants per key, which may be reloaded.
    variants: AtomicUsize,
    refused: AtomicU64,
}

impl Memory {
    const TURNS: usize = 64;
    /// Maximum of what one key has, in largest responses.
    const LARGEST_PER_KEY: u64 = 3;

    /// Creates an empty tier with these limits.
    pub fn new(limits: MemoryLimits) -> Self {
        Self {
            objects: Table::new(limits.capacity),
            turns: (0..Self::TURNS).map(|_| Mutex::new(())).collect(),
            variants: AtomicUsize::new(limits.variants),
            limits,
            refused: AtomicU64::new(0),
        }
    }

    /// Changes the maximum number of variants per key.
    pub fn set_max_variants(&self, variants: usize) {
        self.variants.store(variants, Ordering::Relaxed);
    }

    /// Limits at the start.
    pub fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// Returns the object of a key. That counts no use: [`Hit::count_use`] does, when a response is served.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<Object> {
        self.objects.get(key, self.objects.hash(key))
    }

    /// Stores a response in place of the variant that the request selected before. If the key has too many
    /// variants, the least recently used one is evicted.
    ///
    /// # Errors
    ///
    /// [`TooLarge`] if it exceeds the object limit.
    pub fn put(
        &self,
        key: &[u8],
        stored: Stored,
        request: &OriginView<'_>,
        now: Time,
    ) -> Result<Hit, TooLarge> {
        if (key.len() + stored.own_size()) as u64 > self.limits.object {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(TooLarge);
        }
        let hash = self.objects.hash(key);
        let _turn = self.turn(hash);
        let old = self.objects.get(key, hash);
        let mut notes = old
            .as_ref()
            .map(|old| old.notes().clone())
            .unwrap_or_default();
        notes.learn(stored.key_update(request.rules), now);
        notes.unmark(&notes.selection(request));
        let mut selects = VariantMatcher::by(request, &notes);
        let mut variants = Variants::new();
        for one in old.iter().flat_map(Object::variants) {
            if selects.one(one)
                || one.vary() == stored.vary() && one.selection() == stored.selection()
            {
                stored.inherit_use(one);
            } else if now < one.lifetime().usable_until() {
                variants.push(one.clone());
            }
        }
        self.make_room(&mut variants, stored.weight());
        let file = stored.file_of_body();
        variants.push(match &file {
            Some(_) => stored.with_body(stored.content().downgraded()),
            None => stored,
        });
        let object = Object::new(key, notes, variants);
        self.objects.insert(object.clone(), hash, old);
        Ok(Hit::latest(object, file))
    }

    /// Evicts variants until one of this size fits, those never reused first, so that scans do not evict
    /// variants in use.
    fn make_room(&self, variants: &mut Variants, size: usize) {
        let bound = self.largest_key();
        let weight = |all: &[Stored]| all.iter().map(Stored::weight).sum::<usize>() + size;
        let most = self.variants.load(Ordering::Relaxed).max(1);
        while variants.len() >= most || weight(variants) as u64 > bound {
            let least = variants.iter().enumerate().min_by_key(|(at, one)| {
                let used = one.last_use();
                // Among variants last used in the same tick, the newer one goes first; among those never
                // used, the older one.
                (used, if used == 0 { *at } else { usize::MAX - at })
            });
            let Some((at, _)) = least else {
                return;
            };
            variants.remove(at);
        }
    }

    /// Maximum size of all variants of one key.
    fn largest_key(&self) -> u64 {
        self.limits.object * Self::LARGEST_PER_KEY
    }

    /// Returns the body that these encodings were derived from, if it is still stored. It does not keep the response.
    pub fn body_of(&self, key: &[u8], encodings: &Arc<BodyEncodings>) -> Option<Bytes> {
        let object = self.objects.get(key, self.objects.hash(key))?;
        let one = object.variants().find(|one| has(one, encodings))?;
        one.separate_body()
    }

    /// Attaches an encoded body to its response, which is charged for it. Returns `false` if the response
    /// has been replaced or there is no room.
    pub fn attach(
        &self,
        key: &[u8],
        encodings: &Arc<BodyEncodings>,
        making: EncodingMethod,
        body: Bytes,
    ) -> bool {
        let size = allocated(body.len());
        self.attach_with(key, encodings, size, || encodings.put(making, body))
    }

    /// Makes the body itself, as [`Self::body_of`] returned it, available as a dictionary; see [`Self::attach`].
    pub fn attach_dictionary(
        &self,
        key: &[u8],
        encodings: &Arc<BodyEncodings>,
        body: &Bytes,
    ) -> bool {
        // A larger one is no copy.
        let copied = if body.len() <= Stored::COMPACT {
            allocated(body.len())
        } else {
            0
        };
        let put = || encodings.use_as_dictionary(body.clone());
        encodings.is_dictionary() || self.attach_with(key, encodings, copied, put)
    }

    /// Attaches a delta from one of its dictionary versions; see [`Self::attach`].
    pub fn attach_difference(
        &self,
        key: &[u8],
        encodings: &Arc<BodyEncodings>,
        base: &DictionaryBase,
        coding: DictionaryCoding,
        bytes: Bytes,
    ) -> bool {
        let size = allocated(bytes.len());
        self.attach_with(key, encodings, size, || base.put(coding, bytes))
    }

    fn attach_with(
        &self,
        key: &[u8],
        encodings: &Arc<BodyEncodings>,
        size: usize,
        put: impl FnOnce(),
    ) -> bool {
        let mut is_kept = false;
        self.change(key, |_, variants| {
            let weight: usize = variants.iter().map(Stored::weight).sum();
            let fits = (weight + size) as u64 <= self.largest_key();
            is_kept = fits && variants.iter().any(|one| has(one, encodings));
            if is_kept {
                put();
            }
            is_kept
        });
        is_kept
    }

    /// Returns the encodings of a response. `may_be` decides whether there may be any, once per number of the settings.
    #[inline]
    pub fn encoded<'h>(
        &self,
        hit: &'h Hit,
        settings: u32,
        may_be: impl FnOnce(&Stored) -> bool,
    ) -> Option<&'h ResponseEncodings> {
        let known_or_new = || {
            let known = hit.known_encoded();
            known.unwrap_or_else(|| self.create_part(hit, Stored::encoded))
        };
        hit.may_be_encoded(settings, may_be).then(known_or_new)
    }

    /// Counts a use of the stale response, and returns whether the caller is to revalidate it. No other
    /// caller is selected for `pause` milliseconds.
    pub fn claim_refresh(&self, hit: &Hit, now: Time, pause: Millis) -> bool {
        self.revalidation(hit).claim(now, pause)
    }

    /// Number of uses since the response became stale.
    pub fn demand<'h>(&self, hit: &'h Hit) -> &'h Arc<AtomicU32> {
        &self.revalidation(hit).demand
    }

    fn revalidation<'h>(&self, hit: &'h Hit) -> &'h RevalidationState {
        let known = hit.known_revalidation();
        known.unwrap_or_else(|| self.create_part(hit, Stored::revalidation))
    }

    /// Creates a part that a response has not had since it was stored, and charges the object of the key for it, if
    /// there is one. It may be another object by now, which is charged for its own parts.
    #[cold]
    fn create_part<'h, T>(&self, hit: &'h Hit, create: impl FnOnce(&'h Stored) -> &'h T) -> &'h T {
        let part = create(hit);
        let hash = self.objects.hash(hit.key());
        let _turn = self.turn(hash);
        if let Some(object) = self.objects.get(hit.key(), hash) {
            self.objects.insert(object.clone(), hash, Some(object));
        }
        part
    }

    /// Creates a hit for a response that is not stored.
    pub fn detached_hit(stored: Stored) -> Hit {
        let file = stored.file_of_body();
        Hit::latest(Object::detached(stored), file)
    }

    /// Learns Vary names and codings from the head of a response in progress, so that waiting requests can
    /// be separated. `announce` receives the new selection of the request before any other thread can see
    /// it.
    pub fn learn(
        &self,
        key: &[u8],
        response: KeyUpdate<'_>,
        request: &OriginView<'_>,
        now: Time,
        announce: impl FnOnce(&[u8]),
    ) {
        self.change(key, |notes, _| {
            let before = (notes.vary.clone(), notes.codings);
            notes.learn(response, now);
            announce(&notes.selection(request));
            before != (notes.vary.clone(), notes.codings)
        });
    }

    /// Records that responses of this key vary on these names, until `until`.
    pub fn learn_vary(&self, key: &[u8], names: &VaryNames, until: Time, now: Time) {
        self.change(key, |notes, _| {
            let vary = notes.vary_of(names.clone(), now);
            let is_new = notes.vary != vary || notes.varies_until < until;
            notes.note_vary(vary, until);
            is_new
        });
    }

    /// Marks the selection of a request as not storable, with the reason. `named` are the names in the
    /// response's own Vary.
    pub fn mark_uncacheable(
        &self,
        key: &[u8],
        (named, why): (VaryNames, Detail),
        request: &OriginView<'_>,
        until: Time,
        now: Time,
    ) {
        self.change(key, |notes, _| {
            let vary = notes.vary_of(named, now);
            if notes.vary != vary {
                notes.note_vary(vary, until);
            }
            notes.mark(&notes.selection(request), why, until, now);
            true
        });
    }

    /// Removes the variants that a request selects.
    pub fn remove_selected(&self, key: &[u8], request: &OriginView<'_>) {
        self.change(key, |notes, variants| {
            let mut selects = VariantMatcher::by(request, notes);
            let stays: Vec<bool> = variants.iter().map(|one| !selects.one(one)).collect();
            let mut stays = stays.into_iter();
            variants.retain(|_| stays.next().unwrap_or(true));
            true
        });
    }

    /// Applies a decision to each variant of a key, and calls `note` with each that stays in its new state: until
    /// then, look-ups find the old one. Returns the number of removed ones.
    pub fn revise(
        &self,
        key: &[u8],
        mut revise: impl FnMut(&Stored) -> Revision,
        note: impl Fn(&Stored),
    ) -> usize {
        let mut dropped = 0;
        self.change(key, |_, variants| {
            let mut is_changed = false;
            variants.retain(|one| match revise(one) {
                Revision::Keep => {
                    note(one);
                    true
                }
                Revision::Expire(at) => {
                    *one = one.with_lifetime(one.lifetime_expired(at));
                    note(one);
                    is_changed = true;
                    true
                }
                Revision::Drop => {
                    dropped += 1;
                    false
                }
            });
            is_changed || dropped > 0
        });
        dropped
    }

    /// Iterates over all keys, in no particular order; concurrent changes may be missed. A lock is held for a few keys
    /// at a time.
    pub fn entries(&self) -> impl Iterator<Item = Object> {
        self.objects.iter()
    }

    /// Removes a key. Returns whether it existed.
    pub fn remove(&self, key: &[u8]) -> bool {
        let hash = self.objects.hash(key);
        let _turn = self.turn(hash);
        self.objects.remove(key, hash)
    }

    /// Returns the statistics.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.objects.len() as u64,
            bytes: self.objects.weight(),
            capacity: self.limits.capacity,
            evicted: self.objects.evicted(),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Replaces the object of a key, or removes it if nothing is left, unless `change` returns `false`.
    fn change(&self, key: &[u8], change: impl FnOnce(&mut KeyNotes, &mut Variants) -> bool) {
        let hash = self.objects.hash(key);
        let _turn = self.turn(hash);
        let old = self.objects.get(key, hash);
        let (mut notes, mut variants) = old.as_ref().map_or_else(Default::default, |old| {
            let variants: Variants = old.variants().cloned().collect();
            (old.notes().clone(), variants)
        });
        if change(&mut notes, &mut variants) {
            let object = Object::new(key, notes, variants);
            if object.is_empty() {
                self.objects.remove(key, hash);
            } else {
                self.objects.insert(object, hash, old);
            }
        }
    }

    fn turn(&self, hash: KeyHash) -> parking_lot::MutexGuard<'_, ()> {
        self.turns[hash.number() % Self::TURNS].lock()
    }
}

/// Returns whether the response has these encodings.
fn has(stored: &Stored, encodings: &Arc<BodyEncodings>) -> bool {
    let known = stored.known_encoded();
    known.is_some_and(|known| Arc::ptr_eq(known.bodies(), encodings))
}

#[cfg(test)]
mod tests;
