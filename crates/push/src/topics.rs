//! What subscribers ask for, each thing once however many there are, and who waits for it to change.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;

use crate::change::Change;
use crate::name::Pattern;

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
    waiting: Slab<Waker>,
    /// How often those who wait were woken.
    round: u64,
}

/// A place among those who wait for a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seat {
    round: u64,
    number: usize,
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
            waiting: Slab::new(),
            round: 0,
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
        seat.is_some_and(|seat| seat.round == self.all[id].round)
    }

    /// One less.
    pub(crate) fn leave(&mut self, id: TopicId, seat: Option<Seat>) {
        let topic = &mut self.all[id];
        topic.subscribers -= 1;
        if topic.subscribers == 0 {
            let topic = self.all.remove(id);
            self.by_pattern.remove(&topic.pattern);
            self.patterns.retain(|one| *one != id);
        } else if let Some(seat) = seat {
            topic.get_up(seat);
        }
    }

    pub(crate) fn get(&self, id: TopicId) -> &Topic {
        &self.all[id]
    }

    /// Wakes this one at the next change of a topic. A place from earlier is taken again.
    pub(crate) fn wait(&mut self, id: TopicId, seat: Option<Seat>, waker: &Waker) -> Seat {
        let topic = &mut self.all[id];
        if let Some(seat) = seat.filter(|seat| seat.round == topic.round)
            && let Some(known) = topic.waiting.get_mut(seat.number)
        {
            known.clone_from(waker);
            return seat;
        }
        Seat {
            round: topic.round,
            number: topic.waiting.insert(waker.clone()),
        }
    }

    /// Notes a change, and what is not remembered any more because of it. Gives those who wait for it.
    pub(crate) fn note(
        &mut self,
        change: &Arc<Change>,
        forgotten: &[u64],
    ) -> SmallVec<[Slab<Waker>; 2]> {
        let mut woken = SmallVec::new();
        let exact = Pattern::Exact(Arc::clone(&change.name));
        if let Some(&id) = self.by_pattern.get(&exact) {
            woken.push(self.all[id].wake());
        }
        for &id in &self.patterns {
            let topic = &mut self.all[id];
            if topic.pattern.matches(&change.name) {
                for number in forgotten {
                    topic.changes.remove(number);
                }
                topic.changes.insert(change.number, Arc::clone(change));
                woken.push(topic.wake());
            }
        }
        woken
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

impl Topic {
    fn wake(&mut self) -> Slab<Waker> {
        self.round += 1;
        std::mem::take(&mut self.waiting)
    }

    fn get_up(&mut self, seat: Seat) {
        if seat.round == self.round {
            self.waiting.try_remove(seat.number);
        }
    }
}
