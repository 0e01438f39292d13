//! A subscription to documents and pages.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use microcache_engine::OriginResponse;
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::access::readers::Reader;
use crate::answer;
use crate::changes::change::Change;
use crate::changes::events::{Form, Word, encode, encode_word};
use crate::changes::version::{Place, Version};
use crate::documents::Documents;
use crate::documents::books::Books;
use crate::documents::client::Client;
use crate::documents::topics::{NoTopic, TopicId};
use crate::name::{Name, Pattern};
use crate::subscribing::joining::Joining;
use crate::subscribing::page::{Manner, Watching};
use crate::subscribing::stream::Events;
use crate::subscribing::told::Told;
use crate::waiting::Seat;

/// A subscriber: its topics, and its position in the sequence of changes.
pub(crate) struct Subscription {
    pub(crate) documents: Arc<Documents>,
    pub(crate) topics: SmallVec<[Wanted; 1]>,
    /// A pattern that was added and whose snapshot is incomplete.
    pub(crate) joining: Option<Box<Joining>>,
    /// Pages of the application.
    pub(crate) pages: Vec<Watching>,
    /// The epoch of its position.
    epoch: u64,
    /// The number of the last change delivered; versions overtaken before are not delivered.
    pub(crate) seen: u64,
    /// Changes up to this number are sent as full snapshots (subscriber has no base version).
    told_whole_through: u64,
    /// The newest change when the subscriber was last up to date.
    pub(crate) caught_up: u64,
    /// The position with which it reconnected. Earlier deliveries may belong to another subscription.
    resumed_at: u64,
    /// Versions delivered since it was last up to date.
    pub(crate) told: Told,
    /// A reset event is due.
    begins_anew: bool,
    /// Another node has delivered a change that has not arrived here and may be lost.
    is_ahead: bool,
    /// A gap event is due: versions after the client's copy of a document are missing.
    has_a_gap: bool,
    /// The position at the last gap event.
    gap_at: u64,
    wants: Wants,
    /// Permission to read private documents.
    pub(crate) reader: Reader,
    pub(crate) client: Client,
}

/// The parameters of a subscription.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) documents: Vec<Pattern>,
    pub(crate) pages: Vec<Watching>,
    /// The last event id.
    pub(crate) seen: Option<String>,
    /// Documents in the client's possession, with their versions.
    pub(crate) has: Vec<(Name, Version)>,
    pub(crate) wants: Wants,
    pub(crate) reader: Reader,
    pub(crate) client: Client,
}

/// The encoding of events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    /// Send changes of documents as deltas.
    pub(crate) deltas: bool,
    /// Send pages with their content inline.
    pub(crate) content: bool,
}

/// Scans for the documents of a new topic. The lock is released between turns.
pub(crate) fn look_for_all(books: &mut MutexGuard<'_, Books>, topic: TopicId) {
    while !books.look_on(topic) {
        MutexGuard::bump(books);
    }
}

/// A topic of the subscription.
pub(crate) struct Wanted {
    pub(crate) topic: TopicId,
    pub(crate) seat: Option<Seat>,
    /// Changes up to this number were delivered as a snapshot when the topic was added.
    pub(crate) since: u64,
    /// [`MissingChanges::times`](crate::documents::topics::MissingChanges) at the last gap event.
    pub(crate) told_missing: u64,
}

impl Wanted {
    pub(crate) const fn new(topic: TopicId) -> Self {
        Self {
            topic,
            seat: None,
            since: 0,
            told_missing: 0,
        }
    }
}

/// Allowed clock skew of the Redis server, in milliseconds.
const MOST_AHEAD: u64 = 60_000;
/// Position of no gap event.
const NOWHERE: u64 = u64::MAX;
/// Limit of outdated changes skipped per turn.
const MAX_SKIPPED: usize = 1024;

/// Error subscribing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSubscription {
    /// The limit of subscribers is reached.
    TooMany,
    /// The limit of distinct patterns is reached.
    TooManyPatterns,
    /// The documents of Redis are not loaded yet.
    NoDocuments,
    /// The limit of patterns per client is reached.
    OwnPatterns,
}

impl From<NoTopic> for NoSubscription {
    fn from(why: NoTopic) -> Self {
        match why {
            NoTopic::TooMany => Self::TooManyPatterns,
            NoTopic::TooManyOfOne => Self::OwnPatterns,
        }
    }
}

impl NoSubscription {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::TooMany => "there are too many subscribers (push_max_subscribers)",
            Self::NoDocuments => "there are no documents yet: push_redis could not be read",
            Self::TooManyPatterns => "too many different patterns are subscribed to",
            Self::OwnPatterns => "too many different patterns are subscribed to from your address",
        }
    }

    /// Converts to a response.
    pub(crate) fn answer(self) -> OriginResponse {
        answer::later(answer::problem(503, self.as_str()))
    }
}

/// The result of one poll.
pub(crate) enum Step {
    Next(Next),
    /// The snapshot of an added pattern is complete.
    Joined,
    /// The skip limit is reached: yield to other tasks.
    Later,
    Nothing,
}

/// The next event.
pub(crate) enum Next {
    Change(Arc<Change>, As),
    Word(Word),
}

/// The form in which a change is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// As a patch of the previous version.
    Delta,
    /// As a full snapshot.
    Whole,
    /// As a snapshot of an added pattern, without an event id: changes of other patterns with smaller numbers
    /// may still be due.
    Added,
}

impl Subscription {
    /// Subscribes to the requested patterns. A client with a last event id receives the changes since; any
    /// other one receives snapshots of all documents.
    pub(crate) fn new(documents: &Arc<Documents>, asked: Asked) -> Result<Self, NoSubscription> {
        if !documents.are_there() {
            return Err(NoSubscription::NoDocuments);
        }
        let mut books = documents.books.lock();
        if books.subscribers >= documents.settings.max_subscribers {
            documents.counters.turned_away.add_one();
            return Err(NoSubscription::TooMany);
        }
        books.subscribers += 1;
        let mut subscription = Self {
            documents: Arc::clone(documents),
            topics: SmallVec::new(),
            joining: None,
            pages: asked.pages,
            epoch: books.generations.current(),
            seen: 0,
            told_whole_through: books.newest,
            caught_up: 0,
            resumed_at: 0,
            told: Told::default(),
            begins_anew: false,
            is_ahead: false,
            has_a_gap: false,
            gap_at: NOWHERE,
            wants: asked.wants,
            reader: asked.reader,
            client: asked.client,
        };
        // Without patterns there is no position.
        if let Some(seen) = asked.seen.filter(|_| !asked.documents.is_empty()) {
            subscription.resume(&seen, &books);
        }
        for (name, version) in &asked.has {
            subscription.has_version(name, *version, &books);
        }
        let last = subscription.last_known();
        subscription.is_ahead = books.is_shared && books.numbers.is_to_come(last);
        for pattern in &asked.documents {
            let topic = match books.join(pattern, asked.client) {
                Ok(topic) => topic,
                Err(why) => {
                    // `Drop` leaves the joined topics and needs this lock.
                    drop(books);
                    documents.counters.turned_away.add_one();
                    return Err(why.into());
                }
            };
            subscription.topics.push(Wanted::new(topic));
            look_for_all(&mut books, topic);
        }
        drop(books);
        documents.counters.subscribed.add_one();
        Ok(subscription)
    }

    /// Resumes at the client's last event id, if it is valid here.
    fn resume(&mut self, seen: &str, books: &Books) {
        let remembered = books.forgotten_through..=self.newest_anywhere(books);
        let is_ours = |it: &Place| {
            let last = Version {
                number: it.knows_through(),
                ..it.version
            };
            books.generations.has(last) && remembered.contains(&last.number)
        };
        match seen.parse::<Place>().ok().filter(is_ours) {
            Some(place) => {
                self.seen = place.version.number;
                self.resumed_at = self.seen;
                self.told_whole_through = place.told_whole_through.min(books.newest);
            }
            None => self.begins_anew = true,
        }
    }

    /// Returns the largest number that another node may have delivered. Shared numbers are microseconds.
    fn newest_anywhere(&self, books: &Books) -> u64 {
        if books.is_shared {
            let now = self.documents.clock.date().as_millis() + MOST_AHEAD;
            books.newest.max(now * 1000)
        } else {
            books.newest
        }
    }

    /// Registers the client's copy of a document: later versions, deletions and deltas follow it. A last
    /// event id does not prove possession, since it may come from a subscription to other documents.
    fn has_version(&mut self, name: &Name, version: Version, books: &Books) {
        let is_ours =
            books.generations.has(version) && version.number <= self.newest_anywhere(books);
        let is_to_come = version.number > books.newest;
        let document = books.document(name);
        if is_ours && (is_to_come || document.is_some()) {
            self.told.note(name, version.number);
            let forgotten = document.map_or(0, |it| it.forgotten_through);
            self.has_a_gap |= books.has_history() && forgotten > version.number;
        } else {
            self.begins_anew = true;
        }
    }

    /// Returns the current position, to resume from.
    pub(crate) fn place(&self) -> Place {
        let is_told_whole = self.seen < self.told_whole_through;
        Place {
            version: Version {
                epoch: self.epoch,
                number: self.seen,
            },
            told_whole_through: if is_told_whole {
                self.told_whole_through
            } else {
                0
            },
        }
    }

    /// Polls the next event in one of two formats.
    pub(crate) fn poll_encoded(
        &mut self,
        cx: &mut Context<'_>,
        whole: Form,
        delta: Form,
    ) -> Poll<Bytes> {
        let is_json = whole == Form::Json;
        self.poll_written(cx, is_json, |books, next| match next {
            Next::Word(word) => encode_word(*word, is_json).into(),
            Next::Change(change, how) => {
                let form = match how {
                    As::Delta => delta,
                    As::Whole => whole,
                    As::Added => Form::Value,
                };
                let version = books.generations.version(change.number);
                books
                    .encodings
                    .get(change.number, form, || encode(change, version, form))
            }
        })
    }

    /// Polls the next event, encoded by `write`. It is empty when the snapshot of an added pattern is
    /// complete.
    pub(crate) fn poll_written(
        &mut self,
        cx: &mut Context<'_>,
        is_json: bool,
        write: impl FnOnce(&mut Books, &Next) -> Bytes,
    ) -> Poll<Bytes> {
        let documents = Arc::clone(&self.documents);
        let mut books = documents.books.lock();
        if self.joining.is_none() && self.is_quiet(&books) {
            self.has_seen_all(&books);
        }
        let step = self.join_on(&mut books);
        let next = match step.unwrap_or_else(|| self.next(&books, u64::MAX)) {
            Step::Next(next) => next,
            Step::Joined => return Poll::Ready(Bytes::new()),
            Step::Later => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Step::Nothing => {
                self.has_seen_all(&books);
                if self.is_ahead {
                    books.numbers.wait(self.last_known(), cx.waker());
                }
                for wanted in &mut self.topics {
                    let seat = books.topics.wait(wanted.topic, wanted.seat, cx.waker());
                    wanted.seat = Some(seat);
                }
                drop(books);
                return self.poll_pages(cx.waker(), is_json);
            }
        };
        let counters = &documents.counters;
        match next {
            Next::Word(Word::Reset) => counters.resets.add_one(),
            Next::Word(Word::Gap) => counters.gaps.add_one(),
            Next::Change(_, how) => {
                counters.events.add_one();
                if how == As::Delta {
                    counters.deltas.add_one();
                }
            }
        }
        Poll::Ready(write(&mut books, &next))
    }

    /// Returns whether nothing has changed since the subscriber was up to date.
    pub(crate) fn is_quiet(&self, books: &Books) -> bool {
        let has_seen_all = self.topics.is_empty() || self.caught_up > 0;
        let mut topics = self.topics.iter();
        has_seen_all && topics.all(|wanted| books.topics.is_quiet(wanted.topic, wanted.seat))
    }

    fn poll_pages(&mut self, waker: &Waker, as_json: bool) -> Poll<Bytes> {
        let mut pages = self.pages.iter_mut();
        let manner = Manner {
            as_json,
            inline: self.wants.content,
        };
        match pages.find_map(|page| page.next(waker, manner)) {
            Some(event) => {
                self.documents.counters.events.add_one();
                Poll::Ready(event)
            }
            None => Poll::Pending,
        }
    }

    /// Waits for the next event as JSON.
    pub(crate) async fn next_json(&mut self) -> Bytes {
        poll_fn(|cx| self.poll_encoded(cx, Form::Json, Form::JsonDelta)).await
    }

    /// Returns the next event as JSON, if there is one.
    pub(crate) fn next_json_at_hand(&mut self) -> Option<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_encoded(&mut cx, Form::Json, Form::JsonDelta) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }

    pub(crate) fn has_seen_all(&mut self, books: &Books) {
        if self.is_ahead {
            self.look_ahead(books);
        }
        self.seen = self.seen.max(books.newest);
        self.caught_up = self.seen;
        if self.topics.is_empty() {
            // No version was delivered, so that a new epoch changes nothing.
            self.epoch = books.generations.current();
        }
        if !self.is_ahead {
            self.told = Told::default();
        }
    }

    /// Iterates over the numbers delivered to the client, here or by another node.
    fn known(&self) -> impl Iterator<Item = u64> {
        self.told.versions().chain([self.seen])
    }

    fn last_known(&self) -> u64 {
        self.known().max().unwrap_or_default()
    }

    /// Checks whether another node has delivered a change that is lost.
    fn look_ahead(&mut self, books: &Books) {
        let has_lost_some = self.known().any(|it| books.numbers.has_lost(it));
        self.begins_anew |= has_lost_some;
        self.is_ahead = books.numbers.is_to_come(self.last_known());
    }

    /// Returns whether the position is unusable: a deletion that was to be delivered may be forgotten.
    pub(crate) fn has_to_begin_anew(&mut self, books: &Books) -> bool {
        if self.is_ahead {
            self.look_ahead(books);
        }
        self.begins_anew
            || self.epoch != books.generations.current()
            || self.seen.max(self.told_whole_through) < books.forgotten_through
    }

    /// Returns the next event up to change `through`.
    pub(crate) fn next(&mut self, books: &Books, through: u64) -> Step {
        if self.has_to_begin_anew(books) {
            self.begins_anew = false;
            self.has_a_gap = false;
            self.epoch = books.generations.current();
            self.seen = 0;
            self.told_whole_through = books.newest;
            self.caught_up = 0;
            self.resumed_at = 0;
            self.gap_at = NOWHERE;
            self.told = Told::default();
            for wanted in &mut self.topics {
                wanted.since = 0;
            }
            return Step::Next(Next::Word(Word::Reset));
        }
        if std::mem::take(&mut self.has_a_gap) || self.comes_to_a_gap(books) {
            return Step::Next(Next::Word(Word::Gap));
        }
        for _ in 0..MAX_SKIPPED {
            let nearest = |it: &Wanted| books.after(it.topic, self.seen.max(it.since));
            let next = self.topics.iter().filter_map(nearest);
            let next = next.filter(|change| change.number <= through);
            let Some(change) = next.min_by_key(|change| change.number).map(Arc::clone) else {
                return Step::Nothing;
            };
            let knows_nothing = change.number <= self.told_whole_through;
            let told = self.told.of(&change.name);
            // A client that has a version receives later ones, and its deletion.
            let is_nothing = told == 0 && (change.is_gone() || !books.is_now(&change));
            let is_passed_over = told >= change.number || knows_nothing && is_nothing;
            if is_passed_over || self.is_hidden(&change.name) {
                self.seen = change.number;
                continue;
            }
            return Step::Next(self.tell(change, knows_nothing));
        }
        Step::Later
    }

    /// Returns whether undelivered changes are missing and were not announced. Gap events precede all later
    /// changes, so that a reconnect cannot skip them.
    fn comes_to_a_gap(&mut self, books: &Books) -> bool {
        if !books.has_history() {
            return false;
        }
        let known = self.seen.max(self.told_whole_through);
        let mut is_missing = false;
        for wanted in &mut self.topics {
            let missing = books.topics.get(wanted.topic).missing;
            if missing.times > wanted.told_missing && missing.through > known.max(wanted.since) {
                wanted.told_missing = missing.times;
                is_missing = true;
            }
        }
        // One event covers all changes up to the next delivery.
        is_missing && std::mem::replace(&mut self.gap_at, self.seen) != self.seen
    }

    /// Returns whether the document must not be delivered to this subscriber.
    pub(crate) fn is_hidden(&self, name: &str) -> bool {
        self.documents.is_private(name) && !self.reader.may_read(name)
    }

    /// Returns whether a change of a subscribed document is still to be delivered.
    pub(crate) fn is_to_be_told(&self, change: &Change) -> bool {
        change.number > self.seen && change.number > self.told.of(&change.name)
    }

    /// Records a delivery outside of the order.
    pub(crate) fn note_told(&mut self, change: &Change) {
        self.gap_at = NOWHERE;
        self.told.note(&change.name, change.number);
    }

    /// Delivers a change as a delta or a full snapshot.
    fn tell(&mut self, change: Arc<Change>, knows_nothing: bool) -> Next {
        let last = self.told.of(&change.name).max(self.caught_up);
        let has_before = change.delta.as_ref().is_some_and(|delta| {
            let told = self.told.of(&change.name);
            let was_told = self.resumed_at < delta.from && delta.from <= last;
            delta.from == told || !knows_nothing && was_told
        });
        let how = if self.wants.deltas && has_before {
            As::Delta
        } else {
            As::Whole
        };
        self.seen = change.number;
        self.told.note(&change.name, change.number);
        Next::Change(change, how)
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut books = self.documents.books.lock();
        books.subscribers -= 1;
        let left = self.topics.drain(..);
        let left: SmallVec<[_; 1]> = left
            .map(|it| books.topics.leave(it.topic, it.seat))
            .collect();
        let joining = self.joining.take();
        let joined = joining.map(|it| books.topics.leave(it.topic(), None));
        // The topics may be large, and are freed without holding the lock.
        drop(books);
        drop((left, joined));
    }
}

/// Events whose data is the document.
pub(crate) struct DocumentEvents(pub(crate) Subscription);

/// Events whose data is the JSON of the change.
pub(crate) struct WatchEvents(pub(crate) Subscription);

impl Events for DocumentEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = self.0.poll_encoded(cx, Form::Plain, Form::Plain);
        next.map(Some)
    }

    fn ends(&self) -> Option<Instant> {
        self.0.reader.ends()
    }
}

impl Events for WatchEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = self.0.poll_encoded(cx, Form::Told, Form::ToldDelta);
        next.map(Some)
    }

    fn ends(&self) -> Option<Instant> {
        self.0.reader.ends()
    }
}
