//! All sockets that are open: how many there are, and that they are to end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Waker};

use parking_lot::Mutex;

use crate::origin::Documents;
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

    /// They are to say farewell.
    pub(crate) fn end(&self) {
        self.are_ending.store(true, Ordering::Release);
        let woken = self.waiting.lock().happen();
        woken.wake();
    }
}

/// One of them.
pub(crate) struct Open {
    documents: Arc<Documents>,
    /// Who is woken when it is to end.
    waker: Option<(Waker, Seat)>,
}

impl Open {
    pub(crate) fn new(documents: &Arc<Documents>) -> Self {
        documents.sockets.open.fetch_add(1, Ordering::Relaxed);
        Self {
            documents: Arc::clone(documents),
            waker: None,
        }
    }

    pub(crate) fn documents(&self) -> &Arc<Documents> {
        &self.documents
    }

    /// Whether it is to end. If it is not, whoever asks is woken when it is.
    pub(crate) fn is_ending(&mut self, cx: &Context<'_>) -> bool {
        let sockets = &self.documents.sockets;
        let known = self.waker.as_ref();
        if !known.is_some_and(|(waker, _)| waker.will_wake(cx.waker())) {
            let seat = self.waker.take().map(|(_, seat)| seat);
            let seat = sockets.waiting.lock().wait(seat, cx.waker());
            self.waker = Some((cx.waker().clone(), seat));
        }
        sockets.are_ending.load(Ordering::Acquire)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let sockets = &self.documents.sockets;
        sockets.open.fetch_sub(1, Ordering::Relaxed);
        if let Some((_, seat)) = self.waker.take() {
            sockets.waiting.lock().leave(seat);
        }
    }
}
