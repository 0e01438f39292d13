//! Wakes those who wait on another thread: all of them with one call to the system, which costs more than the rest.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;

use parking_lot::Mutex;
use slab::Slab;
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// The bell of a thread.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    to_wake: Mutex<Vec<Slab<Waker>>>,
    rung: Notify,
    /// Nobody hears it any more.
    is_over: AtomicBool,
}

/// Whoever hears it.
struct Listener(Arc<Bell>);

thread_local! {
    static BELL: RefCell<Option<Arc<Bell>>> = const { RefCell::new(None) };
}

impl Bell {
    /// That of this thread; `None` where nothing runs that could hear it.
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

    /// Has all of these woken on its thread.
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
        // Whoever waited there is gone with the runtime, as this is.
        let mut to_wake = self.0.to_wake.lock();
        self.0.is_over.store(true, Ordering::Release);
        let left = std::mem::take(&mut *to_wake);
        drop(to_wake);
        drop(left);
    }
}
