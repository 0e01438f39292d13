//! Somebody who is told of changes.

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

/// A subscriber: what it asks for, and what it has seen.
pub(crate) struct Subscription {
    pub(crate) documents: Arc<Documents>,
    pub(crate) topics: SmallVec<[Wanted; 1]>,
    /// What was added, and is not told whole yet.
    pub(crate) joining: Option<Box<Joining>>,
    /// Pages of the application.
    pub(crate) pages: Vec<Watching>,
    /// Of the versions that came last when it began. What it has seen is known by this too.
    epoch: u64,
    /// The number of the last change that it has seen. What was overtaken before it came to that was not told.
    pub(crate) seen: u64,
    /// What is that old is told as it is now, to somebody who knows nothing.
    told_whole_through: u64,
    /// It knew all there was when this was the last change.
    pub(crate) caught_up: u64,
    /// What it said that it had seen. It may have been told of other things then.
    resumed_at: u64,
    /// What it was told since.
    pub(crate) told: Told,
    /// It has to be told that it begins anew.
    begins_anew: bool,
    /// It was told on another node of what has not come here yet, and may be lost.
    is_ahead: bool,
    /// Of a document that it has, some versions in between are not remembered.
    has_a_gap: bool,
    /// It was told of a gap when this was the last change that it had seen.
    gap_at: u64,
    wants: Wants,
    /// What it may be told of what is private.
    pub(crate) reader: Reader,
    pub(crate) client: Client,
}

/// What somebody asks for.
#[derive(Default)]
pub(crate) struct Asked {
    pub(crate) documents: Vec<Pattern>,
    pub(crate) pages: Vec<Watching>,
    /// The id of the last event that he has seen.
    pub(crate) seen: Option<String>,
    /// Documents that he has, in these versions.
    pub(crate) has: Vec<(Name, Version)>,
    pub(crate) wants: Wants,
    pub(crate) reader: Reader,
    pub(crate) client: Client,
}

/// In which form he wants to be told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Wants {
    /// Of documents, what is different.
    pub(crate) deltas: bool,
    /// Of pages, their content with the event that they are others.
    pub(crate) content: bool,
}

/// Looks for what there is of a new topic. It may take a while, in which others have their turn.
pub(crate) fn look_for_all(books: &mut MutexGuard<'_, Books>, topic: TopicId) {
    while !books.look_on(topic) {
        MutexGuard::bump(books);
    }
}

/// One of the things that it asks for.
pub(crate) struct Wanted {
    pub(crate) topic: TopicId,
    pub(crate) seat: Option<Seat>,
    /// What there was of it by then was told when it was added.
    pub(crate) since: u64,
    /// What is missing had become more so often when it was told of that.
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

/// So far the clock of who numbers the changes of several nodes may be ahead of ours, in milliseconds.
const MOST_AHEAD: u64 = 60_000;
/// It was told of no gap.
const NOWHERE: u64 = u64::MAX;
/// So many changes that are out of date are passed over at a time.
const MAX_SKIPPED: usize = 1024;

/// Why somebody cannot subscribe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoSubscription {
    /// There are too many subscribers.
    TooMany,
    /// They ask for too many different things.
    TooManyPatterns,
    /// Documents that other nodes have too are not there yet.
    NoDocuments,
    /// One of them does.
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

    /// The same as an answer.
    pub(crate) fn answer(self) -> OriginResponse {
        answer::later(answer::problem(503, self.as_str()))
    }
}

/// One look at what comes next.
pub(crate) enum Step {
    Next(Next),
    /// What was added is told.
    Joined,
    /// It has passed over so much that others should have their turn.
    Later,
    Nothing,
}

/// What comes next.
pub(crate) enum Next {
    Change(Arc<Change>, As),
    Word(Word),
}

/// How a change is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// As what it makes of the version before.
    Delta,
    /// As it is now.
    Whole,
    /// The same, of something that was added: changes of other things, with smaller numbers, may not be told yet, so that
    /// it has no id.
    Added,
}

impl Subscription {
    /// Subscribes to all that is asked for. Who has seen something gets what has come since; anybody else gets what
    /// there is.
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
        // Of nothing, nobody has seen anything.
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
                    // What it has joined it leaves as it goes, which takes the books.
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

    /// It has seen what came before this, unless that says nothing here.
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

    /// Another node may have told of what has not come here yet. Numbers are microseconds there.
    fn newest_anywhere(&self, books: &Books) -> u64 {
        if books.is_shared {
            let now = self.documents.clock.date().as_millis() + MOST_AHEAD;
            books.newest.max(now * 1000)
        } else {
            books.newest
        }
    }

    /// It has a document in this version: it is told of another one, or that it is gone, and differences to this one. An id
    /// alone says nothing of that: whoever asked for other things may have been told it.
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

    /// Where it stands: what comes later it has not seen.
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

    /// The next change in these forms.
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

    /// The next change, as `write` has it. Nothing is said when what was added is told whole: then it is empty.
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

    /// Whether nothing has happened to it since it had seen everything.
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

    pub(crate) fn has_seen_all(&mut self, books: &Books) {
        if self.is_ahead {
            self.look_ahead(books);
        }
        self.seen = self.seen.max(books.newest);
        self.caught_up = self.seen;
        if self.topics.is_empty() {
            // It has seen nothing that could have another name now.
            self.epoch = books.generations.current();
        }
        if !self.is_ahead {
            self.told = Told::default();
        }
    }

    /// The numbers of changes that it says it knows of.
    fn known(&self) -> impl Iterator<Item = u64> {
        self.told.versions().chain([self.seen])
    }

    fn last_known(&self) -> u64 {
        self.known().max().unwrap_or_default()
    }

    /// Finds out whether it was told elsewhere of what is lost.
    fn look_ahead(&mut self, books: &Books) {
        let has_lost_some = self.known().any(|it| books.numbers.has_lost(it));
        self.begins_anew |= has_lost_some;
        self.is_ahead = books.numbers.is_to_come(self.last_known());
    }

    /// Whether what it knows says nothing any more. A deletion that it should have been told of may be forgotten.
    pub(crate) fn has_to_begin_anew(&mut self, books: &Books) -> bool {
        if self.is_ahead {
            self.look_ahead(books);
        }
        self.begins_anew
            || self.epoch != books.generations.current()
            || self.seen.max(self.told_whole_through) < books.forgotten_through
    }

    /// What comes next up to this change, if something does.
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
            // Who has a version is told of those after it, and that it is gone.
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

    /// Whether something is missing of what it has not seen yet, and it was not told so. This comes before everything
    /// that has a later number: who has that and comes back cannot have passed over it.
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
        // One says it of all that comes next.
        is_missing && std::mem::replace(&mut self.gap_at, self.seen) != self.seen
    }

    /// Whether it may not be told of this.
    pub(crate) fn is_hidden(&self, name: &str) -> bool {
        self.documents.is_private(name) && !self.reader.may_read(name)
    }

    /// Whether this change, of something that it asks for, will be told.
    pub(crate) fn is_to_be_told(&self, change: &Change) -> bool {
        change.number > self.seen && change.number > self.told.of(&change.name)
    }

    /// It was told of this change, outside of the order.
    pub(crate) fn note_told(&mut self, change: &Change) {
        self.gap_at = NOWHERE;
        self.told.note(&change.name, change.number);
    }

    /// This change comes next.
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
        // There may be much of them, and nobody waits for that.
        drop(books);
        drop((left, joined));
    }
}

/// Events whose data is the document itself.
pub(crate) struct DocumentEvents(pub(crate) Subscription);

/// Events whose data says what has changed, and of what.
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
