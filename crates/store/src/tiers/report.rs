//! What a tier tells of its work.

use crate::tier::TierStats;

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
    /// Removals that were not done because too many waited. What they were about is not used.
    pub not_removed: u64,
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
