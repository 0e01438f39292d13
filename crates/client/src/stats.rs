//! Statistics of a cache.

use std::sync::atomic::{AtomicU64, Ordering};

use microcache_store::TierReport;

use crate::cache::Cache;
use crate::counts::OUTCOMES;
use crate::info::Outcome;

/// Statistics of a cache since it was built, and its current contents.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stats {
    requests: [u64; OUTCOMES],
    /// Requests without a response.
    pub errors: u64,
    /// Responses of servers that were storable. A large one may still turn out too large at its end.
    pub stored: u64,
    /// Urls in memory.
    pub entries: u64,
    /// Bytes in memory, overhead included.
    pub bytes: u64,
    /// The limit of `bytes`.
    pub capacity: u64,
    /// Urls evicted from memory.
    pub evicted: u64,
    /// Responses that were too large for memory.
    pub refused: u64,
    /// Fetches in progress.
    pub fetches: usize,
    /// The tiers behind memory, the nearest first.
    pub tiers: Vec<TierStats>,
}

impl Stats {
    /// The number of requests with this outcome.
    pub const fn requests(&self, outcome: Outcome) -> u64 {
        self.requests[outcome as usize]
    }
}

/// Statistics of a tier.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TierStats {
    /// The kind of tier: `disk`, `directory`, `memcached` or `redis`.
    pub name: &'static str,
    /// Look-ups that found a response.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
    /// Errors and timeouts. The requests went on without the tier.
    pub failures: u64,
    /// Responses written.
    pub written: u64,
    /// Responses not written because the queue was full.
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
    /// Statistics since the cache was built.
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
