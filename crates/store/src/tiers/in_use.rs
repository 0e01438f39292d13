//! One tier at work: look-ups that are counted and timed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use microcache_policy::OriginView;
use tokio::runtime::Handle;

use super::lanes::Lanes;
use super::report::{LATENCIES, TierReport};
use super::spooling::Endings;
use super::variant::Variant;
use super::{Claimed, Found, Lookup, Turn};
use crate::encoding::{Corrupt, Head, Record};
use crate::stored::Stored;
use crate::tier::{AnyTier, Claim, Entry, EntryId, Got, Page, TierError};

/// A tier in its place: with its queue of things to write and the counts of what it did.
#[derive(Debug)]
pub(super) struct TierInUse {
    pub(super) tier: AnyTier,
    pub(super) lanes: Lanes,
    /// Bytes of records that wait to be written.
    pub(super) queued: AtomicU64,
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
    not_removed: AtomicU64,
    latency: [AtomicU64; LATENCIES],
}

impl Counters {
    fn note_latency(&self, took: Duration) {
        let micros = took.as_micros() | 1;
        let at = (micros.ilog2() as usize).min(LATENCIES - 1);
        self.latency[at].fetch_add(1, Ordering::Relaxed);
    }
}

impl TierInUse {
    /// Writing to it happens on `background`.
    pub(super) fn new(tier: AnyTier, background: &Handle) -> Arc<Self> {
        Arc::new(Self {
            tier,
            lanes: Lanes::default(),
            queued: AtomicU64::new(0),
            spooled: AtomicU64::new(0),
            endings: Arc::default(),
            background: background.clone(),
            counters: Counters::default(),
        })
    }

    /// Whether other processes use it too.
    pub(super) const fn is_shared(&self) -> bool {
        self.tier.shared().is_some()
    }

    /// Whether large bodies stay in its files.
    pub(super) fn has_files(&self) -> bool {
        self.tier.largest() > 0 || !self.is_shared()
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

    /// Counts a removal that was not done because too many waited.
    pub(super) fn note_not_removed(&self) {
        self.counters.not_removed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a record that was written past the queue.
    pub(super) fn note_written(&self) {
        self.counters.written.fetch_add(1, Ordering::Relaxed);
    }

    /// The response of a key that a request selects. With `claim`, who finds nothing in a tier that is
    /// shared learns whose turn it is to bring it.
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
        let asked = self.tier.shared()?.page(host, target)?;
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
            Some(Record::Response(stored)) if stored.vary().is_empty() => {
                return Ok(self.found(*stored, id));
            }
            Some(Record::Response(_) | Record::Unstorable) => {
                return Ok(Lookup::Missing(Turn::Free, None));
            }
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
        let entry = match (claim, self.tier.shared()) {
            (Some(hold), Some(shared)) => {
                match self.counted(shared.get_or_claim(id, hold).await)? {
                    Got::Entry(entry) => entry,
                    Got::Missing(claim) => return Ok((None, self.turn(id, claim))),
                }
            }
            _ => match self.counted(self.tier.tier().get(id).await)? {
                Some(entry) => entry,
                None => return Ok((None, Turn::Free)),
            },
        };
        match decode(entry, key) {
            Ok(record) => Ok((record, Turn::Free)),
            Err(corrupt) => {
                self.counters.corrupt.fetch_add(1, Ordering::Relaxed);
                self.remove_damaged(EntryId::of(key), id);
                Err(TierError::Corrupt(corrupt.to_string()))
            }
        }
    }

    pub(super) fn turn(self: &Arc<Self>, id: EntryId, claim: Claim) -> Turn {
        match claim {
            Claim::Theirs => Turn::Theirs,
            Claim::Unstorable => Turn::Free,
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

    pub(super) fn report(&self) -> TierReport {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let tier = self.tier.tier();
        let stats = tier.stats();
        TierReport {
            name: tier.name(),
            hits: read(&counters.hits),
            misses: read(&counters.misses),
            errors: read(&counters.errors),
            timeouts: read(&counters.timeouts),
            corrupt: read(&counters.corrupt) + stats.corrupt,
            written: read(&counters.written),
            dropped: read(&counters.dropped),
            not_removed: read(&counters.not_removed),
            latency: std::array::from_fn(|at| read(&counters.latency[at])),
            stats,
        }
    }
}

/// The record in an entry; `None` if it is another key's.
pub(super) fn decode(entry: Entry, key: &[u8]) -> Result<Option<Record>, Corrupt> {
    let head = Head::decode(&entry.head)?;
    if head.key[..] != *key {
        return Ok(None);
    }
    head.with_body(entry.body).map(Some)
}
