//! A log of updates with an index by topic, and the wait lists of its subscribers.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Waker;

use foldhash::fast::RandomState;
use slab::Slab;
use smallvec::SmallVec;

use super::selector::{PatternSource, Selector};
use super::update::Update;
use crate::wait_list::{Registration, WaitList, Wakeups};

/// Limit of distinct selectors that may match several topics: every update is matched against all of them.
pub(crate) const MAX_PATTERNS: usize = 1024;

/// Index of a topic or of a pattern.
pub(crate) type UpdateTopicId = usize;

/// The updates of one kind, in order. The log is the queue of all their subscribers.
pub(crate) struct UpdateLog {
    updates: VecDeque<Arc<Update>>,
    /// The number of the newest update. Numbers are consecutive.
    newest: u64,
    bytes: u64,
    capacity: u64,
    /// Numbers by update id, oldest first: ids may repeat.
    ids: HashMap<Arc<str>, SmallVec<[u64; 1]>, RandomState>,
    topics: Slab<UpdateTopic>,
    by_selector: HashMap<SelectorKey, UpdateTopicId, RandomState>,
    /// Selectors that may match several topics.
    patterns: Vec<UpdateTopicId>,
}

/// A selector with subscribers, or the topic of an update in the log.
struct UpdateTopic {
    selector: Selector,
    /// Updates after this number are indexed.
    since: u64,
    /// The numbers of its indexed updates.
    numbers: VecDeque<u64>,
    /// The number of the newest evicted one of them.
    evicted_through: u64,
    subscribers: usize,
    wait_list: WaitList,
}

#[derive(PartialEq, Eq, Hash)]
enum SelectorKey {
    All,
    Exact(Arc<str>),
    Pattern(PatternSource),
}

impl SelectorKey {
    fn from_selector(selector: &Selector) -> Self {
        match selector {
            Selector::All => Self::All,
            Selector::Exact(topic) => Self::Exact(Arc::clone(topic)),
            Selector::Pattern(pattern) => Self::Pattern(pattern.source.clone()),
        }
    }
}

/// Error: there are too many distinct patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooManyPatterns;

/// An update that follows another one.
pub(crate) struct LoggedUpdate {
    pub(crate) number: u64,
    pub(crate) update: Arc<Update>,
    /// True if it is known to match. Otherwise the subscriber has to match it, since it precedes the index of
    /// one of its patterns.
    pub(crate) is_matched: bool,
}

/// The next item for a subscriber.
pub(crate) enum LogNext {
    Update(LoggedUpdate),
    /// The subscriber is up to date.
    CaughtUp,
    /// The next update was evicted.
    Evicted,
}

impl UpdateLog {
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
            patterns: Vec::new(),
        }
    }

    pub(crate) const fn newest(&self) -> u64 {
        self.newest
    }

    /// Returns the number of the newest evicted update.
    pub(crate) fn evicted_through(&self) -> u64 {
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
    pub(crate) fn subscribed_topics(&self) -> usize {
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
        self.evict();
    }

    /// Adds a subscriber for a selector.
    pub(crate) fn join(&mut self, selector: &Selector) -> Result<UpdateTopicId, TooManyPatterns> {
        let key = SelectorKey::from_selector(selector);
        if let Some(&id) = self.by_selector.get(&key) {
            self.topics[id].subscribers += 1;
            return Ok(id);
        }
        let is_pattern = matches!(selector, Selector::Pattern(_));
        if is_pattern && self.patterns.len() >= MAX_PATTERNS {
            return Err(TooManyPatterns);
        }
        let id = self.add(key, selector.clone());
        self.topics[id].subscribers = 1;
        if is_pattern {
            self.patterns.push(id);
        }
        Ok(id)
    }

    fn add(&mut self, key: SelectorKey, selector: Selector) -> UpdateTopicId {
        let topic = UpdateTopic {
            since: match selector {
                Selector::Pattern(_) => self.newest,
                // Updates are always indexed by their topics, with or without subscribers.
                Selector::All | Selector::Exact(_) => 0,
            },
            selector,
            numbers: VecDeque::new(),
            evicted_through: 0,
            subscribers: 0,
            wait_list: WaitList::default(),
        };
        let id = self.topics.insert(topic);
        self.by_selector.insert(key, id);
        id
    }

    /// Removes a subscriber.
    pub(crate) fn leave(&mut self, id: UpdateTopicId, registration: Option<Registration>) {
        let topic = &mut self.topics[id];
        topic.subscribers -= 1;
        if let Some(registration) = registration {
            topic.wait_list.remove(registration);
        }
        self.remove_if_unused(id);
    }

    fn remove_if_unused(&mut self, id: UpdateTopicId) {
        let topic = &self.topics[id];
        let is_pattern = matches!(topic.selector, Selector::Pattern(_));
        if topic.subscribers > 0 || !topic.numbers.is_empty() && !is_pattern {
            return;
        }
        let topic = self.topics.remove(id);
        self.by_selector
            .remove(&SelectorKey::from_selector(&topic.selector));
        if is_pattern {
            self.patterns.retain(|one| *one != id);
        }
    }

    /// Returns whether nothing was added to the topic since the registration.
    pub(crate) fn is_quiet(&self, id: UpdateTopicId, registration: Option<Registration>) -> bool {
        self.topics[id].wait_list.is_quiet(registration)
    }

    /// Registers a waker for the next update of the topic.
    pub(crate) fn register(
        &mut self,
        id: UpdateTopicId,
        registration: Option<Registration>,
        waker: &Waker,
    ) -> Registration {
        self.topics[id].wait_list.register(registration, waker)
    }

    /// Adds an update; returns the tasks to wake.
    pub(crate) fn record(&mut self, update: Update) -> SmallVec<[Wakeups; 4]> {
        self.newest += 1;
        let mut wakeups = SmallVec::new();
        for name in &update.topics {
            let key = SelectorKey::Exact(Arc::clone(name));
            let known = self.by_selector.get(&key).copied();
            let id = known.unwrap_or_else(|| self.add(key, Selector::Exact(Arc::clone(name))));
            wakeups.push(self.topics[id].record(self.newest));
        }
        for &id in &self.patterns {
            let topic = &mut self.topics[id];
            if update.topics.iter().any(|it| topic.selector.matches(it)) {
                wakeups.push(topic.record(self.newest));
            }
        }
        if let Some(&id) = self.by_selector.get(&SelectorKey::All) {
            wakeups.push(self.topics[id].wait_list.notify());
        }
        self.bytes += update.size();
        let numbers = self.ids.entry(Arc::clone(&update.id)).or_default();
        numbers.push(self.newest);
        self.updates.push_back(Arc::new(update));
        self.evict();
        wakeups
    }

    /// Evicts the oldest updates beyond the memory limit.
    fn evict(&mut self) {
        while self.bytes > self.capacity {
            let Some(update) = self.updates.pop_front() else {
                return;
            };
            let number = self.evicted_through();
            self.bytes -= update.size();
            if let Some(numbers) = self.ids.get_mut(&update.id) {
                numbers.retain(|it| *it != number);
                if numbers.is_empty() {
                    self.ids.remove(&update.id);
                }
            }
            for name in &update.topics {
                if let Some(&id) = self.by_selector.get(&SelectorKey::Exact(Arc::clone(name))) {
                    self.topics[id].evict(number);
                    self.remove_if_unused(id);
                }
            }
            for &id in &self.patterns {
                self.topics[id].evict(number);
            }
        }
    }

    /// Evicts all updates, and one that was never here, so that every subscriber falls behind. Returns the tasks to wake.
    pub(crate) fn reset(&mut self) -> Vec<Wakeups> {
        self.updates.clear();
        self.ids.clear();
        self.bytes = 0;
        self.newest += 1;
        let mut wakeups = Vec::new();
        let all: Vec<_> = self.topics.iter().map(|(id, _)| id).collect();
        for id in all {
            let topic = &mut self.topics[id];
            topic.numbers.clear();
            topic.evicted_through = self.newest;
            wakeups.push(topic.wait_list.notify());
            self.remove_if_unused(id);
        }
        wakeups
    }

    /// Returns all updates, oldest first.
    pub(crate) fn all(&self) -> Vec<Arc<Update>> {
        self.updates.iter().map(Arc::clone).collect()
    }

    /// Returns the update with this number, unless it was evicted.
    pub(crate) fn get(&self, number: u64) -> Option<&Arc<Update>> {
        let place = number.checked_sub(self.evicted_through() + 1)?;
        self.updates.get(usize::try_from(place).ok()?)
    }

    /// Returns the next item for a subscriber of these topics after the number `seen`.
    pub(crate) fn after(
        &self,
        seen: u64,
        topics: impl Iterator<Item = UpdateTopicId> + Clone,
    ) -> LogNext {
        let all = topics.map(|id| &self.topics[id]);
        let known_since = all.clone().map(|topic| topic.since).max();
        if known_since.is_some_and(|since| seen < since) {
            return match self.get(seen + 1) {
                Some(update) => LogNext::Update(LoggedUpdate {
                    number: seen + 1,
                    update: Arc::clone(update),
                    is_matched: false,
                }),
                None => LogNext::Evicted,
            };
        }
        if all
            .clone()
            .any(|topic| seen < self.evicted_through_of(topic))
        {
            return LogNext::Evicted;
        }
        let next = all.filter_map(|topic| self.next_of(topic, seen)).min();
        match next.and_then(|number| Some((number, self.get(number)?))) {
            Some((number, update)) => LogNext::Update(LoggedUpdate {
                number,
                update: Arc::clone(update),
                is_matched: true,
            }),
            None => LogNext::CaughtUp,
        }
    }

    fn evicted_through_of(&self, topic: &UpdateTopic) -> u64 {
        match topic.selector {
            Selector::All => self.evicted_through(),
            _ => topic.evicted_through,
        }
    }

    fn next_of(&self, topic: &UpdateTopic, seen: u64) -> Option<u64> {
        if matches!(topic.selector, Selector::All) {
            return (seen < self.newest).then_some(seen + 1);
        }
        let place = topic.numbers.partition_point(|number| *number <= seen);
        topic.numbers.get(place).copied()
    }
}

impl UpdateTopic {
    fn record(&mut self, number: u64) -> Wakeups {
        self.numbers.push_back(number);
        self.wait_list.notify()
    }

    fn evict(&mut self, number: u64) {
        if self.numbers.front() == Some(&number) {
            self.numbers.pop_front();
            self.evicted_through = number;
        }
    }
}
