//! Tier with its write queue, counters and latency histogram.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::runtime::Handle;

use super::job_queue::TierJobQueue;
use super::pending_bodies::PendingBodies;
use super::report::{LATENCIES, TierReport};
use crate::clock::Epoch;
use crate::encoding::{DecodeError, RecordHead, TierRecord};
use crate::tier::{AnyTier, Entry, TierError};

/// Tier with its write queue and counters.
#[derive(Debug)]
pub(super) struct ActiveTier {
    pub(super) tier: AnyTier,
    pub(super) lanes: TierJobQueue,
    /// Size of the queued records, in bytes.
    pub(super) queued: AtomicU64,
    /// Size of the queued pieces of spooled bodies, in bytes.
    pub(super) spooled: AtomicU64,
    pub(super) endings: Arc<PendingBodies>,
    pub(super) background: Handle,
    counters: TierCounters,
}

#[derive(Debug, Default)]
struct TierCounters {
    hits: AtomicU64,
    misses: AtomicU64,
    errors: AtomicU64,
    timeouts: AtomicU64,
    corrupt: AtomicU64,
    written: AtomicU64,
    dropped: AtomicU64,
    not_removed: AtomicU64,
    expired_claims: AtomicU64,
    latency: [AtomicU64; LATENCIES],
}

impl TierCounters {
    fn note_latency(&self, took: Duration) {
        let micros = took.as_micros() | 1;
        let at = (micros.ilog2() as usize).min(LATENCIES - 1);
        self.latency[at].fetch_add(1, Ordering::Relaxed);
    }
}

impl ActiveTier {
    /// Writes run on `background`.
    pub(super) fn new(tier: AnyTier, background: &Handle) -> Arc<Self> {
        Arc::new(Self {
            tier,
            lanes: TierJobQueue::default(),
            queued: AtomicU64::new(0),
            spooled: AtomicU64::new(0),
            endings: Arc::default(),
            background: background.clone(),
            counters: TierCounters::default(),
        })
    }

    /// Returns whether other processes use the tier.
    pub(super) const fn is_shared(&self) -> bool {
        self.tier.shared().is_some()
    }

    /// Returns whether large bodies stay in the tier's files.
    pub(super) fn has_files(&self) -> bool {
        self.tier.largest() > 0 || !self.is_shared()
    }

    /// Reserves space in the queue; if it is exhausted, counts a dropped record.
    pub(super) fn has_room(&self, charged: u64, limit: u64) -> bool {
        let fits = self.queued.fetch_add(charged, Ordering::Relaxed) + charged <= limit;
        if !fits {
            self.queued.fetch_sub(charged, Ordering::Relaxed);
            self.note_dropped();
        }
        fits
    }

    /// Counts a hit with its latency.
    pub(super) fn note_hit(&self, took: Duration) {
        self.counters.note_latency(took);
        self.counters.hits.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a record dropped because the queue was full.
    pub(super) fn note_dropped(&self) {
        self.counters.dropped.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a removal rejected because too many are queued.
    pub(super) fn note_not_removed(&self) {
        self.counters.not_removed.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a claim of another process that expired while a request waited for it.
    pub(super) fn note_expired_claim(&self) {
        let counter = &self.counters.expired_claims;
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a record written without the queue.
    pub(super) fn note_written(&self) {
        self.counters.written.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the latency of a lookup to the histogram.
    pub(super) fn record_latency(&self, took: Duration) {
        self.counters.note_latency(took);
    }

    /// Counts a lookup as a hit or as a miss.
    pub(super) fn count_lookup(&self, is_hit: bool) {
        let counter = if is_hit {
            &self.counters.hits
        } else {
            &self.counters.misses
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a record that could not be decoded.
    pub(super) fn count_corrupt(&self) {
        self.counters.corrupt.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the error of an operation, if it failed.
    pub(super) fn counted<T>(&self, result: Result<T, TierError>) -> Result<T, TierError> {
        let counter = match &result {
            // Corrupt records are counted by the tier itself.
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
            expired_claims: read(&counters.expired_claims),
            latency: std::array::from_fn(|at| read(&counters.latency[at])),
            stats,
        }
    }
}

/// Decodes an entry with timestamps of this reference; `None` if it belongs to another key.
pub(super) fn decode(
    entry: Entry,
    key: &[u8],
    epoch: Epoch,
) -> Result<Option<TierRecord>, DecodeError> {
    let head = RecordHead::decode_in(&entry.head, epoch)?;
    if head.key[..] != *key {
        return Ok(None);
    }
    head.with_body(entry.body).map(Some)
}
