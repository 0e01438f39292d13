//! The memory tier: sharded, bounded in bytes, synchronous.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use microcache_policy::vary::{self, Selection, VaryNames};
use microcache_policy::{Fields, Time};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use quick_cache::{Lifecycle, OptionsBuilder, Weighter};
use smallvec::SmallVec;

use crate::content::{Content, FileBody};
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
    /// What the latest response of this key varied on.
    pub vary: VaryNames,
    /// Until then responses for this key are expected not to be storable, and nobody waits for
    /// somebody else's.
    pub uncacheable_until: Time,
    variants: SmallVec<[Stored; 1]>,
    weight: u64,
}

impl Object {
    /// What one key costs beside the bytes it owns: this struct and its count, the key's own
    /// header, a slot and two hashes in the index, and what the allocator rounds up.
    /// `tests/it/memory.rs` holds the sum against what the process really uses.
    const OVERHEAD: u64 = size_of::<Self>() as u64 + 176;

    fn new(vary: VaryNames, uncacheable_until: Time, variants: SmallVec<[Stored; 1]>) -> Self {
        let owned: usize = variants.iter().map(Stored::heap_size).sum();
        let spilled = variants.len().saturating_sub(1) * size_of::<Stored>();
        let weight = (owned + spilled + vary.as_bytes().len()) as u64;
        Self {
            vary,
            uncacheable_until,
            variants,
            weight,
        }
    }

    /// How many responses are kept for this key.
    pub fn variants(&self) -> &[Stored] {
        &self.variants
    }

    /// The response that the request's fields select, the latest if there are several; the object
    /// again if there is none.
    pub fn select(self: Arc<Self>, request: Fields<'_>) -> Result<Hit, Arc<Self>> {
        let mut selection = Selection::new();
        let mut computed_for: Option<&VaryNames> = None;
        let index = self.variants.iter().rposition(|stored| {
            if stored.vary.is_empty() {
                return true;
            }
            if computed_for != Some(&stored.vary) {
                selection.clear();
                vary::select(&stored.vary, request, &mut selection);
                computed_for = Some(&stored.vary);
            }
            stored.selection[..] == selection[..]
        });
        match index {
            Some(index) => Hit::new(self, index),
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
    fn deref(&self) -> &Stored {
        &self.object.variants[self.index]
    }
}

impl Hit {
    /// `Err` if the body was in a file that has been closed.
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

/// Why a response was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is larger than the object limit.
    TooLarge,
    /// As many variants of its key as allowed are there, all of them in use.
    TooManyVariants,
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

type Key = Box<[u8]>;

/// The memory tier.
#[derive(Debug)]
pub struct Memory {
    cache: Cache<Key, Arc<Object>, Weigh, RandomState, CountEvictions>,
    /// A change of an object reads the old one first; two changes of one key take turns.
    turns: Box<[Mutex<()>]>,
    hasher: RandomState,
    limits: MemoryLimits,
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
            limits,
            evicted,
            refused: AtomicU64::new(0),
        }
    }

    /// The bounds.
    pub fn limits(&self) -> &MemoryLimits {
        &self.limits
    }

    /// What is known about a key.
    pub fn get(&self, key: &[u8]) -> Option<Arc<Object>> {
        self.cache.get(key)
    }

    /// Keeps a response, in the place of the one with the same selection.
    pub fn put(&self, key: &[u8], stored: Stored, now: Time) -> Result<Hit, Refused> {
        if (key.len() + stored.heap_size()) as u64 > self.limits.object {
            return Err(self.refuse(Refused::TooLarge));
        }
        let _turn = self.turn(key);
        let mut variants: SmallVec<[Stored; 1]> = SmallVec::new();
        if let Some(old) = self.cache.peek(key) {
            variants.extend(
                old.variants
                    .iter()
                    .filter(|one| {
                        !(one.vary == stored.vary && one.selection == stored.selection)
                            && now < one.lifetime.usable_until()
                    })
                    .map(|one| one.with_lifetime(one.lifetime)),
            );
        }
        if variants.len() >= self.limits.variants {
            return Err(self.refuse(Refused::TooManyVariants));
        }
        let (vary, file) = (stored.vary.clone(), stored.body.file());
        let body = stored.body.clone().lent();
        variants.push(stored.with_body(body));
        let index = variants.len() - 1;
        let object = Arc::new(Object::new(vary, Time::default(), variants));
        self.cache.insert(key.into(), Arc::clone(&object));
        Ok(Hit {
            object,
            index,
            file,
        })
    }

    /// A response held like one in memory, before it is.
    pub fn hold(stored: Stored) -> Hit {
        let (vary, file) = (stored.vary.clone(), stored.body.file());
        let variants = SmallVec::from_iter([stored]);
        Hit {
            object: Arc::new(Object::new(vary, Time::default(), variants)),
            index: 0,
            file,
        }
    }

    /// Notes what responses of this key vary on, before there is one to keep, so that those who
    /// wait for it can be told apart.
    pub fn learn_vary(&self, key: &[u8], vary: &VaryNames) {
        self.change(key, |old| {
            let known = old.is_some_and(|old| old.vary == *vary);
            (!known).then(|| {
                let (until, variants) = copy_of(old);
                Object::new(vary.clone(), until, variants)
            })
        });
    }

    /// Notes that responses of this key are not storable for now.
    pub fn mark_uncacheable(&self, key: &[u8], until: Time) {
        self.change(key, |old| {
            let vary = old.map_or_else(VaryNames::default, |old| old.vary.clone());
            Some(Object::new(vary, until, copy_of(old).1))
        });
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

    fn change(&self, key: &[u8], next: impl FnOnce(Option<&Object>) -> Option<Object>) {
        let _turn = self.turn(key);
        let old = self.cache.peek(key);
        if let Some(object) = next(old.as_deref()) {
            self.cache.insert(key.into(), Arc::new(object));
        }
    }

    fn turn(&self, key: &[u8]) -> parking_lot::MutexGuard<'_, ()> {
        let hash = std::hash::BuildHasher::hash_one(&self.hasher, key);
        self.turns[hash as usize % Self::TURNS].lock()
    }

    fn refuse(&self, why: Refused) -> Refused {
        self.refused.fetch_add(1, Ordering::Relaxed);
        why
    }
}

fn copy_of(old: Option<&Object>) -> (Time, SmallVec<[Stored; 1]>) {
    old.map_or_else(Default::default, |old| {
        let variants = old
            .variants
            .iter()
            .map(|one| one.with_lifetime(one.lifetime));
        (old.uncacheable_until, variants.collect())
    })
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
