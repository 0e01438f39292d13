//! What a cache has done, and what it holds.

use std::sync::atomic::{AtomicU64, Ordering};

use microcache_store::TierReport;

use crate::cache::Cache;
use crate::info::{CacheInfo, Outcome};

const OUTCOMES: usize = Outcome::ALL.len();

/// What became of requests.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    by_outcome: [AtomicU64; OUTCOMES],
    errors: AtomicU64,
    stored: AtomicU64,
}

impl Counts {
    /// Counts a request that was answered like this, or not at all.
    pub(crate) fn count(&self, info: Option<&CacheInfo>) {
        let place = match info {
            Some(info) => &self.by_outcome[info.outcome as usize],
            None => &self.errors,
        };
        place.fetch_add(1, Ordering::Relaxed);
        let is_fetched = |info: &&CacheInfo| {
            matches!(
                info.outcome,
                Outcome::Miss | Outcome::Failure | Outcome::Bypass
            )
        };
        if info.filter(is_fetched).is_some_and(|info| info.stored) {
            self.stored.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// What a cache has done since it was built, and what it holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    requests: [u64; OUTCOMES],
    /// Requests without a response.
    pub errors: u64,
    /// Responses of servers that were going to be stored. Of large ones it is known at their end only whether they are.
    pub stored: u64,
    /// Urls in memory.
    pub entries: u64,
    /// Bytes in memory, everything counted.
    pub bytes: u64,
    /// The bound on `bytes`.
    pub capacity: u64,
    /// Urls that had to leave memory for others.
    pub evicted: u64,
    /// Responses that memory did not take, because they are too large.
    pub refused: u64,
    /// What is asked of the server at the moment for all who wait.
    pub fetches: usize,
    /// The tiers behind memory, the nearest first.
    pub tiers: Vec<TierStats>,
}

impl Stats {
    /// Requests with this outcome.
    pub const fn requests(&self, outcome: Outcome) -> u64 {
        self.requests[outcome as usize]
    }
}

/// What a tier has done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStats {
    /// How it is called: `disk`, `directory`, `memcached` or `redis`.
    pub name: &'static str,
    /// Look-ups that found what they wanted.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// What failed or took too long. The requests went on without it.
    pub failures: u64,
    /// Responses written.
    pub written: u64,
    /// Responses not written, because too many waited.
    pub dropped: u64,
}

impl TierStats {
    fn of(tier: &TierReport) -> Self {
        Self {
            name: tier.name,
            hits: tier.hits,
            misses: tier.misses,
            failures: tier.errors + tier.timeouts,
            written: tier.written,
            dropped: tier.dropped,
        }
    }
}

impl Cache {
    /// What it has done, and what it holds.
    pub fn stats(&self) -> Stats {
        let count = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let (counts, cache) = (&self.shared.counts, &self.shared.engine.cache);
        let memory = cache.memory_stats();
        Stats {
            requests: counts.by_outcome.each_ref().map(count),
            errors: count(&counts.errors),
            stored: count(&counts.stored),
            entries: memory.keys,
            bytes: memory.bytes,
            capacity: memory.capacity,
            evicted: memory.evicted,
            refused: memory.refused,
            fetches: cache.fetches(),
            tiers: cache.tier_reports().iter().map(TierStats::of).collect(),
        }
    }
}
