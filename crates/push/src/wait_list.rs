//! A list of tasks that wait for the same event.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::Waker;

use slab::Slab;
use smallvec::SmallVec;

use crate::wake_batch::WakeBatch;

/// All waiting tasks, grouped by thread.
#[derive(Debug, Default)]
pub(crate) struct WaitList {
    threads: SmallVec<[ThreadWaiters; 1]>,
    /// Number of notifications so far; it invalidates older registrations.
    round: u64,
}

/// The waiting tasks of one thread.
#[derive(Debug)]
struct ThreadWaiters {
    batch: Option<Arc<WakeBatch>>,
    wakers: Slab<Waker>,
}

impl ThreadWaiters {
    /// Returns the group of the same thread without tasks, and with room for as many.
    fn emptied(&self) -> Self {
        Self {
            batch: self.batch.as_ref().map(Arc::clone),
            wakers: Slab::with_capacity(self.wakers.len()),
        }
    }
}

/// A task's entry in a [`WaitList`]. `Option<Registration>` is no larger: there is one per subscriber.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registration {
    round: NonZeroU64,
    thread: u32,
    number: u32,
}

/// The tasks to wake, taken out so that they are woken without holding the lock around the list.
#[must_use]
pub(crate) struct Wakeups(SmallVec<[ThreadWaiters; 1]>);

impl WaitList {
    /// Registers a task for the next notification, or replaces the waker of an existing registration.
    pub(crate) fn register(
        &mut self,
        registration: Option<Registration>,
        waker: &Waker,
    ) -> Registration {
        if let Some(registration) =
            registration.filter(|registration| registration.round == self.current_round())
            && let Some(thread) = self.threads.get_mut(registration.thread as usize)
            && let Some(known) = thread.wakers.get_mut(registration.number as usize)
        {
            known.clone_from(waker);
            return registration;
        }
        let thread = self.thread();
        Registration {
            round: self.current_round(),
            thread: thread as u32,
            number: self.threads[thread].wakers.insert(waker.clone()) as u32,
        }
    }

    fn current_round(&self) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(self.round)
    }

    /// Returns the index of the current thread's group, adding it if necessary.
    fn thread(&mut self) -> usize {
        WakeBatch::with_current(|batch| {
            let address = batch.map(Arc::as_ptr);
            let mut threads = self.threads.iter();
            let known = threads.position(|it| it.batch.as_ref().map(Arc::as_ptr) == address);
            known.unwrap_or_else(|| {
                self.threads.push(ThreadWaiters {
                    batch: batch.map(Arc::clone),
                    wakers: Slab::new(),
                });
                self.threads.len() - 1
            })
        })
    }

    /// Notifies: removes all registrations and returns their tasks. Most of them will register again.
    pub(crate) fn notify(&mut self) -> Wakeups {
        self.round += 1;
        let waiting = self.threads.iter().filter(|it| !it.wakers.is_empty());
        let threads = waiting.map(ThreadWaiters::emptied).collect();
        Wakeups(std::mem::replace(&mut self.threads, threads))
    }

    /// Removes one registration.
    pub(crate) fn remove(&mut self, registration: Registration) {
        if registration.round == self.current_round()
            && let Some(thread) = self.threads.get_mut(registration.thread as usize)
        {
            thread.wakers.try_remove(registration.number as usize);
        }
    }

    /// Returns whether the registration is still valid: nothing has been notified since.
    pub(crate) fn is_quiet(&self, registration: Option<Registration>) -> bool {
        registration.is_some_and(|registration| registration.round == self.current_round())
    }
}

impl Wakeups {
    pub(crate) fn wake(self) {
        for ThreadWaiters { batch, wakers } in self.0 {
            match batch {
                // A single task is woken as cheaply without a batch.
                Some(batch) if wakers.len() > 1 => batch.wake_all(wakers),
                _ => wakers.into_iter().for_each(|(_, waker)| waker.wake()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;
    use std::thread;

    use super::*;
    use parking_lot::Mutex;
    use tokio::runtime::Builder;

    #[test]
    fn all_are_woken_on_any_thread() {
        let waiting = Arc::new(Mutex::new((0, WaitList::default())));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let waiting = Arc::clone(&waiting);
                thread::spawn(move || {
                    let runtime = Builder::new_current_thread().build().expect("a runtime");
                    let each = (0..50).map(|_| {
                        let (waiting, mut registration) = (Arc::clone(&waiting), None);
                        runtime.spawn(poll_fn(move |cx| {
                            let mut waiting = waiting.lock();
                            if waiting.0 == 100 {
                                return Poll::Ready(());
                            }
                            registration = Some(waiting.1.register(registration, cx.waker()));
                            Poll::Pending
                        }))
                    });
                    let each: Vec<_> = each.collect();
                    runtime.block_on(async {
                        for one in each {
                            one.await.expect("no panic");
                        }
                    });
                })
            })
            .collect();
        for _ in 0..100 {
            let mut all = waiting.lock();
            all.0 += 1;
            let wakeups = all.1.notify();
            drop(all);
            wakeups.wake();
            thread::yield_now();
        }
        for thread in threads {
            thread.join().expect("all are told");
        }
    }
}
