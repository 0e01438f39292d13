//! Parts of a stored response that are made on demand.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use microcache_policy::{Millis, Time};

use crate::encodings::LazyEncodings;

/// Parts of a stored response that are made on demand.
#[derive(Clone, Debug, Default)]
pub(super) struct LateParts {
    pub(super) encodings: LazyEncodings,
    revalidation: OnceLock<Arc<RevalidationState>>,
}

/// State of the revalidation of a response, not part of its value.
#[derive(Debug, Default)]
pub(super) struct RevalidationState {
    not_before: AtomicU64,
    pub(super) demand: Arc<AtomicU32>,
}

impl LateParts {
    pub(super) fn of(encodings: LazyEncodings) -> Self {
        Self {
            encodings,
            revalidation: OnceLock::new(),
        }
    }

    pub(super) fn revalidation(&self) -> &RevalidationState {
        self.revalidation.get_or_init(Arc::default)
    }
}

impl RevalidationState {
    /// Counts a use of the stale response, and returns whether the caller is to revalidate it. No other
    /// caller is selected for `pause` milliseconds.
    pub(super) fn claim(&self, now: Time, pause: Millis) -> bool {
        self.demand.fetch_add(1, Ordering::Relaxed);
        let not_before = self.not_before.load(Ordering::Relaxed);
        now.as_millis() >= not_before
            && self
                .not_before
                .compare_exchange(
                    not_before,
                    now.plus(pause).as_millis(),
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }
}
