//! Registry of open WebSockets, for counting and closing them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

use crate::waiting::{Seat, Waiting};

/// The shared state of all open WebSockets.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    open: AtomicU64,
    are_ending: AtomicBool,
    waiting: Mutex<Waiting>,
}

impl Sockets {
    /// Returns the number of open sockets.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// Counts an opened socket.
    pub(crate) fn enter(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a closed socket and removes its registration.
    pub(crate) fn leave(&self, seat: Option<Seat>) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(seat) = seat {
            self.waiting.lock().leave(seat);
        }
    }

    /// Registers the waker of a socket for the shutdown.
    pub(crate) fn wait(&self, seat: Option<Seat>, waker: &Waker) -> Seat {
        self.waiting.lock().wait(seat, waker)
    }

    /// Returns whether sockets are to close.
    pub(crate) fn are_ending(&self) -> bool {
        self.are_ending.load(Ordering::Acquire)
    }

    /// Closes all sockets.
    pub(crate) fn end(&self) {
        self.are_ending.store(true, Ordering::Release);
        let woken = self.waiting.lock().happen();
        woken.wake();
    }
}
