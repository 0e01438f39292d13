//! Shared state of the admin interface.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use microcache_proxy::{Handle, SharedSecret};

use crate::connections::AdminConnections;
use crate::live::LiveStream;
use crate::node_list::NodeList;
use crate::windows::LatencyWindows;

pub(crate) struct Interface {
    pub(crate) handle: Handle,
    pub(crate) token: Option<SharedSecret>,
    pub(crate) connections: Arc<AdminConnections>,
    pub(crate) started: Instant,
    /// Number of requests refused by access control.
    pub(crate) refused: AtomicU64,
    /// Subscribers to live snapshots.
    pub(crate) live: LiveStream,
    /// The nodes that share a tier.
    pub(crate) nodes: NodeList,
    /// Latency windows of the last minutes.
    pub(crate) windows: Mutex<LatencyWindows>,
}

impl Interface {
    pub(crate) fn windows(&self) -> MutexGuard<'_, LatencyWindows> {
        self.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a refused request.
    pub(crate) fn count_refused<T, E>(&self, allowed: Result<T, E>) -> Result<T, E> {
        if allowed.is_err() {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        allowed
    }
}
