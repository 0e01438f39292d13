//! Sharded table of the objects in memory, bounded by their weight.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use parking_lot::RwLock;

use super::object::Object;
use crate::eviction::{EvictionQueue, is_probation_full};
use crate::stored::TablePlace;

/// Objects by key. A look-up takes the lock of a shard shared, and reads a slot of its index and the object. The hash is
/// kept with the object, so that a growing index reads no key.
#[derive(Debug)]
pub(super) struct Table {
    shards: Box<[RwLock<Shard>]>,
    hasher: RandomState,
    capacity: u64,
    /// Sum of the charges of all objects, and of the spare memory of the shards.
    weight: AtomicU64,
    /// Approximate weight of the objects on probation in all shards.
    on_probation: AtomicU64,
    evicted: AtomicU64,
    /// Place of the shard that evicts next. All take turns, so that a heavy object does not empty the shard it belongs
    /// to.
    next: AtomicU32,
}

/// Hash of a key: the upper half chooses the shard, the lower half the slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeyHash(u64);

#[derive(Debug)]
struct Shard {
    index: HashTable<Object>,
    /// Objects by their slot, which is their number in the queue.
    slots: Vec<Option<Object>>,
    free: Vec<u32>,
    queue: EvictionQueue,
}

/// Object that is no longer in the table, and the weight that is free with it. It is dropped without the lock.
struct Removed {
    charge: u64,
    object: Object,
}

impl KeyHash {
    const fn place(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn slot(self) -> u32 {
        self.0 as u32
    }

    /// Number that locks of keys are striped by.
    pub(super) const fn number(self) -> usize {
        self.0 as usize
    }
}

impl Table {
    /// Capacity per shard, in bytes, up to the maximum of shards: small queues evict less well.
    const SHARD: u64 = 4 << 20;
    const MAX_SHARDS: u64 = 64;
    /// Objects that an iteration takes at a time, under the lock of a shard.
    const BATCH: usize = 64;

    pub(super) fn new(capacity: u64) -> Self {
        let shards = (capacity / Self::SHARD).clamp(1, Self::MAX_SHARDS);
        Self {
            shards: (0..shards).map(|_| RwLock::new(Shard::new())).collect(),
            hasher: RandomState::default(),
            capacity,
            weight: AtomicU64::new(0),
            on_probation: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
            next: AtomicU32::new(0),
        }
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.hasher.hash_one(key))
    }

    /// Returns an object.
    #[inline]
    pub(super) fn get(&self, key: &[u8], hash: KeyHash) -> Option<Object> {
        self.shard(hash).read().find(hash, key).cloned()
    }

    /// Stores an object in place of that of the same key, if there is one: `old`, unless it was evicted meanwhile.
    /// Others are evicted to make room. An object above the capacity is not stored.
    pub(super) fn insert(&self, object: Object, hash: KeyHash, old: Option<Object>) {
        let weight = TablePlace::rounded(object.weight());
        let old = old.map_or(0, |old| old.latest().place().charge());
        if weight > self.capacity {
            self.remove(object.key(), hash);
            return;
        }
        self.make_room(weight.saturating_sub(old));
        // First, so that the sum is never less than what another thread releases.
        self.weight.fetch_add(weight, Ordering::Relaxed);
        let replaced = self.change(self.shard(hash), |shard| shard.insert(object, hash, weight));
        self.release(replaced);
        // That of other threads, which made room at the same time.
        self.make_room(0);
    }

    /// Removes an object. Returns whether it existed.
    pub(super) fn remove(&self, key: &[u8], hash: KeyHash) -> bool {
        let removed = self.change(self.shard(hash), |shard| shard.remove(key, hash));
        let is_removed = removed.is_some();
        self.release(removed);
        is_removed
    }

    /// Iterates over all objects. Those inserted or removed meanwhile may be missing; those replaced are not. When a
    /// shard shrinks meanwhile, some may come twice.
    pub(super) fn iter(&self) -> impl Iterator<Item = Object> {
        self.shards.iter().flat_map(|shard| {
            // From the last slot to the first: objects move to lower slots only, so none is missed.
            let mut end = usize::MAX;
            let batches = std::iter::from_fn(move || {
                let shard = shard.read();
                let left = &shard.slots[..end.min(shard.slots.len())];
                end = left.len().saturating_sub(Self::BATCH);
                (!left.is_empty()).then(|| left[end..].to_vec())
            });
            batches.flatten().flatten()
        })
    }

    /// Number of objects.
    pub(super) fn len(&self) -> usize {
        let shards = self.shards.iter();
        shards.map(|shard| shard.read().index.len()).sum()
    }

    /// Sum of all weights, and of the spare memory of the shards.
    pub(super) fn weight(&self) -> u64 {
        self.weight.load(Ordering::Relaxed)
    }

    /// Number of evicted objects.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// Evicts objects until one of this weight fits.
    fn make_room(&self, weight: u64) {
        while self.weight() + weight > self.capacity && self.evict() {}
    }

    /// Evicts one object. Returns `false` if there is none.
    fn evict(&self) -> bool {
        // A step of the golden ratio spreads evictions as hashes spread insertions.
        let place = self.next.fetch_add(0x9E37_79B9, Ordering::Relaxed);
        let (first, count) = (self.number_of(place), self.shards.len());
        let victim_of = |evict: fn(&mut Shard) -> Option<Removed>| {
            let mut turns = (first..first + count).map(|at| &self.shards[at % count]);
            turns.find_map(|shard| self.change(shard, evict))
        };
        // The share of probation is that of all shards together: a shard with few objects on probation keeps its
        // established ones while others have more.
        let is_full = is_probation_full(self.on_probation.load(Ordering::Relaxed), self.weight());
        let on_probation = is_full
            .then(|| victim_of(Shard::evict_on_probation))
            .flatten();
        let victim = on_probation.or_else(|| victim_of(Shard::evict_established));
        let is_evicted = victim.is_some();
        self.release(victim);
        self.evicted
            .fetch_add(u64::from(is_evicted), Ordering::Relaxed);
        is_evicted
    }

    /// Changes a shard under its lock.
    fn change<T>(&self, shard: &RwLock<Shard>, change: impl FnOnce(&mut Shard) -> T) -> T {
        let mut shard = shard.write();
        let (on_probation, spare) = (shard.queue.probation_weight(), shard.spare());
        let result = change(&mut shard);
        shard.shrink();
        // It wraps around if there is less now. Under the lock, so that the sum is never less than nothing.
        let grown = shard.queue.probation_weight().wrapping_sub(on_probation);
        self.on_probation.fetch_add(grown, Ordering::Relaxed);
        let grown = shard.spare().wrapping_sub(spare);
        if grown != 0 {
            self.weight.fetch_add(grown, Ordering::Relaxed);
        }
        result
    }

    fn release(&self, removed: Option<Removed>) {
        let charge = removed.map_or(0, |removed| removed.charge);
        self.weight.fetch_sub(charge, Ordering::Relaxed);
    }

    #[inline]
    fn shard(&self, hash: KeyHash) -> &RwLock<Shard> {
        &self.shards[self.number_of(hash.place())]
    }

    /// Returns the number of a shard. The first ones have three times as many keys as the last: their indexes grow at
    /// different times, and take less memory together.
    #[inline]
    const fn number_of(&self, place: u32) -> usize {
        let place = place as u64;
        let skewed = (place + ((place * place) >> 32)) >> 1;
        ((skewed * self.shards.len() as u64) >> 32) as usize
    }
}

impl Shard {
    /// Memory of index, slots and queue that is not charged, in bytes: that of few objects, less than a hundredth of
    /// the capacity of a shard.
    const UNCHARGED: usize = 32 << 10;

    fn new() -> Self {
        Self {
            index: HashTable::new(),
            slots: Vec::new(),
            free: Vec::new(),
            queue: EvictionQueue::new(),
        }
    }

    #[inline]
    fn find(&self, hash: KeyHash, key: &[u8]) -> Option<&Object> {
        self.index
            .find(spread(hash.slot()), |it| is_of(it, hash, key))
    }

    /// Returns the replaced object.
    fn insert(&mut self, object: Object, hash: KeyHash, weight: u64) -> Option<Removed> {
        let place = object.latest().place();
        let is_same = |it: &Object| is_of(it, hash, object.key());
        let spread_hash = |it: &Object| spread(it.latest().place().hash());
        match self.index.entry(spread(hash.slot()), is_same, spread_hash) {
            Entry::Occupied(mut old) => {
                let before = old.get().latest();
                let (slot, charge) = (before.place().slot(), before.place().charge());
                place.set(hash.slot(), slot, weight);
                object.latest().recent_uses().inherit(before.recent_uses());
                self.slots[slot as usize] = Some(object.clone());
                self.queue.replace(slot, weight, object.latest().cost());
                let object = std::mem::replace(old.get_mut(), object);
                Some(Removed { charge, object })
            }
            Entry::Vacant(vacant) => {
                let slot = self.free.pop().unwrap_or(self.slots.len() as u32);
                place.set(hash.slot(), slot, weight);
                let object = vacant.insert(object).get().clone();
                let cost = object.latest().cost();
                self.queue.insert(slot, spread(hash.slot()), weight, cost);
                self.occupy(slot, object);
                None
            }
        }
    }

    fn remove(&mut self, key: &[u8], hash: KeyHash) -> Option<Removed> {
        let found = self
            .index
            .find_entry(spread(hash.slot()), |it| is_of(it, hash, key));
        let (object, _) = found.ok()?.remove();
        let slot = object.latest().place().slot();
        self.queue.remove(slot);
        self.vacate(slot)
    }

    fn evict_on_probation(&mut self) -> Option<Removed> {
        let slots = &self.slots;
        let slot = self.queue.evict_on_probation(|slot| look(slots, slot))?;
        self.take_out(slot)
    }

    fn evict_established(&mut self) -> Option<Removed> {
        let slots = &self.slots;
        let slot = self.queue.evict_established(|slot| look(slots, slot))?;
        self.take_out(slot)
    }

    /// Removes an object that has left the queue.
    fn take_out(&mut self, slot: u32) -> Option<Removed> {
        let victim = self.vacate(slot)?;
        let hash = victim.object.latest().place().hash();
        let is_victim = |it: &Object| it.latest().place().slot() == slot;
        if let Ok(found) = self.index.find_entry(spread(hash), is_victim) {
            found.remove();
        }
        Some(victim)
    }

    fn occupy(&mut self, slot: u32, object: Object) {
        let at = slot as usize;
        if at == self.slots.len() {
            if at == self.slots.capacity() {
                // Doubling would leave more of it unused.
                self.slots.reserve_exact(at / 8 + 8);
            }
            self.slots.push(Some(object));
        } else {
            self.slots[at] = Some(object);
        }
    }

    /// Memory of index, slots and queue, in bytes.
    fn heap_size(&self) -> usize {
        self.index.allocation_size()
            + self.slots.capacity() * size_of::<Option<Object>>()
            + self.free.capacity() * size_of::<u32>()
            + self.queue.heap_size()
    }

    /// The part of it that the objects are not charged for, in bytes: it is left from more objects than there are now.
    fn spare(&self) -> u64 {
        let charged = self.index.len() * Object::OVERHEAD + Self::UNCHARGED;
        self.heap_size().saturating_sub(charged) as u64
    }

    /// Frees the spare memory if it is more than twice of what the objects need. They move to the first slots.
    fn shrink(&mut self) {
        let count = self.index.len();
        if self.spare() <= 2 * (count * Object::OVERHEAD) as u64 {
            return;
        }
        let (first, rest) = self.slots.split_at_mut(count);
        let vacant = (0..).zip(first).filter(|(_, object)| object.is_none());
        let moving = (count as u32..)
            .zip(rest)
            .filter_map(|(slot, object)| Some((slot, object.take()?)));
        for ((to, vacant), (from, object)) in vacant.zip(moving) {
            object.latest().place().move_to(to);
            self.queue.relocate(from, to);
            *vacant = Some(object);
        }
        self.slots.truncate(count);
        self.slots.shrink_to_fit();
        self.free = Vec::new();
        self.queue.shrink();
        let spread_hash = |it: &Object| spread(it.latest().place().hash());
        self.index.shrink_to_fit(spread_hash);
    }

    fn vacate(&mut self, slot: u32) -> Option<Removed> {
        self.free.push(slot);
        let object = self.slots[slot as usize].take()?;
        let charge = object.latest().place().charge();
        Some(Removed { charge, object })
    }
}

/// Returns the hash of an object, and its uses since the queue looked before.
fn look(slots: &[Option<Object>], slot: u32) -> (u64, u8) {
    slots[slot as usize].as_ref().map_or((0, 0), |object| {
        let latest = object.latest();
        (spread(latest.place().hash()), latest.recent_uses().take())
    })
}

#[inline]
fn is_of(object: &Object, hash: KeyHash, key: &[u8]) -> bool {
    object.latest().place().hash() == hash.slot() && object.key() == key
}

/// Spreads a hash for the index, which uses the upper seven bits beside the lower ones.
#[inline]
const fn spread(hash: u32) -> u64 {
    // 2^64 divided by the golden ratio.
    (hash as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

#[cfg(test)]
mod tests;
