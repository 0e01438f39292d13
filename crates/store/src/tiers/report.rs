//! Report of a tier.

use crate::tier::TierStats;

/// Counters of a tier, with its own statistics.
#[derive(Clone, Debug, Default)]
pub struct TierReport {
    /// Name of the tier.
    pub name: &'static str,
    /// Lookups with a result.
    pub hits: u64,
    /// Lookups without a result.
    pub misses: u64,
    /// Failed operations.
    pub errors: u64,
    /// Operations that timed out.
    pub timeouts: u64,
    /// Damaged records.
    pub corrupt: u64,
    /// Written records.
    pub written: u64,
    /// Records dropped because the queue was full.
    pub dropped: u64,
    /// Removals rejected because too many were queued; their records are not used.
    pub not_removed: u64,
    /// Claims of other processes that expired while requests waited for them.
    pub expired_claims: u64,
    /// Latency histogram of lookups: below 2, 4, 8, … microseconds.
    pub latency: [u64; LATENCIES],
    /// Statistics of the tier itself.
    pub stats: TierStats,
}

impl TierReport {
    /// Returns a percentile of the latency, rounded up to a power of two, in microseconds; `None` without
    /// lookups.
    pub fn latency_percentile(&self, percentage: u64) -> Option<u64> {
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

/// Number of latency buckets: powers of two from 2 µs to about a second.
pub const LATENCIES: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_look_ups_are_in_the_last_classes() {
        let mut report = TierReport::default();
        assert_eq!(report.latency_percentile(99), None);
        report.latency[3] = 99;
        report.latency[10] = 1;
        assert_eq!(report.latency_percentile(50), Some(16));
        assert_eq!(report.latency_percentile(99), Some(16));
        assert_eq!(report.latency_percentile(100), Some(2048));
    }
}
