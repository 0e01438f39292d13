//! Parts of a stored response that are made on demand.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use microcache_policy::{Millis, Time};

use crate::allocation::allocated;
use crate::encodings::LazyEncodings;

/// Parts of a stored response that are made on demand.
#[derive(Clone, Debug, Default)]
pub(super) struct LateParts {
    pub(super) encodings: LazyEncodings,
    revalidation: OnceLock<Arc<RevalidationState>>,
}

/// State of the revalidation of a response, not part of its value.
#[derive(Debug, Default)]
pub(crate) struct RevalidationState {
    not_before: AtomicU64,
    /// Number of uses since the response became stale.
    pub(crate) demand: Arc<AtomicU32>,
}

impl LateParts {
    pub(super) fn of(encodings: LazyEncodings) -> Self {
        Self {
            encodings,
            revalidation: OnceLock::new(),
        }
    }

    /// State of the revalidation, if already created.
    pub(super) fn known_revalidation(&self) -> Option<&RevalidationState> {
        self.revalidation.get().map(Arc::as_ref)
    }

    /// State of the revalidation, created on the first call.
    pub(super) fn revalidation(&self) -> &RevalidationState {
        self.revalidation.get_or_init(Arc::default)
    }

    /// Memory used, in bytes, by the parts of a response with a head of `head` bytes and this body.
    pub(super) fn heap_size(&self, head: usize, body: Option<&[u8]>) -> usize {
        let revalidation = self.known_revalidation();
        allocated(size_of::<Self>())
            + self.encodings.heap_size(head, body)
            + revalidation.map_or(0, |_| RevalidationState::HEAP_SIZE)
    }
}

impl RevalidationState {
    /// Memory used, in bytes, with the counts of references.
    const HEAP_SIZE: usize = allocated(size_of::<Self>() + 2 * size_of::<usize>())
        + allocated(size_of::<AtomicU32>() + 2 * size_of::<usize>());

    /// Counts a use of the stale response, and returns whether the caller is to revalidate it. No other
    /// caller is selected for `pause` milliseconds.
    pub(crate) fn claim(&self, now: Time, pause: Millis) -> bool {
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
