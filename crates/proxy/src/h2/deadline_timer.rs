//! The timer of a connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::Time;
use tokio::time::{Instant, Sleep, sleep};

/// Timer that fires no later than needed, and is moved only when it fires too early.
pub(super) struct DeadlineTimer {
    timer: Pin<Box<Sleep>>,
    /// Time at which it fires, if set.
    at: Option<Time>,
}

impl DeadlineTimer {
    pub(super) fn new() -> Self {
        Self {
            timer: Box::pin(sleep(Duration::MAX)),
            at: None,
        }
    }

    /// Ready once the deadline has passed.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, deadline: Time, now: Time) -> Poll<()> {
        if now >= deadline {
            return Poll::Ready(());
        }
        if self.at.is_none_or(|at| at > deadline || at <= now) {
            let left = Duration::from_millis(deadline.since(now));
            self.timer.as_mut().reset(Instant::now() + left);
            self.at = Some(deadline);
        }
        let rung = self.timer.as_mut().poll(cx);
        if rung.is_ready() {
            self.at = None;
        }
        rung
    }
}
