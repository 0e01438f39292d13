use std::collections::HashMap;
use std::iter;
use std::thread;

use bytes::Bytes;
use microcache_policy::{Fields, Lifetime, Time};
use proptest::prelude::*;

use super::*;
use crate::key_notes::KeyNotes;
use crate::stored::Stored;

fn key(number: u16) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// An object whose status identifies it, with a body of this length.
fn object(number: u16, status: u16, length: usize) -> Object {
    let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
    let body = Bytes::from(vec![b'x'; length]).into();
    let (key, fields) = (key(number), Fields::default());
    let stored = Stored::new(&key, status, fields, body, lifetime, Time::default());
    Object::new(&key, KeyNotes::default(), iter::once(stored).collect())
}

fn insert(table: &Table, object: Object) {
    let hash = table.hash(object.key());
    let old = table.get(object.key(), hash);
    table.insert(object, hash, old);
}

fn remove(table: &Table, number: u16) -> bool {
    let key = key(number);
    table.remove(&key, table.hash(&key))
}

/// Returns the status of an object, and counts a use.
fn status(table: &Table, number: u16) -> Option<u16> {
    let key = key(number);
    let object = table.get(&key, table.hash(&key))?;
    object.latest().recent_uses().count();
    Some(object.latest().status())
}

/// Compares the sums with the objects, each of which is found by its key.
fn check_sums(table: &Table) {
    let objects: Vec<Object> = table.iter().collect();
    let charges = objects.iter().map(|it| it.latest().place().charge());
    let shards = || table.shards.iter().map(RwLock::read);
    let spare = shards().map(|shard| shard.spare());
    assert_eq!(table.weight(), charges.sum::<u64>() + spare.sum::<u64>());
    assert_eq!(table.len(), objects.len());
    let on_probation = shards().map(|shard| shard.queue.probation_weight());
    assert_eq!(
        table.on_probation.load(Ordering::Relaxed),
        on_probation.sum::<u64>()
    );
    for object in &objects {
        let place = object.latest().place();
        assert_eq!(place.charge(), TablePlace::rounded(object.weight()));
        let found = table.get(object.key(), table.hash(object.key()));
        assert!(found.is_some_and(|it| std::ptr::eq(it.latest().place(), place)));
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, usize),
    Get(u16),
    Remove(u16),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let number = 0..200_u16;
    let step = prop_oneof![
        4 => (number.clone(), 0..3_000_usize).prop_map(|(number, length)| Step::Insert(number, length)),
        3 => number.clone().prop_map(Step::Get),
        1 => number.prop_map(Step::Remove),
    ];
    proptest::collection::vec(step, 0..600)
}

proptest! {
    #[test]
    fn it_is_a_map_that_forgets_as_much_as_it_says(steps in steps(), capacity in 0..300_000_u64) {
        let table = Table::new(capacity);
        let mut map = HashMap::new();
        let mut status_of_next = 0;
        for step in steps {
            let evicted = table.evicted();
            match step {
                Step::Insert(number, length) => {
                    status_of_next += 1;
                    let object = object(number, status_of_next, length);
                    if TablePlace::rounded(object.weight()) <= capacity {
                        map.insert(number, status_of_next);
                    } else {
                        map.remove(&number);
                    }
                    insert(&table, object);
                }
                Step::Get(number) => {
                    prop_assert_eq!(status(&table, number), map.get(&number).copied());
                }
                Step::Remove(number) => {
                    prop_assert_eq!(remove(&table, number), map.remove(&number).is_some());
                }
            }
            if table.evicted() > evicted {
                let before = map.len();
                map.retain(|number, _| table.get(&key(*number), table.hash(&key(*number))).is_some());
                // The object that was to be replaced may be one of them.
                let (lost, evicted) = ((before - map.len()) as u64, table.evicted() - evicted);
                prop_assert!(lost == evicted || lost + 1 == evicted);
            }
            prop_assert_eq!(table.len(), map.len());
            prop_assert!(table.weight() <= capacity);
        }
        check_sums(&table);
        for (number, expected) in map {
            prop_assert_eq!(status(&table, number), Some(expected));
            prop_assert!(remove(&table, number));
        }
        prop_assert_eq!((table.len(), table.weight()), (0, 0));
    }
}

#[test]
fn a_heavier_object_evicts_others_of_all_shards_and_not_the_used_ones() {
    let capacity = 16 << 20;
    let table = Table::new(capacity);
    assert_eq!(table.shards.len(), 4);
    for number in 0..16_000 {
        insert(&table, object(number, 200, 200));
        assert!(number % 100 != 7 || status(&table, number).is_some());
    }
    let before = table.len();
    insert(&table, object(16_000, 200, 14 << 20));
    assert!(table.weight() <= capacity && table.len() < before / 2);
    assert!(
        table
            .shards
            .iter()
            .all(|shard| !shard.read().index.is_empty())
    );
    let used = (0..16_000).filter(|number| number % 100 == 7);
    let gone = used.filter(|&number| status(&table, number).is_none());
    assert_eq!(gone.count(), 0);
}

#[test]
fn an_object_above_the_capacity_is_not_stored_and_replaces_nothing_by_itself() {
    let table = Table::new(100_000);
    insert(&table, object(1, 200, 10));
    insert(&table, object(2, 200, 10));
    insert(&table, object(1, 201, 200_000));
    assert_eq!((status(&table, 1), status(&table, 2)), (None, Some(200)));
    assert_eq!((table.len(), table.evicted()), (1, 0));
    check_sums(&table);
}

#[test]
fn an_iteration_finds_what_stays_whatever_else_changes() {
    let table = Table::new(64 << 20);
    for number in 0..2_000 {
        insert(&table, object(number, 200, 10));
    }
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for (step, object) in table.iter().enumerate() {
        seen.push(object.key().to_vec());
        // Odd numbers are replaced, the even ones from the end removed, and new ones inserted.
        let step = step as u16;
        if step < 500 {
            insert(&table, self::object(2 * step + 1, 201, 500));
            remove(&table, 1_998 - 2 * step);
            insert(&table, self::object(10_000 + step, 200, 10));
        }
    }
    for number in (1..2_000).step_by(2) {
        assert_eq!(seen.iter().filter(|it| **it == key(number)).count(), 1);
    }
}

/// Memory of the objects and of all that the shards have for them, in bytes, as far as it is to be charged.
fn memory_of(table: &Table) -> u64 {
    let blocks = table.iter().map(|it| it.weight() - Object::OVERHEAD as u64);
    let shards = table.shards.iter();
    let shards = shards.map(|shard| shard.read().heap_size().saturating_sub(Shard::UNCHARGED));
    blocks.sum::<u64>() + shards.sum::<usize>() as u64
}

#[test]
fn a_table_of_few_large_objects_is_charged_for_what_is_left_of_many_small_ones() {
    let capacity = 8 << 20;
    let table = Table::new(capacity);
    for number in 0..40_000 {
        insert(&table, object(number, 200, 10));
    }
    let many = table.len();
    for number in 0..8_000 {
        insert(&table, object(40_000 + number, 200, usize::from(number)));
        if number % 500 == 0 {
            assert!(memory_of(&table) <= table.weight() && table.weight() <= capacity);
            check_sums(&table);
        }
    }
    assert!(table.len() < many / 8, "{} of {many}", table.len());
    assert!(table.weight() > capacity / 10 * 9);
}

#[test]
fn a_table_shrinks_with_the_number_of_its_objects() {
    const COUNT: u16 = 20_000;
    let table = Table::new(64 << 20);
    let heap_size = || -> usize {
        let shards = table.shards.iter();
        shards.map(|shard| shard.read().heap_size()).sum()
    };
    for number in 0..COUNT {
        insert(&table, object(number, 200, 10));
    }
    let stays = |number: &u16| number % 50 == 3;
    for number in (0..COUNT).filter(|number| !stays(number)) {
        assert!(remove(&table, number));
    }
    let uncharged = table.shards.len() * Shard::UNCHARGED;
    assert!(heap_size() <= uncharged + table.len() * 3 * Object::OVERHEAD);
    check_sums(&table);
    for number in (0..COUNT).filter(stays) {
        assert_eq!(status(&table, number), Some(200));
        assert!(number % 100 == 3 || remove(&table, number));
    }
    // What is left can be evicted, and there is room for as many as before.
    while table.evict() {}
    assert_eq!((table.len(), table.weight()), (0, 0));
    for number in 0..COUNT {
        insert(&table, object(number, 200, 10));
    }
    assert_eq!(table.len(), usize::from(COUNT));
    check_sums(&table);
}

#[test]
fn an_iteration_misses_none_in_a_table_that_shrinks() {
    const COUNT: u16 = 20_000;
    let table = Table::new(4 << 20);
    for number in 0..COUNT {
        insert(&table, object(number, 200, 10));
    }
    let before = table.shards[0].read().slots.len();
    let mut seen = std::collections::HashSet::new();
    for (step, object) in table.iter().enumerate() {
        seen.insert(object.key().to_vec());
        if step == usize::from(COUNT) / 3 {
            let others = (0..COUNT).filter(|number| number % 50 != 3);
            others.for_each(|number| assert!(remove(&table, number)));
        }
    }
    assert!(table.shards[0].read().slots.len() < before / 8);
    let mut stayed = (0..COUNT).filter(|number| number % 50 == 3).map(key);
    assert!(stayed.all(|key| seen.contains(&key)));
}

#[test]
fn threads_leave_equal_sums() {
    const KEYS: u64 = 3_000;
    let capacity = 2 << 20;
    let table = Table::new(capacity);
    thread::scope(|scope| {
        for thread in 0..4_u64 {
            let table = &table;
            scope.spawn(move || {
                let mut chance = thread + 1;
                for _ in 0..20_000 {
                    chance = chance
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let number = ((chance >> 33) % KEYS) as u16;
                    match (chance >> 20) % 16 {
                        0..8 => drop(status(table, number)),
                        8 => drop(remove(table, number)),
                        9 if number == 0 => drop(table.iter().count()),
                        step => insert(table, object(number, 200, step as usize * 100)),
                    }
                }
            });
        }
    });
    assert!(table.weight() <= capacity && table.evicted() > 0);
    check_sums(&table);
    for number in 0..KEYS as u16 {
        remove(&table, number);
    }
    assert_eq!((table.len(), table.weight()), (0, 0));
}
