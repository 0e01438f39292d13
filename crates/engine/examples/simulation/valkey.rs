//! A model of Valkey: records, claims, the log of purges and announcements, as `crates/store/src/redis` uses
//! them. A replica that takes over lacks the newest writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use microcache_policy::Time;
use microcache_store::tier::{BoxFuture, TierFuture};
use microcache_store::{
    Announcements, AttemptFailure, Claim, Clock, Entry, EntryId, GetOutcome, LogPage, PutOutcome,
    Reconnection, SharedTier, Tier, TierClock, TierError, TierStats, Token, in_log, log_number,
    new_log, random,
};
use microcache_testkit::Chance;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::DATE;
use crate::network::{Network, Path};

/// Deadlines of reads, of writes and of connecting, as in `RedisSettings`.
const DEADLINE: u64 = 50;
const WRITE_DEADLINE: u64 = 1000;
const CONNECT_DEADLINE: u64 = 1000;
/// Failures after which the server is out of service for a node, and the longest mean pause between attempts.
const FAILURES: u64 = 3;
const RETRY: u64 = 1000;
/// The interval of health checks, and the silence after which the subscription is checked.
const PING_EVERY: Duration = Duration::from_secs(5);
const CHECK_AFTER: Duration = Duration::from_secs(2);
/// Bytes of a command and its reply besides keys and values.
const FRAME: usize = 120;
/// Bound of the log.
const LENGTH: usize = 64 * 1024;

pub(crate) struct Valkey {
    network: Arc<Network>,
    data: Mutex<Data>,
}

#[derive(Default)]
struct Data {
    records: BTreeMap<EntryId, Timed<Entry>>,
    claims: BTreeMap<EntryId, Timed<u64>>,
    /// The nodes that wait for the end of a claim.
    awaiting: BTreeMap<EntryId, BTreeSet<usize>>,
    log: VecDeque<(u64, Timed<Bytes>)>,
    /// The subscription of each node.
    subscribers: BTreeMap<usize, UnboundedSender<Announcement>>,
}

/// The end of a claim, or else new records in the log.
type Announcement = Option<EntryId>;

struct Timed<T> {
    value: T,
    written: u64,
    expires: u64,
}

impl<T> Timed<T> {
    fn new(value: T, now: u64, lasts: Duration) -> Self {
        let expires = now.saturating_add(lasts.as_millis() as u64);
        Self {
            value,
            written: now,
            expires,
        }
    }
}

impl Valkey {
    pub(crate) fn new(network: Arc<Network>) -> Self {
        let data = Mutex::default();
        Self { network, data }
    }

    /// Returns empty.
    pub(crate) fn lose_everything(&self) {
        *self.data.lock() = Data::default();
    }

    /// A replica takes over that lags behind by these milliseconds.
    pub(crate) fn fail_over(&self, lag: u64) {
        let newest = self.network.now().saturating_sub(lag);
        self.disconnect();
        let mut data = self.data.lock();
        data.records.retain(|_, record| record.written <= newest);
        data.claims.retain(|_, claim| claim.written <= newest);
        data.log.retain(|(_, record)| record.written <= newest);
    }

    /// Loses its connections.
    pub(crate) fn disconnect(&self) {
        self.data.lock().subscribers.clear();
    }

    /// Evicts about half of the records, and perhaps the log.
    pub(crate) fn evict(&self, chance: &mut Chance) {
        let mut data = self.data.lock();
        data.records.retain(|_, _| chance.below(2) == 0);
        if chance.below(4) == 0 {
            data.log.clear();
        }
    }
}

impl Data {
    fn record(&self, id: EntryId, now: u64) -> Option<&Entry> {
        let record = self.records.get(&id).filter(|record| record.expires > now);
        record.map(|record| &record.value)
    }

    fn claimed_by(&self, id: EntryId, now: u64) -> Option<u64> {
        let claim = self.claims.get(&id).filter(|claim| claim.expires > now);
        claim.map(|claim| claim.value)
    }

    /// Grants a claim, or lets the node wait for its end.
    fn claim(
        &mut self,
        id: EntryId,
        (token, hold): (u64, Duration),
        now: u64,
        waits: Option<usize>,
    ) -> Claim {
        if self.claimed_by(id, now).is_some() {
            self.awaiting.entry(id).or_default().extend(waits);
            return Claim::HeldElsewhere;
        }
        self.claims.insert(id, Timed::new(token, now, hold));
        Claim::Granted(Token(token))
    }

    fn finish(&mut self, id: EntryId) {
        self.claims.remove(&id);
        for node in self.awaiting.remove(&id).unwrap_or_default() {
            if let Some(subscriber) = self.subscribers.get(&node) {
                let _ = subscriber.send(Some(id));
            }
        }
    }

    fn subscribe(&mut self, node: usize) -> UnboundedReceiver<Announcement> {
        let (sender, receiver) = unbounded_channel();
        self.subscribers.insert(node, sender);
        receiver
    }

    fn append(&mut self, records: Vec<Bytes>, beginning: Bytes, now: u64) {
        if self.log.is_empty() {
            let beginning = Timed::new(beginning, now, Duration::MAX);
            self.log.push_back((new_log() + 1, beginning));
        }
        for record in records {
            let last = self.log.back().map_or(0, |(position, _)| *position);
            let position = in_log(log_number(last), DATE + now).max(last + 1);
            let record = Timed::new(record, now, Duration::MAX);
            self.log.push_back((position, record));
        }
        let over = self.log.len().saturating_sub(LENGTH);
        self.log.drain(..over);
        for subscriber in self.subscribers.values() {
            let _ = subscriber.send(None);
        }
    }

    fn page(&self, after: u64) -> LogPage {
        let at = self
            .log
            .binary_search_by_key(&after, |(position, _)| *position);
        let records = self.log.iter().skip(at.map_or(0, |at| at + 1));
        let records = records.map(|(position, record)| (*position, record.value.clone()));
        LogPage {
            records: records.collect(),
            is_gapless: at.is_ok(),
            ..LogPage::default()
        }
    }
}

/// The server as a node uses it.
pub(crate) struct ValkeyTier {
    client: Arc<Client>,
    /// Ends with the node.
    _background: JoinSet<()>,
}

struct Client {
    node: usize,
    valkey: Arc<Valkey>,
    announcements: Announcements,
    clock: TierClock,
    failures: AtomicU64,
    is_down: AtomicBool,
    lost: Notify,
    returned: Notify,
}

impl std::fmt::Debug for ValkeyTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValkeyTier({})", self.client.node)
    }
}

impl ValkeyTier {
    pub(crate) fn new(node: usize, own: Clock, valkey: Arc<Valkey>) -> Self {
        let client = Arc::new(Client {
            node,
            valkey,
            announcements: Announcements::new(0),
            clock: TierClock::new(own),
            failures: AtomicU64::new(0),
            is_down: AtomicBool::new(false),
            lost: Notify::new(),
            returned: Notify::new(),
        });
        let mut background = JoinSet::new();
        background.spawn(Arc::clone(&client).keep_connected());
        background.spawn(Arc::clone(&client).keep_subscribed());
        Self {
            client,
            _background: background,
        }
    }
}

impl Client {
    /// Performs an operation, which returns the number of bytes that it takes on the wire.
    async fn exchange<T>(
        &self,
        deadline: u64,
        operation: impl FnOnce(&mut Data, u64) -> (T, usize) + Send,
    ) -> Result<T, TierError> {
        let (node, network) = (self.node, &self.valkey.network);
        let began = network.now();
        if network.path(node, 0) != Path::Cut {
            let round_trip = network.round_trip();
            let is_late = round_trip > Duration::from_millis(deadline);
            sleep(round_trip.min(Duration::from_millis(deadline))).await;
            // A cut since then has lost it.
            let path = network.path(node, 0);
            if path != Path::Cut {
                let (done, bytes) = operation(&mut self.valkey.data.lock(), network.now());
                network.count(node, 1, FRAME + bytes);
                if path == Path::Works && !is_late {
                    return Ok(done);
                }
            }
        }
        if network.is_killed(0) {
            return Err(TierError::Failed("connection refused".to_owned()));
        }
        tokio::time::sleep_until(network.instant(began + deadline)).await;
        Err(TierError::Timeout)
    }

    /// Performs an operation while the server is in service.
    async fn request<T>(
        &self,
        deadline: u64,
        operation: impl FnOnce(&mut Data, u64) -> (T, usize) + Send,
    ) -> Result<T, TierError> {
        if self.is_down.load(Ordering::Relaxed) {
            return Err(TierError::Down);
        }
        let done = self.exchange(deadline, operation).await;
        let failures = match done {
            Ok(_) => 0,
            Err(TierError::Timeout) => 1 + self.failures.load(Ordering::Relaxed),
            Err(_) => FAILURES,
        };
        self.failures.store(failures, Ordering::Relaxed);
        if failures >= FAILURES && !self.is_down.swap(true, Ordering::Relaxed) {
            self.lost.notify_one();
        }
        done
    }

    /// Pings the server, which tells its time, and connects again after it was lost.
    async fn keep_connected(self: Arc<Self>) {
        let [retry_after, deadline] = [RETRY, CONNECT_DEADLINE].map(Duration::from_millis);
        let reconnection = Reconnection::new(retry_after, deadline);
        loop {
            loop {
                let told = self.request(WRITE_DEADLINE, |_, now| (DATE + now, 0));
                if let Ok(date) = told.await {
                    self.clock.note(Time::from_millis(date));
                }
                if timeout(PING_EVERY, self.lost.notified()).await.is_ok() {
                    break;
                }
            }
            let pause = reconnection.pause_after_loss(0);
            let attempt = || self.exchange(CONNECT_DEADLINE, |_, _| ((), 0));
            let failed = |why| match why {
                TierError::Timeout => Some(AttemptFailure::Unusable),
                _ => Some(AttemptFailure::Refused),
            };
            reconnection.connect(pause, attempt, failed).await;
            self.failures.store(0, Ordering::Relaxed);
            self.is_down.store(false, Ordering::Relaxed);
            self.announcements.note_log_news();
            self.returned.notify_one();
        }
    }

    async fn keep_subscribed(self: Arc<Self>) {
        loop {
            let _ = self.follow_announcements().await;
            self.announcements.set_subscribed(false);
            let _ = timeout(retry_delay(), self.returned.notified()).await;
        }
    }

    async fn follow_announcements(&self) -> Result<(), TierError> {
        let (node, network) = (self.node, &self.valkey.network);
        let subscribe = |data: &mut Data, _| (data.subscribe(node), 0);
        let mut messages = self.exchange(CONNECT_DEADLINE, subscribe).await?;
        self.announcements.set_subscribed(true);
        loop {
            let Ok(message) = timeout(CHECK_AFTER, messages.recv()).await else {
                self.exchange(CONNECT_DEADLINE, |_, _| ((), 0)).await?;
                continue;
            };
            // The server closes the connection when it is killed.
            let message = message.ok_or(TierError::Down)?;
            sleep(network.round_trip()).await;
            if network.path(node, 0) != Path::Works {
                // It is lost, and with it the connection, which the next check notices.
                sleep(CHECK_AFTER + Duration::from_millis(CONNECT_DEADLINE)).await;
                return Err(TierError::Timeout);
            }
            network.count(node, 0, FRAME);
            match message {
                None => self.announcements.note_log_news(),
                Some(id) => self.announcements.end(id),
            }
        }
    }

    /// This node, if it can be waked at the end of a claim.
    fn waits_for(&self, id: EntryId) -> Option<usize> {
        (!self.announcements.await_end(id).is_empty()).then_some(self.node)
    }

    async fn get(&self, id: EntryId) -> Result<Option<Entry>, TierError> {
        let read = self.request(DEADLINE, move |data, now| {
            let record = data.record(id, now).cloned();
            let bytes = record.as_ref().map_or(0, size);
            (record, bytes)
        });
        read.await
    }

    async fn release(&self, id: EntryId, token: Token) -> Result<(), TierError> {
        let release = self.request(WRITE_DEADLINE, move |data, now| {
            if data.claimed_by(id, now) == Some(token.0) {
                data.finish(id);
            }
            ((), 0)
        });
        release.await
    }

    /// A claim whose holder does not know of it is released when the server is back.
    fn unless_lost<T>(
        self: &Arc<Self>,
        id: EntryId,
        token: u64,
        claimed: Result<T, TierError>,
    ) -> Result<T, TierError> {
        if claimed.is_err() {
            let client = Arc::clone(self);
            tokio::spawn(async move {
                while client.release(id, Token(token)).await.is_err() {
                    sleep(retry_delay()).await;
                }
            });
        }
        claimed
    }
}

impl Tier for ValkeyTier {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn get(&self, id: EntryId) -> TierFuture<'_, Option<Entry>> {
        Box::pin(self.client.get(id))
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(self.client.request(WRITE_DEADLINE, move |data, now| {
            let bytes = size(&entry);
            if token.is_some_and(|token| data.claimed_by(id, now) != Some(token.0)) {
                return (PutOutcome::Superseded, bytes);
            }
            data.records.insert(id, Timed::new(entry, now, expires));
            data.finish(id);
            (PutOutcome::Stored, bytes)
        }))
    }

    /// Not needed: the application sends no 304.
    fn renew(
        &self,
        _: EntryId,
        _: Bytes,
        _: Bytes,
        _: Duration,
        _: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(async { Ok(PutOutcome::Superseded) })
    }

    fn remove(&self, id: EntryId) -> TierFuture<'_, ()> {
        Box::pin(self.client.request(WRITE_DEADLINE, move |data, _| {
            data.records.remove(&id);
            data.claims.remove(&id);
            ((), 0)
        }))
    }

    fn stats(&self) -> TierStats {
        let is_down = self.client.is_down.load(Ordering::Relaxed);
        TierStats {
            degraded: Vec::from_iter(is_down.then(|| "out of service".to_owned())),
            ..TierStats::default()
        }
    }
}

impl SharedTier for ValkeyTier {
    fn get_or_claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, GetOutcome> {
        let client = &self.client;
        Box::pin(async move {
            if let Some(entry) = client.get(id).await? {
                return Ok(GetOutcome::Entry(entry));
            }
            let (token, waits) = (random::number(), client.waits_for(id));
            let claim = client.request(DEADLINE, move |data, now| match data.record(id, now) {
                Some(entry) => (GetOutcome::Entry(entry.clone()), size(entry)),
                None => (
                    GetOutcome::Missing(data.claim(id, (token, hold), now, waits)),
                    0,
                ),
            });
            let claimed = claim.await;
            if !matches!(claimed, Ok(GetOutcome::Missing(Claim::HeldElsewhere))) {
                client.announcements.end(id);
            }
            client.unless_lost(id, token, claimed)
        })
    }

    fn head(&self, id: EntryId) -> TierFuture<'_, Option<Bytes>> {
        Box::pin(async move { Ok(self.client.get(id).await?.map(|entry| entry.head)) })
    }

    fn claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, Claim> {
        let client = &self.client;
        Box::pin(async move {
            let (token, waits) = (random::number(), client.waits_for(id));
            let claim = client.request(DEADLINE, move |data, now| {
                (data.claim(id, (token, hold), now, waits), 0)
            });
            let claimed = claim.await;
            if claimed != Ok(Claim::HeldElsewhere) {
                client.announcements.end(id);
            }
            client.unless_lost(id, token, claimed)
        })
    }

    fn release(&self, id: EntryId, token: Token) -> TierFuture<'_, ()> {
        Box::pin(self.client.release(id, token))
    }

    fn clock(&self) -> Option<&TierClock> {
        Some(&self.client.clock)
    }

    fn claim_end(&self, id: EntryId) -> Option<BoxFuture<'_, ()>> {
        self.client.announcements.claim_end(id)
    }

    fn log_news(&self, _: usize) -> Option<BoxFuture<'_, ()>> {
        self.client.announcements.log_news()
    }

    fn log_wake(&self, _: usize) -> Option<BoxFuture<'_, ()>> {
        Some(self.client.announcements.log_wake())
    }

    fn append_to_log(&self, _: usize, records: Vec<Bytes>, beginning: Bytes) -> TierFuture<'_, ()> {
        Box::pin(self.client.request(WRITE_DEADLINE, move |data, now| {
            let bytes = records.iter().map(Bytes::len).sum();
            data.append(records, beginning, now);
            ((), bytes)
        }))
    }

    fn read_log(&self, _: usize, after: u64, beginning: Bytes) -> TierFuture<'_, LogPage> {
        Box::pin(self.client.request(WRITE_DEADLINE, move |data, now| {
            if data.log.is_empty() {
                data.append(Vec::new(), beginning, now);
            }
            let page = data.page(after);
            let bytes = page
                .records
                .iter()
                .map(|(_, record)| record.len() + 50)
                .sum();
            (page, bytes)
        }))
    }
}

/// The pause of all other retries, as in `RedisSettings`.
fn retry_delay() -> Duration {
    Duration::from_millis(RETRY / 2 + random::number() % RETRY)
}

fn size(entry: &Entry) -> usize {
    entry.head.len() + entry.body.len() as usize
}
