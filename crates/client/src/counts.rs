//! Counters of requests.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::info::{CacheInfo, Outcome};

pub(crate) const OUTCOMES: usize = Outcome::ALL.len();

/// Counters of requests by outcome.
#[derive(Debug, Default)]
pub(crate) struct OutcomeCounts {
    pub(crate) by_outcome: [AtomicU64; OUTCOMES],
    pub(crate) errors: AtomicU64,
    pub(crate) stored: AtomicU64,
}

impl OutcomeCounts {
    /// Counts a request with this outcome, or one that failed.
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
