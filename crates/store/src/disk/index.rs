//! Index of a disk tier by entry id, with its eviction order.
//!
//! A million entries take some sixty bytes each: a slot, its number in a hash table, and its place in the
//! eviction order.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::geometry::{DISK_BLOCK, blocks};
use crate::eviction::{EvictionQueue, FetchCost, MAX_USES};
use crate::tier::EntryId;

const SLOTS_AT_ONCE: usize = 1024;

/// Index of a disk tier.
pub(super) struct DiskIndex {
    table: HashTable<u32>,
    hasher: RandomState,
    slots: IndexSlots,
    queue: EvictionQueue,
    /// Total blocks of all entries.
    blocks: u64,
}

/// Index data of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) id: EntryId,
    /// Blocks occupied by its file.
    pub(super) blocks: u32,
    /// Expiry, in seconds since the Unix epoch.
    pub(super) expires: u32,
    /// Cost of fetching it again.
    pub(super) cost: FetchCost,
}

impl IndexEntry {
    /// Returns `None` if the file is too large to be counted.
    pub(super) fn new(id: EntryId, file_len: u64, expires: u64, cost: FetchCost) -> Option<Self> {
        Some(Self {
            id,
            blocks: u32::try_from(blocks(file_len)).ok()?,
            expires: u32::try_from(expires).unwrap_or(u32::MAX),
            cost,
        })
    }

    fn weight(&self) -> u64 {
        u64::from(self.blocks) * DISK_BLOCK
    }
}

/// Entry in a slot, as bytes where alignment would take more space.
struct IndexSlot {
    id: [u8; 16],
    blocks: u32,
    expires: u32,
    cost: FetchCost,
    uses: u8,
    is_vacant: bool,
}

/// Slots by number.
struct IndexSlots {
    /// In chunks, so that growth neither copies nor doubles.
    chunks: Vec<Vec<IndexSlot>>,
    vacant: Vec<u32>,
}

impl DiskIndex {
    pub(super) fn new() -> Self {
        Self {
            table: HashTable::new(),
            hasher: RandomState::default(),
            slots: IndexSlots::new(),
            queue: EvictionQueue::new(),
            blocks: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Total blocks of all entries.
    pub(super) const fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(super) fn get(&self, id: EntryId) -> Option<IndexEntry> {
        self.find(id).map(|number| self.slots.get(number).known())
    }

    /// Counts a use.
    pub(super) fn touch(&mut self, id: EntryId) {
        if let Some(number) = self.find(id) {
            let slot = self.slots.get_mut(number);
            slot.uses = MAX_USES.min(slot.uses + 1);
        }
    }

    /// Sets the cost of an entry, unless it is known.
    pub(super) fn learn_cost(&mut self, id: EntryId, cost: FetchCost) {
        let Some(number) = self.find(id) else {
            return;
        };
        let slot = self.slots.get_mut(number);
        if slot.cost == FetchCost::default() {
            slot.cost = cost;
            self.queue.replace(number, slot.known().weight(), cost);
        }
    }

    /// Inserts an entry. A replaced one passes on its uses, plus one: a renewal is caused by a request.
    pub(super) fn insert(&mut self, known: IndexEntry) {
        self.blocks += u64::from(known.blocks);
        if let Some(number) = self.find(known.id) {
            self.touch(known.id);
            let old = self.slots.get_mut(number).renew(known);
            self.blocks -= u64::from(old);
            self.queue.replace(number, known.weight(), known.cost);
            return;
        }
        let number = self.slots.take(known);
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash = hasher.hash_one(known.id);
        self.table.insert_unique(hash, number, |&number| {
            hasher.hash_one(slots.get(number).id())
        });
        self.queue.insert(number, hash, known.weight(), known.cost);
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<IndexEntry> {
        let number = self.find(id)?;
        self.queue.remove(number);
        Some(self.take_out(number))
    }

    /// Evicts the least useful entry. `is_used` reports uses that are not counted here.
    pub(super) fn evict(&mut self, mut is_used: impl FnMut(EntryId) -> bool) -> Option<IndexEntry> {
        let (slots, hasher) = (&mut self.slots, &self.hasher);
        let number = self.queue.evict(|number| {
            let slot = slots.get_mut(number);
            let uses = std::mem::take(&mut slot.uses) + u8::from(is_used(slot.id()));
            (hasher.hash_one(slot.id()), MAX_USES.min(uses))
        })?;
        Some(self.take_out(number))
    }

    /// Returns the expired entries among `count` slots from `start`, and the slot to continue at.
    pub(super) fn expired(&self, start: u32, count: u32, now: u64) -> (Vec<EntryId>, u32) {
        let total = self.slots.total();
        let start = if start < total { start } else { 0 };
        let end = total.min(start.saturating_add(count));
        let over = (start..end)
            .filter_map(|number| self.slots.taken(number))
            .filter(|slot| u64::from(slot.expires) <= now)
            .map(IndexSlot::id)
            .collect();
        (over, end)
    }

    fn find(&self, id: EntryId) -> Option<u32> {
        let is_it = |&number: &u32| self.slots.get(number).id() == id;
        self.table.find(self.hasher.hash_one(id), is_it).copied()
    }

    /// Removes an entry that has left the queue.
    fn take_out(&mut self, number: u32) -> IndexEntry {
        let known = self.slots.get(number).known();
        let hash = self.hasher.hash_one(known.id);
        if let Ok(place) = self.table.find_entry(hash, |&other| other == number) {
            place.remove();
        }
        self.blocks -= u64::from(known.blocks);
        self.slots.free(number);
        known
    }
}

impl IndexSlots {
    const fn new() -> Self {
        Self {
            chunks: Vec::new(),
            vacant: Vec::new(),
        }
    }

    /// Number of slots, with room for more in the last chunk.
    fn total(&self) -> u32 {
        (self.chunks.len() * SLOTS_AT_ONCE) as u32
    }

    /// Takes a vacant slot for an entry.
    fn take(&mut self, known: IndexEntry) -> u32 {
        let slot = IndexSlot::new(known);
        if let Some(number) = self.vacant.pop() {
            *self.get_mut(number) = slot;
            return number;
        }
        if self
            .chunks
            .last()
            .is_none_or(|chunk| chunk.len() == SLOTS_AT_ONCE)
        {
            self.chunks.push(Vec::with_capacity(SLOTS_AT_ONCE));
        }
        let before = (self.chunks.len() - 1) * SLOTS_AT_ONCE;
        let chunk = self.chunks.last_mut().expect("there is one now");
        chunk.push(slot);
        (before + chunk.len() - 1) as u32
    }

    fn free(&mut self, number: u32) {
        self.get_mut(number).is_vacant = true;
        self.vacant.push(number);
    }

    /// A slot below [`Self::total`], if it has an entry.
    fn taken(&self, number: u32) -> Option<&IndexSlot> {
        let chunk = &self.chunks[number as usize / SLOTS_AT_ONCE];
        let slot = chunk.get(number as usize % SLOTS_AT_ONCE)?;
        (!slot.is_vacant).then_some(slot)
    }

    /// Numbers come from the table and the queue, and slots are never freed, so indexing cannot fail.
    fn get(&self, number: u32) -> &IndexSlot {
        &self.chunks[number as usize / SLOTS_AT_ONCE][number as usize % SLOTS_AT_ONCE]
    }

    fn get_mut(&mut self, number: u32) -> &mut IndexSlot {
        &mut self.chunks[number as usize / SLOTS_AT_ONCE][number as usize % SLOTS_AT_ONCE]
    }
}

impl IndexSlot {
    const fn new(known: IndexEntry) -> Self {
        Self {
            id: known.id.to_bytes(),
            blocks: known.blocks,
            expires: known.expires,
            cost: known.cost,
            uses: 0,
            is_vacant: false,
        }
    }

    /// Replaces the entry by another one of the same id, and returns its blocks before.
    fn renew(&mut self, known: IndexEntry) -> u32 {
        self.expires = known.expires;
        self.cost = known.cost.or(self.cost);
        std::mem::replace(&mut self.blocks, known.blocks)
    }

    const fn id(&self) -> EntryId {
        EntryId::from_bytes(self.id)
    }

    const fn known(&self) -> IndexEntry {
        IndexEntry {
            id: self.id(),
            blocks: self.blocks,
            expires: self.expires,
            cost: self.cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::*;
    use proptest::prelude::*;

    fn known(name: u16, blocks: u32) -> IndexEntry {
        IndexEntry {
            id: EntryId::of(&name.to_le_bytes()),
            blocks,
            expires: u32::from(name),
            cost: FetchCost::default(),
        }
    }

    #[test]
    fn a_slot_is_small() {
        assert_eq!(size_of::<IndexSlot>(), 28);
    }

    #[test]
    fn used_entries_outlive_unused_ones() {
        let mut index = DiskIndex::new();
        (0..100).for_each(|name| index.insert(known(name, 1)));
        (0..100)
            .step_by(2)
            .for_each(|name| index.touch(known(name, 1).id));
        for _ in 0..40 {
            let gone = index.evict(|_| false).expect("there are some");
            assert_eq!(gone.expires % 2, 1, "number {} was used", gone.expires);
        }
        assert_eq!(index.len(), 60);
    }

    #[test]
    fn a_use_seen_elsewhere_counts() {
        let mut index = DiskIndex::new();
        (0..10).for_each(|name| index.insert(known(name, 1)));
        let spared = known(0, 1).id;
        let gone: Vec<_> = (0..9)
            .filter_map(|_| index.evict(|id| id == spared))
            .collect();
        assert_eq!(gone.len(), 9);
        assert!(index.get(spared).is_some());
    }

    #[test]
    fn when_all_are_used_one_leaves_all_the_same() {
        let mut index = DiskIndex::new();
        (0..5000).for_each(|name| index.insert(known(name, 1)));
        assert!(index.evict(|_| true).is_some());
    }

    #[test]
    fn new_entries_do_not_evict_used_ones() {
        let mut index = DiskIndex::new();
        (0..100).for_each(|name| index.insert(known(name, 1)));
        (0..100).for_each(|name| index.touch(known(name, 1).id));
        for name in 1000..3000 {
            index.insert(known(name, 1));
            index.evict(|_| false);
        }
        let stayed = (0..100).filter(|&name| index.get(known(name, 1).id).is_some());
        assert!(stayed.count() >= 89);
    }

    #[test]
    fn of_used_entries_the_slow_ones_stay() {
        let mut index = DiskIndex::new();
        let cost = |name| {
            FetchCost::of(Duration::from_millis(if name % 10 == 0 {
                2000
            } else {
                50
            }))
        };
        for name in 0..2000 {
            let cost = cost(name);
            index.insert(IndexEntry {
                cost,
                ..known(name, 1)
            });
            index.touch(known(name, 1).id);
            if name >= 100 {
                index.evict(|_| false);
            }
        }
        let slow = (0..2000).step_by(10);
        let stayed = slow.filter(|&name| index.get(known(name, 1).id).is_some());
        assert!(stayed.count() > 30);
    }

    #[test]
    fn a_cost_that_is_learned_later_counts_and_a_known_one_stays() {
        let mut index = DiskIndex::new();
        let cost = |millis| FetchCost::of(Duration::from_millis(millis));
        (0..1000).for_each(|name| index.insert(known(name, 1)));
        for name in 1000..2000 {
            let cost = cost(50);
            index.insert(IndexEntry {
                cost,
                ..known(name, 1)
            });
        }
        for name in 0..2000 {
            let is_slow = name < 100;
            index.learn_cost(known(name, 1).id, cost(if is_slow { 2000 } else { 50 }));
            index.touch(known(name, 1).id);
        }
        index.learn_cost(known(0, 1).id, cost(1));
        index.learn_cost(known(1999, 1).id, cost(2000));
        index.learn_cost(known(2000, 1).id, cost(2000));
        let cost_of = |name| index.get(known(name, 1).id).map(|known| known.cost);
        assert_eq!(cost_of(0), Some(cost(2000)));
        assert_eq!(cost_of(1999), Some(cost(50)));
        assert_eq!(cost_of(2000), None);
        (0..1900).for_each(|_| assert!(index.evict(|_| false).is_some()));
        let stayed = (0..100).filter(|&name| index.get(known(name, 1).id).is_some());
        assert!(stayed.count() > 90);
    }

    #[test]
    fn one_that_comes_back_outlives_new_ones() {
        let mut index = DiskIndex::new();
        (0..100).for_each(|name| index.insert(known(name, 1)));
        let gone = index.evict(|_| false).expect("there are some");
        index.insert(gone);
        for name in 1000..3000 {
            index.insert(known(name, 1));
            index.evict(|_| false);
        }
        assert!(index.get(gone.id).is_some());
    }

    #[test]
    fn the_expired_are_found_piece_by_piece() {
        let mut index = DiskIndex::new();
        (0..3000).for_each(|name| index.insert(known(name, 1)));
        let (mut start, mut over) = (0, 0);
        for _ in 0..31 {
            let (found, end) = index.expired(start, 100, 1499);
            over += found.len();
            start = end;
        }
        assert_eq!((over, start), (1500, 3072));
        assert_eq!(index.expired(start, 100, 1499).1, 100, "it begins again");
    }

    #[derive(Clone, Debug)]
    enum ModelStep {
        Insert(u16, u32),
        Remove(u16),
        Touch(u16),
        Evict,
    }

    fn step() -> impl Strategy<Value = ModelStep> {
        prop_oneof![
            (0..60u16, 1..9u32).prop_map(|(name, blocks)| ModelStep::Insert(name, blocks)),
            (0..60u16).prop_map(ModelStep::Remove),
            (0..60u16).prop_map(ModelStep::Touch),
            Just(ModelStep::Evict),
        ]
    }

    proptest! {
        #[test]
        fn the_index_equals_a_map(steps in proptest::collection::vec(step(), 0..300)) {
            let (mut index, mut model) = (DiskIndex::new(), HashMap::new());
            for step in steps {
                match step {
                    ModelStep::Insert(name, blocks) => {
                        index.insert(known(name, blocks));
                        model.insert(known(name, blocks).id, known(name, blocks));
                    }
                    ModelStep::Remove(name) => {
                        let id = known(name, 0).id;
                        prop_assert_eq!(index.remove(id), model.remove(&id));
                    }
                    ModelStep::Touch(name) => index.touch(known(name, 0).id),
                    ModelStep::Evict => {
                        let gone = index.evict(|_| false);
                        prop_assert_eq!(gone.is_some(), !model.is_empty());
                        if let Some(gone) = gone {
                            prop_assert_eq!(model.remove(&gone.id), Some(gone));
                        }
                    }
                }
                prop_assert_eq!(index.len(), model.len());
                let blocks: u64 = model.values().map(|known| u64::from(known.blocks)).sum();
                prop_assert_eq!(index.blocks(), blocks);
            }
            for (id, known) in model {
                prop_assert_eq!(index.get(id), Some(known));
            }
        }
    }
}
