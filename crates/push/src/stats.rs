//! What it has done.

use std::sync::atomic::{AtomicU64, Ordering};

/// What is counted.
#[derive(Debug, Default)]
pub(crate) struct Counters {
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

/// A number that only grows.
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

/// What it holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PushStats {
    /// Documents.
    pub documents: u64,
    /// What they take, in bytes.
    pub bytes: u64,
    /// What they may take, in bytes.
    pub capacity: u64,
    /// Who subscribes.
    pub subscribers: u64,
    /// Those of them who do so by WebSocket.
    pub sockets: u64,
    /// To how many different things.
    pub topics: u64,
    /// Changes, those included of documents that have gone by themselves.
    pub changes: u64,
    /// Documents that were put as they were: no change.
    pub same: u64,
    /// Documents that have gone by themselves.
    pub expired: u64,
    /// Changes that were refused.
    pub refused: u64,
    /// Who has subscribed.
    pub subscribed: u64,
    /// Who was not let.
    pub turned_away: u64,
    /// Events that were handed to connections.
    pub events: u64,
    /// Those of them that told the difference only.
    pub deltas: u64,
    /// Subscribers who had to begin anew.
    pub resets: u64,
    /// Times at which a subscriber was told that it had missed changes.
    pub gaps: u64,
    /// Times at which the log was brought to the disk.
    pub syncs: u64,
    /// Changes that could not be written down.
    pub unwritten: u64,
}
