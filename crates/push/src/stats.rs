//! Counters and statistics of the push cache.

use std::sync::atomic::{AtomicU64, Ordering};

/// Running counters of the push cache.
#[derive(Debug, Default)]
pub(crate) struct PushCounters {
    pub(crate) changes: Counter,
    pub(crate) same: Counter,
    pub(crate) expired: Counter,
    pub(crate) refused: Counter,
    pub(crate) subscribed: Counter,
    pub(crate) turned_away: Counter,
    pub(crate) events: Counter,
    pub(crate) deltas: Counter,
    pub(crate) resets: Counter,
    pub(crate) gaps: Counter,
    pub(crate) syncs: Counter,
    pub(crate) unwritten: Counter,
}

/// A monotonic counter.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add_one(&self) {
        self.add(1);
    }

    pub(crate) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Statistics of the push cache since the start of the process; the first six are current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushStats {
    /// Stored documents.
    pub documents: u64,
    /// Memory used by documents, in bytes.
    pub bytes: u64,
    /// Memory limit for documents (`push_memory`), in bytes.
    pub capacity: u64,
    /// Current subscribers.
    pub subscribers: u64,
    /// Current subscribers connected by WebSocket.
    pub sockets: u64,
    /// Distinct patterns and paths currently subscribed to.
    pub topics: u64,
    /// Changes made, including documents that expired.
    pub changes: u64,
    /// Puts that left the document unchanged.
    pub same: u64,
    /// Documents removed because their lifetime ended.
    pub expired: u64,
    /// Writes rejected.
    pub refused: u64,
    /// Subscriptions accepted.
    pub subscribed: u64,
    /// Subscriptions rejected.
    pub turned_away: u64,
    /// Events handed to connections.
    pub events: u64,
    /// Events sent as a delta.
    pub deltas: u64,
    /// Subscribers reset to a full snapshot.
    pub resets: u64,
    /// Gap events sent: notices that changes are missing from the history.
    pub gaps: u64,
    /// Syncs of the log to disk.
    pub syncs: u64,
    /// Changes that could not be written to the log or to Redis.
    pub unwritten: u64,
}
