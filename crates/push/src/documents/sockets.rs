//! All sockets that are open: how many there are, and that they are to end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Waker;

use parking_lot::Mutex;

use crate::waiting::{Seat, Waiting};

/// What they have in common.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    open: AtomicU64,
    are_ending: AtomicBool,
    waiting: Mutex<Waiting>,
}

impl Sockets {
    /// How many there are.
    pub(crate) fn open(&self) -> u64 {
        self.open.load(Ordering::Relaxed)
    }

    /// There is one more.
    pub(crate) fn enter(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    /// There is one fewer.
    pub(crate) fn leave(&self, seat: Option<Seat>) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let Some(seat) = seat {
            self.waiting.lock().leave(seat);
        }
    }

    /// Whoever has this waker is woken when they are to end.
    pub(crate) fn wait(&self, seat: Option<Seat>, waker: &Waker) -> Seat {
        self.waiting.lock().wait(seat, waker)
    }

    /// Whether they are to end.
    pub(crate) fn are_ending(&self) -> bool {
        self.are_ending.load(Ordering::Acquire)
    }

    /// They are to say farewell.
    pub(crate) fn end(&self) {
        self.are_ending.store(true, Ordering::Release);
        let woken = self.waiting.lock().happen();
        woken.wake();
    }
}
