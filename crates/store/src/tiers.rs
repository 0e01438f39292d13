//! The tiers in use: asked in their order on a miss of memory, written to in the background.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_policy::vary::{self, Selection};
use microcache_policy::{Fields, Time};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use xxhash_rust::xxh3::Xxh3;

use crate::content::Content;
use crate::encoding::{Corrupt, Head, Record, Varies, checksum, encode, encode_varies};
use crate::memory::Hit;
use crate::stored::Stored;
use crate::tier::{Claim, Entry, EntryId, Got, Put, Spool, Tier, TierError, TierStats, Token};

/// The bounds of what tiers are asked to do.
#[derive(Clone, Copy, Debug)]
pub struct TierLimits {
    /// How long one of the processes that share a tier may keep the others from asking the origin.
    pub claim: Duration,
    /// Bytes of records that wait to be written to one tier. Beyond it they are not written.
    pub queue: u64,
}

impl Default for TierLimits {
    fn default() -> Self {
        Self {
            claim: Duration::from_secs(5),
            queue: 64 * 1024 * 1024,
        }
    }
}

/// All tiers behind memory.
#[derive(Debug, Default)]
pub struct Tiers {
    tiers: Box<[Arc<Placed>]>,
    limits: TierLimits,
}

/// What the tiers have for a request.
#[derive(Debug)]
pub enum Lookup {
    /// A response that the request selects.
    Found(Found),
    /// Nothing.
    Missing(Turn),
}

/// A response out of a tier.
#[derive(Debug)]
pub struct Found {
    /// The response.
    pub stored: Stored,
    tier: Arc<Placed>,
    id: EntryId,
}

impl Found {
    /// The name of the tier it comes from.
    pub fn tier(&self) -> &'static str {
        self.tier.tier.name()
    }

    /// Whether other processes use that tier too.
    pub fn is_shared(&self) -> bool {
        self.tier.tier.is_shared()
    }
}

/// Who of all processes that share a tier asks the origin.
#[derive(Debug)]
pub enum Turn {
    /// No tier is shared, or none can be asked: everybody for himself.
    Free,
    /// This process, and nobody else meanwhile.
    Ours(Claimed),
    /// Another process is at it.
    Theirs,
}

/// The right to bring what others wait for. Given back when it is dropped unused.
#[derive(Debug)]
pub struct Claimed {
    tier: Arc<Placed>,
    id: EntryId,
    token: Option<Token>,
}

/// What a tier has done, beside what it says of itself.
#[derive(Clone, Debug, Default)]
pub struct TierReport {
    /// How it is called.
    pub name: &'static str,
    /// Look-ups that found what they wanted.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Operations that failed.
    pub errors: u64,
    /// Operations that took too long.
    pub timeouts: u64,
    /// Records that were not what they should be.
    pub corrupt: u64,
    /// Records written.
    pub written: u64,
    /// Records not written because too many waited.
    pub dropped: u64,
    /// Look-ups by the time they took: below 2, 4, 8, … microseconds.
    pub latency: [u64; LATENCIES],
    /// What it says of itself.
    pub stats: TierStats,
}

impl TierReport {
    /// So many microseconds are enough for this percentage of all look-ups; `None` if there was
    /// none.
    pub fn slowest_of(&self, percentage: u64) -> Option<u64> {
        let all: u64 = self.latency.iter().sum();
        let wanted = all.saturating_mul(percentage).div_ceil(100);
        let mut seen = 0;
        let enough = self.latency.iter().position(|&times| {
            seen += times;
            seen >= wanted
        });
        enough.filter(|_| all > 0).map(|at| 2 << at)
    }
}

/// Powers of two of microseconds, up to a second.
pub const LATENCIES: usize = 20;

#[derive(Debug)]
struct Placed {
    tier: Arc<dyn Tier>,
    jobs: UnboundedSender<Job>,
    queued: AtomicU64,
    counters: Counters,
}

#[derive(Debug, Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    errors: AtomicU64,
    timeouts: AtomicU64,
    corrupt: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    latency: [AtomicU64; LATENCIES],
}

/// What is done in the background, in the order it was asked for: a record that was stored before
/// a purge must not arrive after it.
#[derive(Debug)]
enum Job {
    Store(Box<Storing>),
    Remove(EntryId),
    Release(EntryId, Token),
    Settle(oneshot::Sender<()>),
}

#[derive(Debug)]
struct Storing {
    key: Box<[u8]>,
    response: Hit,
    expires: Duration,
    claim: Option<(EntryId, Token)>,
    charged: u64,
}

impl Tiers {
    /// These tiers, the nearest first. Writing happens on `background`.
    pub fn new(tiers: Vec<Arc<dyn Tier>>, limits: TierLimits, background: &Handle) -> Self {
        let place = |tier: Arc<dyn Tier>| {
            let (jobs, waiting) = unbounded_channel();
            let placed = Arc::new(Placed {
                tier,
                jobs,
                queued: AtomicU64::new(0),
                counters: Counters::default(),
            });
            background.spawn(Arc::clone(&placed).work(waiting));
            placed
        };
        Self {
            tiers: tiers.into_iter().map(place).collect(),
            limits,
        }
    }

    /// Whether there is nothing behind memory.
    pub fn is_empty(&self) -> bool {
        self.tiers.is_empty()
    }

    /// The bounds.
    pub const fn limits(&self) -> &TierLimits {
        &self.limits
    }

    /// Looks for the response of a key that a request selects. Who finds nothing learns whose turn
    /// it is to ask the origin.
    pub async fn find(&self, key: &[u8], request: Fields<'_>) -> Lookup {
        Self::find_in(self.tiers.iter(), &self.limits, key, request).await
    }

    /// The same where other processes may have put it.
    pub async fn find_shared(&self, key: &[u8], request: Fields<'_>) -> Lookup {
        let shared = self.tiers.iter().filter(|placed| placed.tier.is_shared());
        Self::find_in(shared, &self.limits, key, request).await
    }

    async fn find_in(
        tiers: impl Iterator<Item = &Arc<Placed>>,
        limits: &TierLimits,
        key: &[u8],
        request: Fields<'_>,
    ) -> Lookup {
        let mut turn = Turn::Free;
        for placed in tiers {
            let claim = placed.tier.is_shared().then_some(limits.claim);
            match placed.find(key, request, claim).await {
                Ok(Lookup::Missing(Turn::Free)) | Err(_) => {}
                Ok(Lookup::Missing(one)) => turn = one,
                Ok(found) => return found,
            }
        }
        Lookup::Missing(turn)
    }

    /// Whose turn it is to renew what was found.
    pub async fn turn_to_renew(&self, found: &Found) -> Turn {
        let placed = &found.tier;
        if !placed.tier.is_shared() {
            return Turn::Free;
        }
        let claim = placed.tier.claim(found.id, self.limits.claim).await;
        match placed.counted(claim) {
            Ok(claim) => placed.turn(found.id, claim),
            Err(_) => Turn::Free,
        }
    }

    /// Has a response written to every tier. To one that is shared only with its claim: without,
    /// it could bring back what another process has purged meanwhile.
    pub fn store(&self, key: &[u8], response: &Hit, mut claimed: Option<Claimed>, now: Time) {
        let expires = response.lifetime.usable_until().since(now);
        let charged = (key.len() + response.heap_size()) as u64;
        for placed in &self.tiers {
            let claim = match &mut claimed {
                Some(claimed) if Arc::ptr_eq(&claimed.tier, placed) => {
                    claimed.token.take().map(|token| (claimed.id, token))
                }
                _ => None,
            };
            // What lies in a file is on disk already.
            let wanted = expires > 0
                && response.body.bytes().is_some()
                && (claim.is_some() || !placed.tier.is_shared());
            if !wanted {
                if let Some((id, token)) = claim {
                    placed.ask(Job::Release(id, token));
                }
                continue;
            }
            if placed.queued.fetch_add(charged, Ordering::Relaxed) + charged > self.limits.queue {
                placed.queued.fetch_sub(charged, Ordering::Relaxed);
                placed.counters.dropped.fetch_add(1, Ordering::Relaxed);
                if let Some((id, token)) = claim {
                    placed.ask(Job::Release(id, token));
                }
                continue;
            }
            placed.ask(Job::Store(Box::new(Storing {
                key: key.into(),
                response: response.clone(),
                expires: Duration::from_millis(expires),
                claim,
                charged,
            })));
        }
    }

    /// Has every response of a key removed from every tier.
    pub fn remove(&self, key: &[u8]) {
        // Variants cannot be found without the record that says what they vary on.
        let id = EntryId::of(key);
        for placed in &self.tiers {
            placed.ask(Job::Remove(id));
        }
    }

    /// Waits until everything that was asked for so far is done.
    pub async fn settle(&self) {
        for placed in &self.tiers {
            placed.settle().await;
        }
    }

    /// A place for a body that is too large for memory, if a tier takes such.
    pub fn spool(&self) -> Option<Spooling> {
        self.tiers.iter().find_map(|placed| {
            Some(Spooling {
                spool: placed.tier.spool()?,
                tier: Arc::clone(placed),
                length: 0,
                sum: Xxh3::new(),
            })
        })
    }

    /// What the tiers have done and say of themselves.
    pub fn reports(&self) -> Vec<TierReport> {
        self.tiers.iter().map(|placed| placed.report()).collect()
    }
}

/// A body on its way into a tier.
pub struct Spooling {
    spool: Box<dyn Spool>,
    tier: Arc<Placed>,
    length: u64,
    sum: Xxh3,
}

impl Spooling {
    /// Takes the next piece.
    pub async fn write(&mut self, chunk: Bytes) -> Result<(), TierError> {
        self.length += chunk.len() as u64;
        self.sum.update(&chunk);
        self.spool.write(chunk).await
    }

    /// Keeps what was written as the body of `response`, which has none yet. Gives the response
    /// with its body where it is now.
    pub async fn finish(
        self,
        key: &[u8],
        response: Stored,
        now: Time,
    ) -> Result<Stored, TierError> {
        let expires = Duration::from_millis(response.lifetime.usable_until().since(now));
        let Some((id, _)) = self.tier.id_for(key, &response, expires, None).await? else {
            return Err(TierError::Failed("purged meanwhile".into()));
        };
        let head = encode(key, &response, self.length, self.sum.digest());
        let body = self.spool.finish(id, head, expires).await?;
        self.tier.counters.written.fetch_add(1, Ordering::Relaxed);
        Ok(response.with_body(body))
    }
}

impl Drop for Claimed {
    fn drop(&mut self) {
        if let Some(token) = self.token.take() {
            self.tier.ask(Job::Release(self.id, token));
        }
    }
}

impl Placed {
    fn ask(&self, job: Job) {
        // The other end is gone only if the process is about to be.
        let _ = self.jobs.send(job);
    }

    async fn settle(&self) {
        let (done, wait) = oneshot::channel();
        self.ask(Job::Settle(done));
        let _ = wait.await;
    }

    async fn find(
        self: &Arc<Self>,
        key: &[u8],
        request: Fields<'_>,
        claim: Option<Duration>,
    ) -> Result<Lookup, TierError> {
        let began = Instant::now();
        let looked_up = self.look_up(key, request, claim).await;
        self.counters.note_latency(began.elapsed());
        let counter = match &looked_up {
            Ok(Lookup::Found(_)) => &self.counters.hits,
            Ok(Lookup::Missing(_)) => &self.counters.misses,
            Err(_) => return looked_up,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        looked_up
    }

    async fn look_up(
        self: &Arc<Self>,
        key: &[u8],
        request: Fields<'_>,
        claim: Option<Duration>,
    ) -> Result<Lookup, TierError> {
        let id = EntryId::of(key);
        let (record, turn) = self.read(id, key, claim).await?;
        let varies = match record {
            None => return Ok(Lookup::Missing(turn)),
            Some(Record::Varies(varies)) => varies,
            Some(Record::Response(stored)) if stored.vary.is_empty() => {
                return Ok(self.found(stored, id));
            }
            Some(Record::Response(_)) => return Ok(Lookup::Missing(Turn::Free)),
        };
        let mut selection = Selection::new();
        vary::select(&varies.names, request, &mut selection);
        let id = EntryId::of_variant(key, &selection, varies.generation);
        let (record, turn) = self.read(id, key, claim).await?;
        Ok(match record {
            Some(Record::Response(stored))
                if stored.vary == varies.names && stored.selection[..] == selection[..] =>
            {
                self.found(stored, id)
            }
            Some(_) => Lookup::Missing(Turn::Free),
            None => Lookup::Missing(turn),
        })
    }

    fn found(self: &Arc<Self>, stored: Stored, id: EntryId) -> Lookup {
        Lookup::Found(Found {
            stored,
            tier: Arc::clone(self),
            id,
        })
    }

    /// The record of this id and key; without one, whose turn it is to bring it.
    async fn read(
        self: &Arc<Self>,
        id: EntryId,
        key: &[u8],
        claim: Option<Duration>,
    ) -> Result<(Option<Record>, Turn), TierError> {
        let entry = match self.counted(self.tier.get(id, claim).await)? {
            Got::Entry(entry) => entry,
            Got::Missing(Some(claim)) => return Ok((None, self.turn(id, claim))),
            Got::Missing(None) => return Ok((None, Turn::Free)),
        };
        match decode(entry, key) {
            Ok(record) => Ok((record, Turn::Free)),
            Err(corrupt) => {
                self.counters.corrupt.fetch_add(1, Ordering::Relaxed);
                self.ask(Job::Remove(id));
                Err(TierError::Corrupt(corrupt.to_string()))
            }
        }
    }

    fn turn(self: &Arc<Self>, id: EntryId, claim: Claim) -> Turn {
        match claim {
            Claim::Theirs => Turn::Theirs,
            Claim::Mine(token) => Turn::Ours(Claimed {
                tier: Arc::clone(self),
                id,
                token: Some(token),
            }),
        }
    }

    fn counted<T>(&self, result: Result<T, TierError>) -> Result<T, TierError> {
        let counter = match &result {
            // The tier counts itself what is corrupt.
            Ok(_) | Err(TierError::Corrupt(_)) => return result,
            Err(TierError::Timeout) => &self.counters.timeouts,
            Err(TierError::Down | TierError::Failed(_)) => &self.counters.errors,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        result
    }

    /// Does what waits to be done, one thing after the other.
    async fn work(self: Arc<Self>, mut waiting: UnboundedReceiver<Job>) {
        while let Some(job) = waiting.recv().await {
            // What fails is counted; there is nobody to tell.
            match job {
                Job::Store(storing) => {
                    let stored = self.store(&storing).await;
                    self.queued.fetch_sub(storing.charged, Ordering::Relaxed);
                    if let Ok(Put::Stored) = self.counted(stored) {
                        self.counters.written.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Job::Remove(id) => {
                    let _ = self.counted(self.tier.remove(id).await);
                }
                Job::Settle(done) => {
                    let _ = done.send(());
                }
                Job::Release(id, token) => {
                    let _ = self.counted(self.tier.release(id, token).await);
                }
            }
        }
    }

    async fn store(&self, storing: &Storing) -> Result<Put, TierError> {
        let Storing {
            key,
            response,
            expires,
            claim,
            ..
        } = storing;
        let Some((id, token)) = self.id_for(key, response, *expires, *claim).await? else {
            if let Some((id, token)) = *claim {
                self.tier.release(id, token).await?;
            }
            return Ok(Put::ClaimLost);
        };
        let Some(body) = response.body.bytes() else {
            return Ok(Put::Refused);
        };
        let entry = Entry {
            head: encode(key, response, body.len() as u64, checksum(body)),
            body: response.body.clone(),
        };
        self.tier.put(id, entry, *expires, token).await
    }

    /// The id that a response is to be stored under, and the claim that is left for it. The
    /// response of a key without `Vary` has the key's own; variants hang on a record that says what
    /// the key varies on. `None` if the claim is of no use any more. A purge takes away that record
    /// alone: a claim on a variant is good as long as the record is the one that it was made under.
    async fn id_for(
        &self,
        key: &[u8],
        response: &Stored,
        expires: Duration,
        claim: Option<(EntryId, Token)>,
    ) -> Result<Option<(EntryId, Option<Token>)>, TierError> {
        let base = EntryId::of(key);
        let token = claim.map(|(_, token)| token);
        let on_variant = claim.filter(|(id, _)| *id != base).map(|(id, _)| id);
        if response.vary.is_empty() && on_variant.is_none() {
            return Ok(Some((base, token)));
        }
        let variant = |generation| EntryId::of_variant(key, &response.selection, generation);
        match (self.varies(base, key).await?, on_variant) {
            (Some(varies), on_variant) if varies.names == response.vary => {
                let id = variant(varies.generation);
                let is_good = claim.is_none() || on_variant == Some(id);
                Ok(is_good.then_some((id, token)))
            }
            // The origin varies on something else now: whoever comes next begins anew.
            (Some(_), Some(_)) => {
                self.tier.remove(base).await?;
                Ok(None)
            }
            (None, Some(_)) => Ok(None),
            (_, None) => {
                let varies = Varies {
                    names: response.vary.clone(),
                    generation: random(),
                    began: response.began,
                };
                let entry = Entry {
                    head: encode_varies(key, &varies),
                    body: Content::default(),
                };
                let put = self.tier.put(base, entry, expires, token).await?;
                Ok((put == Put::Stored).then(|| (variant(varies.generation), None)))
            }
        }
    }

    /// What the key varies on.
    async fn varies(&self, base: EntryId, key: &[u8]) -> Result<Option<Varies>, TierError> {
        let Got::Entry(entry) = self.tier.get(base, None).await? else {
            return Ok(None);
        };
        Ok(match decode(entry, key) {
            Ok(Some(Record::Varies(varies))) => Some(varies),
            _ => None,
        })
    }

    fn report(&self) -> TierReport {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let stats = self.tier.stats();
        TierReport {
            name: self.tier.name(),
            hits: read(&counters.hits),
            misses: read(&counters.misses),
            errors: read(&counters.errors),
            timeouts: read(&counters.timeouts),
            corrupt: read(&counters.corrupt) + stats.corrupt,
            written: read(&counters.written),
            dropped: read(&counters.dropped),
            latency: std::array::from_fn(|at| read(&counters.latency[at])),
            stats,
        }
    }
}

/// The record in an entry; `None` if it is another key's.
fn decode(entry: Entry, key: &[u8]) -> Result<Option<Record>, Corrupt> {
    let head = Head::decode(&entry.head)?;
    if head.key[..] != *key {
        return Ok(None);
    }
    head.with_body(entry.body).map(Some)
}

impl Counters {
    fn note_latency(&self, took: Duration) {
        let micros = took.as_micros() | 1;
        let at = (micros.ilog2() as usize).min(LATENCIES - 1);
        self.latency[at].fetch_add(1, Ordering::Relaxed);
    }
}

/// A number that nobody else has: two processes must not give their variants the same one.
fn random() -> u64 {
    use std::hash::BuildHasher;
    std::hash::RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_look_ups_are_in_the_last_classes() {
        let mut report = TierReport::default();
        assert_eq!(report.slowest_of(99), None);
        report.latency[3] = 99;
        report.latency[10] = 1;
        assert_eq!(report.slowest_of(50), Some(16));
        assert_eq!(report.slowest_of(99), Some(16));
        assert_eq!(report.slowest_of(100), Some(2048));
    }
}
