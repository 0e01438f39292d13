//! What a server did, in numbers.

use std::time::Duration;

/// What a server did since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Its answers by hundreds of their status: 1xx to 5xx.
    pub statuses: [u64; 5],
    /// How long all its answers together took to begin.
    pub first_byte: Duration,
    /// How many answers came to their end in a time that says something of the server: streams, and what
    /// its reader takes slowly, do not.
    pub timed: u64,
    /// How long those took together.
    pub whole: Duration,
    /// Bytes of content that came from it.
    pub received: u64,
    /// Bytes of content that it was sent.
    pub sent: u64,
    /// How often it went down.
    pub outages: u64,
    /// For how long it was down.
    pub downtime: Duration,
    /// Health checks.
    pub checks: u64,
    /// How many of them it did not pass.
    pub failed_checks: u64,
    /// Whether it passed the last one.
    pub last_check: Option<bool>,
}

impl Record {
    /// How many answers began.
    pub fn answers(&self) -> u64 {
        self.statuses.iter().sum()
    }

    pub(super) fn answered(&mut self, status: u16, took: Duration) {
        let class = usize::from(status / 100).saturating_sub(1);
        self.statuses[class.min(4)] += 1;
        self.first_byte = self.first_byte.saturating_add(took);
    }

    pub(super) fn ended(&mut self, received: u64, sent: u64, took: Option<Duration>) {
        self.received += received;
        self.sent += sent;
        if let Some(took) = took {
            self.timed += 1;
            self.whole = self.whole.saturating_add(took);
        }
    }
}
