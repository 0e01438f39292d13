//! Somebody who is told of changes.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::body::Source;
use microcache_engine::{BodyError, Frame};
use smallvec::SmallVec;
use tokio::time::{Instant, Sleep, sleep_until};

use crate::books::Books;
use crate::change::Change;
use crate::events::{Form, Word, encode, encode_word};
use crate::name::Pattern;
use crate::origin::Documents;
use crate::topics::{Seat, TopicId};
use crate::version::Version;

/// How often somebody to whom nothing happens is told that the connection is good.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// A comment.
const ALIVE: &[u8] = b":\n\n";

/// A subscriber: what it asks for, and what it has seen.
pub(crate) struct Subscription {
    documents: Arc<Documents>,
    topics: SmallVec<[(TopicId, Option<Seat>); 1]>,
    /// The number of the last change that it has seen.
    seen: u64,
    /// What is that old is told as it is now, to somebody who knows nothing.
    told_whole_through: u64,
    /// It has to be told that it begins anew.
    begins_anew: bool,
    /// It was told that something is missing before this change.
    gap_told: u64,
    wants_deltas: bool,
}

/// Why somebody cannot subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSubscription {
    /// There are too many subscribers.
    TooMany,
    /// They ask for too many different things.
    TooManyPatterns,
}

/// What comes next.
pub(crate) enum Next {
    Change(Arc<Change>, Delta),
    Word(Word),
}

/// Whether a change is told as what it makes of the version before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delta {
    Yes,
    No,
}

impl Subscription {
    /// Subscribes to all of these. Who has seen something gets what has come since; anybody else gets what
    /// there is.
    pub(crate) fn new(
        documents: &Arc<Documents>,
        wanted: &[Pattern],
        last_seen: Option<&str>,
        wants_deltas: bool,
    ) -> Result<Self, NoSubscription> {
        let mut books = documents.books.lock();
        if books.subscribers >= documents.settings.max_subscribers {
            documents.counters.turned_away.add_one();
            return Err(NoSubscription::TooMany);
        }
        books.subscribers += 1;
        let mut subscription = Self {
            documents: Arc::clone(documents),
            topics: SmallVec::new(),
            seen: 0,
            told_whole_through: books.newest,
            begins_anew: false,
            gap_told: 0,
            wants_deltas,
        };
        if let Some(id) = last_seen {
            let remembered = books.forgotten_through..=books.newest;
            let is_ours = |it: &Version| it.epoch == books.epoch && remembered.contains(&it.number);
            if let Some(version) = id.parse::<Version>().ok().filter(is_ours) {
                subscription.seen = version.number;
                subscription.told_whole_through = 0;
            } else {
                subscription.begins_anew = true;
            }
        }
        for pattern in wanted {
            let Ok(topic) = books.join(pattern) else {
                // What it has joined it leaves as it goes, which takes the books.
                drop(books);
                documents.counters.turned_away.add_one();
                return Err(NoSubscription::TooManyPatterns);
            };
            subscription.topics.push((topic, None));
        }
        drop(books);
        documents.counters.subscribed.add_one();
        Ok(subscription)
    }

    /// Where it stands: what comes later it has not seen.
    pub(crate) fn seen(&self) -> Version {
        Version {
            epoch: self.documents.books.lock().epoch,
            number: self.seen,
        }
    }

    /// The next change in these forms.
    pub(crate) fn poll_encoded(
        &mut self,
        cx: &mut Context<'_>,
        whole: Form,
        delta: Form,
    ) -> Poll<Bytes> {
        let documents = Arc::clone(&self.documents);
        let mut books = documents.books.lock();
        let Some(next) = self.next(&books) else {
            for (topic, seat) in &mut self.topics {
                *seat = Some(books.topics.wait(*topic, *seat, cx.waker()));
            }
            return Poll::Pending;
        };
        let is_json = matches!(whole, Form::Json);
        Poll::Ready(match next {
            Next::Word(word) => {
                match word {
                    Word::Reset => documents.counters.resets.add_one(),
                    Word::Gap => documents.counters.gaps.add_one(),
                }
                encode_word(word, is_json).into()
            }
            Next::Change(change, is_delta) => {
                let form = match is_delta {
                    Delta::Yes => delta,
                    Delta::No => whole,
                };
                documents.counters.events.add_one();
                if is_delta == Delta::Yes {
                    documents.counters.deltas.add_one();
                }
                let epoch = books.epoch;
                books
                    .encodings
                    .get(change.number, form, || encode(&change, epoch, form))
            }
        })
    }

    /// The next change as JSON.
    pub(crate) async fn next_json(&mut self) -> Bytes {
        poll_fn(|cx| self.poll_encoded(cx, Form::Json, Form::JsonDelta)).await
    }

    /// The same, if it has happened.
    pub(crate) fn next_json_at_hand(&mut self) -> Option<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_encoded(&mut cx, Form::Json, Form::JsonDelta) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }

    /// What comes next, if something does.
    fn next(&mut self, books: &Books) -> Option<Next> {
        // A deletion that it should have been told of may be forgotten.
        if self.begins_anew || self.seen.max(self.told_whole_through) < books.forgotten_through {
            self.begins_anew = false;
            self.seen = 0;
            self.told_whole_through = books.newest;
            return Some(Next::Word(Word::Reset));
        }
        loop {
            let nearest = |(topic, _): &(TopicId, _)| books.after(*topic, self.seen);
            let next = self.topics.iter().filter_map(nearest);
            let change = Arc::clone(next.min_by_key(|change| change.number)?);
            let knows_nothing = change.number <= self.told_whole_through;
            if knows_nothing && (change.is_gone() || !books.is_now(&change)) {
                self.seen = change.number;
                continue;
            }
            let document = books.document(&change.name);
            let forgotten = document.map_or(0, |document| document.forgotten_through);
            if books.has_history()
                && !knows_nothing
                && forgotten > self.seen.max(self.told_whole_through)
                && self.gap_told != change.number
            {
                self.gap_told = change.number;
                return Some(Next::Word(Word::Gap));
            }
            let has_before = |from: u64| !knows_nothing && from <= self.seen;
            let delta = change.delta.as_ref();
            let is_delta = self.wants_deltas && delta.is_some_and(|delta| has_before(delta.from));
            self.seen = change.number;
            let is_delta = if is_delta { Delta::Yes } else { Delta::No };
            return Some(Next::Change(change, is_delta));
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut books = self.documents.books.lock();
        books.subscribers -= 1;
        for (topic, seat) in self.topics.drain(..) {
            books.topics.leave(topic, seat);
        }
    }
}

/// Changes as a body of server-sent events, which has no end.
pub(crate) struct EventStream {
    subscription: Subscription,
    whole: Form,
    delta: Form,
    /// What is said first.
    greeting: Option<Bytes>,
    heartbeat: Pin<Box<Sleep>>,
}

impl EventStream {
    /// In this form.
    pub(crate) fn new(subscription: Subscription, form: Form) -> Self {
        let delta = match form {
            Form::Told => Form::ToldDelta,
            other => other,
        };
        // Clients come back after a while, and not all at once.
        let pause = 1000 + microcache_store::random::number() % 2000;
        Self {
            subscription,
            whole: form,
            delta,
            greeting: Some(format!("retry: {pause}\n\n").into()),
            heartbeat: Box::pin(sleep_until(Instant::now() + HEARTBEAT)),
        }
    }
}

impl Source for EventStream {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(greeting) = self.greeting.take() {
            return Poll::Ready(Some(Ok(Frame::Data(greeting))));
        }
        let next = self.subscription.poll_encoded(cx, self.whole, self.delta);
        if let Poll::Ready(event) = next {
            self.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT);
            return Poll::Ready(Some(Ok(Frame::Data(event))));
        }
        if self.heartbeat.as_mut().poll(cx).is_ready() {
            self.heartbeat.as_mut().reset(Instant::now() + HEARTBEAT);
            // The timer has to be polled once more for somebody to be woken by it.
            let _ = self.heartbeat.as_mut().poll(cx);
            return Poll::Ready(Some(Ok(Frame::Data(Bytes::from_static(ALIVE)))));
        }
        Poll::Pending
    }
}
