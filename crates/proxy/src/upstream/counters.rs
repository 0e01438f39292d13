//! Counters of a server.

use std::time::Duration;

/// Counters of a server since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Its answers by hundreds of their status: 1xx to 5xx.
    pub statuses: [u64; 5],
    /// Sum of the times to first byte.
    pub first_byte: Duration,
    /// Completed responses whose duration is representative of the server: neither streams nor those slowed
    /// down by their reader.
    pub timed: u64,
    /// Sum of their durations.
    pub whole: Duration,
    /// Bytes of content received.
    pub received: u64,
    /// Bytes of content sent.
    pub sent: u64,
    /// Number of outages.
    pub outages: u64,
    /// Total downtime.
    pub downtime: Duration,
    /// Health checks.
    pub checks: u64,
    /// Failed health checks.
    pub failed_checks: u64,
    /// Result of the last health check.
    pub last_check: Option<bool>,
}

impl ServerCounters {
    /// Number of responses.
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
