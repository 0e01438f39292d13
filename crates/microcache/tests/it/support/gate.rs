//! Something that waits until the test says so.

use std::sync::{Arc, Condvar, Mutex};

use super::WAIT_TIMEOUT;

/// Closed at first; opened once, for all.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn open(&self) {
        let (open, changed) = &*self.0;
        *open.lock().unwrap() = true;
        changed.notify_all();
    }

    /// Waits for the gate to open; an origin whose gate is forgotten goes on after a while.
    pub(super) fn wait(&self) {
        let (open, changed) = &*self.0;
        let guard = open.lock().unwrap();
        drop(changed.wait_timeout_while(guard, WAIT_TIMEOUT * 3, |open| !*open));
    }
}
