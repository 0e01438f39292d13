//! The presence list, in join order.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::presence::{PresenceChange, PresenceEntry};

/// All subscribers whose presence is reported. The lock around it is held for a few entries at a time.
#[derive(Default)]
pub(crate) struct PresenceList {
    by_number: BTreeMap<u64, Arc<PresenceEntry>>,
    numbers: HashMap<Arc<str>, u64, RandomState>,
    newest: u64,
}

impl PresenceList {
    /// Adds a subscriber, or removes it.
    pub(crate) fn set(&mut self, entry: &Arc<PresenceEntry>, active: bool) {
        let known = self.numbers.get(&entry.id).copied();
        match (known, active) {
            (None, true) => {
                self.newest += 1;
                self.numbers.insert(Arc::clone(&entry.id), self.newest);
                self.by_number.insert(self.newest, Arc::clone(entry));
            }
            (Some(number), false) => {
                self.numbers.remove(&entry.id);
                self.by_number.remove(&number);
            }
            (None, false) | (Some(_), true) => {}
        }
    }

    /// Replaces the list. Entries that stay keep their place.
    pub(crate) fn replace(&mut self, entries: &[Arc<PresenceEntry>]) {
        let ids: HashSet<_> = entries.iter().map(|entry| Arc::clone(&entry.id)).collect();
        self.numbers.retain(|id, _| ids.contains(id));
        self.by_number.retain(|_, entry| ids.contains(&entry.id));
        for entry in entries {
            self.set(entry, true);
        }
    }

    /// Returns all entries, in join order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<PresenceEntry>> {
        self.by_number.values()
    }

    /// Returns the end of all subscriptions of nodes other than these, by node.
    pub(crate) fn of_others(&self, nodes: &HashSet<u64>) -> Vec<PresenceChange> {
        let others = self.iter().filter(|entry| !nodes.contains(&entry.node));
        let mut ends: Vec<_> = others
            .map(|entry| PresenceChange::new(entry, false))
            .collect();
        ends.sort_by_key(PresenceChange::node);
        ends
    }

    /// Returns the number of the newest entry.
    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the entry of a subscriber.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<PresenceEntry>> {
        let number = self.numbers.get(id)?;
        self.by_number.get(number).map(Arc::clone)
    }

    /// Returns at most `most` entries after `number`, up to `last`.
    pub(crate) fn range(
        &self,
        number: u64,
        last: u64,
        most: usize,
    ) -> Vec<(u64, Arc<PresenceEntry>)> {
        if number >= last {
            return Vec::new();
        }
        let those = self.by_number.range(number + 1..=last).take(most);
        those
            .map(|(number, it)| (*number, Arc::clone(it)))
            .collect()
    }
}
