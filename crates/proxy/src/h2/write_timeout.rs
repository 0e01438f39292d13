//! The write timeout of a closed flow-control window.

use std::time::Duration;

use microcache_policy::Time;

use super::flood_limits::LEAST_TAKEN;
use crate::session::Allowance;

/// Write timeout of a response or of a connection. Bytes taken extend it at the least accepted rate, so opening
/// the window by a byte now and then does not help.
pub(super) struct WriteTimeout {
    since: Option<Time>,
    allowance: Allowance,
}

impl WriteTimeout {
    pub(super) fn new(most: Duration) -> Self {
        Self {
            since: None,
            allowance: Allowance::new(most, LEAST_TAKEN),
        }
    }

    /// Starts the timeout: nothing can be sent.
    pub(super) fn begin(&mut self, now: Time) {
        self.since.get_or_insert(now);
    }

    /// Records bytes sent.
    pub(super) fn sent(&mut self, bytes: usize, now: Time) {
        if let Some(since) = self.since.take() {
            let waited = Duration::from_millis(now.since(since));
            self.allowance.received(bytes, waited);
        }
    }

    /// Ends the timeout: nothing waits any more.
    pub(super) const fn cancel(&mut self) {
        self.since = None;
    }

    pub(super) const fn since(&self) -> Option<Time> {
        self.since
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        let left = self.allowance.left().as_millis() as u64;
        self.since.map(|since| since.plus(left))
    }
}
