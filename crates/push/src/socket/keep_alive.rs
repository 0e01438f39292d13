//! Keep-alive pings and the rate limit of commands.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Silence after which the client is pinged, and again until it is disconnected.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(25);
/// Output blocked for this long and then accepted counts as a sign of life.
const BLOCKED: Duration = Duration::from_secs(1);
/// Sustained interval between commands.
const INTERVAL: Duration = Duration::from_millis(20);
/// Burst allowance: a hundred commands.
const BURST: Duration = Duration::from_secs(2);

/// The action due after a silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepAliveAction {
    Ping,
    Disconnect,
}

/// The keep-alive timer of a client. What an event needs comes first.
#[derive(Debug)]
#[repr(C)]
pub(super) struct KeepAlive {
    last_output: Option<Instant>,
    /// Time until which the timer need not be polled, as it will wake the waker of its last poll.
    rings_at: Option<Instant>,
    timer: Pin<Box<Sleep>>,
    last_input: Instant,
    pinged: Option<Instant>,
}

impl KeepAlive {
    pub(super) fn new() -> Self {
        let last_input = Instant::now();
        Self {
            last_output: None,
            rings_at: None,
            timer: Box::pin(sleep_until(last_input + PING_INTERVAL)),
            last_input,
            pinged: None,
        }
    }

    /// Records input from the client.
    pub(super) fn record_input(&mut self) {
        self.last_input = Instant::now();
        self.pinged = None;
    }

    /// Records output handed to the connection.
    pub(super) const fn record_output(&mut self, now: Instant) {
        self.last_output = Some(now);
    }

    /// Records that the output was sent at once, which says nothing about the client.
    pub(super) const fn record_sent(&mut self) {
        self.last_output = None;
    }

    /// Records that the connection accepts more output.
    pub(super) fn record_writable(&mut self, now: Instant) {
        if let Some(last_output) = self.last_output.take()
            && now.duration_since(last_output) > BLOCKED
        {
            self.record_input();
        }
    }

    /// Forgets the waker of the last poll, since another one replaces it.
    pub(super) const fn forget_waker(&mut self) {
        self.rings_at = None;
    }

    /// Polls the action that is due.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, now: Instant) -> Poll<KeepAliveAction> {
        if self.rings_at.is_some_and(|at| now < at) {
            return Poll::Pending;
        }
        self.rings_at = None;
        while self.timer.as_mut().poll(cx).is_ready() {
            let due = match self.pinged {
                None => self.last_input + PING_INTERVAL,
                Some(pinged) => pinged + PING_INTERVAL,
            };
            if now < due {
                self.timer.as_mut().reset(due);
                continue;
            }
            if self.pinged.is_some() {
                return Poll::Ready(KeepAliveAction::Disconnect);
            }
            self.pinged = Some(now);
            self.timer.as_mut().reset(now + PING_INTERVAL);
            return Poll::Ready(KeepAliveAction::Ping);
        }
        self.rings_at = Some(self.timer.deadline());
        Poll::Pending
    }
}

/// Rate limit of commands: each takes a lock that publishers need, too.
#[derive(Debug)]
pub(super) struct CommandRateLimit {
    /// The time at which the next command is due at the sustained rate.
    next: Instant,
    timer: Option<Pin<Box<Sleep>>>,
}

impl CommandRateLimit {
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
        if self.next > now + BURST {
            let mut timer = Box::pin(sleep_until(self.next - BURST));
            if timer.as_mut().poll(cx).is_pending() {
                self.timer = Some(timer);
                return Poll::Pending;
            }
        }
        self.next = self.next.max(now) + INTERVAL;
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_pinged_and_then_disconnected() {
        let mut keep_alive = KeepAlive::new();
        let began = Instant::now();
        assert_eq!(
            poll_fn(|cx| keep_alive.poll(cx, Instant::now())).await,
            KeepAliveAction::Ping
        );
        assert!(began.elapsed() >= PING_INTERVAL);
        assert_eq!(
            poll_fn(|cx| keep_alive.poll(cx, Instant::now())).await,
            KeepAliveAction::Disconnect
        );
        assert!(began.elapsed() >= PING_INTERVAL * 2);
        // A client that answers is pinged again later.
        let mut keep_alive = KeepAlive::new();
        assert_eq!(
            poll_fn(|cx| keep_alive.poll(cx, Instant::now())).await,
            KeepAliveAction::Ping
        );
        keep_alive.record_input();
        assert_eq!(
            poll_fn(|cx| keep_alive.poll(cx, Instant::now())).await,
            KeepAliveAction::Ping
        );
        // Accepting blocked output is a sign of life.
        keep_alive.record_output(Instant::now());
        advance(BLOCKED * 2).await;
        keep_alive.record_writable(Instant::now());
        assert_eq!(
            poll_fn(|cx| keep_alive.poll(cx, Instant::now())).await,
            KeepAliveAction::Ping
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_hundred_orders_may_come_at_once_and_then_fifty_a_second() {
        let mut rate_limit = CommandRateLimit::new();
        let began = Instant::now();
        for _ in 0..100 {
            poll_fn(|cx| rate_limit.poll(cx)).await;
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        for _ in 0..50 {
            poll_fn(|cx| rate_limit.poll(cx)).await;
        }
        let spent = began.elapsed();
        assert!(
            spent >= INTERVAL * 48 && spent <= INTERVAL * 52,
            "{spent:?}"
        );
    }
}
