//! What subscribers ask for, each thing once however many there are, and who waits for it to change.

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

/// Patterns at a time, beside those that name one document: every change is held against all of them.
pub(crate) const MAX_PATTERNS: usize = 1024;
/// Those that are there because one client came first with them.
pub(crate) const MAX_PATTERNS_OF_ONE: usize = 256;
/// What is remembered of what they match, all of them together, when another one comes.
const MAX_MATCHES: usize = 1 << 20;

/// The number of a topic.
pub(crate) type TopicId = usize;

/// All topics that somebody subscribes to.
#[derive(Default)]
pub(crate) struct Topics {
    all: Slab<Topic>,
    by_pattern: HashMap<Pattern, TopicId, RandomState>,
    /// Those that may match several documents.
    patterns: Vec<TopicId>,
    /// How many of them each client came first with.
    of_clients: HashMap<Client, usize, RandomState>,
}

/// What somebody asks for.
pub(crate) struct Topic {
    pub(crate) pattern: Pattern,
    /// The changes that are remembered of what it matches. Empty for one document: those are in its own
    /// entry.
    pub(crate) changes: BTreeMap<u64, Arc<Change>>,
    /// Documents from here on were not looked at yet.
    unseen: Option<Bound<Name>>,
    /// Who came first with it.
    client: Client,
    subscribers: usize,
    waiting: Waiting,
    pub(crate) missing: Missing,
}

/// What is not known any more of what a topic matches, or never came here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Missing {
    /// The last change that is missing.
    pub(crate) through: u64,
    /// How often that has become more. It begins with one, so that who was told of nothing was told less often.
    pub(crate) times: u64,
}

impl Missing {
    fn note(&mut self, number: u64) {
        self.through = self.through.max(number);
        self.times += 1;
    }
}

/// Why there is no topic for a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoTopic {
    /// There are too many different patterns.
    TooMany,
    /// The client has brought too many of them.
    TooManyOfOne,
}

impl Topics {
    /// Has one more subscriber for a pattern. What it matches has to be found, if it is new.
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

    /// From where on documents were not looked at yet for a topic; `None` if all were.
    pub(crate) fn unseen(&self, id: TopicId) -> Option<(&Pattern, &Bound<Name>)> {
        let topic = &self.all[id];
        Some((&topic.pattern, topic.unseen.as_ref()?))
    }

    /// These were found among those that were looked at; what was not is from here on.
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

    /// Whether nothing has happened to a topic since this place was taken.
    pub(crate) fn is_quiet(&self, id: TopicId, seat: Option<Seat>) -> bool {
        self.all[id].waiting.is_quiet(seat)
    }

    /// One less. Gives the topic if nobody subscribes to it any more, to be dropped without a lock.
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

    /// Whoever came first with it may come with another one.
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

    /// Wakes this one at the next change of a topic. A place from earlier is taken again.
    pub(crate) fn wait(&mut self, id: TopicId, seat: Option<Seat>, waker: &Waker) -> Seat {
        self.all[id].waiting.wait(seat, waker)
    }

    /// Notes a change, and what is not remembered any more because of it. Gives those who wait for it.
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

    /// A change of a document did not come here. Gives those who wait for it: they are to know.
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

    /// A document is not there any more, nor these changes of it. Gives those who wait for it.
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

    /// There is nothing any more of what they match. Gives all who wait.
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

    /// A change is not remembered any more.
    pub(crate) fn forget(&mut self, number: u64) {
        for &id in &self.patterns {
            self.all[id].changes.remove(&number);
        }
    }

    /// How many there are.
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
        // What is there already, one document, and what others ask for are no matter.
        assert_eq!(topics.join(&like(0), client(1)), Ok(joined[0]));
        let exact = Pattern::parse("/x").expect("a name");
        assert!(topics.join(&exact, client(1)).is_ok());
        let theirs = topics.join(&another, client(2)).expect("room");
        assert_eq!(topics.join(&another, client(1)), Ok(theirs));
        // It is given back when the last one leaves.
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
