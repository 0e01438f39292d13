//! A log of updates with an index by topic, and the wait lists of its subscribers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;

use super::selector::{Selector, Written};
use super::update::Update;
use crate::waiting::{Seat, Waiting, Woken};

/// Limit of distinct selectors that may match several topics: every update is matched against all of them.
pub(crate) const MAX_LIKES: usize = 1024;

/// Index of a topic or of a pattern.
pub(crate) type TopicId = usize;

/// The updates of one kind, in order. The log is the queue of all their subscribers.
pub(crate) struct Log {
    updates: VecDeque<Arc<Update>>,
    /// The number of the newest update. Numbers are consecutive.
    newest: u64,
    bytes: u64,
    capacity: u64,
    /// Numbers by update id, oldest first: ids may repeat.
    ids: HashMap<Arc<str>, SmallVec<[u64; 1]>, RandomState>,
    topics: Slab<Topic>,
    by_selector: HashMap<Key, TopicId, RandomState>,
    /// Selectors that may match several topics.
    likes: Vec<TopicId>,
}

/// A selector with subscribers, or the topic of an update in the log.
struct Topic {
    selector: Selector,
    /// Updates after this number are indexed.
    since: u64,
    /// The numbers of its indexed updates.
    numbers: VecDeque<u64>,
    /// The number of the newest evicted one of them.
    forgotten: u64,
    subscribers: usize,
    waiting: Waiting,
}

#[derive(PartialEq, Eq, Hash)]
enum Key {
    All,
    Exact(Arc<str>),
    Like(Written),
}

impl Key {
    fn of(selector: &Selector) -> Self {
        match selector {
            Selector::All => Self::All,
            Selector::Exact(topic) => Self::Exact(Arc::clone(topic)),
            Selector::Like(like) => Self::Like(like.written.clone()),
        }
    }
}

/// Error: there are too many distinct patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyLikes;

/// An update that follows another one.
pub(crate) struct Found {
    pub(crate) number: u64,
    pub(crate) update: Arc<Update>,
    /// True if it is known to match. Otherwise the subscriber has to match it, since it precedes the index of
    /// one of its patterns.
    pub(crate) is_meant: bool,
}

/// The next item for a subscriber.
pub(crate) enum After {
    Next(Found),
    /// The subscriber is up to date.
    Nothing,
    /// The next update was evicted.
    Forgotten,
}

impl Log {
    /// Creates a log with a memory limit in bytes.
    pub(crate) fn new(capacity: u64) -> Self {
        Self {
            updates: VecDeque::new(),
            newest: 0,
            bytes: 0,
            capacity,
            ids: HashMap::default(),
            topics: Slab::new(),
            by_selector: HashMap::default(),
            likes: Vec::new(),
        }
    }

    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the number of the newest evicted update.
    pub(crate) fn forgotten(&self) -> u64 {
        self.newest - self.updates.len() as u64
    }

    /// Returns the number of the oldest update with this id.
    pub(crate) fn find(&self, id: &str) -> Option<u64> {
        self.ids.get(id)?.first().copied()
    }

    pub(crate) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn capacity(&self) -> u64 {
        self.capacity
    }

    pub(crate) fn len(&self) -> usize {
        self.updates.len()
    }

    /// Returns the number of distinct selectors with subscribers.
    pub(crate) fn subscribed(&self) -> usize {
        let topics = self.topics.iter();
        topics.filter(|(_, topic)| topic.subscribers > 0).count()
    }

    /// Returns the number of indexed topics and patterns.
    #[cfg(test)]
    pub(crate) fn topics_known(&self) -> usize {
        self.topics.len()
    }

    /// Sets the memory limit, in bytes.
    pub(crate) fn resize(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.shorten();
    }

    /// Adds a subscriber for a selector.
    pub(crate) fn join(&mut self, selector: &Selector) -> Result<TopicId, TooManyLikes> {
        let key = Key::of(selector);
        if let Some(&id) = self.by_selector.get(&key) {
            self.topics[id].subscribers += 1;
            return Ok(id);
        }
        let is_like = matches!(selector, Selector::Like(_));
        if is_like && self.likes.len() >= MAX_LIKES {
            return Err(TooManyLikes);
        }
        let id = self.add(key, selector.clone());
        self.topics[id].subscribers = 1;
        if is_like {
            self.likes.push(id);
        }
        Ok(id)
    }

    fn add(&mut self, key: Key, selector: Selector) -> TopicId {
        let topic = Topic {
            since: match selector {
                Selector::Like(_) => self.newest,
                // Updates are always indexed by their topics, with or without subscribers.
                Selector::All | Selector::Exact(_) => 0,
            },
            selector,
            numbers: VecDeque::new(),
            forgotten: 0,
            subscribers: 0,
            waiting: Waiting::default(),
        };
        let id = self.topics.insert(topic);
        self.by_selector.insert(key, id);
        id
    }

    /// Removes a subscriber.
    pub(crate) fn leave(&mut self, id: TopicId, seat: Option<Seat>) {
        let topic = &mut self.topics[id];
        topic.subscribers -= 1;
        if let Some(seat) = seat {
            topic.waiting.leave(seat);
        }
        self.remove_if_needless(id);
    }

    fn remove_if_needless(&mut self, id: TopicId) {
        let topic = &self.topics[id];
        let is_like = matches!(topic.selector, Selector::Like(_));
        if topic.subscribers > 0 || !topic.numbers.is_empty() && !is_like {
            return;
        }
        let topic = self.topics.remove(id);
        self.by_selector.remove(&Key::of(&topic.selector));
        if is_like {
            self.likes.retain(|one| *one != id);
        }
    }

    /// Returns whether nothing was added to the topic since the registration.
    pub(crate) fn is_quiet(&self, id: TopicId, seat: Option<Seat>) -> bool {
        self.topics[id].waiting.is_quiet(seat)
    }

    /// Registers a waker for the next update of the topic.
    pub(crate) fn wait(&mut self, id: TopicId, seat: Option<Seat>, waker: &Waker) -> Seat {
        self.topics[id].waiting.wait(seat, waker)
    }

    /// Adds an update; returns the tasks to wake.
    pub(crate) fn note(&mut self, update: Update) -> SmallVec<[Woken; 4]> {
        self.newest += 1;
        let mut woken = SmallVec::new();
        for name in &update.topics {
            let key = Key::Exact(Arc::clone(name));
            let known = self.by_selector.get(&key).copied();
            let id = known.unwrap_or_else(|| self.add(key, Selector::Exact(Arc::clone(name))));
            woken.push(self.topics[id].note(self.newest));
        }
        for &id in &self.likes {
            let topic = &mut self.topics[id];
            if update.topics.iter().any(|it| topic.selector.matches(it)) {
                woken.push(topic.note(self.newest));
            }
        }
        if let Some(&id) = self.by_selector.get(&Key::All) {
            woken.push(self.topics[id].waiting.happen());
        }
        self.bytes += update.size();
        let numbers = self.ids.entry(Arc::clone(&update.id)).or_default();
        numbers.push(self.newest);
        self.updates.push_back(Arc::new(update));
        self.shorten();
        woken
    }

    /// Evicts the oldest updates beyond the memory limit.
    fn shorten(&mut self) {
        while self.bytes > self.capacity {
            let Some(update) = self.updates.pop_front() else {
                return;
            };
            let number = self.forgotten();
            self.bytes -= update.size();
            if let Some(numbers) = self.ids.get_mut(&update.id) {
                numbers.retain(|it| *it != number);
                if numbers.is_empty() {
                    self.ids.remove(&update.id);
                }
            }
            for name in &update.topics {
                if let Some(&id) = self.by_selector.get(&Key::Exact(Arc::clone(name))) {
                    self.topics[id].forget(number);
                    self.remove_if_needless(id);
                }
            }
            for &id in &self.likes {
                self.topics[id].forget(number);
            }
        }
    }

    /// Returns all updates, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Update>> {
        self.updates.iter().map(Arc::clone).collect()
    }

    /// Returns the update with this number, unless it was evicted.
    pub(crate) fn get(&self, number: u64) -> Option<&Arc<Update>> {
        let place = number.checked_sub(self.forgotten() + 1)?;
        self.updates.get(usize::try_from(place).ok()?)
    }

    /// Returns the next item for a subscriber of these topics after the number `seen`.
    pub(crate) fn after(&self, seen: u64, topics: impl Iterator<Item = TopicId> + Clone) -> After {
        let all = topics.map(|id| &self.topics[id]);
        let known_since = all.clone().map(|topic| topic.since).max();
        if known_since.is_some_and(|since| seen < since) {
            return match self.get(seen + 1) {
                Some(update) => After::Next(Found {
                    number: seen + 1,
                    update: Arc::clone(update),
                    is_meant: false,
                }),
                None => After::Forgotten,
            };
        }
        if all.clone().any(|topic| seen < self.forgotten_of(topic)) {
            return After::Forgotten;
        }
        let next = all.filter_map(|topic| self.next_of(topic, seen)).min();
        match next.and_then(|number| Some((number, self.get(number)?))) {
            Some((number, update)) => After::Next(Found {
                number,
                update: Arc::clone(update),
                is_meant: true,
            }),
            None => After::Nothing,
        }
    }

    fn forgotten_of(&self, topic: &Topic) -> u64 {
        match topic.selector {
            Selector::All => self.forgotten(),
            _ => topic.forgotten,
        }
    }

    fn next_of(&self, topic: &Topic, seen: u64) -> Option<u64> {
        if matches!(topic.selector, Selector::All) {
            return (seen < self.newest).then_some(seen + 1);
        }
        let place = topic.numbers.partition_point(|number| *number <= seen);
        topic.numbers.get(place).copied()
    }
}

impl Topic {
    fn note(&mut self, number: u64) -> Woken {
        self.numbers.push_back(number);
        self.waiting.happen()
    }

    fn forget(&mut self, number: u64) {
        if self.numbers.front() == Some(&number) {
            self.numbers.pop_front();
            self.forgotten = number;
        }
    }
}
