//! The memory tier: sharded, bounded in bytes, synchronous.

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
use crate::encodings::{Base, Encodings, Making};
use crate::key_notes::{KeyNotes, Learnt, NOTHING, Selects};
use crate::stored::Stored;

/// The bounds of the memory tier.
#[derive(Clone, Copy, Debug)]
pub struct MemoryLimits {
    /// Bodies, heads, keys and index together, in bytes.
    pub capacity: u64,
    /// The largest response that is kept, body and head together. At most a quarter of a shard.
    pub object: u64,
    /// Responses kept side by side for one key.
    pub variants: usize,
}

/// All that is known about one key.
#[derive(Debug)]
pub struct Object {
    notes: Option<Box<KeyNotes>>,
    variants: SmallVec<[Stored; 1]>,
    weight: u64,
}

/// With its counts it fills one piece of the allocator's; the next larger one has 320 bytes.
const _: () = assert!(size_of::<Object>() + 2 * size_of::<usize>() <= 256);

impl Object {
    /// What one key costs beside the bytes it owns: this struct and its count, the key's own
    /// header, its counts, a slot and two hashes in the index, and what the allocator rounds up.
    /// `tests/it/memory.rs` holds the sum against what the process really uses.
    const OVERHEAD: u64 = size_of::<Self>() as u64 + 192;

    fn new(notes: KeyNotes, variants: SmallVec<[Stored; 1]>) -> Self {
        let owned: usize = variants.iter().map(Stored::heap_size).sum();
        let spilled = variants.len().saturating_sub(1) * size_of::<Stored>();
        let notes = notes.kept();
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

    /// How many responses are kept for this key.
    pub fn variants(&self) -> &[Stored] {
        &self.variants
    }

    /// What a request says in the fields that tell requests for this key apart: the same for those
    /// whose answer can be one.
    pub fn selection(&self, request: &OriginView<'_>) -> Selection {
        self.notes().selection(request)
    }

    /// The request fields that tell requests for this key apart, and what a request says in them.
    pub fn told_apart_by(&self, request: &OriginView<'_>) -> (&VaryNames, Selection) {
        let mut selection = Selection::new();
        vary::select(&self.notes().vary, request, &mut selection);
        (&self.notes().vary, selection)
    }

    /// All responses that a request selects.
    pub fn selected<'a>(&'a self, request: &'a OriginView<'a>) -> impl Iterator<Item = &'a Stored> {
        let mut selects = Selects::by(request, self.notes());
        self.variants.iter().filter(move |one| selects.one(one))
    }

    /// The names that a response of this key counts as varying on, which itself names `named`.
    pub fn vary_of(&self, named: VaryNames, now: Time) -> VaryNames {
        self.notes().vary_of(named, now)
    }

    /// Why the answer to a request with this [`Object::selection`] is expected not to be storable, if it is.
    pub fn uncacheable(&self, selection: &[u8], now: Time) -> Option<Detail> {
        self.notes().marked(selection, now)
    }

    /// The response that a request selects, the latest if there are several; the object again if
    /// there is none.
    #[inline]
    pub fn select(self: Arc<Self>, request: &OriginView<'_>, now: Time) -> Result<Hit, Arc<Self>> {
        let mut selects = Selects::by(request, self.notes());
        let index = self.variants.iter().rposition(|one| selects.one(one));
        match index {
            Some(index) => {
                // Alone it has nobody to give way to.
                if self.variants.len() > 1 {
                    self.variants[index].note_use(now);
                }
                Hit::new(self, index)
            }
            None => Err(self),
        }
    }

    /// Whether a body was in a file that has been closed: it is to be looked for where it was.
    pub fn has_lost_a_file(&self) -> bool {
        self.variants.iter().any(|stored| stored.body.is_gone())
    }
}

/// A response in memory, held for as long as somebody looks at it.
#[derive(Clone, Debug)]
pub struct Hit {
    object: Arc<Object>,
    index: usize,
    /// The file its body is in, held open.
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
    /// `Err` if the body was in a file that has been closed.
    #[inline]
    fn new(object: Arc<Object>, index: usize) -> Result<Self, Arc<Object>> {
        let body = &object.variants[index].body;
        let file = body.file();
        if file.is_none() && matches!(body, Content::Lent(_)) {
            return Err(object);
        }
        Ok(Self {
            object,
            index,
            file,
        })
    }

    /// The file that the body is in, if it is not in memory.
    pub const fn file(&self) -> Option<&Arc<FileBody>> {
        self.file.as_ref()
    }

    /// What else is known about its key.
    pub fn object(&self) -> &Object {
        &self.object
    }
}

/// A response was not taken: it is larger than the object limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

/// What becomes of a response that is looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Revision {
    /// It stays as it is.
    Keep,
    /// It is stale since that moment.
    Expire(Time),
    /// It goes.
    Drop,
}

/// What the memory tier holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStats {
    /// Keys held.
    pub keys: u64,
    /// Bytes held, everything counted.
    pub bytes: u64,
    /// The bound on `bytes`.
    pub capacity: u64,
    /// Keys that had to leave for others.
    pub evicted: u64,
    /// Responses that were not taken.
    pub refused: u64,
}

/// A key, held once for all who speak of it.
pub type Key = Arc<[u8]>;

/// The memory tier.
#[derive(Debug)]
pub struct Memory {
    cache: Cache<Key, Arc<Object>, Weigh, RandomState, CountEvictions>,
    /// A change of an object reads the old one first; two changes of one key take turns.
    turns: Box<[Mutex<()>]>,
    hasher: RandomState,
    limits: MemoryLimits,
    /// The most responses of one key, which may change.
    variants: AtomicUsize,
    evicted: Arc<AtomicU64>,
    refused: AtomicU64,
}

impl Memory {
    const TURNS: usize = 64;
    /// The index is laid out for objects of this size; other sizes only cost some rehashing.
    const TYPICAL_OBJECT: u64 = 8 * 1024;
    /// A shard has to hold at least four of the largest objects, or its share of the capacity
    /// would refuse what the whole could hold.
    const LARGEST_PER_SHARD: u64 = 4;
    const MAX_SHARDS: u64 = 64;

    /// An empty memory with these bounds.
    pub fn new(limits: MemoryLimits) -> Self {
        let per_shard = limits.object.max(1) * Self::LARGEST_PER_SHARD;
        let shards = (limits.capacity / per_shard).clamp(1, Self::MAX_SHARDS);
        // quick_cache rounds up to a power of two; the smaller power keeps the shards large.
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
            Weigh,
            RandomState::default(),
            CountEvictions(Arc::clone(&evicted)),
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

    /// Keeps so many responses of one key from now on.
    pub fn rebound(&self, variants: usize) {
        self.variants.store(variants, Ordering::Relaxed);
    }

    /// The bounds that it began with.
    pub fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// What is known about a key.
    #[inline]
    pub fn get(&self, key: &[u8]) -> Option<Arc<Object>> {
        self.cache.get(key)
    }

    /// Keeps the answer to a request, in the place of what the request selected before. Where there
    /// is no room for another variant, the least recently used one goes.
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
        notes.learn(stored.learnt(request.rules), now);
        notes.unmark(&notes.selection(request));
        let mut selects = Selects::by(request, &notes);
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
        let body = stored.body.clone().lent();
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

    /// Lets go of variants until one more of this size may come: those that nobody has asked for
    /// again first, so that requests of all sorts do not push out what is in use.
    fn make_room(&self, variants: &mut SmallVec<[Stored; 1]>, size: usize) {
        let bound = self.largest_key();
        let weight = |all: &[Stored]| all.iter().map(Stored::heap_size).sum::<usize>() + size;
        let most = self.variants.load(Ordering::Relaxed).max(1);
        while variants.len() >= most || weight(variants) as u64 > bound {
            let least = variants.iter().enumerate().min_by_key(|(at, one)| {
                let used = one.last_use();
                // Of those used at the same time the first has been of use for longest; of those that
                // never were, it has been of no use for longest.
                (used, if used == 0 { *at } else { usize::MAX - at })
            });
            let Some((at, _)) = least else {
                return;
            };
            variants.remove(at);
        }
    }

    /// The most that the responses of one key may take: what is heavier than a shard would be dropped without
    /// a word.
    fn largest_key(&self) -> u64 {
        self.limits.object * (Self::LARGEST_PER_SHARD - 1)
    }

    /// The body that something is made of, if it is still there.
    pub fn body_of(&self, key: &[u8], encodings: &Arc<Encodings>) -> Option<Bytes> {
        let object = self.cache.peek(key)?;
        let mut variants = object.variants.iter();
        let one = variants.find(|one| has(one, encodings))?;
        one.body.bytes().cloned()
    }

    /// Keeps what was made of a body with the response that has it. Not if that is not there any more: what
    /// has come in its place has another body; and not if there is no room for it. It is counted as the
    /// response's.
    pub fn attach(
        &self,
        key: &Key,
        encodings: &Arc<Encodings>,
        making: Making,
        body: Bytes,
    ) -> bool {
        self.attach_with(key, encodings, body.len(), || encodings.put(making, body))
    }

    /// The same with what differs from one of its bases.
    pub fn attach_difference(
        &self,
        key: &Key,
        encodings: &Arc<Encodings>,
        base: &Base,
        coding: DictionaryCoding,
        bytes: Bytes,
    ) -> bool {
        self.attach_with(key, encodings, bytes.len(), || base.put(coding, bytes))
    }

    fn attach_with(
        &self,
        key: &Key,
        encodings: &Arc<Encodings>,
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

    /// A response held like one in memory, before it is.
    pub fn hold(stored: Stored) -> Hit {
        let file = stored.body.file();
        let variants = SmallVec::from_iter([stored]);
        Hit {
            object: Arc::new(Object::new(KeyNotes::default(), variants)),
            index: 0,
            file,
        }
    }

    /// Notes what the answer to a request tells about its key before it is there, so that those who
    /// wait for it can be told apart. `announce` is told what the request says from then on, before
    /// anybody else can know it.
    pub fn learn(
        &self,
        key: &Key,
        response: Learnt<'_>,
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

    /// Notes that responses of this key are known to vary on these names, until then.
    pub fn learn_vary(&self, key: &Key, names: &VaryNames, until: Time, now: Time) {
        self.change(key, |notes, _| {
            let vary = notes.vary_of(names.clone(), now);
            let is_new = notes.vary != vary || notes.varies_until < until;
            notes.note_vary(vary, until);
            is_new
        });
    }

    /// Notes that the answers to such requests are not storable for now, and why this one was not. `named`
    /// is what it said that it varies on.
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

    /// Forgets what a request selects of a key.
    pub fn remove_selected(&self, key: &Key, request: &OriginView<'_>) {
        self.change(key, |notes, variants| {
            let mut selects = Selects::by(request, notes);
            let stays: Vec<bool> = variants.iter().map(|one| !selects.one(one)).collect();
            let mut stays = stays.into_iter();
            variants.retain(|_| stays.next().unwrap_or(true));
            true
        });
    }

    /// Looks at every response of a key again. Says how many were dropped.
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

    /// Everything there is, in no order. What comes or goes meanwhile may be left out. Nobody waits for
    /// it: one key at a time is looked at under a lock.
    pub fn entries(&self) -> impl Iterator<Item = (Key, Arc<Object>)> {
        self.cache.iter()
    }

    /// Forgets a key. Says whether anything was there.
    pub fn remove(&self, key: &[u8]) -> bool {
        let _turn = self.turn(key);
        self.cache.remove(key).is_some()
    }

    /// What it holds and has done.
    pub fn stats(&self) -> MemoryStats {
        MemoryStats {
            keys: self.cache.len() as u64,
            bytes: self.cache.weight(),
            capacity: self.cache.capacity(),
            evicted: self.evicted.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
        }
    }

    /// Has something changed in what is known about a key; unless `change` says that nothing did.
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

/// Whether these are what its body is in other codings.
fn has(stored: &Stored, encodings: &Arc<Encodings>) -> bool {
    let known = stored.known_encoded();
    known.is_some_and(|known| Arc::ptr_eq(known.bodies(), encodings))
}

#[derive(Clone, Debug)]
struct Weigh;

impl Weighter<Key, Arc<Object>> for Weigh {
    fn weight(&self, key: &Key, object: &Arc<Object>) -> u64 {
        object.weight + key.len() as u64 + Object::OVERHEAD
    }
}

#[derive(Clone, Debug)]
struct CountEvictions(Arc<AtomicU64>);

impl Lifecycle<Key, Arc<Object>> for CountEvictions {
    type RequestState = ();
    /// Unlike `on_evict`, this is not called for what is replaced.
    fn before_evict(&self, (): &mut (), _: &Key, _: &mut Arc<Object>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
