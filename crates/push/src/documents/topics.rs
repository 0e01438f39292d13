//! The topics: every distinct subscribed pattern once, with its subscribers and wait list.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;

use crate::changes::change::DocumentChange;
use crate::documents::client_network::ClientNetwork;
use crate::name::{DocumentName, Pattern};
use crate::wait_list::{Registration, WaitList, Wakeups};

/// Limit of distinct patterns that may match several documents: every change is matched against all of them.
pub(crate) const MAX_PATTERNS: usize = 1024;
/// Limit of patterns introduced by the same client.
pub(crate) const MAX_CLIENT_PATTERNS: usize = 256;
/// Limit of changes referenced by all patterns together, above which no new pattern is accepted.
const MAX_MATCHES: usize = 1 << 20;

/// Index of a topic.
pub(crate) type TopicId = usize;

/// All topics with subscribers.
#[derive(Default)]
pub(crate) struct TopicIndex {
    all: Slab<DocumentTopic>,
    by_pattern: HashMap<Pattern, TopicId, RandomState>,
    /// Topics that may match several documents.
    patterns: Vec<TopicId>,
    /// Number of these per client that introduced them.
    by_client: HashMap<ClientNetwork, usize, RandomState>,
}

/// A subscribed pattern.
pub(crate) struct DocumentTopic {
    pub(crate) pattern: Pattern,
    /// The stored changes of matching documents. Empty for an exact path, whose document has them.
    pub(crate) changes: BTreeMap<u64, Arc<DocumentChange>>,
    /// Start of the documents not scanned yet; `None` after the scan.
    unscanned: Option<Bound<DocumentName>>,
    /// The client that introduced the pattern.
    client: ClientNetwork,
    subscribers: usize,
    wait_list: WaitList,
    pub(crate) missing: MissingChanges,
}

/// Changes of matching documents that are evicted or never arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MissingChanges {
    /// The number of the newest missing change.
    pub(crate) through: u64,
    /// Number of times that changes went missing, plus one: subscribers start at zero, so existing gaps are
    /// announced.
    pub(crate) times: u64,
}

impl MissingChanges {
    fn record(&mut self, number: u64) {
        self.through = self.through.max(number);
        self.times += 1;
    }
}

/// Error subscribing to a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TopicError {
    /// The limit of all patterns is reached.
    TooMany,
    /// The limit of this client's patterns is reached.
    TooManyOfClient,
}

impl TopicIndex {
    /// Adds a subscriber to the topic of a pattern. A new topic still has to be scanned for.
    pub(crate) fn join(
        &mut self,
        pattern: &Pattern,
        client: ClientNetwork,
    ) -> Result<TopicId, TopicError> {
        if let Some(&id) = self.by_pattern.get(pattern) {
            self.all[id].subscribers += 1;
            return Ok(id);
        }
        if pattern.matches_several() {
            if self.patterns.len() >= MAX_PATTERNS || self.matches() >= MAX_MATCHES {
                return Err(TopicError::TooMany);
            }
            let count = self.by_client.entry(client).or_default();
            if *count >= MAX_CLIENT_PATTERNS {
                return Err(TopicError::TooManyOfClient);
            }
            *count += 1;
        }
        let id = self.all.insert(DocumentTopic {
            pattern: pattern.clone(),
            changes: BTreeMap::new(),
            unscanned: pattern
                .matches_several()
                .then(|| Bound::Included(pattern.literal_prefix().into())),
            client,
            subscribers: 1,
            wait_list: WaitList::default(),
            missing: MissingChanges {
                through: 0,
                times: 1,
            },
        });
        self.by_pattern.insert(pattern.clone(), id);
        if pattern.matches_several() {
            self.patterns.push(id);
        }
        Ok(id)
    }

    /// Returns the pattern of a topic and the start of the documents not scanned yet; `None` after the scan.
    pub(crate) fn unscanned(&self, id: TopicId) -> Option<(&Pattern, &Bound<DocumentName>)> {
        let topic = &self.all[id];
        Some((&topic.pattern, topic.unscanned.as_ref()?))
    }

    /// Adds the results of a partial scan, and where it continues.
    pub(crate) fn add_matches(
        &mut self,
        id: TopicId,
        (changes, missing_through): (Vec<Arc<DocumentChange>>, u64),
        unscanned: Option<Bound<DocumentName>>,
    ) {
        let topic = &mut self.all[id];
        topic.missing.through = topic.missing.through.max(missing_through);
        let changes = changes.into_iter().map(|change| (change.number, change));
        topic.changes.extend(changes);
        topic.unscanned = unscanned;
    }

    fn matches(&self) -> usize {
        let sizes = self.patterns.iter().map(|&id| self.all[id].changes.len());
        sizes.sum()
    }

    /// Returns whether the topic has not changed since the registration.
    pub(crate) fn is_quiet(&self, id: TopicId, registration: Option<Registration>) -> bool {
        self.all[id].wait_list.is_quiet(registration)
    }

    /// Removes a subscriber; returns the topic if it was the last one, to be dropped without holding the
    /// lock.
    pub(crate) fn leave(
        &mut self,
        id: TopicId,
        registration: Option<Registration>,
    ) -> Option<DocumentTopic> {
        let topic = &mut self.all[id];
        topic.subscribers -= 1;
        if topic.subscribers == 0 {
            let topic = self.all.remove(id);
            self.by_pattern.remove(&topic.pattern);
            self.patterns.retain(|one| *one != id);
            self.release_pattern(&topic);
            return Some(topic);
        }
        if let Some(registration) = registration {
            topic.wait_list.remove(registration);
        }
        None
    }

    /// Releases the pattern from its client's limit.
    fn release_pattern(&mut self, topic: &DocumentTopic) {
        if let Entry::Occupied(mut count) = self.by_client.entry(topic.client)
            && topic.pattern.matches_several()
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    pub(crate) fn get(&self, id: TopicId) -> &DocumentTopic {
        &self.all[id]
    }

    /// Registers the waker for the next change of a topic.
    pub(crate) fn register(
        &mut self,
        id: TopicId,
        registration: Option<Registration>,
        waker: &Waker,
    ) -> Registration {
        self.all[id].wait_list.register(registration, waker)
    }

    /// Adds a change to its topics and removes the evicted ones; returns the tasks to wake.
    pub(crate) fn record(
        &mut self,
        change: &Arc<DocumentChange>,
        forgotten: &[u64],
    ) -> SmallVec<[Wakeups; 2]> {
        let mut wakeups = SmallVec::new();
        let exact = Pattern::Exact(Arc::clone(&change.name));
        if let Some(&id) = self.by_pattern.get(&exact) {
            let topic = &mut self.all[id];
            for number in forgotten {
                topic.missing.record(*number);
            }
            wakeups.push(topic.wait_list.notify());
        }
        for &id in &self.patterns {
            let topic = &mut self.all[id];
            if topic.pattern.matches(&change.name) {
                for number in forgotten {
                    topic.changes.remove(number);
                    topic.missing.record(*number);
                }
                topic.changes.insert(change.number, Arc::clone(change));
                wakeups.push(topic.wait_list.notify());
            }
        }
        wakeups
    }

    /// Records a change that did not arrive; returns the tasks to wake.
    pub(crate) fn record_missing(
        &mut self,
        name: &DocumentName,
        number: u64,
    ) -> SmallVec<[Wakeups; 2]> {
        let mut wakeups = SmallVec::new();
        for (_, topic) in &mut self.all {
            if topic.pattern.matches(name) {
                topic.missing.record(number);
                wakeups.push(topic.wait_list.notify());
            }
        }
        wakeups
    }

    /// Removes a document and its changes; returns the tasks to wake.
    pub(crate) fn remove_document(
        &mut self,
        name: &DocumentName,
        numbers: &[u64],
    ) -> SmallVec<[Wakeups; 2]> {
        let mut wakeups = SmallVec::new();
        for (_, topic) in &mut self.all {
            if topic.pattern.matches(name) {
                for number in numbers {
                    topic.changes.remove(number);
                }
                wakeups.push(topic.wait_list.notify());
            }
        }
        wakeups
    }

    /// Clears all topics; returns all waiting tasks.
    pub(crate) fn reset(&mut self) -> Vec<Wakeups> {
        let all = self.all.iter_mut().map(|(_, topic)| topic);
        all.map(|topic| {
            topic.changes.clear();
            topic.unscanned = None;
            topic.missing.through = 0;
            topic.wait_list.notify()
        })
        .collect()
    }

    /// Removes a change that is no longer stored.
    pub(crate) fn forget(&mut self, number: u64) {
        for &id in &self.patterns {
            self.all[id].changes.remove(&number);
        }
    }

    /// Returns the number of topics.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn like(number: usize) -> Pattern {
        Pattern::parse(&format!("/{number}/*")).expect("a pattern")
    }

    fn client(number: usize) -> ClientNetwork {
        let block = format!("X-Forwarded-For: 10.0.0.{number}\r\n");
        ClientNetwork::from_request(microcache_policy::Fields::new(block.as_bytes()))
    }

    #[test]
    fn one_client_cannot_take_the_places_of_all() {
        let mut topics = TopicIndex::default();
        let joined: Vec<_> = (0..MAX_CLIENT_PATTERNS)
            .map(|number| topics.join(&like(number), client(1)).expect("room"))
            .collect();
        let another = like(MAX_CLIENT_PATTERNS);
        assert_eq!(
            topics.join(&another, client(1)),
            Err(TopicError::TooManyOfClient)
        );
        // Existing patterns, exact paths and other clients are not affected by the limit.
        assert_eq!(topics.join(&like(0), client(1)), Ok(joined[0]));
        let exact = Pattern::parse("/x").expect("a name");
        assert!(topics.join(&exact, client(1)).is_ok());
        let other = topics.join(&another, client(2)).expect("room");
        assert_eq!(topics.join(&another, client(1)), Ok(other));
        // It is released when the last subscriber leaves.
        topics.leave(joined[0], None);
        let more = like(MAX_CLIENT_PATTERNS + 1);
        assert_eq!(
            topics.join(&more, client(1)),
            Err(TopicError::TooManyOfClient)
        );
        topics.leave(joined[0], None);
        assert!(topics.join(&more, client(1)).is_ok());
        let mut others = (0..MAX_PATTERNS).map(|number| (2000 + number, client(2 + number / 100)));
        let refused = others.find_map(|(number, client)| topics.join(&like(number), client).err());
        assert_eq!(refused, Some(TopicError::TooMany));
    }
}
