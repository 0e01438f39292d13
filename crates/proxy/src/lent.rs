//! What clients hold of stored responses while they take them.
//!
//! A response that memory lets go of lives on for those who are being sent it. What they hold beside
//! a little each is bounded together: beyond the bound a client is waited for no longer than the pace
//! of a slow reader allows.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use microcache_engine::pace::{FREE, PROGRESS};

/// All that is lent.
#[derive(Debug)]
pub(crate) struct Lent {
    bytes: Arc<AtomicU64>,
    limit: u64,
    slow: Duration,
}

/// What one client holds. Given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Loan {
    lent: Arc<AtomicU64>,
    slow: Duration,
    bytes: u64,
    over: bool,
}

impl Lent {
    pub(crate) fn new(limit: u64, slow: Duration) -> Self {
        Self {
            bytes: Arc::default(),
            limit,
            slow,
        }
    }

    /// What is lent, under another bound.
    pub(crate) fn renewed(&self, limit: u64, slow: Duration) -> Self {
        let bytes = Arc::clone(&self.bytes);
        Self { bytes, limit, slow }
    }

    /// Lends so many bytes.
    pub(crate) fn lend(&self, bytes: usize) -> Loan {
        let bytes = (bytes as u64).saturating_sub(FREE);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        Loan {
            lent: Arc::clone(&self.bytes),
            slow: self.slow,
            bytes,
            over: bytes > 0 && before + bytes > self.limit,
        }
    }
}

impl Loan {
    /// How long a client that takes nothing is waited for, and for how long in all, if that is bounded.
    pub(crate) fn patience(&self, stall: Duration) -> (Duration, Option<Duration>) {
        if !self.over {
            return (stall, None);
        }
        let slow = self.slow;
        let steps = u32::try_from(self.bytes / PROGRESS).unwrap_or(u32::MAX);
        (
            stall.min(slow),
            Some(slow.saturating_mul(steps.saturating_add(1))),
        )
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.lent.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn beyond_the_bound_clients_are_waited_for_less() {
        let lent = Lent::new(1_000_000, 2 * SECOND);
        let small = lent.lend(32 * 1024);
        let first = lent.lend(1_000_000);
        assert_eq!(first.patience(60 * SECOND), (60 * SECOND, None));
        let second = lent.lend(1_000_000);
        assert_eq!(
            second.patience(60 * SECOND),
            (2 * SECOND, Some(16 * SECOND))
        );
        assert_eq!(small.patience(60 * SECOND), (60 * SECOND, None));
        drop(first);
        drop(second);
        let third = lent.lend(1_000_000);
        assert_eq!(third.patience(SECOND), (SECOND, None));
    }
}
