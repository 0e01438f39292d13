//! Memory tier: sharded, bounded in bytes, synchronous.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use foldhash::fast::RandomState;
use microcache_policy::vary::{self, Selection, VaryNames};
use microcache_policy::{Detail, DictionaryCoding, OriginView, Time};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use smallvec::SmallVec;

use crate::content::{Content, FileBody};
use crate::encodings::{BodyEncodings, DictionaryBase, EncodingMethod};
use crate::key_notes::{KeyNotes, NOTHING, VariantMatcher};
use crate::key_update::KeyUpdate;
use crate::stored::Stored;

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

/// Cached responses of one key, with notes about it.
#[derive(Debug)]
pub struct Object {
    notes: Option<Box<KeyNotes>>,
    variants: SmallVec<[Stored; 1]>,
    weight: u64,
}

/// With the counts of its `Arc`, it fills one size class of the allocator; the next one has 320 bytes.
const _: () = assert!(size_of::<Object>() + 2 * size_of::<usize>() <= 256);

impl Object {
    /// Memory per key in addition to owned bytes: this struct with its counts, the header and counts of the
    /// key, a slot and two hashes in the index, and rounding by the allocator. `tests/it/memory.rs` compares
    /// the sum with the memory of the process.
    const OVERHEAD: u64 = size_of::<Self>() as u64 + 192;

    fn new(notes: KeyNotes, variants: SmallVec<[Stored; 1]>) -> Self {
        let owned: usize = variants.iter().map(Stored::heap_size).sum();
        let spilled = variants.len().saturating_sub(1) * size_of::<Stored>();
        let notes = notes.compact();
        let of_notes = notes.as_ref().map_or(0, |it| it.heap_size());
        let weight = (owned + spilled + of_notes) as u64;
        Self {
            notes,
            variants,
            weight,
        }
    }

    #[inline]
    fn notes(&self) -> &KeyNotes {
        self.notes.as_deref().unwrap_or(&NOTHING)
    }

    /// Variants stored for this key.
    pub fn variants(&self) -> &[Stored] {
        &self.variants
    }

    /// Returns the selection of a request: equal for requests that can share a response.
    pub fn selection(&self, request: &OriginView<'_>) -> Selection {
        self.notes().selection(request)
    }

    /// Returns the Vary names of the key, with the values of a request in these fields.
    pub fn vary_and_selection(&self, request: &OriginView<'_>) -> (&VaryNames, Selection) {
        let mut selection = Selection::new();
        vary::select(&self.notes().vary, request, &mut selection);
        (&self.notes().vary, selection)
    }

    /// Iterates over the variants that a request selects.
    pub fn selected<'a>(&'a self, request: &'a OriginView<'a>) -> impl Iterator<Item = &'a Stored> {
        let mut selects = VariantMatcher::by(request, self.notes());
        self.variants.iter().filter(move |one| selects.one(one))
    }

    /// Returns the names that a response varies on, given those it lists itself.
    pub fn vary_of(&self, named: VaryNames, now: Time) -> VaryNames {
        self.notes().vary_of(named, now)
    }

    /// Returns why responses to this [`Object::selection`] are expected not to be storable, if they are.
    pub fn uncacheable(&self, selection: &[u8], now: Time) -> Option<Detail> {
        self.notes().marked(selection, now)
    }

    /// Returns the latest variant that a request selects, or the object if there is none.
    #[inline]
    pub fn select(self: Arc<Self>, request: &OriginView<'_>, now: Time) -> Result<Hit, Arc<Self>> {
        let mut selects = VariantMatcher::by(request, self.notes());
        let index = self.variants.iter().rposition(|one| selects.one(one));
        match index {
            Some(index) => {
                // The use only matters for evicting one of several variants.
                if self.variants.len() > 1 {
                    self.variants[index].record_use(now);
                }
                Hit::new(self, index)
            }
            None => Err(self),
        }
    }

    /// Returns whether the file of a body has been closed, so that it is to be looked up in its tier again.
    pub fn has_lost_a_file(&self) -> bool {
        self.variants.iter().any(|stored| stored.body.is_gone())
    }
}

/// Reference to a response in memory, which outlives its eviction.
#[derive(Clone, Debug)]
pub struct Hit {
    object: Arc<Object>,
    index: usize,
    /// File of the body, kept open.
    file: Option<Arc<FileBody>>,
}

impl Deref for Hit {
    type Target = Stored;
    #[inline]
    fn deref(&self) -> &Stored {
        &self.object.variants[self.index]
    }
}

impl Hit {
    /// Fails if the file of the body has been closed.
    #[inline]
    fn new(object: Arc<Object>, index: usize) -> Result<Self, Arc<Object>> {
        let body = &object.variants[index].body;
        let file = body.file();
        if file.is_none() && matches!(body, Content::Weak(_)) {
            return Err(object);
        }
        Ok(Self {
            object,
            index,
            file,
        })
    }

    /// File of the body, if it is not in memory.
    pub const fn file(&self) -> Option<&Arc<FileBody>> {
        self.file.as_ref()
    }

    /// All stored data of the key.
    pub fn object(&self) -> &Object {
        &self.object
    }
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

/// Cache key, shared by its users.
pub type Key = Arc<[u8]>;

/// Memory tier.
#[derive(Debug)]
pub struct Memory {
    cache: Cache<Key, Arc<Object>, ObjectWeight, RandomState, EvictionCounter>,
    /// Locks, striped by key, that serialize the read-modify-write of an object.
    turns: Box<[Mutex<()>]>,
    hasher: RandomState,
    limits: MemoryLimits,
    /// Maximum number of variants per key, which may be reloaded.
    variants: AtomicUsize,
    evicted: Arc<AtomicU64>,
    refused: AtomicU64,
}

impl Memory {
    const TURNS: usize = 64;
    /// Assumed mean size of an object, in bytes, for the layout of the index; other sizes cost some
    /// rehashing.
    const TYPICAL_OBJECT: u64 = 8 * 1024;
    /// Minimum number of the largest objects per shard; otherwise a shard would reject what the tier as a
    /// whole could hold.
    const LARGEST_PER_SHARD: u64 = 4;
    const MAX_SHARDS: u64 = 64;

    /// Creates an empty tier with these limits.
    pub fn new(limits: MemoryLimits) -> Self {
        let per_shard = limits.object.max(1) * Self::LARGEST_PER_SHARD;
        let shards = (limits.capacity / per_shard).clamp(1, Self::MAX_SHARDS);
        // quick_cache rounds up to a power of two; rounding down first keeps the shards large.
        let shards = 1 << shards.ilog2();
        let evicted = Arc::new(AtomicU64::new(0));
        let options = OptionsBuilder::new()
            .shards(shards)
            .estimated_items_capacity((limits.capacity / Self::TYPICAL_OBJECT).max(64) as usize)
            .weight_capacity(limits.capacity)
            .build()
            .expect("capacity and estimate are both set");
        let cache = Cache::with_options(
            options,
            ObjectWeight,
            RandomState::default(),
            EvictionCounter(Arc::clone(&evicted)),
        );
        Self {
            cache,
            turns: (0..Self::TURNS).map(|_| Mutex::new(())).collect(),
            hasher: RandomState::default(),
            variants: AtomicUsize::new(limits.variants),
            limits,
            evicted,
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

    /// Returns the object of a key.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<Arc<Object>> {
        self.cache.get(key)
    }

    /// Stores a response in place of the variant that the request selected before. If the key has too many
    /// variants, the least recently used one is evicted.
    ///
    /// # Errors
    ///
    /// [`TooLarge`] if it exceeds the object limit.
    pub fn put(
        &self,
        key: &Key,
        stored: Stored,
        request: &OriginView<'_>,
        now: Time,
    ) -> Result<Hit, TooLarge> {
        if (key.len() + stored.own_size()) as u64 > self.limits.object {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(TooLarge);
        }
        let _turn = self.turn(key);
        let old = self.cache.peek(key);
        let mut notes = old
            .as_ref()
            .map(|old| old.notes().clone())
            .unwrap_or_default();
        notes.learn(stored.key_update(request.rules), now);
        notes.unmark(&notes.selection(request));
        let mut selects = VariantMatcher::by(request, &notes);
        let mut variants: SmallVec<[Stored; 1]> = SmallVec::new();
        for one in old.iter().flat_map(|old| &old.variants) {
            if selects.one(one)
                || one.vary() == stored.vary() && one.selection() == stored.selection()
            {
                stored.inherit_use(one);
            } else if now < one.lifetime.usable_until() {
                variants.push(one.copy());
            }
        }
        self.make_room(&mut variants, stored.heap_size());
        let file = stored.body.file();
        let body = stored.body.clone().downgraded();
        variants.push(stored.with_body(body));
        let index = variants.len() - 1;
        let object = Arc::new(Object::new(notes, variants));
        self.cache.insert(Arc::clone(key), Arc::clone(&object));
        Ok(Hit {
            object,
            index,
            file,
        })
    }

    /// Evicts variants until one of this size fits, those never reused first, so that scans do not evict
    /// variants in use.
    fn make_room(&self, variants: &mut SmallVec<[Stored; 1]>, size: usize) {
        let bound = self.largest_key();
        let weight = |all: &[Stored]| all.iter().map(Stored::heap_size).sum::<usize>() + size;
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

    /// Maximum size of all variants of one key; `quick_cache` silently drops anything heavier than a shard.
    fn largest_key(&self) -> u64 {
        self.limits.object * (Self::LARGEST_PER_SHARD - 1)
    }

    /// Returns the body that these encodings were derived from, if it is still stored.
    pub fn body_of(&self, key: &[u8], encodings: &Arc<BodyEncodings>) -> Option<Bytes> {
        let object = self.cache.peek(key)?;
        let mut variants = object.variants.iter();
        let one = variants.find(|one| has(one, encodings))?;
        one.body.bytes().cloned()
    }

    /// Attaches an encoded body to its response, which is charged for it. Returns `false` if the response
    /// has been replaced or there is no room.
    pub fn attach(
        &self,
        key: &Key,
        encodings: &Arc<BodyEncodings>,
        making: EncodingMethod,
        body: Bytes,
    ) -> bool {
        self.attach_with(key, encodings, body.len(), || encodings.put(making, body))
    }

    /// Attaches a delta from one of its dictionary versions; see [`Self::attach`].
    pub fn attach_difference(
        &self,
        key: &Key,
        encodings: &Arc<BodyEncodings>,
        base: &DictionaryBase,
        coding: DictionaryCoding,
        bytes: Bytes,
    ) -> bool {
        self.attach_with(key, encodings, bytes.len(), || base.put(coding, bytes))
    }

    fn attach_with(
        &self,
        key: &Key,
        encodings: &Arc<BodyEncodings>,
        size: usize,
        put: impl FnOnce(),
    ) -> bool {
        let mut is_kept = false;
        self.change(key, |_, variants| {
            let weight: usize = variants.iter().map(Stored::heap_size).sum();
            let fits = (weight + size) as u64 <= self.largest_key();
            is_kept = fits && variants.iter().any(|one| has(one, encodings));
            if is_kept {
                put();
            }
            is_kept
        });
        is_kept
    }

    /// Creates a hit for a response that is not stored.
    pub fn detached_hit(stored: Stored) -> Hit {
        let file = stored.body.file();
        let variants = SmallVec::from_iter([stored]);
        Hit {
            object: Arc::new(Object::new(KeyNotes::default(), variants)),
            index: 0,
            file,
        }
    }

    /// Learns Vary names and codings from the head of a response in progress, so that waiting requests can
    /// be separated. `announce` receives the new selection of the request before any other thread can see
    /// it.
    pub fn learn(
        &self,
        key: &Key,
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
    pub fn learn_vary(&self, key: &Key, names: &VaryNames, until: Time, now: Time) {
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
        key: &Key,
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
    pub fn remove_selected(&self, key: &Key, request: &OriginView<'_>) {
        self.change(key, |notes, variants| {
            let mut selects = VariantMatcher::by(request, notes);
            let stays: Vec<bool> = variants.iter().map(|one| !selects.one(one)).collect();
            let mut stays = stays.into_iter();
            variants.retain(|_| stays.next().unwrap_or(true));
            true
        });
    }

    /// Applies a decision to each variant of a key. Returns the number of removed ones.
    pub fn revise(&self, key: &Key, mut revise: impl FnMut(&Stored) -> Revision) -> usize {
        let mut dropped = 0;
        self.change(key, |_, variants| {
            let mut is_changed = false;
            variants.retain(|one| match revise(one) {
                Revision::Keep => true,
                Revision::Expire(at) => {
                    let mut lifetime = one.lifetime;
                    lifetime.expire(at);
                    *one = one.with_lifetime(lifetime);
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

    /// Iterates over all keys, in no particular order; concurrent changes may be missed. Locks are held for
    /// one key at a time.
    pub fn entries(&self) -> impl Iterator<Item = (Key, Arc<Object>)> {
        self.cache.iter()
    }

    /// Removes a key. Returns whether it existed.
    pub fn remove(&self, key: &[u8]) -> bool {
        let _turn = self.turn(key);
        self.cache.remove(key).is_some()
    }

    /// Returns the statistics.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.cache.len() as u64,
            bytes: self.cache.weight(),
            capacity: self.cache.capacity(),
            evicted: self.evicted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Replaces the object of a key, unless `change` returns `false`.
    fn change(
        &self,
        key: &Key,
        change: impl FnOnce(&mut KeyNotes, &mut SmallVec<[Stored; 1]>) -> bool,
    ) {
        let _turn = self.turn(key);
        let old = self.cache.peek(key);
        let (mut notes, mut variants) = old.map_or_else(Default::default, |old| {
            let variants = old.variants.iter().map(Stored::copy).collect();
            (old.notes().clone(), variants)
        });
        if change(&mut notes, &mut variants) {
            let object = Object::new(notes, variants);
            self.cache.insert(Arc::clone(key), Arc::new(object));
        }
    }

    fn turn(&self, key: &[u8]) -> parking_lot::MutexGuard<'_, ()> {
        let hash = std::hash::BuildHasher::hash_one(&self.hasher, key);
        self.turns[hash as usize % Self::TURNS].lock()
    }
}

/// Returns whether the response has these encodings.
fn has(stored: &Stored, encodings: &Arc<BodyEncodings>) -> bool {
    let known = stored.known_encoded();
    known.is_some_and(|known| Arc::ptr_eq(known.bodies(), encodings))
}

#[derive(Clone, Debug)]
struct ObjectWeight;

impl Weighter<Key, Arc<Object>> for ObjectWeight {
    fn weight(&self, key: &Key, object: &Arc<Object>) -> u64 {
        object.weight + key.len() as u64 + Object::OVERHEAD
    }
}

#[derive(Clone, Debug)]
struct EvictionCounter(Arc<AtomicU64>);

impl Lifecycle<Key, Arc<Object>> for EvictionCounter {
    type RequestState = ();
    /// Unlike `on_evict`, this is not called for replaced objects.
    fn before_evict(&self, (): &mut (), _: &Key, _: &mut Arc<Object>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
