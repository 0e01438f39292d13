//! A subscriber of the hub.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::Mutex;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::history::{History, HistoryPosition};
use super::id::new_id;
use super::presence::{PresenceChange, PresenceEntry};
use super::selector::Selector;
use super::update::{EARLIEST, Update};
use super::update_log::{LogNext, LoggedUpdate, TooManyPatterns, UpdateLog, UpdateTopicId};
use crate::paths::SUBSCRIPTIONS_PATH;
use crate::subscribing::stream::EventSource;
use crate::wait_list::{Registration, Wakeups};

/// Limit of updates skipped per turn.
const MAX_SKIPPED: usize = 256;

/// A subscriber: its selectors, its permissions and its position in the history.
pub(crate) struct Subscriber {
    history: Arc<Mutex<History>>,
    published: LogCursor,
    /// The position in the presence log, if the token may cover presence.
    presence: Option<Box<LogCursor>>,
    /// Private updates that may be delivered.
    may_read: Box<[Selector]>,
    /// Expiry of the token.
    ends: Option<Instant>,
    /// The event of the last poll was the newest, and its waker is registered for the next one.
    is_drained: bool,
    /// The entry in the presence list, if presence is reported.
    entry: Option<Arc<PresenceEntry>>,
}

/// A position in one of the logs.
#[derive(Default)]
struct LogCursor {
    topics: SmallVec<[(UpdateTopicId, Option<Registration>); 1]>,
    /// Selectors to match while updates older than the index of a pattern are replayed; empty afterwards.
    selectors: Box<[Selector]>,
    /// The number of the last update delivered or skipped.
    seen: u64,
}

impl LogCursor {
    /// Subscribes to all of these selectors.
    fn join<'a>(
        &mut self,
        log: &mut UpdateLog,
        selectors: impl Iterator<Item = &'a Selector>,
    ) -> Result<(), TooManyPatterns> {
        let is_behind = self.seen < log.newest();
        let mut replayed = Vec::new();
        for selector in selectors {
            self.topics.push((log.join(selector)?, None));
            replayed.extend(is_behind.then(|| selector.clone()));
        }
        self.selectors = replayed.into();
        Ok(())
    }

    fn leave(&mut self, log: &mut UpdateLog) {
        for (topic, registration) in self.topics.drain(..) {
            log.leave(topic, registration);
        }
    }

    /// Returns whether nothing has changed since the subscriber was up to date.
    fn is_quiet(&self, log: &UpdateLog) -> bool {
        let mut topics = self.topics.iter();
        topics.all(|(topic, registration)| log.is_quiet(*topic, *registration))
    }

    fn next(&self, log: &UpdateLog) -> LogNext {
        log.after(self.seen, self.topics.iter().map(|(topic, _)| *topic))
    }

    /// Marks the subscriber as up to date, and registers its waker.
    fn mark_caught_up(&mut self, log: &mut UpdateLog, waker: &Waker) {
        self.seen = log.newest();
        for (topic, registration) in &mut self.topics {
            *registration = Some(log.register(*topic, *registration, waker));
        }
        self.selectors = Box::default();
    }
}

/// Error subscribing to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HubSubscribeError {
    #[error("the limit of subscribers is reached (push_max_subscribers)")]
    TooManySubscribers,
    #[error("the limit of distinct patterns is reached")]
    TooManyPatterns,
    #[error("the history is not loaded yet: push_redis cannot be reached")]
    NotLoaded,
}

impl From<TooManyPatterns> for HubSubscribeError {
    fn from(_: TooManyPatterns) -> Self {
        Self::TooManyPatterns
    }
}

/// The position at which a subscriber starts.
struct StartPosition {
    seen: HistoryPosition,
    /// The id before the first update delivered, if the client named one.
    after: Option<Arc<str>>,
}

impl StartPosition {
    fn at(history: &History, last_event_id: Option<&str>, receives_presence: bool) -> Self {
        let found = last_event_id.map(|id| (id, history.find(id, receives_presence)));
        match found {
            None => Self {
                seen: history.newest(),
                after: None,
            },
            // An empty id: the client has no events and asks for its position.
            Some(("", _)) => Self {
                seen: history.newest(),
                after: Some(history.last_id()),
            },
            Some((id, Some(seen))) => Self {
                seen,
                after: Some(id.into()),
            },
            // The id is unknown or evicted, or `earliest`: the whole history is replayed.
            Some((_, None)) => Self {
                seen: history.evicted_through(),
                after: Some(EARLIEST.into()),
            },
        }
    }
}

impl Subscriber {
    /// Subscribes to all of these selectors. If the client has sent a last event id, the id before the first
    /// update delivered is returned with it.
    pub(crate) fn new(
        shared: &Arc<Mutex<History>>,
        max_subscribers: usize,
        selectors: &[Selector],
        last_event_id: Option<&str>,
        (may_read, ends): (Box<[Selector]>, Option<Instant>),
    ) -> Result<(Self, Option<Arc<str>>), HubSubscribeError> {
        let may_reach_presence = |it: &&Selector| it.may_reach(SUBSCRIPTIONS_PATH);
        let receives_presence = may_read.iter().any(|it| may_reach_presence(&it))
            && selectors.iter().any(|it| may_reach_presence(&it));
        let mut history = shared.lock();
        if !history.is_loaded {
            return Err(HubSubscribeError::NotLoaded);
        }
        if history.subscribers >= max_subscribers {
            return Err(HubSubscribeError::TooManySubscribers);
        }
        history.subscribers += 1;
        let begin = StartPosition::at(&history, last_event_id, receives_presence);
        let cursor = |seen| LogCursor {
            seen,
            ..LogCursor::default()
        };
        let mut subscriber = Self {
            history: Arc::clone(shared),
            published: cursor(begin.seen.published),
            presence: receives_presence.then(|| Box::new(cursor(begin.seen.presence))),
            may_read,
            ends,
            is_drained: false,
            entry: None,
        };
        let mut joined = subscriber
            .published
            .join(&mut history.published, selectors.iter());
        if let Some(presence) = &mut subscriber.presence {
            let reaching = selectors.iter().filter(may_reach_presence);
            joined = joined.and_then(|()| presence.join(&mut history.presence, reaching));
        }
        // `Drop` leaves the joined topics and needs this lock.
        drop(history);
        joined?;
        Ok((subscriber, begin.after))
    }

    /// Adds the subscriber to the presence list until it is dropped.
    pub(crate) fn announce(&mut self, mut entry: PresenceEntry) {
        entry.node = self.history.lock().node();
        let events = entry.events(true, new_id);
        let entry = self.entry.insert(Arc::new(entry));
        let change = PresenceChange::new(entry, true);
        let wakeups = self.history.lock().announce(change, events);
        wakeups.into_iter().for_each(Wakeups::wake);
    }

    fn next(&mut self, history: &History) -> SubscriberStep {
        for _ in 0..MAX_SKIPPED {
            let published = self.published.next(&history.published);
            let presence = self.presence.as_ref();
            let presence = presence.map_or(LogNext::CaughtUp, |presence| {
                presence.next(&history.presence)
            });
            let is_presence = match (&published, &presence) {
                (LogNext::Evicted, _) | (_, LogNext::Evicted) => return SubscriberStep::FellBehind,
                (LogNext::CaughtUp, LogNext::CaughtUp) => return SubscriberStep::CaughtUp,
                (LogNext::Update(_), LogNext::CaughtUp) => false,
                (LogNext::CaughtUp, LogNext::Update(_)) => true,
                (LogNext::Update(published), LogNext::Update(presence)) => {
                    presence.number <= published.update.other_log_position
                }
            };
            let (next, cursor) = match &mut self.presence {
                Some(cursor) if is_presence => (presence, &mut **cursor),
                _ => (published, &mut self.published),
            };
            let LogNext::Update(LoggedUpdate {
                number,
                update,
                is_matched,
            }) = next
            else {
                return SubscriberStep::CaughtUp;
            };
            cursor.seen = number;
            let is_selected = is_matched || matches(&cursor.selectors, &update);
            if is_selected && (!update.is_private || matches(&self.may_read, &update)) {
                return SubscriberStep::Deliver(update.event.clone());
            }
        }
        SubscriberStep::Yield
    }

    /// Returns whether the newest updates are delivered or skipped.
    fn has_newest(&self, history: &History) -> bool {
        let mut presence = self.presence.iter();
        self.published.seen == history.published.newest()
            && presence.all(|presence| presence.seen == history.presence.newest())
    }

    /// Marks the subscriber as up to date, and registers its waker.
    fn mark_caught_up(&mut self, history: &mut History, waker: &Waker) {
        self.published.mark_caught_up(&mut history.published, waker);
        if let Some(presence) = &mut self.presence {
            presence.mark_caught_up(&mut history.presence, waker);
        }
    }

    /// Returns whether nothing has changed since the subscriber was up to date.
    fn is_quiet(&self, history: &History) -> bool {
        let mut presence = self.presence.iter();
        self.published.is_quiet(&history.published)
            && presence.all(|presence| presence.is_quiet(&history.presence))
    }
}

/// The result of one poll.
enum SubscriberStep {
    Deliver(Bytes),
    /// The skip limit is reached: yield to other tasks.
    Yield,
    CaughtUp,
    /// The next update was evicted.
    FellBehind,
}

fn matches(selectors: &[Selector], update: &Update) -> bool {
    let mut topics = update.topics.iter();
    topics.any(|topic| selectors.iter().any(|it| it.matches(topic)))
}

impl EventSource for Subscriber {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let shared = Arc::clone(&self.history);
        let mut history = shared.lock();
        self.is_drained = false;
        let step = if self.is_quiet(&history) {
            SubscriberStep::CaughtUp
        } else {
            self.next(&history)
        };
        match step {
            SubscriberStep::Deliver(event) => {
                history.events += 1;
                self.is_drained = self.has_newest(&history);
                if self.is_drained {
                    self.mark_caught_up(&mut history, cx.waker());
                }
                Poll::Ready(Some(event))
            }
            SubscriberStep::Yield => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            SubscriberStep::CaughtUp => {
                self.mark_caught_up(&mut history, cx.waker());
                Poll::Pending
            }
            SubscriberStep::FellBehind => {
                history.cut_off += 1;
                Poll::Ready(None)
            }
        }
    }

    fn is_drained(&self) -> bool {
        self.is_drained
    }

    fn ends(&self) -> Option<Instant> {
        self.ends
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let entry = self.entry.take();
        let end = entry.map(|entry| {
            let events = entry.events(false, new_id);
            (PresenceChange::new(&entry, false), events)
        });
        let mut history = self.history.lock();
        history.subscribers -= 1;
        self.published.leave(&mut history.published);
        if let Some(presence) = &mut self.presence {
            presence.leave(&mut history.presence);
        }
        let wakeups = end.map(|(change, events)| history.announce(change, events));
        drop(history);
        let wakeups = wakeups.into_iter().flatten();
        wakeups.for_each(Wakeups::wake);
    }
}
