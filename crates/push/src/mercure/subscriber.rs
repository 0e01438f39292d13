//! Somebody who is sent updates.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::Hub;
use super::log::{After, Log, TopicId};
use super::selector::Selector;
use super::update::{EARLIEST, Update};
use crate::stream::Events;
use crate::waiting::Seat;

/// So many updates that are not for somebody are passed over at a time.
const MAX_SKIPPED: usize = 256;

/// A subscriber: what it asks for, what it may read, and what it has seen.
pub(crate) struct Subscriber {
    hub: Arc<Hub>,
    topics: SmallVec<[(TopicId, Option<Seat>); 1]>,
    /// What it asks for, as long as it is sent what is older than what is known of that.
    selectors: Box<[Selector]>,
    /// Private updates that it may read.
    may_read: Box<[Selector]>,
    /// The number of the last update that it has seen.
    seen: u64,
    /// When its token ends.
    ends: Option<Instant>,
}

/// Why somebody cannot subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoSubscriber {
    #[error("there are too many subscribers (push_max_subscribers)")]
    TooMany,
    #[error("too many different templates are subscribed to")]
    TooManyLikes,
}

/// Where somebody begins who says what it has seen.
struct Begin {
    seen: u64,
    /// What the first update that it is sent comes after.
    after: Option<Arc<str>>,
}

impl Begin {
    fn at(log: &Log, last_event_id: Option<&str>) -> Self {
        let found = last_event_id.map(|id| (id, log.find(id)));
        match found {
            None => Self {
                seen: log.newest(),
                after: None,
            },
            Some((id, Some(number))) => Self {
                seen: number,
                after: Some(id.into()),
            },
            // It has missed something, or asks for everything: it is sent what there is.
            Some((_, None)) => Self {
                seen: log.forgotten(),
                after: Some(EARLIEST.into()),
            },
        }
    }
}

impl Subscriber {
    /// Subscribes to all of these. Gives the id of the update that those come after which it is sent, where it
    /// has said what it has seen.
    pub(crate) fn new(
        hub: &Arc<Hub>,
        selectors: Box<[Selector]>,
        last_event_id: Option<&str>,
        (may_read, ends): (Box<[Selector]>, Option<Instant>),
    ) -> Result<(Self, Option<Arc<str>>), NoSubscriber> {
        let mut log = hub.log.lock();
        if log.subscribers >= hub.settings().max_subscribers {
            return Err(NoSubscriber::TooMany);
        }
        log.subscribers += 1;
        let begin = Begin::at(&log, last_event_id);
        let mut subscriber = Self {
            hub: Arc::clone(hub),
            topics: SmallVec::new(),
            selectors: Box::default(),
            may_read,
            seen: begin.seen,
            ends,
        };
        for selector in &selectors {
            let Ok(topic) = log.join(selector) else {
                // What it has joined it leaves as it goes, which takes the log.
                drop(log);
                return Err(NoSubscriber::TooManyLikes);
            };
            subscriber.topics.push((topic, None));
        }
        if begin.seen < log.newest() {
            subscriber.selectors = selectors;
        }
        Ok((subscriber, begin.after))
    }

    fn next(&mut self, log: &Log) -> Step {
        for _ in 0..MAX_SKIPPED {
            let topics = self.topics.iter().map(|(topic, _)| *topic);
            let (number, update, is_wanted) = match log.after(self.seen, topics) {
                After::Next(number, update) => (number, update, true),
                After::Perhaps(number, update) => {
                    let is_wanted = matches(&self.selectors, &update);
                    (number, update, is_wanted)
                }
                After::Nothing => return Step::Nothing,
                After::Forgotten => return Step::CutOff,
            };
            self.seen = number;
            if is_wanted && (!update.is_private || matches(&self.may_read, &update)) {
                return Step::Next(update.event.clone());
            }
        }
        Step::Later
    }
}

/// One look at what comes next.
enum Step {
    Next(Bytes),
    /// It has passed over so much that others should have their turn.
    Later,
    Nothing,
    /// What comes next is not remembered any more.
    CutOff,
}

fn matches(selectors: &[Selector], update: &Update) -> bool {
    let mut topics = update.topics.iter();
    topics.any(|topic| selectors.iter().any(|it| it.matches(topic)))
}

impl Events for Subscriber {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let hub = Arc::clone(&self.hub);
        let mut log = hub.log.lock();
        let mut topics = self.topics.iter();
        let step = if topics.all(|(topic, seat)| log.is_quiet(*topic, *seat)) {
            // Nothing has happened to it since it had seen everything.
            Step::Nothing
        } else {
            self.next(&log)
        };
        match step {
            Step::Next(event) => {
                hub.counters.events.add_one();
                Poll::Ready(Some(event))
            }
            Step::Later => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            Step::Nothing => {
                self.seen = log.newest();
                for (topic, seat) in &mut self.topics {
                    *seat = Some(log.wait(*topic, *seat, cx.waker()));
                }
                self.selectors = Box::default();
                Poll::Pending
            }
            Step::CutOff => {
                hub.counters.cut_off.add_one();
                Poll::Ready(None)
            }
        }
    }

    fn ends(&self) -> Option<Instant> {
        self.ends
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let mut log = self.hub.log.lock();
        log.subscribers -= 1;
        for (topic, seat) in self.topics.drain(..) {
            log.leave(topic, seat);
        }
    }
}
