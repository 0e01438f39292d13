//! The subscribers of this node whose presence is shared with other nodes.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use super::presence::{PresenceChange, PresenceEntry};
use super::presence_list::PresenceList;

/// The subscribers of this node, and the changes that are to be shared.
#[derive(Debug)]
pub(crate) struct LocalPresence {
    node: u64,
    entries: HashMap<Arc<str>, Arc<PresenceEntry>, RandomState>,
    changes: Vec<PresenceChange>,
    wake: Arc<Notify>,
}

impl LocalPresence {
    /// No subscribers of the node with this number.
    pub(crate) fn new(node: u64) -> Self {
        Self {
            node,
            entries: HashMap::default(),
            changes: Vec::new(),
            wake: Arc::default(),
        }
    }

    /// Returns the notification of changes.
    pub(crate) fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    pub(crate) const fn node(&self) -> u64 {
        self.node
    }

    /// Records a change that is to be shared.
    pub(crate) fn set(&mut self, change: PresenceChange) {
        let entry = &change.entry;
        if change.active {
            self.entries
                .insert(Arc::clone(&entry.id), Arc::clone(entry));
        } else {
            self.entries.remove(&entry.id);
        }
        self.changes.push(change);
        self.wake.notify_one();
    }

    /// Takes the next changes to share. A change that was followed by its opposite has no effect there.
    pub(crate) fn take(&mut self, most: usize) -> Vec<PresenceChange> {
        let most = most.min(self.changes.len());
        self.changes.drain(..most).collect()
    }

    /// Finds all differences to the shared list: changes that were not shared, and those that others have undone because
    /// this node seemed to have gone. Returns whether neither has any subscriber.
    pub(crate) fn compare(&mut self, list: &PresenceList) -> bool {
        let is_gone = |entry: &Arc<PresenceEntry>| {
            entry.node == self.node && !self.entries.contains_key(&entry.id)
        };
        let gone = list.iter().filter(|entry| is_gone(entry));
        let missing = self.entries.values();
        let missing = missing.filter(|entry| list.find(&entry.id).is_none());
        let gone = gone.map(|entry| PresenceChange::new(entry, false));
        let missing = missing.map(|entry| PresenceChange::new(entry, true));
        self.changes = gone.chain(missing).collect();
        self.entries.is_empty() && list.iter().next().is_none()
    }

    /// Returns whether there is no change to share.
    pub(crate) fn is_shared(&self) -> bool {
        self.changes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(id: &str, node: u64) -> Arc<PresenceEntry> {
        Arc::new(PresenceEntry {
            id: id.into(),
            node,
            subscriptions: Box::default(),
        })
    }

    fn changes(local: &mut LocalPresence) -> Vec<(String, bool)> {
        let changes = local.take(10).into_iter();
        let each = changes.map(|it| (it.entry.id.to_string(), it.active));
        let mut all: Vec<_> = each.collect();
        all.sort();
        all
    }

    #[test]
    fn differences_to_the_shared_list_are_found() {
        let (mut local, mut list) = (LocalPresence::new(7), PresenceList::default());
        assert!(local.compare(&list), "there is no subscriber");
        for id in ["a", "b", "c"] {
            local.set(PresenceChange::new(&entry(id, 7), true));
        }
        local.set(PresenceChange::new(&entry("c", 7), false));
        assert_eq!(local.take(2).len(), 2);
        let expected = [("c".to_owned(), false), ("c".to_owned(), true)];
        assert_eq!(changes(&mut local), expected);
        assert!(local.is_shared());
        // The others have read `a`, which stays, `d`, whose end was not shared, and a subscriber of another node.
        for (id, node) in [("a", 7), ("d", 7), ("e", 8)] {
            list.set(&entry(id, node), true);
        }
        assert!(!local.compare(&list));
        assert_eq!(
            changes(&mut local),
            [("b".to_owned(), true), ("d".to_owned(), false)]
        );
        let ends = list.of_others(&[7].into());
        assert_eq!(ends.len(), 1);
        assert_eq!((&*ends[0].entry.id, ends[0].active), ("e", false));
    }
}
