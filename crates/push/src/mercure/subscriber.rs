//! A subscriber of the hub.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::log::{After, Found, Log, TooManyLikes, TopicId};
use super::member::Member;
use super::remembered::{Remembered, Seen};
use super::selector::Selector;
use super::update::{EARLIEST, Update};
use super::{Hub, new_id};
use crate::paths::SUBSCRIPTIONS_PATH;
use crate::subscribing::stream::Events;
use crate::waiting::{Seat, Woken};

/// Limit of updates skipped per turn.
const MAX_SKIPPED: usize = 256;

/// A subscriber: its selectors, its permissions and its position in the history.
pub(crate) struct Subscriber {
    hub: Arc<Hub>,
    published: Place,
    /// The position in the presence log, if the token may cover presence.
    own: Option<Box<Place>>,
    /// Private updates that may be delivered.
    may_read: Box<[Selector]>,
    /// Expiry of the token.
    ends: Option<Instant>,
    /// The entry in the presence list with its number, if presence is reported.
    member: Option<(u64, Arc<Member>)>,
}

/// A position in one of the logs.
#[derive(Default)]
struct Place {
    topics: SmallVec<[(TopicId, Option<Seat>); 1]>,
    /// Topics still in history replay.
    selectors: Box<[Selector]>,
    /// The number of the last update delivered or skipped.
    seen: u64,
}

impl Place {
    /// Subscribes to all of these selectors.
    fn join<'a>(
        &mut self,
        log: &mut Log,
        selectors: impl Iterator<Item = &'a Selector>,
    ) -> Result<(), TooManyLikes> {
        let is_behind = self.seen < log.newest();
        let mut kept = Vec::new();
        for selector in selectors {
            self.topics.push((log.join(selector)?, None));
            kept.extend(is_behind.then(|| selector.clone()));
        }
        self.selectors = kept.into();
        Ok(())
    }

    fn leave(&mut self, log: &mut Log) {
        for (topic, seat) in self.topics.drain(..) {
            log.leave(topic, seat);
        }
    }

    /// Returns whether nothing has changed since the subscriber was up to date.
    fn is_quiet(&self, log: &Log) -> bool {
        let mut topics = self.topics.iter();
        topics.all(|(topic, seat)| log.is_quiet(*topic, *seat))
    }

    fn next(&self, log: &Log) -> After {
        log.after(self.seen, self.topics.iter().map(|(topic, _)| *topic))
    }

    /// Marks the subscriber as up to date, and registers its waker.
    fn wait(&mut self, log: &mut Log, waker: &Waker) {
        self.seen = log.newest();
        for (topic, seat) in &mut self.topics {
            *seat = Some(log.wait(*topic, *seat, waker));
        }
        self.selectors = Box::default();
    }
}

/// Error subscribing to the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NoSubscriber {
    #[error("there are too many subscribers (push_max_subscribers)")]
    TooMany,
    #[error("too many different templates are subscribed to")]
    TooManyLikes,
}

impl From<TooManyLikes> for NoSubscriber {
    fn from(_: TooManyLikes) -> Self {
        Self::TooManyLikes
    }
}

/// The position at which a subscriber starts.
struct Begin {
    seen: Seen,
    /// The id before the first update delivered, if the client named one.
    after: Option<Arc<str>>,
}

impl Begin {
    fn at(remembered: &Remembered, last_event_id: Option<&str>, is_told: bool) -> Self {
        let found = last_event_id.map(|id| (id, remembered.find(id, is_told)));
        match found {
            None => Self {
                seen: remembered.newest(),
                after: None,
            },
            // An empty id: the client has no events and asks for its position.
            Some(("", _)) => Self {
                seen: remembered.newest(),
                after: Some(remembered.last()),
            },
            Some((id, Some(seen))) => Self {
                seen,
                after: Some(id.into()),
            },
            // The id is unknown or evicted, or `earliest`: the whole history is replayed.
            Some((_, None)) => Self {
                seen: remembered.forgotten(),
                after: Some(EARLIEST.into()),
            },
        }
    }
}

impl Subscriber {
    /// Subscribes to all of these selectors. If the client has sent a last event id, the id before the first
    /// update delivered is returned with it.
    pub(crate) fn new(
        hub: &Arc<Hub>,
        selectors: &[Selector],
        last_event_id: Option<&str>,
        (may_read, ends): (Box<[Selector]>, Option<Instant>),
    ) -> Result<(Self, Option<Arc<str>>), NoSubscriber> {
        let may_reach_own = |it: &&Selector| it.may_reach(SUBSCRIPTIONS_PATH);
        let is_told = may_read.iter().any(|it| may_reach_own(&it))
            && selectors.iter().any(|it| may_reach_own(&it));
        let mut remembered = hub.remembered.lock();
        if remembered.subscribers >= hub.settings().max_subscribers {
            return Err(NoSubscriber::TooMany);
        }
        remembered.subscribers += 1;
        let begin = Begin::at(&remembered, last_event_id, is_told);
        let place = |seen| Place {
            seen,
            ..Place::default()
        };
        let mut subscriber = Self {
            hub: Arc::clone(hub),
            published: place(begin.seen.published),
            own: is_told.then(|| Box::new(place(begin.seen.own))),
            may_read,
            ends,
            member: None,
        };
        let mut joined = subscriber
            .published
            .join(&mut remembered.published, selectors.iter());
        if let Some(own) = &mut subscriber.own {
            let reaching = selectors.iter().filter(may_reach_own);
            joined = joined.and_then(|()| own.join(&mut remembered.own, reaching));
        }
        // `Drop` leaves the joined topics and needs this lock.
        drop(remembered);
        joined?;
        Ok((subscriber, begin.after))
    }

    /// Adds the subscriber to the presence list until it is dropped.
    pub(crate) fn show(&mut self, member: Member) {
        let member = Arc::new(member);
        let events = member.events(true, new_id);
        let mut remembered = self.hub.remembered.lock();
        let number = remembered.members.add(Arc::clone(&member));
        let woken = say(&mut remembered, events);
        drop(remembered);
        self.member = Some((number, member));
        woken.into_iter().for_each(Woken::wake);
    }

    fn next(&mut self, remembered: &Remembered) -> Step {
        for _ in 0..MAX_SKIPPED {
            let published = self.published.next(&remembered.published);
            let own = self.own.as_ref();
            let own = own.map_or(After::Nothing, |own| own.next(&remembered.own));
            let is_own = match (&published, &own) {
                (After::Forgotten, _) | (_, After::Forgotten) => return Step::CutOff,
                (After::Nothing, After::Nothing) => return Step::Nothing,
                (After::Next(_), After::Nothing) => false,
                (After::Nothing, After::Next(_)) => true,
                (After::Next(published), After::Next(own)) => own.number <= published.update.beside,
            };
            let (next, place) = match &mut self.own {
                Some(place) if is_own => (own, &mut **place),
                _ => (published, &mut self.published),
            };
            let After::Next(Found {
                number,
                update,
                is_meant,
            }) = next
            else {
                return Step::Nothing;
            };
            place.seen = number;
            let is_wanted = is_meant || matches(&place.selectors, &update);
            if is_wanted && (!update.is_private || matches(&self.may_read, &update)) {
                return Step::Next(update.event.clone());
            }
        }
        Step::Later
    }

    /// Returns whether nothing has changed since the subscriber was up to date.
    fn is_quiet(&self, remembered: &Remembered) -> bool {
        let mut own = self.own.iter();
        self.published.is_quiet(&remembered.published)
            && own.all(|own| own.is_quiet(&remembered.own))
    }
}

/// Adds presence updates; returns the tasks to wake.
fn say(remembered: &mut Remembered, events: Vec<Update>) -> Vec<Woken> {
    let each = events.into_iter();
    each.flat_map(|it| remembered.note_own(it)).collect()
}

/// The result of one poll.
enum Step {
    Next(Bytes),
    /// The skip limit is reached: yield to other tasks.
    Later,
    Nothing,
    /// The next update was evicted.
    CutOff,
}

fn matches(selectors: &[Selector], update: &Update) -> bool {
    let mut topics = update.topics.iter();
    topics.any(|topic| selectors.iter().any(|it| it.matches(topic)))
}

impl Events for Subscriber {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let hub = Arc::clone(&self.hub);
        let mut remembered = hub.remembered.lock();
        let step = if self.is_quiet(&remembered) {
            Step::Nothing
        } else {
            self.next(&remembered)
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
                self.published.wait(&mut remembered.published, cx.waker());
                if let Some(own) = &mut self.own {
                    own.wait(&mut remembered.own, cx.waker());
                }
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
        let member = self.member.take();
        let events = member
            .as_ref()
            .map(|(_, member)| member.events(false, new_id));
        let mut remembered = self.hub.remembered.lock();
        remembered.subscribers -= 1;
        self.published.leave(&mut remembered.published);
        if let Some(own) = &mut self.own {
            own.leave(&mut remembered.own);
        }
        if let Some((number, _)) = member {
            remembered.members.remove(number);
        }
        let woken = say(&mut remembered, events.unwrap_or_default());
        drop(remembered);
        woken.into_iter().for_each(Woken::wake);
    }
}
