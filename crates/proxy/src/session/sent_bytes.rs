//! Count of the bytes of a response without an end.

use std::sync::Arc;

use microcache_engine::RouteId;

use super::account::RequestAccount;
use crate::shared::Shared;

/// Count of the bytes that were passed to the connection, beside the account of their request: that is not in the
/// processor's caches when the same event is sent to thousands of clients, and gets the sum at the end.
pub(crate) struct SentBytes {
    shared: Arc<Shared>,
    sum: u64,
    /// Route that they are counted for; `None` if nothing is counted.
    route: Option<RouteId>,
}

impl SentBytes {
    pub(crate) fn of(account: &RequestAccount, shared: &Arc<Shared>) -> Self {
        Self {
            shared: Arc::clone(shared),
            sum: 0,
            route: account.route(),
        }
    }

    /// Adds bytes of content.
    pub(crate) fn add(&mut self, bytes: u64) {
        if let Some(route) = self.route {
            self.sum += bytes;
            self.shared.metrics.sent(route, bytes);
        }
    }

    /// Returns the number of bytes so far.
    pub(crate) const fn sum(&self) -> u64 {
        self.sum
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }
}
