//! The timer of a connection.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::Time;
use tokio::time::{Instant, Sleep, sleep};

/// Milliseconds before it fires from which on a timer is polled.
const NEAR: u64 = 1000;

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
        if self
            .at
            .is_some_and(|at| at <= deadline && at > now.plus(NEAR))
        {
            // It was polled by the same task when it was set.
            return Poll::Pending;
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_fires_at_the_deadline_however_often_that_moves() {
        let start = Instant::now();
        let now = || Time::from_millis(start.elapsed().as_millis() as u64);
        let mut timer = DeadlineTimer::new();
        let mut deadlines = [10, 20, 30, 5, 25].map(Time::from_secs).into_iter();
        let mut deadline = Time::default();
        let mut polls = 0;
        poll_fn(|cx| {
            for next in deadlines.by_ref() {
                deadline = next;
                assert!(timer.poll(cx, deadline, now()).is_pending());
            }
            polls += 1;
            timer.poll(cx, deadline, now())
        })
        .await;
        assert_eq!(now().as_millis() / 1000, 25);
        // When it was set, when it fired for the earliest deadline, and at the last one.
        assert_eq!(polls, 3);
    }
}
