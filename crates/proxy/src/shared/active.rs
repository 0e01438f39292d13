//! The active configuration, and its replacement while requests are served.
//!
//! A connection keeps the state that it last took up, and compares one generation number between two requests.
//! So a reload blocks nothing, and replaced state lives until its last request ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::watch;

/// The active one of several states, each built from another configuration.
pub(crate) struct Active<State> {
    /// Number of reloads.
    generation: AtomicU64,
    state: Mutex<Option<Arc<State>>>,
    /// Wakes tasks that depend on the state between two requests.
    reloaded: watch::Sender<()>,
}

impl<State> Default for Active<State> {
    fn default() -> Self {
        Self {
            generation: AtomicU64::new(0),
            state: Mutex::new(None),
            reloaded: watch::Sender::default(),
        }
    }
}

impl<State> Active<State> {
    /// Number of reloads.
    pub(crate) fn generation(&self) -> u64 {
        // A reader that sees another number takes the lock, which orders the accesses.
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns the active state; `None` before the start.
    pub(crate) fn get(&self) -> Option<Arc<State>> {
        self.state.lock().clone()
    }

    /// Activates a state. Returns the one before.
    pub(crate) fn replace(&self, new: Arc<State>, generation: u64) -> Option<Arc<State>> {
        let before = self.state.lock().replace(new);
        self.generation.store(generation, Ordering::Relaxed);
        self.reloaded.send_replace(());
        before
    }

    /// Returns a receiver that changes with each later reload.
    pub(crate) fn reloads(&self) -> watch::Receiver<()> {
        self.reloaded.subscribe()
    }
}
