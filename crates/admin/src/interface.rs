//! The interface: what all requests to it share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use microcache_proxy::Handle;

use crate::access::Token;
use crate::live::Live;

pub(crate) struct Interface {
    pub(crate) handle: Handle,
    pub(crate) token: Option<Token>,
    pub(crate) started: Instant,
    /// Requests that nobody was allowed to make.
    pub(crate) refused: AtomicU64,
    /// Those who watch.
    pub(crate) live: Live,
}

impl Interface {
    /// Counts those who are not allowed to make a request.
    pub(crate) fn count_refused<T, E>(&self, allowed: Result<T, E>) -> Result<T, E> {
        if allowed.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        allowed
    }
}
