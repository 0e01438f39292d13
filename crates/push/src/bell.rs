//! Batches cross-thread wakeups: one notification per thread instead of one system call per task.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The tasks to wake on one thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    to_wake: Mutex<Vec<Slab<Waker>>>,
    rung: Notify,
    /// The runtime of the thread has shut down; nothing is woken any more.
    is_over: AtomicBool,
}

/// The background task that wakes the tasks of its thread.
struct Listener(Arc<Bell>);

thread_local! {
    static BELL: RefCell<Option<Arc<Bell>>> = const { RefCell::new(None) };
}

impl Bell {
    /// Returns the batch of the current thread; `None` outside of a Tokio runtime.
    pub(crate) fn here() -> Option<Arc<Self>> {
        BELL.with_borrow_mut(|known| {
            if let Some(bell) = known
                && !bell.is_over.load(Ordering::Acquire)
            {
                return Some(Arc::clone(bell));
            }
            let runtime = Handle::try_current().ok()?;
            let bell = Arc::<Self>::default();
            runtime.spawn(Listener(Arc::clone(&bell)).listen());
            *known = Some(Arc::clone(&bell));
            Some(bell)
        })
    }

    /// Wakes all of these tasks on the thread of this batch.
    pub(crate) fn ring(&self, wakers: Slab<Waker>) {
        let mut to_wake = self.to_wake.lock();
        if self.is_over.load(Ordering::Acquire) {
            return;
        }
        to_wake.push(wakers);
        drop(to_wake);
        self.rung.notify_one();
    }
}

impl Listener {
    async fn listen(self) {
        loop {
            self.0.rung.notified().await;
            let all = std::mem::take(&mut *self.0.to_wake.lock());
            let wakers = all.into_iter().flatten();
            wakers.for_each(|(_, waker)| waker.wake());
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The waiting tasks were dropped together with the runtime.
        let mut to_wake = self.0.to_wake.lock();
        self.0.is_over.store(true, Ordering::Release);
        let left = std::mem::take(&mut *to_wake);
        drop(to_wake);
        drop(left);
    }
}
