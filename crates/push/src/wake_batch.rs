//! Batches cross-thread wakeups: one notification per thread instead of one system call per task.

use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Tasks woken at a time. They run before their memory has left the processor's caches, and the other tasks of the thread
/// do not wait for all subscribers of a document.
const CHUNK: usize = 32;

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
    /// Calls `f` with the batch of the current thread; `None` outside of a Tokio runtime.
    pub(crate) fn with_current<T>(f: impl FnOnce(Option<&Arc<Self>>) -> T) -> T {
        BATCH.with_borrow_mut(|known| {
            if known
                .as_ref()
                .is_none_or(|batch| batch.is_closed.load(Ordering::Acquire))
            {
                *known = Self::start();
            }
            f(known.as_ref())
        })
    }

    /// Starts a batch with its background task.
    fn start() -> Option<Arc<Self>> {
        let runtime = Handle::try_current().ok()?;
        let batch = Arc::<Self>::default();
        runtime.spawn(WakeTask(Arc::clone(&batch)).run());
        Some(batch)
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
            for (count, (_, waker)) in all.into_iter().flatten().enumerate() {
                if count > 0 && count.is_multiple_of(CHUNK) {
                    go_to_the_end_of_the_queue().await;
                }
                waker.wake();
            }
        }
    }
}

/// Lets all tasks run that are woken already. Tokio's `yield_now` would wait for the next look at the sockets.
async fn go_to_the_end_of_the_queue() {
    let mut is_woken = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut is_woken, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of other clients, for example.
    #[tokio::test]
    async fn other_tasks_run_before_all_are_woken() {
        const ALL: usize = 10 * CHUNK;
        let (woken, waiting) = (Arc::new(Mutex::new(0)), Arc::new(Mutex::new(Slab::new())));
        let tasks: Vec<_> = (0..ALL)
            .map(|_| {
                let (woken, waiting) = (Arc::clone(&woken), Arc::clone(&waiting));
                let mut is_waiting = false;
                tokio::spawn(poll_fn(move |cx| {
                    if std::mem::replace(&mut is_waiting, true) {
                        *woken.lock() += 1;
                        return Poll::Ready(());
                    }
                    waiting.lock().insert(cx.waker().clone());
                    Poll::Pending
                }))
            })
            .collect();
        while waiting.lock().len() < ALL {
            go_to_the_end_of_the_queue().await;
        }
        let wakers = std::mem::take(&mut *waiting.lock());
        WakeBatch::with_current(|batch| batch.expect("a runtime").wake_all(wakers));
        let before = loop {
            go_to_the_end_of_the_queue().await;
            let woken = *woken.lock();
            if woken > 0 {
                break woken;
            }
        };
        assert!(before <= 2 * CHUNK, "{before}");
        for task in tasks {
            task.await.expect("no panic");
        }
        assert_eq!(*woken.lock(), ALL);
    }
}
