//! Read timeouts of client connections.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::Time;
use tokio::time::{Instant, Sleep, sleep};

/// Deadline of a client. The timer is moved only when it fires too early, so that requests do not pay for it.
pub(super) struct ClientDeadline {
    pub(super) deadline: Time,
    /// Created by the first wait: a request that is there when its connection is accepted is not waited for.
    timer: Option<Pin<Box<Sleep>>>,
    rings_at: Time,
}

impl ClientDeadline {
    pub(super) fn new(now: Time, span: Duration) -> Self {
        Self {
            deadline: now.plus(span.as_millis() as u64),
            timer: None,
            rings_at: Time::default(),
        }
    }

    /// Sets the deadline to `span` from now.
    pub(super) fn expect(&mut self, now: Time, span: Duration) {
        self.deadline = now.plus(span.as_millis() as u64);
        if self.deadline < self.rings_at {
            if let Some(timer) = &mut self.timer {
                timer.as_mut().reset(Instant::now() + span);
            }
            self.rings_at = Time::default();
        }
    }

    /// Resolves when the deadline has passed.
    pub(super) fn poll_expired(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<()> {
        if now >= self.deadline {
            return Poll::Ready(());
        }
        if now < self.rings_at {
            return Poll::Pending;
        }
        let left = Duration::from_millis(self.deadline.since(now));
        self.rings_at = self.deadline;
        let timer = match &mut self.timer {
            Some(timer) => {
                timer.as_mut().reset(Instant::now() + left);
                timer
            }
            none => none.insert(Box::pin(sleep(left))),
        };
        timer.as_mut().poll(cx)
    }
}

/// Returns the result of the work; `None` once it has made no progress for the duration that `silence` returns.
pub(crate) async fn while_moving<T>(
    work: impl Future<Output = T>,
    silence: impl Fn() -> Duration,
) -> Option<T> {
    let mut work = pin!(work);
    let mut end = pin!(sleep(silence()));
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        if end.as_mut().poll(cx).is_ready() {
            return Poll::Ready(None);
        }
        // Not woken by the timer, so there was progress.
        end.as_mut().reset(Instant::now() + silence());
        end.as_mut().poll(cx).map(|()| None)
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn progress_extends_the_timeout_and_silence_ends_the_work() {
        let moving = async {
            for _ in 0..100 {
                sleep(9 * SECOND).await;
            }
        };
        assert_eq!(while_moving(moving, || 10 * SECOND).await, Some(()));
        let start = Instant::now();
        let stalling = async {
            sleep(9 * SECOND).await;
            sleep(100 * SECOND).await;
        };
        assert_eq!(while_moving(stalling, || 10 * SECOND).await, None);
        // Timers have millisecond resolution and never fire early.
        assert_eq!(start.elapsed().as_secs(), 19);
    }
}
