//! Fragments of composed pages, counted by outcome.

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};

/// Outcome of a fragment, or of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FragmentOutcome {
    /// It was in memory.
    Memory,
    /// It was waited for.
    Fetched,
    /// Its alternative was shown.
    Alternative,
    /// It failed, and its fallback or nothing was shown.
    Failed,
    /// The tag is malformed, or beyond the limit of a page.
    LeftOut,
    /// A shown fragment had a cookie, which its page does not set.
    CookieDropped,
}

impl FragmentOutcome {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Memory,
        Self::Fetched,
        Self::Alternative,
        Self::Failed,
        Self::LeftOut,
        Self::CookieDropped,
    ];

    /// Label in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Fetched => "fetched",
            Self::Alternative => "alternative",
            Self::Failed => "failed",
            Self::LeftOut => "left-out",
            Self::CookieDropped => "cookie-dropped",
        }
    }
}

/// Number of fragments by outcome.
pub(crate) struct FragmentCounters([AtomicU64; FragmentOutcome::ALL.len()]);

impl Default for FragmentCounters {
    fn default() -> Self {
        Self(array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl FragmentCounters {
    pub(crate) fn count(&self, outcome: FragmentOutcome, number: u64) {
        self.0[outcome as usize].fetch_add(number, Ordering::Relaxed);
    }

    /// Returns the numbers in the order of [`FragmentOutcome::ALL`].
    pub(crate) fn all(&self) -> [u64; FragmentOutcome::ALL.len()] {
        array::from_fn(|at| self.0[at].load(Ordering::Relaxed))
    }
}
