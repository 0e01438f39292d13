//! One tier at work: look-ups that are counted and timed, and writing one after the other.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use microcache_policy::{OriginView, VaryNames, vary};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;

use super::report::{LATENCIES, TierReport};
use super::spooling::Endings;
use super::variant::Variant;
use super::{Claimed, Found, Lookup, Turn};
use crate::content::Content;
use crate::encoding::{Corrupt, Head, Record, Varies, checksum, encode, encode_varies};
use crate::memory::Hit;
use crate::random;
use crate::stored::Stored;
use crate::tier::{
    AnyTier, Claim, Entry, EntryId, Got, LocalTier, Page, Put, Tier, TierError, Token,
};

/// A tier in its place: with its queue of things to write and the counts of what it did.
#[derive(Debug)]
pub(super) struct Placed {
    pub(super) tier: Arc<dyn Tier>,
    /// The same, if it is this process's alone.
    pub(super) local: Option<Arc<dyn LocalTier>>,
    jobs: UnboundedSender<Job>,
    queued: AtomicU64,
    /// What waits to be written of bodies that go there while they arrive.
    pub(super) spooled: AtomicU64,
    pub(super) endings: Arc<Endings>,
    pub(super) background: Handle,
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
pub(super) enum Job {
    Store(Box<Storing>),
    /// Says whether it is gone for sure.
    Remove(EntryId, oneshot::Sender<bool>),
    RemoveVariant {
        key: Box<[u8]>,
        names: VaryNames,
        selection: Box<[u8]>,
    },
    Release(EntryId, Token),
    Settle(oneshot::Sender<()>),
}

/// A response on its way into the tier.
#[derive(Debug)]
pub(super) struct Storing {
    pub(super) key: Box<[u8]>,
    pub(super) response: Hit,
    pub(super) expires: Duration,
    pub(super) claim: Option<(EntryId, Token)>,
    pub(super) charged: u64,
}

impl Counters {
    fn note_latency(&self, took: Duration) {
        let micros = took.as_micros() | 1;
        let at = (micros.ilog2() as usize).min(LATENCIES - 1);
        self.latency[at].fetch_add(1, Ordering::Relaxed);
    }
}

impl Placed {
    /// Writing to it happens on `background`.
    pub(super) fn new(tier: AnyTier, background: &Handle) -> Arc<Self> {
        let (tier, local): (Arc<dyn Tier>, _) = match tier {
            AnyTier::Local(local) => (Arc::clone(&local) as _, Some(local)),
            AnyTier::Shared(shared) => (shared, None),
        };
        let (jobs, waiting) = unbounded_channel();
        let placed = Arc::new(Self {
            tier,
            local,
            jobs,
            queued: AtomicU64::new(0),
            spooled: AtomicU64::new(0),
            endings: Arc::default(),
            background: background.clone(),
            counters: Counters::default(),
        });
        background.spawn(Arc::clone(&placed).work(waiting));
        placed
    }

    /// Charges so many bytes to the queue if it may hold them, else counts that they were dropped.
    pub(super) fn has_room(&self, charged: u64, limit: u64) -> bool {
        let fits = self.queued.fetch_add(charged, Ordering::Relaxed) + charged <= limit;
        if !fits {
            self.queued.fetch_sub(charged, Ordering::Relaxed);
            self.note_dropped();
        }
        fits
    }

    /// Counts a hit that took so long.
    pub(super) fn note_hit(&self, took: Duration) {
        self.counters.note_latency(took);
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a record that was not written because too much waited.
    pub(super) fn note_dropped(&self) {
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a record that was written past the queue.
    pub(super) fn note_written(&self) {
        self.counters.written.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn ask(&self, job: Job) {
        // The other end is gone only if the process is about to be.
        let _ = self.jobs.send(job);
    }

    /// Has a record removed. Resolves to whether it is gone for sure.
    pub(super) fn remove(&self, id: EntryId) -> oneshot::Receiver<bool> {
        let (told, wait) = oneshot::channel();
        self.ask(Job::Remove(id, told));
        wait
    }

    pub(super) async fn settle(&self) {
        let (done, wait) = oneshot::channel();
        self.ask(Job::Settle(done));
        let _ = wait.await;
        self.endings.wait_for_all().await;
    }

    pub(super) async fn find(
        self: &Arc<Self>,
        key: &[u8],
        request: &OriginView<'_>,
        claim: Option<Duration>,
    ) -> Result<Lookup, TierError> {
        self.endings.wait_for(EntryId::of(key)).await;
        let began = Instant::now();
        let looked_up = self.look_up(key, request, claim).await;
        self.counters.note_latency(began.elapsed());
        let counter = match &looked_up {
            Ok(Lookup::Found(_)) => &self.counters.hits,
            Ok(Lookup::Missing(..)) => &self.counters.misses,
            Err(_) => return looked_up,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        looked_up
    }

    /// The page that an application keeps there itself, if such are looked for.
    pub(super) async fn page(&self, host: &[u8], target: &[u8]) -> Option<Page> {
        let asked = self.tier.page(host, target)?;
        let began = Instant::now();
        let page = asked.await;
        self.counters.note_latency(began.elapsed());
        let page = self.counted(page).ok()?;
        let counter = match page {
            Some(_) => &self.counters.hits,
            None => &self.counters.misses,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        page
    }

    async fn look_up(
        self: &Arc<Self>,
        key: &[u8],
        request: &OriginView<'_>,
        claim: Option<Duration>,
    ) -> Result<Lookup, TierError> {
        let id = EntryId::of(key);
        let (record, turn) = self.read(id, key, claim).await?;
        let varies = match record {
            None => return Ok(Lookup::Missing(turn, None)),
            Some(Record::Varies(varies)) => varies,
            Some(Record::Response(stored)) if stored.vary.is_empty() => {
                return Ok(self.found(stored, id));
            }
            Some(Record::Response(_)) => return Ok(Lookup::Missing(Turn::Free, None)),
        };
        let variant = Variant::of(varies.clone(), key, request);
        let (record, turn) = self.read(variant.id, key, claim).await?;
        let Some(record) = record else {
            return Ok(Lookup::Missing(turn, Some(varies)));
        };
        Ok(match variant.response(record) {
            Some(stored) => self.found(stored, variant.id),
            None => Lookup::Missing(Turn::Free, Some(varies)),
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
                let _goes_on_by_itself = self.remove(id);
                Err(TierError::Corrupt(corrupt.to_string()))
            }
        }
    }

    pub(super) fn turn(self: &Arc<Self>, id: EntryId, claim: Claim) -> Turn {
        match claim {
            Claim::Theirs => Turn::Theirs,
            Claim::Mine(token) => Turn::Ours(Claimed {
                tier: Arc::clone(self),
                id,
                token: Some(token),
            }),
        }
    }

    pub(super) fn counted<T>(&self, result: Result<T, TierError>) -> Result<T, TierError> {
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
                    self.queued.fetch_sub(storing.charged, Ordering::Release);
                    match self.counted(stored) {
                        Ok(Put::Stored) => self.note_written(),
                        Ok(Put::ClaimLost) => {}
                        Ok(Put::Refused) | Err(_) => self.release(storing.claim).await,
                    }
                }
                Job::Remove(id, told) => {
                    let removed = self.counted(self.tier.remove(id).await);
                    let _ = told.send(removed.is_ok());
                }
                Job::RemoveVariant {
                    key,
                    names,
                    selection,
                } => {
                    let removed = self.remove_variant(&key, &names, &selection).await;
                    let _ = self.counted(removed);
                }
                Job::Settle(done) => {
                    let _ = done.send(());
                }
                Job::Release(id, token) => self.release(Some((id, token))).await,
            }
        }
    }

    /// Nobody shall wait for what does not come.
    async fn release(&self, claim: Option<(EntryId, Token)>) {
        if let Some((id, token)) = claim {
            let _ = self.counted(self.tier.release(id, token).await);
        }
    }

    /// The variant alone, if the key varies on these fields; else whatever lies there.
    async fn remove_variant(
        &self,
        key: &[u8],
        names: &VaryNames,
        selection: &[u8],
    ) -> Result<(), TierError> {
        let base = EntryId::of(key);
        let id = match self.varies(base, key).await? {
            Some(varies) if varies.names == *names => {
                EntryId::of_variant(key, selection, varies.generation)
            }
            _ => base,
        };
        self.tier.remove(id).await
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
    pub(super) async fn id_for(
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
            // It counts as varying on more than it says, after what others of its key have said. That
            // record is gone: whoever comes next begins anew.
            (None, None) if !names_all(response) => Ok(None),
            (_, None) => {
                let varies = Varies {
                    names: response.vary.clone(),
                    // Two processes must not give their variants the same.
                    generation: random::number(),
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

    pub(super) fn report(&self) -> TierReport {
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

/// Whether a response names in its own `Vary` all that it counts as varying on.
fn names_all(response: &Stored) -> bool {
    let named = vary::of_response(response.fields(), &[]).names();
    named.contains(&response.vary)
}

/// The record in an entry; `None` if it is another key's.
fn decode(entry: Entry, key: &[u8]) -> Result<Option<Record>, Corrupt> {
    let head = Head::decode(&entry.head)?;
    if head.key[..] != *key {
        return Ok(None);
    }
    head.with_body(entry.body).map(Some)
}
