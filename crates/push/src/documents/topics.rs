//! The topics: every distinct subscribed pattern once, with its subscribers and wait list.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;

use crate::changes::change::Change;
use crate::documents::client::Client;
use crate::name::{Name, Pattern};
use crate::waiting::{Seat, Waiting, Woken};

/// Limit of distinct patterns that may match several documents: every change is matched against all of them.
pub(crate) const MAX_PATTERNS: usize = 1024;
/// Limit of patterns introduced by the same client.
pub(crate) const MAX_PATTERNS_OF_ONE: usize = 256;
/// Limit of changes referenced by all patterns together, above which no new pattern is accepted.
const MAX_MATCHES: usize = 1 << 20;

/// Index of a topic.
pub(crate) type TopicId = usize;

/// All topics with subscribers.
#[derive(Default)]
pub(crate) struct Topics {
    all: Slab<Topic>,
    by_pattern: HashMap<Pattern, TopicId, RandomState>,
    /// Topics that may match several documents.
    patterns: Vec<TopicId>,
    /// Number of these per client that introduced them.
    of_clients: HashMap<Client, usize, RandomState>,
}

/// A subscribed pattern.
pub(crate) struct Topic {
    pub(crate) pattern: Pattern,
    /// The stored changes of matching documents. Empty for an exact path, whose document has them.
    pub(crate) changes: BTreeMap<u64, Arc<Change>>,
    /// Start of the documents not scanned yet; `None` after the scan.
    unseen: Option<Bound<Name>>,
    /// The client that introduced the pattern.
    client: Client,
    subscribers: usize,
    waiting: Waiting,
    pub(crate) missing: Missing,
}

/// Changes of matching documents that are evicted or never arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    /// The number of the newest missing change.
    pub(crate) through: u64,
    /// Number of times that changes went missing, plus one: subscribers start at zero, so existing gaps are
    /// announced.
    pub(crate) times: u64,
}

impl Missing {
    fn note(&mut self, number: u64) {
        self.through = self.through.max(number);
        self.times += 1;
    }
}

/// Error subscribing to a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTopic {
    /// The limit of all patterns is reached.
    TooMany,
    /// The limit of this client's patterns is reached.
    TooManyOfOne,
}

impl Topics {
    /// Adds a subscriber to the topic of a pattern. A new topic still has to be scanned for.
    pub(crate) fn join(&mut self, pattern: &Pattern, client: Client) -> Result<TopicId, NoTopic> {
        if let Some(&id) = self.by_pattern.get(pattern) {
            self.all[id].subscribers += 1;
            return Ok(id);
        }
        if pattern.is_like() {
            if self.patterns.len() >= MAX_PATTERNS || self.matches() >= MAX_MATCHES {
                return Err(NoTopic::TooMany);
            }
            let of_client = self.of_clients.entry(client).or_default();
            if *of_client >= MAX_PATTERNS_OF_ONE {
                return Err(NoTopic::TooManyOfOne);
            }
            *of_client += 1;
        }
        let id = self.all.insert(Topic {
            pattern: pattern.clone(),
            changes: BTreeMap::new(),
            unseen: pattern
                .is_like()
                .then(|| Bound::Included(pattern.begins_with().into())),
            client,
            subscribers: 1,
            waiting: Waiting::default(),
            missing: Missing {
                through: 0,
                times: 1,
            },
        });
        self.by_pattern.insert(pattern.clone(), id);
        if pattern.is_like() {
            self.patterns.push(id);
        }
        Ok(id)
    }

    /// Returns the pattern of a topic and the start of the documents not scanned yet; `None` after the scan.
    pub(crate) fn unseen(&self, id: TopicId) -> Option<(&Pattern, &Bound<Name>)> {
        let topic = &self.all[id];
        Some((&topic.pattern, topic.unseen.as_ref()?))
    }

    /// Adds the results of a partial scan, and where it continues.
    pub(crate) fn found(
        &mut self,
        id: TopicId,
        (changes, missing_through): (Vec<Arc<Change>>, u64),
        unseen: Option<Bound<Name>>,
    ) {
        let topic = &mut self.all[id];
        topic.missing.through = topic.missing.through.max(missing_through);
        let changes = changes.into_iter().map(|change| (change.number, change));
        topic.changes.extend(changes);
        topic.unseen = unseen;
    }

    fn matches(&self) -> usize {
        let sizes = self.patterns.iter().map(|&id| self.all[id].changes.len());
        sizes.sum()
    }

    /// Returns whether the topic has not changed since the registration.
    pub(crate) fn is_quiet(&self, id: TopicId, seat: Option<Seat>) -> bool {
        self.all[id].waiting.is_quiet(seat)
    }

    /// Removes a subscriber; returns the topic if it was the last one, to be dropped without holding the
    /// lock.
    pub(crate) fn leave(&mut self, id: TopicId, seat: Option<Seat>) -> Option<Topic> {
        let topic = &mut self.all[id];
        topic.subscribers -= 1;
        if topic.subscribers == 0 {
            let topic = self.all.remove(id);
            self.by_pattern.remove(&topic.pattern);
            self.patterns.retain(|one| *one != id);
            self.give_back(&topic);
            return Some(topic);
        }
        if let Some(seat) = seat {
            topic.waiting.leave(seat);
        }
        None
    }

    /// Releases the pattern from its client's limit.
    fn give_back(&mut self, topic: &Topic) {
        if let Entry::Occupied(mut of_client) = self.of_clients.entry(topic.client)
            && topic.pattern.is_like()
        {
            *of_client.get_mut() -= 1;
            if *of_client.get() == 0 {
                of_client.remove();
            }
        }
    }

    pub(crate) fn get(&self, id: TopicId) -> &Topic {
        &self.all[id]
    }

    /// Registers the waker for the next change of a topic.
    pub(crate) fn wait(&mut self, id: TopicId, seat: Option<Seat>, waker: &Waker) -> Seat {
        self.all[id].waiting.wait(seat, waker)
    }

    /// Adds a change to its topics and removes the evicted ones; returns the tasks to wake.
    pub(crate) fn note(&mut self, change: &Arc<Change>, forgotten: &[u64]) -> SmallVec<[Woken; 2]> {
        let mut woken = SmallVec::new();
        let exact = Pattern::Exact(Arc::clone(&change.name));
        if let Some(&id) = self.by_pattern.get(&exact) {
            let topic = &mut self.all[id];
            for number in forgotten {
                topic.missing.note(*number);
            }
            woken.push(topic.waiting.happen());
        }
        for &id in &self.patterns {
            let topic = &mut self.all[id];
            if topic.pattern.matches(&change.name) {
                for number in forgotten {
                    topic.changes.remove(number);
                    topic.missing.note(*number);
                }
                topic.changes.insert(change.number, Arc::clone(change));
                woken.push(topic.waiting.happen());
            }
        }
        woken
    }

    /// Records a change that did not arrive; returns the tasks to wake.
    pub(crate) fn note_missing(&mut self, name: &Name, number: u64) -> SmallVec<[Woken; 2]> {
        let mut woken = SmallVec::new();
        for (_, topic) in &mut self.all {
            if topic.pattern.matches(name) {
                topic.missing.note(number);
                woken.push(topic.waiting.happen());
            }
        }
        woken
    }

    /// Removes a document and its changes; returns the tasks to wake.
    pub(crate) fn vanish(&mut self, name: &Name, numbers: &[u64]) -> SmallVec<[Woken; 2]> {
        let mut woken = SmallVec::new();
        for (_, topic) in &mut self.all {
            if topic.pattern.matches(name) {
                for number in numbers {
                    topic.changes.remove(number);
                }
                woken.push(topic.waiting.happen());
            }
        }
        woken
    }

    /// Clears all topics; returns all waiting tasks.
    pub(crate) fn begin_anew(&mut self) -> Vec<Woken> {
        let all = self.all.iter_mut().map(|(_, topic)| topic);
        all.map(|topic| {
            topic.changes.clear();
            topic.unseen = None;
            topic.missing.through = 0;
            topic.waiting.happen()
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

    fn client(number: usize) -> Client {
        let block = format!("X-Forwarded-For: 10.0.0.{number}\r\n");
        Client::of(microcache_policy::Fields::new(block.as_bytes()))
    }

    #[test]
    fn one_client_cannot_take_the_places_of_all() {
        let mut topics = Topics::default();
        let joined: Vec<_> = (0..MAX_PATTERNS_OF_ONE)
            .map(|number| topics.join(&like(number), client(1)).expect("room"))
            .collect();
        let another = like(MAX_PATTERNS_OF_ONE);
        assert_eq!(topics.join(&another, client(1)), Err(NoTopic::TooManyOfOne));
        // Existing patterns, exact paths and other clients are not affected by the limit.
        assert_eq!(topics.join(&like(0), client(1)), Ok(joined[0]));
        let exact = Pattern::parse("/x").expect("a name");
        assert!(topics.join(&exact, client(1)).is_ok());
        let theirs = topics.join(&another, client(2)).expect("room");
        assert_eq!(topics.join(&another, client(1)), Ok(theirs));
        // It is released when the last subscriber leaves.
        topics.leave(joined[0], None);
        let more = like(MAX_PATTERNS_OF_ONE + 1);
        assert_eq!(topics.join(&more, client(1)), Err(NoTopic::TooManyOfOne));
        topics.leave(joined[0], None);
        assert!(topics.join(&more, client(1)).is_ok());
        let mut others = (0..MAX_PATTERNS).map(|number| (2000 + number, client(2 + number / 100)));
        let refused = others.find_map(|(number, client)| topics.join(&like(number), client).err());
        assert_eq!(refused, Some(NoTopic::TooMany));
    }
}
