//! A clock that is read once in a poll.
//!
//! Reading the clock takes 30 ns, and a request that goes to the origin asks for the time a dozen times, in two polls of
//! its connection's task. Within [`run`], every call gets the time of the first reading, or of the last [`read`], which is
//! for code that may run many times in one poll. Elsewhere every call reads the clock.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::Pin;

use tokio::time::Instant;

thread_local! {
    static POLL: Cell<PollTime> = const { Cell::new(PollTime::Elsewhere) };
}

#[derive(Clone, Copy)]
enum PollTime {
    /// No such poll is running on this thread.
    Elsewhere,
    Unread,
    Read(Instant),
}

/// Returns the time of the running poll, and outside of [`run`] the current time.
#[inline]
pub fn now() -> Instant {
    match POLL.get() {
        PollTime::Read(time) => time,
        PollTime::Unread => read(),
        PollTime::Elsewhere => Instant::now(),
    }
}

/// Returns the current time, which becomes that of the running poll.
#[inline]
pub fn read() -> Instant {
    let time = Instant::now();
    if !matches!(POLL.get(), PollTime::Elsewhere) {
        POLL.set(PollTime::Read(time));
    }
    time
}

/// Runs a poll that reads the clock once.
#[inline]
pub fn run<T>(poll: impl FnOnce() -> T) -> T {
    let _end = PollEnd(POLL.replace(PollTime::Unread));
    poll()
}

/// A task whose polls read the clock once each.
pub fn task<F: Future + Unpin>(mut work: F) -> impl Future<Output = F::Output> {
    poll_fn(move |cx| run(|| Pin::new(&mut work).poll(cx)))
}

/// Ends a poll, even if it panics.
struct PollEnd(PollTime);

impl Drop for PollEnd {
    fn drop(&mut self) {
        POLL.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    const STEP: Duration = Duration::from_millis(7);

    #[tokio::test(start_paused = true)]
    async fn a_poll_has_one_time_until_it_is_read_again() {
        let start = Instant::now();
        let mut steps = Box::pin(async {
            for _ in 0..3 {
                advance(STEP).await;
            }
        });
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        run(|| {
            assert_eq!(now(), start);
            // Time moves while the poll runs.
            let _ = steps.as_mut().poll(&mut cx);
            assert_eq!((now(), Instant::now()), (start, start + STEP));
            assert_eq!((read(), now()), (start + STEP, start + STEP));
        });
        let _ = steps.as_mut().poll(&mut cx);
        assert_eq!((now(), read()), (start + 2 * STEP, start + 2 * STEP));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_the_poll() {
        let start = Instant::now();
        let panicked = catch_unwind(|| {
            run(|| {
                now();
                panic!("on purpose");
            });
        });
        assert!(panicked.is_err());
        advance(STEP).await;
        assert_eq!(now(), start + STEP);
    }
}
