//! How long a client is waited for.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::Time;
use tokio::time::{Instant, Sleep};

/// When to give the client up. The timer is moved only when it fires too early, so requests do
/// not pay for it.
pub(super) struct Patience {
    pub(super) deadline: Time,
    timer: Pin<Box<Sleep>>,
    rings_at: Time,
}

impl Patience {
    pub(super) fn new(now: Time, span: Duration) -> Self {
        Self {
            deadline: now.plus(span.as_millis() as u64),
            timer: Box::pin(tokio::time::sleep(span)),
            rings_at: Time::default(),
        }
    }

    /// Gives the client so long from now on.
    pub(super) fn expect(&mut self, now: Time, span: Duration) {
        self.deadline = now.plus(span.as_millis() as u64);
        if self.deadline < self.rings_at {
            self.timer.as_mut().reset(Instant::now() + span);
            self.rings_at = Time::default();
        }
    }

    /// Resolves when the client has used its time up.
    pub(super) fn poll_over(&mut self, cx: &mut Context<'_>, now: Time) -> Poll<()> {
        if now >= self.deadline {
            return Poll::Ready(());
        }
        if now < self.rings_at {
            return Poll::Pending;
        }
        let left = self.deadline.since(now);
        self.rings_at = self.deadline;
        self.timer
            .as_mut()
            .reset(Instant::now() + Duration::from_millis(left));
        self.timer.as_mut().poll(cx).map(|()| ())
    }
}
