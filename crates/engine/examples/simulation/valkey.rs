//! A model of Valkey: records, claims and the log of purges, as `crates/store/src/redis` uses them. A replica
//! that takes over lacks the newest writes.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use microcache_store::tier::TierFuture;
use microcache_store::{
    Claim, Entry, EntryId, GetOutcome, LogPage, PutOutcome, SharedTier, Tier, TierError, TierStats,
    Token, in_log, log_number, new_log, random,
};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::DATE;
use crate::chance::Chance;
use crate::network::{Network, Path};

/// Deadlines of reads and of writes, as in `RedisSettings`.
const DEADLINE: u64 = 50;
const WRITE_DEADLINE: u64 = 1000;
/// Failures after which the server is out of service for a node, and the time until it is tried again.
const FAILURES: u64 = 3;
const RETRY: u64 = 1000;
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
    log: VecDeque<(u64, Timed<Bytes>)>,
}

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
        let mut data = self.data.lock();
        data.records.retain(|_, record| record.written <= newest);
        data.claims.retain(|_, claim| claim.written <= newest);
        data.log.retain(|(_, record)| record.written <= newest);
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

    fn claim(&mut self, id: EntryId, token: u64, now: u64, hold: Duration) -> Claim {
        if self.claimed_by(id, now).is_some() {
            return Claim::HeldElsewhere;
        }
        self.claims.insert(id, Timed::new(token, now, hold));
        Claim::Granted(Token(token))
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
#[derive(Clone)]
pub(crate) struct ValkeyTier(Arc<Client>);

struct Client {
    node: usize,
    valkey: Arc<Valkey>,
    failures: AtomicU64,
    down_until: AtomicU64,
}

impl std::fmt::Debug for ValkeyTier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ValkeyTier({})", self.0.node)
    }
}

impl ValkeyTier {
    pub(crate) fn new(node: usize, valkey: Arc<Valkey>) -> Self {
        Self(Arc::new(Client {
            node,
            valkey,
            failures: AtomicU64::new(0),
            down_until: AtomicU64::new(0),
        }))
    }

    /// Performs an operation, which returns the number of bytes that it takes on the wire.
    async fn request<T>(
        &self,
        deadline: u64,
        operation: impl FnOnce(&mut Data, u64) -> (T, usize) + Send,
    ) -> Result<T, TierError> {
        let Client { node, valkey, .. } = &*self.0;
        let network = &valkey.network;
        let (began, down_until) = (network.now(), self.0.down_until.load(Ordering::Relaxed));
        if began < down_until {
            return Err(TierError::Down);
        }
        if network.path(*node, 0) != Path::Cut {
            let round_trip = network.round_trip();
            let is_late = round_trip > Duration::from_millis(deadline);
            sleep(round_trip.min(Duration::from_millis(deadline))).await;
            // A cut since then has lost it.
            let path = network.path(*node, 0);
            if path != Path::Cut {
                let (done, bytes) = operation(&mut valkey.data.lock(), network.now());
                network.count(*node, 1, FRAME + bytes);
                if path == Path::Works && !is_late {
                    self.0.failures.store(0, Ordering::Relaxed);
                    return Ok(done);
                }
            }
        }
        if network.is_killed(0) {
            self.fail(FAILURES);
            return Err(TierError::Failed("connection refused".to_owned()));
        }
        tokio::time::sleep_until(network.instant(began + deadline)).await;
        self.fail(1);
        Err(TierError::Timeout)
    }

    fn fail(&self, by: u64) {
        let failures = self.0.failures.fetch_add(by, Ordering::Relaxed) + by;
        if failures >= FAILURES {
            let pause = RETRY / 2 + random::number() % RETRY;
            let until = self.0.valkey.network.now() + pause;
            self.0.down_until.store(until, Ordering::Relaxed);
            // The next failure suffices.
            self.0.failures.store(FAILURES - 1, Ordering::Relaxed);
        }
    }

    /// A claim whose holder does not know of it is released when the server is back.
    fn unless_lost<T>(
        &self,
        id: EntryId,
        token: u64,
        claimed: Result<T, TierError>,
    ) -> Result<T, TierError> {
        if claimed.is_err() {
            let tier = self.clone();
            tokio::spawn(async move {
                while tier.release(id, Token(token)).await.is_err() {
                    sleep(Duration::from_millis(RETRY)).await;
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
        Box::pin(self.request(DEADLINE, move |data, now| {
            let record = data.record(id, now).cloned();
            let bytes = record.as_ref().map_or(0, size);
            (record, bytes)
        }))
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(self.request(WRITE_DEADLINE, move |data, now| {
            let bytes = size(&entry);
            if token.is_some_and(|token| data.claimed_by(id, now) != Some(token.0)) {
                return (PutOutcome::Superseded, bytes);
            }
            data.records.insert(id, Timed::new(entry, now, expires));
            data.claims.remove(&id);
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
        Box::pin(self.request(WRITE_DEADLINE, move |data, _| {
            data.records.remove(&id);
            data.claims.remove(&id);
            ((), 0)
        }))
    }

    fn stats(&self) -> TierStats {
        let is_down = self.0.valkey.network.now() < self.0.down_until.load(Ordering::Relaxed);
        TierStats {
            degraded: is_down
                .then(|| "out of service".to_owned())
                .into_iter()
                .collect(),
            ..TierStats::default()
        }
    }
}

impl SharedTier for ValkeyTier {
    fn get_or_claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, GetOutcome> {
        Box::pin(async move {
            if let Some(entry) = self.get(id).await? {
                return Ok(GetOutcome::Entry(entry));
            }
            let token = random::number();
            let claimed = self.request(DEADLINE, move |data, now| match data.record(id, now) {
                Some(entry) => (GetOutcome::Entry(entry.clone()), size(entry)),
                None => (GetOutcome::Missing(data.claim(id, token, now, hold)), 0),
            });
            self.unless_lost(id, token, claimed.await)
        })
    }

    fn head(&self, id: EntryId) -> TierFuture<'_, Option<Bytes>> {
        Box::pin(async move { Ok(self.get(id).await?.map(|entry| entry.head)) })
    }

    fn claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, Claim> {
        Box::pin(async move {
            let token = random::number();
            let claimed = self.request(DEADLINE, move |data, now| {
                (data.claim(id, token, now, hold), 0)
            });
            self.unless_lost(id, token, claimed.await)
        })
    }

    fn release(&self, id: EntryId, token: Token) -> TierFuture<'_, ()> {
        Box::pin(self.request(WRITE_DEADLINE, move |data, now| {
            if data.claimed_by(id, now) == Some(token.0) {
                data.claims.remove(&id);
            }
            ((), 0)
        }))
    }

    fn append_to_log(&self, _: usize, records: Vec<Bytes>, beginning: Bytes) -> TierFuture<'_, ()> {
        Box::pin(self.request(WRITE_DEADLINE, move |data, now| {
            let bytes = records.iter().map(Bytes::len).sum();
            data.append(records, beginning, now);
            ((), bytes)
        }))
    }

    fn read_log(&self, _: usize, after: u64, beginning: Bytes) -> TierFuture<'_, LogPage> {
        Box::pin(self.request(WRITE_DEADLINE, move |data, now| {
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

fn size(entry: &Entry) -> usize {
    entry.head.len() + entry.body.len() as usize
}
