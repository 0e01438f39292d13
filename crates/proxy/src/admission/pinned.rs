//! Evicted response bytes still pinned by slow readers.
//!
//! A response that memory has evicted lives on until its readers have taken it. The bytes that these pin have a
//! common limit, beyond a small allowance for each: above it a client's stall timeout is that of a slow reader.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use microcache_engine::pace::{FREE, PROGRESS};

/// Bytes pinned by all clients, with their limit.
#[derive(Debug)]
pub(crate) struct PinnedBytes {
    bytes: Arc<AtomicU64>,
    limit: u64,
    slow: Duration,
}

/// Bytes pinned by one client; released on drop.
#[derive(Debug)]
pub(crate) struct PinGuard {
    total: Arc<AtomicU64>,
    slow: Duration,
    bytes: u64,
    over: bool,
}

impl PinnedBytes {
    pub(crate) fn new(limit: u64, slow: Duration) -> Self {
        Self {
            bytes: Arc::default(),
            limit,
            slow,
        }
    }

    /// Returns the same account with another limit.
    pub(crate) fn with_limit(&self, limit: u64, slow: Duration) -> Self {
        let bytes = Arc::clone(&self.bytes);
        Self { bytes, limit, slow }
    }

    /// Pins this many bytes, beyond the allowance of each client.
    pub(crate) fn pin(&self, bytes: usize) -> PinGuard {
        self.pin_all((bytes as u64).saturating_sub(FREE))
    }

    /// Pins this many bytes.
    pub(crate) fn pin_all(&self, bytes: u64) -> PinGuard {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        PinGuard {
            total: Arc::clone(&self.bytes),
            slow: self.slow,
            bytes,
            over: bytes > 0 && before + bytes > self.limit,
        }
    }
}

impl PinGuard {
    /// Returns true if the limit was exceeded when it was made.
    pub(crate) const fn is_over(&self) -> bool {
        self.over
    }

    /// Returns the stall timeout of the client and, above the limit, its total time.
    pub(crate) fn timeouts(&self, stall: Duration) -> (Duration, Option<Duration>) {
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

impl Drop for PinGuard {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn beyond_the_bound_clients_are_waited_for_less() {
        let pinned = PinnedBytes::new(1_000_000, 2 * SECOND);
        let small = pinned.pin(32 * 1024);
        let first = pinned.pin(1_000_000);
        assert_eq!(first.timeouts(60 * SECOND), (60 * SECOND, None));
        let second = pinned.pin(1_000_000);
        assert_eq!(
            second.timeouts(60 * SECOND),
            (2 * SECOND, Some(16 * SECOND))
        );
        assert_eq!(small.timeouts(60 * SECOND), (60 * SECOND, None));
        drop(first);
        drop(second);
        let third = pinned.pin(1_000_000);
        assert_eq!(third.timeouts(SECOND), (SECOND, None));
    }
}
