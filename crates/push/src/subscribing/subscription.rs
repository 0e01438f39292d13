//! A subscription to documents and pages.

mod join;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use microcache_engine::OriginResponse;
use parking_lot::MutexGuard;
use smallvec::SmallVec;
use tokio::time::Instant;

use crate::access::read_grant::ReadGrant;
use crate::answer;
use crate::changes::change::DocumentChange;
use crate::changes::encodings::EventEncoding;
use crate::changes::events::{ControlEvent, EventFormat, encode_control};
use crate::changes::version::{DocumentVersion, EventId};
use crate::documents::Documents;
use crate::documents::client_network::ClientNetwork;
use crate::documents::index::DocumentIndex;
use crate::documents::topics::{TopicError, TopicId};
use crate::name::{DocumentName, Pattern};
use crate::subscribing::cursor::{Cursor, ResumePoint};
use crate::subscribing::delivered::DeliveredVersions;
use crate::subscribing::page::{PageFormat, PageSubscription};
use crate::subscribing::pending_join::PendingJoin;
use crate::subscribing::stream::EventSource;
use crate::wait_list::Registration;

/// A subscriber: its topics, and its position in the sequence of changes.
pub(crate) struct Subscription {
    documents: Arc<Documents>,
    topics: SmallVec<[TopicSubscription; 1]>,
    /// A pattern that was added and whose snapshot is incomplete.
    joining: Option<Box<PendingJoin>>,
    /// Pages of the application.
    pages: Vec<PageSubscription>,
    cursor: Cursor,
    /// Versions delivered since it was last up to date.
    delivered: DeliveredVersions,
    /// A gap event is due: versions after the client's copy of a document are missing.
    gap_is_due: bool,
    /// The event of the last poll was the newest, and its waker is registered for the next one.
    is_drained: bool,
    options: DeliveryOptions,
    /// Permission to read private documents.
    grant: ReadGrant,
    client: ClientNetwork,
}

/// The parameters of a subscription.
#[derive(Default)]
pub(crate) struct SubscribeRequest {
    pub(crate) documents: Vec<Pattern>,
    pub(crate) pages: Vec<PageSubscription>,
    /// The position to resume from.
    pub(crate) last_event_id: Option<ResumePoint>,
    /// Documents in the client's possession, with their versions.
    pub(crate) has: Vec<(DocumentName, DocumentVersion)>,
    pub(crate) options: DeliveryOptions,
    pub(crate) grant: ReadGrant,
    pub(crate) client: ClientNetwork,
}

/// The encoding of events.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct DeliveryOptions {
    /// Send changes of documents as deltas.
    pub(crate) deltas: bool,
    /// Send pages with their content inline.
    pub(crate) content: bool,
}

/// Scans for the documents of a new topic. The lock is released between turns.
fn scan_all(index: &mut MutexGuard<'_, DocumentIndex>, topic: TopicId) {
    while !index.scan(topic) {
        MutexGuard::bump(index);
    }
}

/// A topic of the subscription.
struct TopicSubscription {
    id: TopicId,
    registration: Option<Registration>,
    /// Changes up to this number were delivered as a snapshot when the topic was added.
    since: u64,
    /// [`MissingChanges::times`](crate::documents::topics::MissingChanges) at the last gap event.
    announced_missing: u64,
}

impl TopicSubscription {
    const fn new(id: TopicId) -> Self {
        Self {
            id,
            registration: None,
            since: 0,
            announced_missing: 0,
        }
    }
}

/// Allowed clock skew of the Redis server, in milliseconds.
const MAX_CLOCK_SKEW: u64 = 60_000;
/// Limit of outdated changes skipped per turn.
const MAX_SKIPPED: usize = 1024;

/// Error subscribing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubscribeError {
    /// The limit of subscribers is reached.
    TooManySubscribers,
    /// The limit of distinct patterns is reached.
    TooManyPatterns,
    /// The documents of Redis are not loaded yet.
    NoDocuments,
    /// The limit of patterns per client is reached.
    TooManyClientPatterns,
}

impl From<TopicError> for SubscribeError {
    fn from(why: TopicError) -> Self {
        match why {
            TopicError::TooMany => Self::TooManyPatterns,
            TopicError::TooManyOfClient => Self::TooManyClientPatterns,
        }
    }
}

impl SubscribeError {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::TooManySubscribers => {
                "the limit of subscribers is reached (push_max_subscribers)"
            }
            Self::NoDocuments => "the documents are not loaded yet: push_redis cannot be reached",
            Self::TooManyPatterns => "the limit of distinct patterns is reached",
            Self::TooManyClientPatterns => {
                "the limit of distinct patterns per client address is reached"
            }
        }
    }

    /// Converts to a response.
    pub(crate) fn answer(self) -> OriginResponse {
        answer::later(answer::problem(503, self.as_str()))
    }
}

/// The result of one poll.
enum SubscriptionStep {
    Deliver(Delivery),
    /// The snapshot of an added pattern is complete.
    Joined,
    /// The skip limit is reached: yield to other tasks.
    Yield,
    CaughtUp,
}

/// The next event.
pub(crate) enum Delivery {
    Change(Arc<DocumentChange>, DeliveryMode),
    Control(ControlEvent),
}

/// The format in which a change is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeliveryMode {
    /// As a patch of the previous version.
    Delta,
    /// As a full snapshot.
    Snapshot,
    /// As a snapshot of an added pattern, without an event id: changes of other patterns with smaller numbers
    /// may still be due.
    Joined,
}

impl Subscription {
    /// Subscribes to the requested patterns. A client with a last event id receives the changes since; any
    /// other one receives snapshots of all documents.
    pub(crate) fn new(
        documents: &Arc<Documents>,
        request: SubscribeRequest,
    ) -> Result<Self, SubscribeError> {
        if !documents.are_loaded() {
            return Err(SubscribeError::NoDocuments);
        }
        let mut index = documents.index.lock();
        if index.subscribers >= documents.settings.max_subscribers {
            documents.counters.turned_away.add_one();
            return Err(SubscribeError::TooManySubscribers);
        }
        index.subscribers += 1;
        let mut subscription = Self {
            documents: Arc::clone(documents),
            topics: SmallVec::new(),
            joining: None,
            pages: request.pages,
            cursor: Cursor::new(index.generations.current(), index.newest),
            delivered: DeliveredVersions::default(),
            gap_is_due: false,
            is_drained: false,
            options: request.options,
            grant: request.grant,
            client: request.client,
        };
        // Pages have no history, so an event id matters for document patterns only.
        let resume_point = request.last_event_id;
        if let Some(point) = resume_point.filter(|_| !request.documents.is_empty()) {
            subscription.resume(point, &index);
        }
        for (name, version) in &request.has {
            subscription.add_client_copy(name, *version, &index);
        }
        if index.is_shared && index.numbers.is_pending(subscription.newest_known()) {
            subscription.cursor.mark_ahead();
        }
        for pattern in &request.documents {
            let topic = match index.join(pattern, request.client) {
                Ok(topic) => topic,
                Err(why) => {
                    // `Drop` leaves the joined topics and needs this lock.
                    drop(index);
                    documents.counters.turned_away.add_one();
                    return Err(why.into());
                }
            };
            subscription.topics.push(TopicSubscription::new(topic));
            scan_all(&mut index, topic);
        }
        drop(index);
        documents.counters.subscribed.add_one();
        Ok(subscription)
    }

    /// Resumes at the client's last event id, if it is valid here.
    fn resume(&mut self, point: ResumePoint, index: &DocumentIndex) {
        let known = index.forgotten_through..=self.newest_anywhere(index);
        let is_valid = |id: &EventId| {
            let last = DocumentVersion {
                number: id.known_through(),
                ..id.version
            };
            index.generations.has(last) && known.contains(&last.number)
        };
        match point {
            ResumePoint::At(id) if is_valid(&id) => self.cursor.resume(id, index.newest),
            ResumePoint::At(_) | ResumePoint::Unknown => self.cursor.invalidate(),
        }
    }

    /// Returns the largest number that another node may have delivered. Shared numbers are microseconds.
    fn newest_anywhere(&self, index: &DocumentIndex) -> u64 {
        if index.is_shared {
            let now = self.documents.clock.date().as_millis() + MAX_CLOCK_SKEW;
            index.newest.max(now * 1000)
        } else {
            index.newest
        }
    }

    /// Registers the client's copy of a document: later versions, deletions and deltas follow it. A last
    /// event id does not prove possession, since it may come from a subscription to other documents.
    fn add_client_copy(
        &mut self,
        name: &DocumentName,
        version: DocumentVersion,
        index: &DocumentIndex,
    ) {
        let is_valid =
            index.generations.has(version) && version.number <= self.newest_anywhere(index);
        let is_pending = version.number > index.newest;
        let document = index.document(name);
        if is_valid && (is_pending || document.is_some()) {
            self.delivered.record(name, version.number);
            let forgotten = document.map_or(0, |it| it.forgotten_through);
            self.gap_is_due |= index.has_history() && forgotten > version.number;
        } else {
            self.cursor.invalidate();
        }
    }

    /// Returns the documents that it subscribes to.
    pub(crate) const fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// Returns the permission to read private documents.
    pub(crate) const fn grant(&self) -> &ReadGrant {
        &self.grant
    }

    /// Returns the current position, to resume from.
    pub(crate) fn position(&self) -> EventId {
        self.cursor.event_id()
    }

    /// Polls the next event in one of two formats.
    pub(crate) fn poll_encoded(
        &mut self,
        cx: &mut Context<'_>,
        snapshot: EventFormat,
        delta: EventFormat,
    ) -> Poll<Bytes> {
        let is_json = snapshot == EventFormat::Json;
        self.poll_with(cx, is_json, |index, next| match next {
            Delivery::Control(event) => {
                EventEncoding::Encoded(encode_control(event, is_json).into())
            }
            Delivery::Change(change, mode) => {
                let format = match mode {
                    DeliveryMode::Delta => delta,
                    DeliveryMode::Snapshot => snapshot,
                    DeliveryMode::Joined => EventFormat::Value,
                };
                index.encodings.get(change, format, &index.generations)
            }
        })
    }

    /// Polls the next event in the encoding that `find` chooses. It is empty when the snapshot of an added pattern
    /// is complete.
    pub(crate) fn poll_with(
        &mut self,
        cx: &mut Context<'_>,
        is_json: bool,
        find: impl FnOnce(&mut DocumentIndex, Delivery) -> EventEncoding,
    ) -> Poll<Bytes> {
        let documents = Arc::clone(&self.documents);
        let mut index = documents.index.lock();
        self.is_drained = false;
        if self.joining.is_none() && self.is_quiet(&index) {
            self.mark_caught_up(&index);
        }
        let step = self.poll_join(&mut index);
        let next = match step.unwrap_or_else(|| self.next(&index, u64::MAX)) {
            SubscriptionStep::Deliver(next) => next,
            SubscriptionStep::Joined => return Poll::Ready(Bytes::new()),
            SubscriptionStep::Yield => {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            SubscriptionStep::CaughtUp => {
                self.mark_caught_up(&index);
                self.register(&mut index, cx.waker());
                drop(index);
                return self.poll_pages(cx.waker(), is_json);
            }
        };
        if self.is_drained {
            self.register(&mut index, cx.waker());
        }
        let counters = &documents.counters;
        match next {
            Delivery::Control(ControlEvent::Reset) => counters.resets.add_one(),
            Delivery::Control(ControlEvent::Gap) => counters.gaps.add_one(),
            Delivery::Change(_, mode) => {
                counters.events.add_one();
                if mode == DeliveryMode::Delta {
                    counters.deltas.add_one();
                }
            }
        }
        let encoding = find(&mut index, next);
        drop(index);
        Poll::Ready(encoding.into_bytes())
    }

    /// Returns whether the last event was the newest, and the waker of that poll is registered for the next one.
    pub(crate) const fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Registers the waker for the next change.
    fn register(&mut self, index: &mut DocumentIndex, waker: &Waker) {
        if self.cursor.is_ahead() {
            index.numbers.register(self.newest_known(), waker);
        }
        for topic in &mut self.topics {
            let registration = index.topics.register(topic.id, topic.registration, waker);
            topic.registration = Some(registration);
        }
    }

    /// Returns whether nothing has changed since the subscriber was up to date.
    fn is_quiet(&self, index: &DocumentIndex) -> bool {
        let is_caught_up = self.topics.is_empty() || self.cursor.is_live();
        let mut topics = self.topics.iter();
        is_caught_up && topics.all(|topic| index.topics.is_quiet(topic.id, topic.registration))
    }

    fn poll_pages(&mut self, waker: &Waker, is_json: bool) -> Poll<Bytes> {
        let mut pages = self.pages.iter_mut();
        let format = PageFormat {
            is_json,
            inline: self.options.content,
        };
        match pages.find_map(|page| page.next(waker, format)) {
            Some(event) => {
                self.documents.counters.events.add_one();
                Poll::Ready(event)
            }
            None => Poll::Pending,
        }
    }

    /// Waits for the next event as JSON.
    pub(crate) async fn next_json(&mut self) -> Bytes {
        poll_fn(|cx| self.poll_encoded(cx, EventFormat::Json, EventFormat::JsonDelta)).await
    }

    /// Returns the next event as JSON, if there is one.
    pub(crate) fn try_next_json(&mut self) -> Option<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        match self.poll_encoded(&mut cx, EventFormat::Json, EventFormat::JsonDelta) {
            Poll::Ready(event) => Some(event),
            Poll::Pending => None,
        }
    }

    /// Moves to the newest change, with nothing left to deliver.
    fn mark_caught_up(&mut self, index: &DocumentIndex) {
        self.check_ahead(index);
        self.cursor.mark_caught_up(index.newest);
        if self.topics.is_empty() {
            // No version was delivered, so that a new epoch changes nothing.
            self.cursor.adopt_epoch(index.generations.current());
        }
        if !self.cursor.is_ahead() {
            self.delivered = DeliveredVersions::default();
        }
    }

    /// Iterates over the numbers delivered to the client, here or by another node.
    fn known(&self) -> impl Iterator<Item = u64> {
        self.delivered.versions().chain([self.cursor.seen()])
    }

    fn newest_known(&self) -> u64 {
        self.known().max().unwrap_or_default()
    }

    /// Checks changes that another node has delivered: they may have arrived, or be lost.
    fn check_ahead(&mut self, index: &DocumentIndex) {
        if !self.cursor.is_ahead() {
            return;
        }
        if self.known().any(|it| index.numbers.is_lost(it)) {
            self.cursor.invalidate();
        } else if !index.numbers.is_pending(self.newest_known()) {
            self.cursor.mark_arrived();
        }
    }

    /// Returns whether the position is unusable, so that a reset event is due.
    fn needs_reset(&mut self, index: &DocumentIndex) -> bool {
        self.check_ahead(index);
        let epoch = index.generations.current();
        self.cursor.needs_reset(epoch, index.forgotten_through)
    }

    /// Returns the next event up to change `through`.
    fn next(&mut self, index: &DocumentIndex, through: u64) -> SubscriptionStep {
        if self.needs_reset(index) {
            let epoch = index.generations.current();
            self.cursor.reset(epoch, index.newest);
            self.gap_is_due = false;
            self.delivered = DeliveredVersions::default();
            for topic in &mut self.topics {
                topic.since = 0;
            }
            return SubscriptionStep::Deliver(Delivery::Control(ControlEvent::Reset));
        }
        if std::mem::take(&mut self.gap_is_due) || self.reaches_gap(index) {
            return SubscriptionStep::Deliver(Delivery::Control(ControlEvent::Gap));
        }
        for _ in 0..MAX_SKIPPED {
            let seen = self.cursor.seen();
            let nearest = |it: &TopicSubscription| index.after(it.id, seen.max(it.since));
            let next = self.topics.iter().filter_map(nearest);
            let next = next.filter(|change| change.number <= through);
            let Some(change) = next.min_by_key(|change| change.number).map(Arc::clone) else {
                return SubscriptionStep::CaughtUp;
            };
            let is_in_snapshot = self.cursor.is_in_snapshot(change.number);
            let delivered = self.delivered.version_of(&change.name);
            // A client that has a version receives later ones, and its deletion.
            let is_obsolete =
                || delivered == 0 && (change.is_deletion() || !index.is_current(&change));
            let is_skipped = delivered >= change.number || is_in_snapshot && is_obsolete();
            if is_skipped || self.is_hidden(&change.name) {
                self.cursor.advance(change.number);
                continue;
            }
            let mode = self.delivery_mode(&change, delivered);
            self.cursor.advance(change.number);
            // Without another change, later ones and pages, nothing is left to deliver.
            self.is_drained = change.number == index.newest
                && through > index.newest
                && self.pages.is_empty()
                && !self.cursor.is_ahead();
            if self.is_drained {
                self.mark_caught_up(index);
            } else {
                self.delivered.record(&change.name, change.number);
            }
            return SubscriptionStep::Deliver(Delivery::Change(change, mode));
        }
        SubscriptionStep::Yield
    }

    /// Returns whether undelivered changes are missing and were not announced. Gap events precede all later
    /// changes, so that a reconnect cannot skip them.
    fn reaches_gap(&mut self, index: &DocumentIndex) -> bool {
        if !index.has_history() {
            return false;
        }
        let known = self.cursor.known_through();
        let mut is_missing = false;
        for topic in &mut self.topics {
            let missing = index.topics.get(topic.id).missing;
            if missing.times > topic.announced_missing && missing.through > known.max(topic.since) {
                topic.announced_missing = missing.times;
                is_missing = true;
            }
        }
        // One event covers all changes up to the next delivery.
        is_missing && self.cursor.announce_gap()
    }

    /// Returns whether the document must not be delivered to this subscriber.
    fn is_hidden(&self, name: &str) -> bool {
        self.documents.is_private(name) && !self.grant.may_read(name)
    }

    /// Returns whether a change of a subscribed document is still to be delivered.
    fn is_due(&self, change: &DocumentChange) -> bool {
        change.number > self.cursor.seen()
            && change.number > self.delivered.version_of(&change.name)
    }

    /// Records a delivery outside of the order.
    fn record_delivery(&mut self, change: &DocumentChange) {
        self.cursor.forget_gap();
        self.delivered.record(&change.name, change.number);
    }

    /// Returns whether a change is delivered as a delta or as a full snapshot, after the version `delivered`.
    fn delivery_mode(&self, change: &DocumentChange, delivered: u64) -> DeliveryMode {
        let has_base = change.delta.as_ref().is_some_and(|delta| {
            let is_in_snapshot = self.cursor.is_in_snapshot(change.number);
            let was_delivered = self.cursor.has_delivered(delta.from, delivered);
            delta.from == delivered || !is_in_snapshot && was_delivered
        });
        if self.options.deltas && has_base {
            DeliveryMode::Delta
        } else {
            DeliveryMode::Snapshot
        }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        let mut index = self.documents.index.lock();
        index.subscribers -= 1;
        let left = self.topics.drain(..);
        let left: SmallVec<[_; 1]> = left
            .map(|it| index.topics.leave(it.id, it.registration))
            .collect();
        let joining = self.joining.take();
        let joined = joining.map(|it| index.topics.leave(it.topic(), None));
        // The topics may be large, and are freed without holding the lock.
        drop(index);
        drop((left, joined));
    }
}

/// Events whose data is the document.
pub(crate) struct DocumentEvents(pub(crate) Subscription);

/// Events whose data is the JSON of the change.
pub(crate) struct WatchEvents(pub(crate) Subscription);

impl EventSource for DocumentEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let next = self
            .0
            .poll_encoded(cx, EventFormat::Document, EventFormat::Document);
        next.map(Some)
    }

    fn is_drained(&self) -> bool {
        self.0.is_drained()
    }

    fn ends(&self) -> Option<Instant> {
        self.0.grant.ends()
    }
}

impl EventSource for WatchEvents {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.0.pages.iter().any(PageSubscription::is_evicted) {
            return Poll::Ready(None);
        }
        let next = self
            .0
            .poll_encoded(cx, EventFormat::Event, EventFormat::EventDelta);
        next.map(Some)
    }

    fn is_drained(&self) -> bool {
        self.0.is_drained()
    }

    fn ends(&self) -> Option<Instant> {
        self.0.grant.ends()
    }
}
