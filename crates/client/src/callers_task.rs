//! A call of the inner service runs in the task of the caller that caused it, so that it finds the caller's
//! task-locals and its span of `tracing`. The fetch that others wait for has a task of its own: it takes the call
//! over when the caller leaves, and when the caller does not poll.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

/// The time in which a caller has to poll a call that has been woken. Other callers may wait for it too.
const PATIENCE: Duration = Duration::from_millis(100);

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The task of a caller. Travels with its request to the inner service, among the extensions.
#[derive(Clone, Default)]
pub(crate) struct CallersTask(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// The call has been woken.
    woken: Notify,
    /// The caller waits no longer.
    left: Notify,
}

#[derive(Default)]
struct State {
    /// Wakes the caller, while it waits.
    caller: Option<Waker>,
    /// There is a call, here or being polled.
    is_lent: bool,
    /// The call, unless it is being polled.
    call: Option<Call>,
    /// It has been woken since it was last polled.
    is_woken: bool,
}

impl CallersTask {
    /// Waits for `answer` in the caller's task, and polls there the call that it causes.
    pub(crate) async fn wait_for<T>(&self, answer: impl Future<Output = T>) -> T {
        let _leaves = Leaves(&self.0);
        let mut answer = pin!(answer);
        poll_fn(|cx| {
            self.0.poll_call(cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Runs a call there as far as the caller polls it, and here from then on. `None` if it panics there.
    pub(crate) async fn run<T, C>(&self, call: C) -> Option<T>
    where
        T: Send + 'static,
        C: Future<Output = T> + Send + 'static,
    {
        let (sender, mut done) = oneshot::channel();
        let call: Call = Box::pin(async move {
            // Nobody waits for it if the fetch was given up.
            let _ = sender.send(call.await);
        });
        if let Err(call) = self.0.lend(call) {
            call.await;
            return done.await.ok();
        }
        let _ends = Ends(&self.0);
        loop {
            tokio::select! {
                biased;
                done = &mut done => return done.ok(),
                () = self.0.left.notified() => {}
                () = self.0.woken.notified() => {
                    tokio::select! {
                        biased;
                        done = &mut done => return done.ok(),
                        () = self.0.left.notified() => {}
                        () = sleep(PATIENCE) => {}
                    }
                }
            }
            if let Some(call) = self.0.take_over() {
                call.await;
            }
        }
    }
}

impl Shared {
    /// Gives the call to the caller, unless that waits no longer, or has one already.
    fn lend(&self, call: Call) -> Result<(), Call> {
        let mut state = self.state.lock();
        if state.is_lent {
            return Err(call);
        }
        let Some(caller) = state.caller.clone() else {
            return Err(call);
        };
        state.is_lent = true;
        state.is_woken = true;
        state.call = Some(call);
        drop(state);
        self.woken.notify_one();
        caller.wake();
        Ok(())
    }

    fn poll_call(self: &Arc<Self>, cx: &mut Context<'_>) {
        let mut state = self.state.lock();
        state.is_woken = false;
        match &mut state.caller {
            Some(caller) => caller.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        let Some(mut call) = state.call.take() else {
            return;
        };
        drop(state);
        let waker = Waker::from(Arc::clone(self));
        let mut cx = Context::from_waker(&waker);
        // A panic of the service ends the call, as it would in a task of its own, and not the caller.
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut cx)));
        if polled.is_ok_and(|poll| poll.is_pending()) {
            self.state.lock().call = Some(call);
        }
    }

    /// The call, if the caller has left, or has not polled it since it was woken.
    fn take_over(&self) -> Option<Call> {
        let mut state = self.state.lock();
        let is_idle = state.caller.is_none() || state.is_woken;
        state.call.take_if(|_| is_idle)
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        let mut state = self.state.lock();
        state.is_woken = true;
        let caller = state.caller.clone();
        drop(state);
        self.woken.notify_one();
        if let Some(caller) = caller {
            caller.wake();
        }
    }
}

/// The caller has its answer, or waits no longer.
struct Leaves<'a>(&'a Shared);

impl Drop for Leaves<'_> {
    fn drop(&mut self) {
        self.0.state.lock().caller = None;
        self.0.left.notify_one();
    }
}

/// The call has come to its end, or the fetch was given up.
struct Ends<'a>(&'a Shared);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_lent = false;
        let call = state.call.take();
        drop(state);
        drop(call);
    }
}
