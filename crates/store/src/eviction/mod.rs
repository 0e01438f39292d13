//! Eviction order of the entries of a store: which entry is to go saves the application the least time for the
//! space that it takes.
//!
//! New entries are on probation in a twentieth of the space. An entry that was used there, or that comes back soon
//! after it was evicted there, is established; the others go in the order in which they came, whatever they cost. Among
//! the established ones, the value of an entry is its uses × cost ÷ weight. They are kept in lists by powers of two of
//! the value. The queue has an age, and an entry in a list is due when the queue's age has grown by the value
//! (Greedy-Dual); so each list is in the order of becoming due, and only the first entries of lists have to be
//! compared. An entry that is due is evicted, unless it was used in the meantime: then its value is found anew.
//!
//! A use is a count outside, which stops at [`MAX_USES`]; it moves nothing. For the rationale see
//! docs/decisions/eviction.md.

mod cost;
mod ghosts;
mod lists;
mod magnitude;

pub use self::cost::FetchCost;

use self::cost::MedianCost;
use self::ghosts::Ghosts;
use self::lists::{Lists, Node};
use self::magnitude::Magnitude;

/// Maximum of counted uses of an entry.
pub const MAX_USES: u8 = 3;
/// Inverse fraction of the space reserved for probation.
const PROBATION: u64 = 20;
/// Maximum of used entries skipped in the search for a victim.
const MAX_SKIPPED: u32 = 1000;
/// Maximum of uses that count.
const MAX_FREQUENCY: u8 = 15;
/// List of the entries on probation; those before it are by value.
const ON_PROBATION: u8 = Lists::COUNT as u8 - 1;

/// Eviction order of entries, which are known by small numbers.
#[derive(Debug)]
pub struct EvictionQueue {
    lists: Lists,
    ghosts: Ghosts,
    median: MedianCost,
    entries: usize,
    /// Approximate weight of all entries, and of those on probation.
    weight: u64,
    probation_weight: u64,
    /// Grows with each eviction of an established entry, and wraps around.
    age: u32,
}

impl Default for EvictionQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl EvictionQueue {
    /// Creates an empty queue.
    pub const fn new() -> Self {
        Self {
            lists: Lists::new(),
            ghosts: Ghosts::new(),
            median: MedianCost::new(),
            entries: 0,
            weight: 0,
            probation_weight: 0,
            age: 0,
        }
    }

    /// Inserts an entry in a slot that is not in use. `hash` is that of its key.
    pub fn insert(&mut self, slot: u32, hash: u64, weight: u64, cost: FetchCost) {
        let weight = Magnitude::of(weight);
        self.lists.grow(slot);
        *self.lists.node_mut(slot) = Node::new(weight, cost);
        self.entries += 1;
        self.weight += weight.number();
        self.median.observe(cost);
        self.ghosts.grow(self.entries);
        if self.ghosts.take(hash) {
            self.establish(slot, 1);
        } else {
            self.probation_weight += weight.number();
            self.lists.push(slot, ON_PROBATION);
        }
    }

    /// Changes weight and cost of an entry. An unknown cost changes nothing. The entry keeps its place, unless it is
    /// established and of another value now.
    pub fn replace(&mut self, slot: u32, weight: u64, cost: FetchCost) {
        let weight = Magnitude::of(weight);
        let node = self.lists.node_mut(slot);
        if node.cost == FetchCost::default() {
            // The key had notes only, or a response from a tier that does not know costs.
            self.median.observe(cost);
        }
        node.cost = cost.or(node.cost);
        let before = std::mem::replace(&mut node.weight, weight).number();
        let change = |sum: &mut u64| *sum = *sum - before + weight.number();
        change(&mut self.weight);
        if node.list() == ON_PROBATION {
            change(&mut self.probation_weight);
            return;
        }
        let (list, frequency) = (node.list(), node.frequency);
        if self.list_by_value(slot) != list {
            self.lists.unlink(slot);
            self.establish(slot, frequency);
        }
    }

    /// Removes an entry.
    pub fn remove(&mut self, slot: u32) {
        self.unlink(slot);
        self.entries -= 1;
        self.weight -= self.lists.node(slot).weight.number();
    }

    /// Moves an entry to a slot that is not in use.
    pub fn relocate(&mut self, from: u32, to: u32) {
        self.lists.relocate(from, to);
    }

    /// Frees the memory of slots that are not in use, after all entries have moved to the first slots.
    pub fn shrink(&mut self) {
        self.lists.truncate(self.entries);
        self.ghosts.resize(self.entries);
    }

    /// Memory used, in bytes.
    pub const fn heap_size(&self) -> usize {
        self.lists.heap_size() + self.ghosts.heap_size()
    }

    /// Approximate weight of the entries on probation.
    pub const fn probation_weight(&self) -> u64 {
        self.probation_weight
    }

    /// Removes the least valuable entry and returns its slot. `look` returns the hash of an entry and its uses since it
    /// was looked at before, [`MAX_USES`] at most.
    pub fn evict(&mut self, look: impl FnMut(u32) -> (u64, u8)) -> Option<u32> {
        let next = |queue: &Self| {
            let is_full = is_probation_full(queue.probation_weight, queue.weight);
            let on_probation = queue.first_on_probation();
            let first = on_probation.filter(|_| is_full);
            first.or_else(|| queue.first_due()).or(on_probation)
        };
        self.evict_next(next, look)
    }

    /// Removes the first entry on probation that was not used, and returns its slot. Those before it are established.
    pub fn evict_on_probation(&mut self, look: impl FnMut(u32) -> (u64, u8)) -> Option<u32> {
        self.evict_next(Self::first_on_probation, look)
    }

    /// As [`Self::evict`], but of the established entries, as long as there are any.
    pub fn evict_established(&mut self, look: impl FnMut(u32) -> (u64, u8)) -> Option<u32> {
        let next = |queue: &Self| queue.first_due().or_else(|| queue.first_on_probation());
        self.evict_next(next, look)
    }

    /// Removes the first entry that is `next` and was not used.
    fn evict_next(
        &mut self,
        next: impl Fn(&Self) -> Option<u32>,
        mut look: impl FnMut(u32) -> (u64, u8),
    ) -> Option<u32> {
        let mut skipped = 0;
        loop {
            let slot = next(self)?;
            let (hash, uses) = look(slot);
            let node = self.lists.node(slot);
            let is_on_probation = node.list() == ON_PROBATION;
            if !is_on_probation {
                self.age = node.due;
            }
            if uses == 0 || skipped == MAX_SKIPPED {
                self.remove(slot);
                if is_on_probation {
                    self.ghosts.remember(hash);
                }
                return Some(slot);
            }
            let frequency = node.frequency.saturating_sub(1) + uses;
            self.unlink(slot);
            self.establish(slot, frequency.min(MAX_FREQUENCY));
            skipped += 1;
        }
    }

    fn first_on_probation(&self) -> Option<u32> {
        self.lists.first(ON_PROBATION)
    }

    /// First of the established entries to become due.
    fn first_due(&self) -> Option<u32> {
        let firsts = self.lists.firsts_before(ON_PROBATION);
        firsts.min_by_key(|&slot| self.lists.node(slot).due.wrapping_sub(self.age))
    }

    /// Puts an entry, which is in no list, among those with hits.
    fn establish(&mut self, slot: u32, frequency: u8) {
        self.lists.node_mut(slot).frequency = frequency;
        let list = self.list_by_value(slot);
        self.lists.node_mut(slot).due = self.age.wrapping_add(1 << list);
        self.lists.push(slot, list);
    }

    /// List that an entry with hits belongs to.
    fn list_by_value(&self, slot: u32) -> u8 {
        let node = self.lists.node(slot);
        value(node.frequency, self.median.ratio(node.cost), node.weight)
    }

    fn unlink(&mut self, slot: u32) {
        if self.lists.unlink(slot) == ON_PROBATION {
            self.probation_weight -= self.lists.node(slot).weight.number();
        }
    }
}

/// Returns whether the entries on probation, of this weight, have their share of the weight of all.
pub const fn is_probation_full(on_probation: u64, all: u64) -> bool {
    on_probation * PROBATION >= all
}

/// Returns the value of an entry, as the power of two that is the number of its list.
///
/// Cost counts by the power of 3/4: by its full ratio, slow entries would displace so many fast ones that misses would
/// increase.
fn value(frequency: u8, cost_ratio: i32, weight: Magnitude) -> u8 {
    /// Value 1: the heaviest entry with a single use and the median cost.
    const LEAST: i32 = 256;
    let uses = i32::from(Magnitude::of(frequency.into()).step());
    let weight = i32::from(weight.step());
    let value = (LEAST + uses + cost_ratio * 3 / 4 - weight) / Magnitude::OCTAVE;
    let value = value.clamp(0, i32::from(ON_PROBATION) - 1);
    u8::try_from(value).unwrap_or_default()
}

#[cfg(test)]
mod tests;
