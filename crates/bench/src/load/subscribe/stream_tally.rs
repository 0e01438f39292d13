//! Counts of streams and of their faults.

use std::collections::BTreeMap;

use crate::load::outcome::RequestFault;

/// Counts of streams.
#[derive(Clone, Debug, Default)]
pub struct StreamTally {
    /// Streams to open.
    pub wanted: u64,
    /// Streams that were opened.
    pub opened: u64,
    /// Streams that were open and read until the end.
    pub healthy: u64,
    /// Rejected requests, by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Responses that were not event streams.
    pub without_events: u64,
    /// Requests without a response.
    pub failed: StreamFaults,
    /// Streams ended properly by the server.
    pub ended: u64,
    /// Streams that broke.
    pub broken: StreamFaults,
    /// Streams that stopped reading on purpose.
    pub stalled: u64,
    /// Stalled streams that the server ended.
    pub stalled_ended: u64,
}

/// Fault counts of streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFaults([u64; RequestFault::COUNT]);

impl StreamFaults {
    pub(super) fn add(&mut self, fault: RequestFault) {
        self.0[fault as usize] += 1;
    }

    fn add_all(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// Total of all faults.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Iterates over the faults that occurred, with their counts.
    pub fn each(&self) -> impl Iterator<Item = (RequestFault, u64)> {
        let counts = RequestFault::ALL.into_iter().zip(self.0);
        counts.filter(|(_, count)| *count > 0)
    }
}

impl StreamTally {
    pub(super) fn add(&mut self, other: &Self) {
        self.wanted += other.wanted;
        self.opened += other.opened;
        self.healthy += other.healthy;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.without_events += other.without_events;
        self.failed.add_all(&other.failed);
        self.ended += other.ended;
        self.broken.add_all(&other.broken);
        self.stalled += other.stalled;
        self.stalled_ended += other.stalled_ended;
    }

    /// Number of streams that could not be opened.
    pub fn refused(&self) -> u64 {
        self.wanted.saturating_sub(self.opened)
    }

    /// Number of streams that were open and ended before the run did.
    pub fn gone(&self) -> u64 {
        self.ended + self.broken.count() + self.stalled_ended
    }
}
