//! Index of a disk tier by entry id, with its eviction order.
//!
//! A million entries take about fifty bytes each: a slot, and its number in a hash table. Slots are linked
//! into two queues (S3-FIFO without the ghost list): new entries are on probation in a tenth of the space
//! and are evicted at its end unless they were used; used ones move to the main queue, where each use grants
//! another round.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use super::geometry::blocks;
use crate::tier::EntryId;

/// Inverse fraction of the space reserved for probation.
const PROBATION: u64 = 10;
/// Maximum of counted uses per entry.
const MAX_USES: u8 = 3;
/// Maximum of used entries skipped in the search for a victim.
const PATIENCE: u32 = 1000;
const SLOTS_AT_ONCE: usize = 1024;
const NONE: u32 = u32::MAX;

/// Index of a disk tier.
pub(super) struct DiskIndex {
    table: HashTable<u32>,
    hasher: RandomState,
    /// In chunks, so that growth neither copies nor doubles.
    slots: Vec<Vec<IndexSlot>>,
    vacant: u32,
    probation: SlotList,
    main: SlotList,
}

/// Index data of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IndexEntry {
    pub(super) id: EntryId,
    /// Blocks occupied by its file.
    pub(super) blocks: u32,
    /// Expiry, in seconds since the Unix epoch.
    pub(super) expires: u32,
}

impl IndexEntry {
    /// Returns `None` if the file is too large to be counted.
    pub(super) fn new(id: EntryId, file_len: u64, expires: u64) -> Option<Self> {
        Some(Self {
            id,
            blocks: u32::try_from(blocks(file_len)).ok()?,
            expires: u32::try_from(expires).unwrap_or(u32::MAX),
        })
    }
}

struct IndexSlot {
    id: [u8; 16],
    blocks: u32,
    expires: u32,
    previous: u32,
    next: u32,
    uses: u8,
    at: SlotQueue,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SlotQueue {
    Vacant,
    Probation,
    Main,
}

struct SlotList {
    first: u32,
    last: u32,
    blocks: u64,
}

impl DiskIndex {
    pub(super) fn new() -> Self {
        Self {
            table: HashTable::new(),
            hasher: RandomState::default(),
            slots: Vec::new(),
            vacant: NONE,
            probation: SlotList::new(),
            main: SlotList::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// Total blocks of all entries.
    pub(super) const fn blocks(&self) -> u64 {
        self.probation.blocks + self.main.blocks
    }

    pub(super) fn get(&self, id: EntryId) -> Option<IndexEntry> {
        self.find(id).map(|number| self.slot(number).known())
    }

    /// Counts a use.
    pub(super) fn touch(&mut self, id: EntryId) {
        if let Some(number) = self.find(id) {
            let slot = self.slot_mut(number);
            slot.uses = MAX_USES.min(slot.uses + 1);
        }
    }

    /// Inserts an entry. A replaced one passes on its uses, plus one: a renewal is caused by a request.
    pub(super) fn insert(&mut self, known: IndexEntry) {
        if let Some(number) = self.find(known.id) {
            self.touch(known.id);
            let at = self.slot(number).at;
            let old = std::mem::replace(&mut self.slot_mut(number).blocks, known.blocks);
            self.slot_mut(number).expires = known.expires;
            let queue = self.queue(at);
            queue.blocks = queue.blocks - u64::from(old) + u64::from(known.blocks);
            return;
        }
        let number = self.take_vacant();
        *self.slot_mut(number) = IndexSlot::new(known);
        self.link_last(number, SlotQueue::Probation);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.table
            .insert_unique(hasher.hash_one(known.id), number, |&number| {
                hasher.hash_one(slot(slots, number).id())
            });
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<IndexEntry> {
        let hash = self.hasher.hash_one(id);
        let slots = &self.slots;
        let place = self.table.entry(
            hash,
            |&number| slot(slots, number).id() == id,
            |&number| self.hasher.hash_one(slot(slots, number).id()),
        );
        let Place::Occupied(place) = place else {
            return None;
        };
        let (number, _) = place.remove();
        let known = self.slot(number).known();
        self.unlink(number);
        self.slot_mut(number).at = SlotQueue::Vacant;
        self.slot_mut(number).next = std::mem::replace(&mut self.vacant, number);
        Some(known)
    }

    /// Evicts the least useful entry. `is_used` reports uses that are not counted here.
    pub(super) fn evict(&mut self, mut is_used: impl FnMut(EntryId) -> bool) -> Option<IndexEntry> {
        let mut passed = 0;
        loop {
            let at = self.next_to_leave();
            let number = self.queue(at).first;
            if number == NONE {
                return None;
            }
            let (id, uses) = (self.slot(number).id(), self.slot(number).uses);
            let is_used = is_used(id) || uses > 0;
            if !is_used || passed == PATIENCE {
                return self.remove(id);
            }
            passed += 1;
            self.unlink(number);
            self.slot_mut(number).uses = match at {
                SlotQueue::Main => uses.saturating_sub(1),
                SlotQueue::Probation | SlotQueue::Vacant => 0,
            };
            self.link_last(number, SlotQueue::Main);
        }
    }

    /// Returns the expired entries among `count` slots from `start`, and the slot to continue at.
    pub(super) fn expired(&self, start: u32, count: u32, now: u64) -> (Vec<EntryId>, u32) {
        let total = (self.slots.len() * SLOTS_AT_ONCE) as u32;
        let start = if start < total { start } else { 0 };
        let end = total.min(start.saturating_add(count));
        let over = (start..end)
            .map(|number| &self.slots[number as usize / SLOTS_AT_ONCE])
            .zip(start..end)
            .filter_map(|(piece, number)| piece.get(number as usize % SLOTS_AT_ONCE))
            .filter(|slot| slot.at != SlotQueue::Vacant && u64::from(slot.expires) <= now)
            .map(IndexSlot::id)
            .collect();
        (over, end)
    }

    const fn next_to_leave(&self) -> SlotQueue {
        if self.main.first == NONE || self.probation.blocks * PROBATION >= self.blocks() {
            if self.probation.first == NONE {
                SlotQueue::Main
            } else {
                SlotQueue::Probation
            }
        } else {
            SlotQueue::Main
        }
    }

    fn find(&self, id: EntryId) -> Option<u32> {
        let is_it = |&number: &u32| self.slot(number).id() == id;
        self.table.find(self.hasher.hash_one(id), is_it).copied()
    }

    fn take_vacant(&mut self) -> u32 {
        if self.vacant != NONE {
            let number = self.vacant;
            self.vacant = self.slot(number).next;
            return number;
        }
        if self
            .slots
            .last()
            .is_none_or(|piece| piece.len() == SLOTS_AT_ONCE)
        {
            self.slots.push(Vec::with_capacity(SLOTS_AT_ONCE));
        }
        let before = (self.slots.len() - 1) * SLOTS_AT_ONCE;
        let piece = self.slots.last_mut().expect("there is one now");
        piece.push(IndexSlot::VACANT);
        (before + piece.len() - 1) as u32
    }

    fn link_last(&mut self, number: u32, at: SlotQueue) {
        let last = self.queue(at).last;
        let slot = self.slot_mut(number);
        (slot.at, slot.previous, slot.next) = (at, last, NONE);
        let blocks = u64::from(slot.blocks);
        if last == NONE {
            self.queue(at).first = number;
        } else {
            self.slot_mut(last).next = number;
        }
        self.queue(at).last = number;
        self.queue(at).blocks += blocks;
    }

    fn unlink(&mut self, number: u32) {
        let slot = self.slot(number);
        let (at, previous, next) = (slot.at, slot.previous, slot.next);
        let blocks = u64::from(slot.blocks);
        if previous == NONE {
            self.queue(at).first = next;
        } else {
            self.slot_mut(previous).next = next;
        }
        if next == NONE {
            self.queue(at).last = previous;
        } else {
            self.slot_mut(next).previous = previous;
        }
        self.queue(at).blocks -= blocks;
    }

    fn queue(&mut self, at: SlotQueue) -> &mut SlotList {
        match at {
            SlotQueue::Main => &mut self.main,
            SlotQueue::Probation | SlotQueue::Vacant => &mut self.probation,
        }
    }

    fn slot(&self, number: u32) -> &IndexSlot {
        slot(&self.slots, number)
    }

    fn slot_mut(&mut self, number: u32) -> &mut IndexSlot {
        &mut self.slots[number as usize / SLOTS_AT_ONCE][number as usize % SLOTS_AT_ONCE]
    }
}

/// Numbers come from the table and the links, and slots are never freed, so indexing cannot fail.
fn slot(slots: &[Vec<IndexSlot>], number: u32) -> &IndexSlot {
    &slots[number as usize / SLOTS_AT_ONCE][number as usize % SLOTS_AT_ONCE]
}

impl IndexSlot {
    const VACANT: Self = Self {
        id: [0; 16],
        blocks: 0,
        expires: 0,
        previous: NONE,
        next: NONE,
        uses: 0,
        at: SlotQueue::Vacant,
    };

    fn new(known: IndexEntry) -> Self {
        Self {
            id: known.id.to_bytes(),
            blocks: known.blocks,
            expires: known.expires,
            ..Self::VACANT
        }
    }

    const fn id(&self) -> EntryId {
        EntryId::from_bytes(self.id)
    }

    const fn known(&self) -> IndexEntry {
        IndexEntry {
            id: self.id(),
            blocks: self.blocks,
            expires: self.expires,
        }
    }
}

impl SlotList {
    const fn new() -> Self {
        Self {
            first: NONE,
            last: NONE,
            blocks: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    fn known(name: u16, blocks: u32) -> IndexEntry {
        IndexEntry {
            id: EntryId::of(&name.to_le_bytes()),
            blocks,
            expires: u32::from(name),
        }
    }

    #[test]
    fn a_slot_is_small() {
        assert_eq!(size_of::<IndexSlot>(), 36);
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
