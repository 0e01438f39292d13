//! What is on the disk, by id, and what has to leave first.
//!
//! A million entries take some fifty bytes each: a slot, and the slot's number in a hash table. Slots
//! are linked into two queues. What is new is on probation, for a tenth of the space, and
//! leaves at its end unless somebody used it; then it moves to the main queue, where each use is
//! another round (S3-FIFO, without its list of ghosts).

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Place;

use super::state::blocks;
use crate::tier::EntryId;

/// Probation has one part in this many of what is there.
const PROBATION: u64 = 10;
/// Uses beyond this many are not counted.
const MAX_USES: u8 = 3;
/// So many that were used are passed over in the search for one that was not.
const PATIENCE: u32 = 1000;
const SLOTS_AT_ONCE: usize = 1024;
const NONE: u32 = u32::MAX;

/// The index.
pub(super) struct Index {
    table: HashTable<u32>,
    hasher: RandomState,
    /// In pieces, so that growing neither copies nor doubles.
    slots: Vec<Vec<Slot>>,
    vacant: u32,
    probation: Ring,
    main: Ring,
}

/// What is known of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) id: EntryId,
    /// What its file takes on the disk.
    pub(super) blocks: u32,
    /// In seconds since 1970.
    pub(super) expires: u32,
}

impl Known {
    /// `None` for a file that is larger than any can be.
    pub(super) fn new(id: EntryId, file_len: u64, expires: u64) -> Option<Self> {
        Some(Self {
            id,
            blocks: u32::try_from(blocks(file_len)).ok()?,
            expires: u32::try_from(expires).unwrap_or(u32::MAX),
        })
    }
}

struct Slot {
    id: [u8; 16],
    blocks: u32,
    expires: u32,
    previous: u32,
    next: u32,
    uses: u8,
    at: At,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Vacant,
    Probation,
    Main,
}

struct Ring {
    first: u32,
    last: u32,
    blocks: u64,
}

impl Index {
    pub(super) fn new() -> Self {
        Self {
            table: HashTable::new(),
            hasher: RandomState::default(),
            slots: Vec::new(),
            vacant: NONE,
            probation: Ring::new(),
            main: Ring::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The sum of all entries' blocks.
    pub(super) const fn blocks(&self) -> u64 {
        self.probation.blocks + self.main.blocks
    }

    pub(super) fn get(&self, id: EntryId) -> Option<Known> {
        self.find(id).map(|number| self.slot(number).known())
    }

    /// Notes a use.
    pub(super) fn touch(&mut self, id: EntryId) {
        if let Some(number) = self.find(id) {
            let slot = self.slot_mut(number);
            slot.uses = MAX_USES.min(slot.uses + 1);
        }
    }

    /// Adds an entry. In place of an older one of the same id, it takes over its uses, and one
    /// more: it was renewed because somebody wanted it.
    pub(super) fn insert(&mut self, known: Known) {
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
        *self.slot_mut(number) = Slot::new(known);
        self.link_last(number, At::Probation);
        let (slots, hasher) = (&self.slots, &self.hasher);
        self.table
            .insert_unique(hasher.hash_one(known.id), number, |&number| {
                hasher.hash_one(slot(slots, number).id())
            });
    }

    pub(super) fn remove(&mut self, id: EntryId) -> Option<Known> {
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
        self.slot_mut(number).at = At::Vacant;
        self.slot_mut(number).next = std::mem::replace(&mut self.vacant, number);
        Some(known)
    }

    /// Removes the entry that is missed least. `is_used` tells of uses that were not noted here.
    pub(super) fn evict(&mut self, mut is_used: impl FnMut(EntryId) -> bool) -> Option<Known> {
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
                At::Main => uses.saturating_sub(1),
                At::Probation | At::Vacant => 0,
            };
            self.link_last(number, At::Main);
        }
    }

    /// Looks at `count` slots from number `start` on, and says which entries in them are over,
    /// and where to go on.
    pub(super) fn expired(&self, start: u32, count: u32, now: u64) -> (Vec<EntryId>, u32) {
        let total = (self.slots.len() * SLOTS_AT_ONCE) as u32;
        let start = if start < total { start } else { 0 };
        let end = total.min(start.saturating_add(count));
        let over = (start..end)
            .map(|number| &self.slots[number as usize / SLOTS_AT_ONCE])
            .zip(start..end)
            .filter_map(|(piece, number)| piece.get(number as usize % SLOTS_AT_ONCE))
            .filter(|slot| slot.at != At::Vacant && u64::from(slot.expires) <= now)
            .map(Slot::id)
            .collect();
        (over, end)
    }

    const fn next_to_leave(&self) -> At {
        if self.main.first == NONE || self.probation.blocks * PROBATION >= self.blocks() {
            if self.probation.first == NONE {
                At::Main
            } else {
                At::Probation
            }
        } else {
            At::Main
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
        piece.push(Slot::VACANT);
        (before + piece.len() - 1) as u32
    }

    fn link_last(&mut self, number: u32, at: At) {
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

    fn queue(&mut self, at: At) -> &mut Ring {
        match at {
            At::Main => &mut self.main,
            At::Probation | At::Vacant => &mut self.probation,
        }
    }

    fn slot(&self, number: u32) -> &Slot {
        slot(&self.slots, number)
    }

    fn slot_mut(&mut self, number: u32) -> &mut Slot {
        &mut self.slots[number as usize / SLOTS_AT_ONCE][number as usize % SLOTS_AT_ONCE]
    }
}

/// The numbers come from the table and the links, and slots are never given back.
fn slot(slots: &[Vec<Slot>], number: u32) -> &Slot {
    &slots[number as usize / SLOTS_AT_ONCE][number as usize % SLOTS_AT_ONCE]
}

impl Slot {
    const VACANT: Self = Self {
        id: [0; 16],
        blocks: 0,
        expires: 0,
        previous: NONE,
        next: NONE,
        uses: 0,
        at: At::Vacant,
    };

    fn new(known: Known) -> Self {
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

    const fn known(&self) -> Known {
        Known {
            id: self.id(),
            blocks: self.blocks,
            expires: self.expires,
        }
    }
}

impl Ring {
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

    fn known(name: u16, blocks: u32) -> Known {
        Known {
            id: EntryId::of(&name.to_le_bytes()),
            blocks,
            expires: u32::from(name),
        }
    }

    #[test]
    fn a_slot_is_small() {
        assert_eq!(size_of::<Slot>(), 36);
    }

    #[test]
    fn what_was_used_outlives_what_was_not() {
        let mut index = Index::new();
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
        let mut index = Index::new();
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
        let mut index = Index::new();
        (0..5000).for_each(|name| index.insert(known(name, 1)));
        assert!(index.evict(|_| true).is_some());
    }

    #[test]
    fn newcomers_do_not_push_out_what_is_used() {
        let mut index = Index::new();
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
        let mut index = Index::new();
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
    enum Step {
        Insert(u16, u32),
        Remove(u16),
        Touch(u16),
        Evict,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..60u16, 1..9u32).prop_map(|(name, blocks)| Step::Insert(name, blocks)),
            (0..60u16).prop_map(Step::Remove),
            (0..60u16).prop_map(Step::Touch),
            Just(Step::Evict),
        ]
    }

    proptest! {
        #[test]
        fn it_holds_what_a_map_would(steps in proptest::collection::vec(step(), 0..300)) {
            let (mut index, mut model) = (Index::new(), HashMap::new());
            for step in steps {
                match step {
                    Step::Insert(name, blocks) => {
                        index.insert(known(name, blocks));
                        model.insert(known(name, blocks).id, known(name, blocks));
                    }
                    Step::Remove(name) => {
                        let id = known(name, 0).id;
                        prop_assert_eq!(index.remove(id), model.remove(&id));
                    }
                    Step::Touch(name) => index.touch(known(name, 0).id),
                    Step::Evict => {
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
