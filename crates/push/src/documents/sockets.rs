//! Registry of open WebSocket connections, for counting and closing them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

use crate::wait_list::{Registration, WaitList};

/// The shared state of all open WebSocket connections.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    open: AtomicU64,
    are_closing: AtomicBool,
    wait_list: Mutex<WaitList>,
}

impl Sockets {
    /// Returns the number of open sockets.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts an opened socket.
    pub(crate) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a closed socket and removes its registration.
    pub(crate) fn closed(&self, registration: Option<Registration>) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(registration) = registration {
            self.wait_list.lock().remove(registration);
        }
    }

    /// Registers the waker of a socket for the shutdown.
    pub(crate) fn register(
        &self,
        registration: Option<Registration>,
        waker: &Waker,
    ) -> Registration {
        self.wait_list.lock().register(registration, waker)
    }

    /// Returns whether sockets are to close.
    pub(crate) fn are_closing(&self) -> bool {
        self.are_closing.load(Ordering::Acquire)
    }

    /// Closes all sockets.
    pub(crate) fn close_all(&self) {
        self.are_closing.store(true, Ordering::Release);
        let wakeups = self.wait_list.lock().notify();
        wakeups.wake();
    }
}
