//! How long a client is waited for.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_policy::Time;
use tokio::time::{Instant, Sleep, sleep};

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
            timer: Box::pin(sleep(span)),
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

/// How long somebody who sends a body may still be waited for. Waiting uses it up; what arrives
/// earns it again at the slowest rate that is accepted, but never more than there was at first. So
/// the silent run out of it, and so do those who send a byte now and then.
pub(crate) struct Allowance {
    left: Duration,
    most: Duration,
    /// Bytes per second; 0 accepts any.
    rate: u64,
}

impl Allowance {
    pub(crate) fn new(most: Duration, rate: u64) -> Self {
        Self {
            left: most,
            most,
            rate,
        }
    }

    /// How long the next piece may take.
    pub(crate) fn left(&self) -> Duration {
        self.left
    }

    /// So many bytes have come after so long.
    pub(crate) fn received(&mut self, bytes: usize, waited: Duration) {
        let nanos = (bytes as u64).saturating_mul(1_000_000_000);
        let earned = nanos
            .checked_div(self.rate)
            .map_or(self.most, Duration::from_nanos);
        self.left = self
            .left
            .saturating_sub(waited)
            .saturating_add(earned)
            .min(self.most);
    }
}

/// The work's result, or `None` once nothing has moved in it for as long as `silence` says.
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
        // It was not the time that woke us, so something has moved.
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
    async fn what_moves_goes_on_and_what_is_silent_ends() {
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
        // Timers count in milliseconds and never fire early.
        assert_eq!(start.elapsed().as_secs(), 19);
    }

    #[test]
    fn who_keeps_the_rate_never_runs_out() {
        let mut allowance = Allowance::new(10 * SECOND, 500);
        for _ in 0..1000 {
            allowance.received(4500, 9 * SECOND);
            assert_eq!(allowance.left(), 10 * SECOND);
        }
    }

    #[test]
    fn who_drips_runs_out() {
        let mut allowance = Allowance::new(10 * SECOND, 500);
        let bytes = (1..100).find(|_| {
            allowance.received(1, SECOND);
            allowance.left() < SECOND
        });
        assert_eq!(bytes, Some(10), "the next byte comes too late");
    }

    #[test]
    fn what_came_early_is_no_credit_for_later() {
        let mut allowance = Allowance::new(10 * SECOND, 500);
        allowance.received(1 << 30, Duration::ZERO);
        assert_eq!(allowance.left(), 10 * SECOND);
    }

    #[test]
    fn without_a_rate_only_silence_counts() {
        let mut allowance = Allowance::new(10 * SECOND, 0);
        for _ in 0..1000 {
            allowance.received(1, 9 * SECOND);
            assert_eq!(allowance.left(), 10 * SECOND);
        }
    }
}
