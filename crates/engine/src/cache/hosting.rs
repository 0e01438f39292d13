//! The task that runs the work of a fetch: that of the client that leads it, or one of its own.
//!
//! Nearly every fetch has a single client, which stays until the response is there. Its task hosts the work, which saves a
//! task, and a wakeup and a poll of both. The work gets a task of its own as soon as another request depends on it, or once
//! its client has left: it must not stop while the connection of one client is not polled.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use microcache_store::poll_clock;
use tokio::runtime::Handle;

use crate::sync::Mutex;

/// The work of a fetch.
pub(crate) type FetchWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The place of the work between two polls by its host.
#[derive(Default)]
pub(super) struct Hosting {
    state: Mutex<HostingState>,
}

#[derive(Default)]
struct HostingState {
    /// Unset while it is polled, once it is over, and in a task of its own.
    work: Option<HostedWork>,
    /// Other requests depend on it, or its client has left.
    is_detached: bool,
}

/// Work that waits for its next poll.
struct HostedWork {
    work: FetchWork,
    /// The runtime of the host.
    runtime: Handle,
    /// Wakes the host.
    waker: Waker,
}

impl Hosting {
    /// Takes new work, which the host polls next.
    pub(super) fn begin(&self, work: FetchWork) {
        self.keep(HostedWork {
            work,
            runtime: Handle::current(),
            waker: Waker::noop().clone(),
        });
    }

    /// Polls the work. Returns `false` if it has a task of its own.
    pub(super) fn poll(&self, cx: &mut Context<'_>) -> bool {
        let mut state = self.state.lock();
        let (hosted, is_detached) = (state.work.take(), state.is_detached);
        drop(state);
        let Some(mut hosted) = hosted else {
            return !is_detached;
        };
        // A panic ends the work as it ends a task: its leader publishes a failure.
        let work = &mut hosted.work;
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        match polled {
            Ok(Poll::Pending) => {
                hosted.waker.clone_from(cx.waker());
                self.keep(hosted)
            }
            Ok(Poll::Ready(())) | Err(_) => true,
        }
    }

    /// Gives the work a task of its own. Returns the waker of the host, which only waits for the verdict from now on.
    pub(super) fn detach(&self) -> Option<Waker> {
        let mut state = self.state.lock();
        state.is_detached = true;
        let hosted = state.work.take();
        drop(state);
        hosted.map(HostedWork::detach)
    }

    /// Keeps the work until its next poll, unless it has been detached. Returns whether it is kept.
    fn keep(&self, hosted: HostedWork) -> bool {
        let mut state = self.state.lock();
        let is_detached = state.is_detached;
        if is_detached {
            drop(state);
            hosted.detach();
        } else {
            state.work = Some(hosted);
        }
        !is_detached
    }
}

impl HostedWork {
    fn detach(self) -> Waker {
        self.runtime.spawn(poll_clock::task(self.work));
        self.waker
    }
}

impl fmt::Debug for Hosting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hosting").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::future::{pending, poll_fn};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use tokio::task::yield_now;

    use super::*;

    #[derive(Default)]
    struct Wakeups(AtomicUsize);

    impl Wake for Wakeups {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Work that is over after some polls.
    fn counting(polls: &Arc<AtomicUsize>, most: usize) -> FetchWork {
        let polls = Arc::clone(polls);
        Box::pin(poll_fn(move |_| {
            if polls.fetch_add(1, Ordering::Relaxed) + 1 < most {
                Poll::Pending
            } else {
                Poll::Ready(())
            }
        }))
    }

    #[tokio::test]
    async fn the_host_polls_the_work_until_it_is_detached() {
        let (hosting, polls, host) = (Hosting::default(), Arc::default(), Arc::default());
        let waker = Waker::from(Arc::<Wakeups>::clone(&host));
        let mut cx = Context::from_waker(&waker);
        hosting.begin(counting(&polls, 9));
        assert!(hosting.poll(&mut cx) && hosting.poll(&mut cx));
        yield_now().await;
        assert_eq!(polls.load(Ordering::Relaxed), 2, "no task polls it");
        hosting.detach().expect("it was hosted").wake();
        assert!(!hosting.poll(&mut cx) && hosting.detach().is_none());
        yield_now().await;
        assert_eq!(polls.load(Ordering::Relaxed), 3, "a task polls it");
        assert_eq!(host.0.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn work_that_others_depend_on_before_it_begins_has_a_task() {
        let (hosting, polls) = (Hosting::default(), Arc::default());
        assert!(hosting.detach().is_none());
        hosting.begin(counting(&polls, 1));
        assert!(!hosting.poll(&mut Context::from_waker(Waker::noop())));
        yield_now().await;
        assert_eq!(polls.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn work_that_is_detached_while_it_is_polled_gets_a_task() {
        let hosting = Arc::new(Hosting::default());
        let (detached, polls) = (Arc::clone(&hosting), Arc::default());
        let mut rest = counting(&polls, 2);
        hosting.begin(Box::pin(poll_fn(move |cx| {
            assert!(detached.detach().is_none(), "it is being polled");
            rest.as_mut().poll(cx)
        })));
        assert!(!hosting.poll(&mut Context::from_waker(Waker::noop())));
        yield_now().await;
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn a_panic_ends_the_work_only() {
        let hosting = Hosting::default();
        let mut cx = Context::from_waker(Waker::noop());
        hosting.begin(Box::pin(async {
            panic!("on purpose");
        }));
        assert!(hosting.poll(&mut cx) && hosting.poll(&mut cx));
        hosting.begin(Box::pin(pending()));
        assert!(hosting.poll(&mut cx));
    }
}
