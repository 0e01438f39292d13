//! What subscribers ask for, each thing once however many there are, and who waits for it to change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;

use crate::change::Change;
use crate::name::{Name, Pattern};
use crate::waiting::{Seat, Waiting, Woken};

/// Patterns at a time, beside those that name one document: every change is held against all of them.
pub(crate) const MAX_PATTERNS: usize = 1024;
/// What is remembered of what they match, all of them together, when another one comes.
const MAX_MATCHES: usize = 1 << 20;

/// The number of a topic.
pub(crate) type TopicId = usize;

/// All topics that somebody subscribes to.
#[derive(Default)]
pub(crate) struct Topics {
    all: Slab<Topic>,
    by_pattern: HashMap<Pattern, TopicId, RandomState>,
    /// Those with stars in them.
    patterns: Vec<TopicId>,
}

/// What somebody asks for.
pub(crate) struct Topic {
    pub(crate) pattern: Pattern,
    /// The changes that are remembered of what it matches. Empty for one document: those are in its own
    /// entry.
    pub(crate) changes: BTreeMap<u64, Arc<Change>>,
    subscribers: usize,
    waiting: Waiting,
}

/// There are too many different patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyPatterns;

impl Topics {
    /// Has one more subscriber for a pattern. `changes` finds what it matches, if it is new.
    pub(crate) fn join(
        &mut self,
        pattern: &Pattern,
        changes: impl FnOnce() -> BTreeMap<u64, Arc<Change>>,
    ) -> Result<TopicId, TooManyPatterns> {
        if let Some(&id) = self.by_pattern.get(pattern) {
            self.all[id].subscribers += 1;
            return Ok(id);
        }
        let is_exact = matches!(pattern, Pattern::Exact(_));
        let changes = if is_exact {
            BTreeMap::new()
        } else if self.patterns.len() >= MAX_PATTERNS || self.matches() >= MAX_MATCHES {
            return Err(TooManyPatterns);
        } else {
            changes()
        };
        let id = self.all.insert(Topic {
            pattern: pattern.clone(),
            changes,
            subscribers: 1,
            waiting: Waiting::default(),
        });
        self.by_pattern.insert(pattern.clone(), id);
        if !is_exact {
            self.patterns.push(id);
        }
        Ok(id)
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
            return Some(topic);
        }
        if let Some(seat) = seat {
            topic.waiting.leave(seat);
        }
        None
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
            woken.push(self.all[id].waiting.happen());
        }
        for &id in &self.patterns {
            let topic = &mut self.all[id];
            if topic.pattern.matches(&change.name) {
                for number in forgotten {
                    topic.changes.remove(number);
                }
                topic.changes.insert(change.number, Arc::clone(change));
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

    /// Something has happened to all of them.
    pub(crate) fn wake_all(&mut self) -> Vec<Woken> {
        let all = self.all.iter_mut();
        all.map(|(_, topic)| topic.waiting.happen()).collect()
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
