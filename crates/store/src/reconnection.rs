//! Pace of a client that tries to connect to the server that it has lost.
//!
//! A server that is restarted refuses connections, which costs it little, and accepts them some moments later: after a
//! refusal the next attempt follows within [`SOON`]. A server that hangs, and a network that drops packets, answer nothing:
//! after [`PATIENCE`] another attempt begins beside the silent one, as packets of that one may be repeated only
//! a second later, or never; the first to succeed ends the others. A server that answers, but cannot be used yet, and a
//! name that cannot be resolved are given more time, and a server that rejects the login the most.
//!
//! Many clients lose a server in the same moment, so every pause is random.

use std::pin::pin;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::{Instant, sleep};

use crate::random;

/// Mean pause after a refused connection.
const SOON: Duration = Duration::from_millis(250);
/// Mean time after which an attempt without an outcome gets company.
const PATIENCE: Duration = Duration::from_millis(500);
/// Maximum of concurrent attempts.
const MAX_ATTEMPTS: usize = 3;
/// Steps in which pauses grow if connections are lost right after they were opened.
const STEPS: u32 = 5;

/// Reasons why an attempt failed, by the pause that they require.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttemptFailure {
    /// No server listens.
    Refused,
    /// The server is out of reach, or cannot be used yet.
    Unusable,
    /// The configuration has to be changed.
    Rejected,
}

/// Pace of the attempts to connect to a server.
#[derive(Clone, Copy, Debug)]
pub struct Reconnection {
    retry_after: Duration,
    patience: Duration,
}

impl Reconnection {
    /// Returns the pace for the longest mean pause, and the time limit of an attempt.
    pub fn new(retry_after: Duration, time_limit: Duration) -> Self {
        Self {
            retry_after,
            patience: PATIENCE.min(time_limit / 2),
        }
    }

    /// Attempts to connect after a pause, until it succeeds. `failed` notes why an attempt did not; `None` gives up.
    pub async fn connect<T, E, A: Future<Output = Result<T, E>>>(
        &self,
        pause: Duration,
        attempt: impl Fn() -> A,
        failed: impl Fn(E) -> Option<AttemptFailure>,
    ) -> Option<T> {
        let mut attempts = FuturesUnordered::new();
        let mut next = pin!(sleep(pause));
        loop {
            tokio::select! {
                biased;
                Some(outcome) = attempts.next() => match outcome {
                    Ok(connected) => return Some(connected),
                    Err(why) => {
                        let retry = Instant::now() + self.pause_after(failed(why)?);
                        // While another one is under way, the next one is due already.
                        let due = if attempts.is_empty() { retry } else { retry.min(next.deadline()) };
                        next.as_mut().reset(due);
                    }
                },
                () = &mut next, if attempts.len() < MAX_ATTEMPTS => {
                    attempts.push(attempt());
                    let due = Instant::now() + random::jittered(self.patience, 0.25);
                    next.as_mut().reset(due);
                }
            }
        }
    }

    /// Returns the pause after a loss: none but for a fifth of the longest pause, over which the clients are spread. It
    /// grows with the number of losses that followed each other at once.
    pub fn pause_after_loss(&self, early_losses: u32) -> Duration {
        let first = self.retry_after / STEPS;
        if early_losses == 0 {
            return random::jittered(first / 2, 1.0);
        }
        let grown = first.saturating_mul(1 << (early_losses - 1).min(STEPS));
        random::jittered(grown.min(self.retry_after), 0.5)
    }

    fn pause_after(&self, failure: AttemptFailure) -> Duration {
        let longest = match failure {
            AttemptFailure::Refused => SOON,
            AttemptFailure::Unusable => SOON * 2,
            AttemptFailure::Rejected => self.retry_after,
        };
        random::jittered(longest.min(self.retry_after), 0.5)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::pending;

    use super::*;

    const PACE: Reconnection = Reconnection {
        retry_after: Duration::from_secs(1),
        patience: PATIENCE,
    };

    /// Checks that pauses are random within these milliseconds.
    fn check(bounds: std::ops::RangeInclusive<u128>, pause: impl Fn() -> Duration) {
        let pauses: Vec<_> = (0..100).map(|_| pause().as_millis()).collect();
        assert!(
            pauses.iter().all(|pause| bounds.contains(pause)),
            "{pauses:?}"
        );
        let spread = pauses.iter().max().unwrap() - pauses.iter().min().unwrap();
        assert!(
            spread > (bounds.end() - bounds.start()) / 2,
            "clients do not act in lockstep"
        );
    }

    #[test]
    fn a_lost_server_is_tried_at_once_unless_it_is_lost_again_and_again() {
        check(0..=200, || PACE.pause_after_loss(0));
        check(100..=300, || PACE.pause_after_loss(1));
        check(200..=600, || PACE.pause_after_loss(2));
        check(400..=1200, || PACE.pause_after_loss(3));
        for losses in [4, 5, 1000, u32::MAX] {
            check(500..=1500, || PACE.pause_after_loss(losses));
        }
    }

    #[test]
    fn the_cheaper_an_attempt_the_sooner_is_the_next() {
        check(125..=375, || PACE.pause_after(AttemptFailure::Refused));
        check(250..=750, || PACE.pause_after(AttemptFailure::Unusable));
        check(500..=1500, || PACE.pause_after(AttemptFailure::Rejected));
        let quick = Reconnection::new(Duration::from_millis(40), PATIENCE);
        check(20..=60, || quick.pause_after(AttemptFailure::Refused));
    }

    /// Connects to a server that refuses for ten seconds; returns the milliseconds at which attempts began.
    async fn refused(failure: AttemptFailure) -> Vec<u128> {
        let (begun, started) = (RefCell::new(Vec::new()), Instant::now());
        let attempt = async || {
            let at = started.elapsed();
            begun.borrow_mut().push(at.as_millis());
            (at >= Duration::from_secs(10)).then_some(()).ok_or(())
        };
        let connected = PACE.connect(Duration::ZERO, &attempt, |()| Some(failure));
        connected.await.expect("it is accepted in the end");
        begun.into_inner()
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_is_back_is_found_within_the_longest_pause() {
        for (failure, pauses) in [
            (AttemptFailure::Refused, 124..=377),
            (AttemptFailure::Unusable, 249..=752),
            (AttemptFailure::Rejected, 499..=1502),
        ] {
            let begun = refused(failure).await;
            let found = begun.windows(2).map(|pair| pair[1] - pair[0]);
            let found: Vec<_> = found.collect();
            assert!(
                found.iter().all(|pause| pauses.contains(pause)),
                "{failure:?}: {found:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_attempt_does_not_delay_others_and_their_number_is_bounded() {
        let (begun, most, started) = (Cell::new(0_usize), Cell::new(0_usize), Instant::now());
        let ended = Cell::new(0_usize);
        let limit = Duration::from_secs(4);
        let attempt = async || {
            begun.set(begun.get() + 1);
            most.set(most.get().max(begun.get() - ended.get()));
            if started.elapsed() < Duration::from_secs(20) {
                // Whatever was sent before is lost.
                let silence: Result<(), _> = tokio::time::timeout(limit, pending()).await;
                ended.set(ended.get() + 1);
                silence.map_err(drop)?;
            }
            Ok(())
        };
        let failed = |()| Some(AttemptFailure::Unusable);
        let connected = PACE.connect(Duration::ZERO, &attempt, failed).await;
        assert_eq!(connected, Some(()));
        assert_eq!(most.get(), MAX_ATTEMPTS);
    }

    #[tokio::test(start_paused = true)]
    async fn an_attempt_begins_while_another_is_silent() {
        let begun = Cell::new(0);
        let attempt = async || {
            begun.set(begun.get() + 1);
            if begun.get() == 1 {
                pending::<()>().await;
            }
            Ok::<_, ()>(begun.get())
        };
        let connected = PACE.connect(Duration::ZERO, &attempt, |()| None).await;
        assert_eq!(connected, Some(2), "the second one has succeeded");
    }

    #[tokio::test(start_paused = true)]
    async fn attempts_end_when_no_client_needs_them() {
        let connected = PACE.connect(Duration::ZERO, async || Err::<(), _>(()), |()| None);
        assert_eq!(connected.await, None);
    }
}
