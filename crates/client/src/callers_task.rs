//! Runs the call of the inner service in the task of the caller that caused it, so that it sees the caller's
//! task-locals and `tracing` span. The coalesced fetch has a task of its own, which takes over the call when the caller
//! is dropped or stops polling.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::sleep;

/// The time within which the caller must poll a call after its wake-up, since other callers may wait for it.
const TIME_LIMIT: Duration = Duration::from_millis(100);

type Call = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A handle of the caller's task, in the extensions of its request to the inner service.
#[derive(Clone, Default)]
pub(crate) struct CallersTask(Arc<CallSlot>);

#[derive(Default)]
struct CallSlot {
    state: Mutex<State>,
    /// The call has been woken.
    woken: Notify,
    /// The caller has been dropped.
    left: Notify,
}

#[derive(Default)]
struct State {
    /// Wakes the caller while it waits.
    caller: Option<Waker>,
    /// A call was passed here and has not ended, whether it is in `call` or being polled.
    is_lent: bool,
    /// The call, unless it is being polled.
    call: Option<Call>,
    /// The call has been woken since it was last polled.
    is_woken: bool,
}

impl CallersTask {
    /// Waits for `answer` in the caller's task, and polls the call that it causes there.
    pub(crate) async fn wait_for<T>(&self, answer: impl Future<Output = T>) -> T {
        let _leaves = CallerGuard(&self.0);
        let mut answer = pin!(answer);
        poll_fn(|cx| {
            self.0.poll_call(cx);
            answer.as_mut().poll(cx)
        })
        .await
    }

    /// Runs a call in the caller's task for as long as that polls it, then in the current one. `None` if it panics
    /// there.
    pub(crate) async fn run<T, C>(&self, call: C) -> Option<T>
    where
        T: Send + 'static,
        C: Future<Output = T> + Send + 'static,
    {
        let (sender, mut done) = oneshot::channel();
        let call: Call = Box::pin(async move {
            // The receiver is gone if the fetch was cancelled.
            let _ = sender.send(call.await);
        });
        if let Err(call) = self.0.lend(call) {
            call.await;
            return done.await.ok();
        }
        let _ends = CallGuard(&self.0);
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
                        () = sleep(TIME_LIMIT) => {}
                    }
                }
            }
            if let Some(call) = self.0.take_over() {
                call.await;
            }
        }
    }
}

impl CallSlot {
    /// Moves the call to the caller. Returns it if the caller has been dropped, or has one already.
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
        // A panic of the service ends the call, as in a task of its own, but not the caller.
        let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(&mut cx)));
        if polled.is_ok_and(|poll| poll.is_pending()) {
            self.state.lock().call = Some(call);
        }
    }

    /// Takes the call back if the caller was dropped, or has not polled it since its wake-up.
    fn take_over(&self) -> Option<Call> {
        let mut state = self.state.lock();
        let is_idle = state.caller.is_none() || state.is_woken;
        state.call.take_if(|_| is_idle)
    }
}

impl Wake for CallSlot {
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

/// Notifies the fetch when the caller has its response or is dropped.
struct CallerGuard<'a>(&'a CallSlot);

impl Drop for CallerGuard<'_> {
    fn drop(&mut self) {
        self.0.state.lock().caller = None;
        self.0.left.notify_one();
    }
}

/// Removes the call when it has ended or the fetch was cancelled.
struct CallGuard<'a>(&'a CallSlot);

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.is_lent = false;
        let call = state.call.take();
        drop(state);
        drop(call);
    }
}
