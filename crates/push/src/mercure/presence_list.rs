//! The presence list, in join order.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;

use super::presence::PresenceEntry;

/// All subscribers whose presence is reported. The lock around it is held for a few entries at a time.
#[derive(Default)]
pub(crate) struct PresenceList {
    by_number: BTreeMap<u64, Arc<PresenceEntry>>,
    numbers: HashMap<Arc<str>, u64, RandomState>,
    newest: u64,
}

impl PresenceList {
    /// Adds an entry; returns its number.
    pub(crate) fn add(&mut self, entry: Arc<PresenceEntry>) -> u64 {
        self.newest += 1;
        self.numbers.insert(Arc::clone(&entry.id), self.newest);
        self.by_number.insert(self.newest, entry);
        self.newest
    }

    pub(crate) fn remove(&mut self, number: u64) {
        if let Some(entry) = self.by_number.remove(&number) {
            self.numbers.remove(&entry.id);
        }
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
