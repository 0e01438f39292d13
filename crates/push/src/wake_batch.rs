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
pub(crate) struct WakeBatch {
    to_wake: Mutex<Vec<Slab<Waker>>>,
    pending: Notify,
    /// The runtime of the thread has shut down; nothing is woken any more.
    is_closed: AtomicBool,
}

/// The background task that wakes the tasks of its thread.
struct WakeTask(Arc<WakeBatch>);

thread_local! {
    static BATCH: RefCell<Option<Arc<WakeBatch>>> = const { RefCell::new(None) };
}

impl WakeBatch {
    /// Returns the batch of the current thread; `None` outside of a Tokio runtime.
    pub(crate) fn of_this_thread() -> Option<Arc<Self>> {
        BATCH.with_borrow_mut(|known| {
            if let Some(batch) = known
                && !batch.is_closed.load(Ordering::Acquire)
            {
                return Some(Arc::clone(batch));
            }
            let runtime = Handle::try_current().ok()?;
            let batch = Arc::<Self>::default();
            runtime.spawn(WakeTask(Arc::clone(&batch)).run());
            *known = Some(Arc::clone(&batch));
            Some(batch)
        })
    }

    /// Wakes all of these tasks on the thread of this batch.
    pub(crate) fn wake_all(&self, wakers: Slab<Waker>) {
        let mut to_wake = self.to_wake.lock();
        if self.is_closed.load(Ordering::Acquire) {
            return;
        }
        to_wake.push(wakers);
        drop(to_wake);
        self.pending.notify_one();
    }
}

impl WakeTask {
    async fn run(self) {
        loop {
            self.0.pending.notified().await;
            let all = std::mem::take(&mut *self.0.to_wake.lock());
            let wakers = all.into_iter().flatten();
            wakers.for_each(|(_, waker)| waker.wake());
        }
    }
}

impl Drop for WakeTask {
    fn drop(&mut self) {
        // The waiting tasks were dropped together with the runtime.
        let mut to_wake = self.0.to_wake.lock();
        self.0.is_closed.store(true, Ordering::Release);
        let left = std::mem::take(&mut *to_wake);
        drop(to_wake);
        drop(left);
    }
}
