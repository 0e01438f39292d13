use std::collections::HashMap;
use std::time::Duration;

use super::*;
use proptest::prelude::*;

const PAGE: FetchCost = FetchCost::of(Duration::from_millis(50));
const SLOW: FetchCost = FetchCost::of(Duration::from_secs(2));

/// Store of a fixed capacity whose keys are small numbers, which are the slots too.
struct TestStore {
    queue: EvictionQueue,
    entries: HashMap<u32, (u64, u8)>,
    capacity: u64,
}

impl TestStore {
    fn new(capacity: u64) -> Self {
        Self {
            queue: EvictionQueue::new(),
            entries: HashMap::new(),
            capacity,
        }
    }

    /// Requests an entry. Returns whether it was a hit.
    fn request(&mut self, key: u32, weight: u64, cost: FetchCost) -> bool {
        if let Some((_, uses)) = self.entries.get_mut(&key) {
            *uses = MAX_USES.min(*uses + 1);
            return true;
        }
        while self.weight() + weight > self.capacity && self.evict().is_some() {}
        self.queue.insert(key, hash(key), weight, cost);
        self.entries.insert(key, (weight, 0));
        false
    }

    fn evict(&mut self) -> Option<u32> {
        let entries = &mut self.entries;
        let gone = self.queue.evict(|slot| {
            let uses = entries.get_mut(&slot).map(|(_, uses)| std::mem::take(uses));
            (hash(slot), uses.expect("only entries are looked at"))
        })?;
        assert!(self.entries.remove(&gone).is_some());
        Some(gone)
    }

    fn weight(&self) -> u64 {
        self.entries.values().map(|(weight, _)| weight).sum()
    }

    fn left(&self, mut keys: impl Iterator<Item = u32>) -> usize {
        keys.by_ref()
            .filter(|key| self.entries.contains_key(key))
            .count()
    }
}

fn hash(key: u32) -> u64 {
    u64::from(key)
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(32)
}

#[test]
fn slow_searches_evict_no_page_with_hits() {
    let mut store = TestStore::new(100 * 4096);
    for _ in 0..2 {
        (0..95).for_each(|page| {
            store.request(page, 4096, PAGE);
        });
    }
    for search in 1000..11_000 {
        store.request(search, 4096, SLOW);
    }
    assert_eq!(store.left(0..95), 95);
}

#[test]
fn of_entries_with_hits_the_slow_ones_stay() {
    let mut store = TestStore::new(100 * 4096);
    for key in 0..2000 {
        let cost = if key % 10 == 0 { SLOW } else { PAGE };
        store.request(key, 4096, cost);
        store.request(key, 4096, cost);
    }
    let slow = store.left((0..2000).step_by(10));
    assert!(slow > 30, "{slow}");
}

#[test]
fn a_cost_that_is_known_later_counts_as_well() {
    let mut store = TestStore::new(100 * 4096);
    for key in 0..2000 {
        let cost = if key % 10 == 0 { SLOW } else { PAGE };
        store.request(key, 4096, FetchCost::default());
        store.queue.replace(key, 4096, cost);
        store.request(key, 4096, cost);
    }
    let slow = store.left((0..2000).step_by(10));
    assert!(slow > 30, "{slow}");
}

#[test]
fn of_entries_with_hits_the_small_ones_stay() {
    let mut store = TestStore::new(100 * 4096);
    for key in 0..2000 {
        let weight = if key % 2 == 0 { 512 } else { 8192 };
        store.request(key, weight, PAGE);
        store.request(key, weight, PAGE);
    }
    let small = store.left((0..2000).step_by(2));
    let large = store.left((1..2000).step_by(2));
    assert!(small > 10 * large, "{small} {large}");
}

#[test]
fn an_entry_that_comes_back_is_established() {
    let mut store = TestStore::new(100 * 4096);
    (0..130).for_each(|key| {
        store.request(key, 4096, PAGE);
    });
    assert!(!store.request(0, 4096, PAGE), "it was evicted");
    for search in 1000..11_000 {
        store.request(search, 4096, SLOW);
    }
    assert_eq!(store.left(std::iter::once(0)), 1);
}

#[test]
fn an_established_entry_that_grows_has_the_value_of_a_large_one() {
    let mut store = TestStore::new(2 << 20);
    for _ in 0..2 {
        store.request(0, 300, PAGE);
        (1..100).for_each(|page| {
            store.request(page, 4096, PAGE);
        });
        store.request(100, 1 << 20, PAGE);
    }
    assert_eq!(store.evict(), Some(100), "all are established now");
    store.queue.replace(0, 4 << 20, PAGE);
    assert_eq!(store.evict(), Some(0));
}

#[test]
fn entries_no_longer_used_go_in_the_end() {
    let mut store = TestStore::new(100 * 4096);
    for round in 0..10 {
        for key in 0..95 {
            store.request(key, 4096, if round == 0 { SLOW } else { PAGE });
        }
    }
    for key in 1000..4000 {
        store.request(key, 4096, PAGE);
        store.request(key, 4096, PAGE);
    }
    assert_eq!(store.left(0..95), 0);
}

#[test]
fn when_all_are_used_one_leaves_all_the_same() {
    let mut queue = EvictionQueue::new();
    (0..5000).for_each(|slot| queue.insert(slot, hash(slot), 1, PAGE));
    for _ in 0..5000 {
        assert!(queue.evict(|slot| (hash(slot), MAX_USES)).is_some());
    }
    assert!(queue.evict(|slot| (hash(slot), MAX_USES)).is_none());
}

#[test]
fn entries_that_move_to_other_slots_keep_their_turns() {
    let filled = || {
        let mut queue = EvictionQueue::new();
        (0..5_000).for_each(|slot| queue.insert(slot, hash(slot), 100 << (slot % 9), PAGE));
        (0..4_000).for_each(|slot| queue.remove(slot));
        // Most of those that are looked at were used, and are established.
        let mut look = |slot: u32| (hash(slot), u8::from(!slot.is_multiple_of(10)));
        let gone: Vec<_> = (0..50).map(|_| queue.evict(&mut look)).collect();
        let left = (4_000..5_000).filter(move |slot| !gone.contains(&Some(*slot)));
        (queue, left)
    };
    let ((mut queue, left), (mut moved, _)) = (filled(), filled());
    let places: HashMap<u32, u32> = left.zip(0..).collect();
    for (&from, &to) in &places {
        moved.relocate(from, to);
    }
    moved.shrink();
    assert!(moved.heap_size() < queue.heap_size() / 3);
    while let Some(slot) = queue.evict(|slot| (hash(slot), 0)) {
        assert_eq!(moved.evict(|slot| (hash(slot), 0)), Some(places[&slot]));
    }
    assert_eq!(moved.entries, 0);
}

#[test]
fn values_grow_with_uses_and_cost_and_fall_with_weight() {
    let of = |frequency, ratio, weight| value(frequency, ratio, Magnitude::of(weight));
    let page = of(1, 0, 20_000);
    assert_eq!(of(2, 0, 20_000), page + 1);
    assert_eq!(of(1, 0, 40_000), page - 1);
    assert_eq!(of(1, 32, 20_000), page + 3);
    assert_eq!(of(MAX_FREQUENCY, 32, 1), ON_PROBATION - 1);
    assert_eq!(of(0, -200, u64::MAX), 0);
}

#[derive(Clone, Debug)]
enum ModelStep {
    Insert(u32, u64, u8),
    Replace(u32, u64, u8),
    Remove(u32),
    Use(u32),
    Evict,
}

fn step() -> impl Strategy<Value = ModelStep> {
    let weight = prop_oneof![0..10u64, 0..100_000u64, any::<u64>()];
    let changed = (0..60u32, weight, any::<u8>());
    prop_oneof![
        3 => changed.clone().prop_map(|(key, weight, cost)| ModelStep::Insert(key, weight, cost)),
        1 => changed.prop_map(|(key, weight, cost)| ModelStep::Replace(key, weight, cost)),
        1 => (0..60u32).prop_map(ModelStep::Remove),
        3 => (0..60u32).prop_map(ModelStep::Use),
        2 => Just(ModelStep::Evict),
    ]
}

proptest! {
    /// Each entry is evicted once, as long as it is in the queue, and weights add up.
    #[test]
    fn the_queue_has_the_entries_of_a_map(steps in proptest::collection::vec(step(), 0..400)) {
        let mut store = TestStore::new(0);
        for step in steps {
            match step {
                ModelStep::Insert(key, weight, cost) if !store.entries.contains_key(&key) => {
                    store.entries.insert(key, (weight, 0));
                    store.queue.insert(key, hash(key), weight, FetchCost::from_byte(cost));
                }
                ModelStep::Replace(key, weight, cost) if store.entries.contains_key(&key) => {
                    store.queue.replace(key, weight, FetchCost::from_byte(cost));
                    store.entries.insert(key, (weight, 0));
                }
                ModelStep::Remove(key) if store.entries.remove(&key).is_some() => {
                    store.queue.remove(key);
                }
                ModelStep::Use(key) if store.entries.contains_key(&key) => {
                    store.request(key, 0, PAGE);
                }
                ModelStep::Evict => {
                    let was_empty = store.entries.is_empty();
                    prop_assert_eq!(store.evict().is_none(), was_empty);
                }
                _ => {}
            }
            prop_assert_eq!(store.queue.entries, store.entries.len());
            let weights = store.entries.values();
            let weight: u64 = weights.map(|(weight, _)| Magnitude::of(*weight).number()).sum();
            prop_assert_eq!(store.queue.weight, weight);
        }
        while store.evict().is_some() {}
        prop_assert!(store.entries.is_empty());
        prop_assert_eq!((store.queue.weight, store.queue.probation_weight), (0, 0));
    }
}
