//! The interface: what all requests to it share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use microcache_proxy::{Handle, Token};

use crate::connections::Connections;
use crate::live::Live;
use crate::windows::Windows;

pub(crate) struct Interface {
    pub(crate) handle: Handle,
    pub(crate) token: Option<Token>,
    pub(crate) connections: Arc<Connections>,
    pub(crate) started: Instant,
    /// Requests that nobody was allowed to make.
    pub(crate) refused: AtomicU64,
    /// Those who watch.
    pub(crate) live: Live,
    /// How long things took in the last minutes.
    pub(crate) windows: Mutex<Windows>,
}

impl Interface {
    pub(crate) fn windows(&self) -> MutexGuard<'_, Windows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts those who are not allowed to make a request.
    pub(crate) fn count_refused<T, E>(&self, allowed: Result<T, E>) -> Result<T, E> {
        if allowed.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        allowed
    }
}
