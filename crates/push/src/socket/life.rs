//! Keep-alive pings and the rate limit of commands.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Silence after which the client is pinged, and again until it is disconnected.
pub(super) const PATIENCE: Duration = Duration::from_secs(25);
/// Output blocked for this long and then accepted counts as a sign of life.
const BLOCKED: Duration = Duration::from_secs(1);
/// Sustained interval between commands.
const PACE: Duration = Duration::from_millis(20);
/// Burst allowance: a hundred commands.
const AHEAD: Duration = Duration::from_secs(2);

/// The action due after a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Ask,
    GiveUp,
}

/// The keep-alive timer of a client.
#[derive(Debug)]
pub(super) struct Life {
    heard: Instant,
    asked: Option<Instant>,
    given: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl Life {
    pub(super) fn new() -> Self {
        let heard = Instant::now();
        Self {
            heard,
            asked: None,
            given: None,
            timer: Box::pin(sleep_until(heard + PATIENCE)),
        }
    }

    /// Records input from the client.
    pub(super) fn hear(&mut self) {
        self.heard = Instant::now();
        self.asked = None;
    }

    /// Records output handed to the connection.
    pub(super) fn give(&mut self) {
        self.given = Some(Instant::now());
    }

    /// Records that the connection accepts more output.
    pub(super) fn ready(&mut self) {
        if let Some(given) = self.given.take()
            && given.elapsed() > BLOCKED
        {
            self.hear();
        }
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Due> {
        while self.timer.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            let due = match self.asked {
                None => self.heard + PATIENCE,
                Some(asked) => asked + PATIENCE,
            };
            if now < due {
                self.timer.as_mut().reset(due);
                continue;
            }
            if self.asked.is_some() {
                return Poll::Ready(Due::GiveUp);
            }
            self.asked = Some(now);
            self.timer.as_mut().reset(now + PATIENCE);
            return Poll::Ready(Due::Ask);
        }
        Poll::Pending
    }
}

/// Rate limit of commands: each takes a lock that publishers need, too.
#[derive(Debug)]
pub(super) struct Pace {
    /// The time at which the next command is due at the sustained rate.
    next: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    pub(super) fn new() -> Self {
        Self {
            next: Instant::now(),
            timer: None,
        }
    }

    /// Waits until a command may be executed, and counts it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(timer) = &mut self.timer {
            std::task::ready!(timer.as_mut().poll(cx));
            self.timer = None;
        }
        let now = Instant::now();
        if self.next > now + AHEAD {
            let mut timer = Box::pin(sleep_until(self.next - AHEAD));
            if timer.as_mut().poll(cx).is_pending() {
                self.timer = Some(timer);
                return Poll::Pending;
            }
        }
        self.next = self.next.max(now) + PACE;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_is_silent_is_asked_and_then_given_up() {
        let mut life = Life::new();
        let began = Instant::now();
        assert_eq!(poll_fn(|cx| life.poll(cx)).await, Due::Ask);
        assert!(began.elapsed() >= PATIENCE);
        assert_eq!(poll_fn(|cx| life.poll(cx)).await, Due::GiveUp);
        assert!(began.elapsed() >= PATIENCE * 2);
        // A client that answers is pinged again later.
        let mut life = Life::new();
        assert_eq!(poll_fn(|cx| life.poll(cx)).await, Due::Ask);
        life.hear();
        assert_eq!(poll_fn(|cx| life.poll(cx)).await, Due::Ask);
        // Accepting blocked output is a sign of life.
        life.give();
        advance(BLOCKED * 2).await;
        life.ready();
        assert_eq!(poll_fn(|cx| life.poll(cx)).await, Due::Ask);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_orders_may_come_at_once_and_then_fifty_a_second() {
        let mut pace = Pace::new();
        let began = Instant::now();
        for _ in 0..100 {
            poll_fn(|cx| pace.poll(cx)).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..50 {
            poll_fn(|cx| pace.poll(cx)).await;
        }
        let spent = began.elapsed();
        assert!(spent >= PACE * 48 && spent <= PACE * 52, "{spent:?}");
    }
}
