//! Waiting for a state that no event announces.

use std::thread;
use std::time::{Duration, Instant};

use tokio::time::{sleep, timeout};

/// Longest time that anything may take before a test fails. Far longer than anything should take on a busy machine, and
/// shorter than the minute after which the proxy gives up an origin.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(50);

const PAUSE: Duration = Duration::from_millis(5);

/// Calls a function until it returns a value, and fails the test after [`WAIT_TIMEOUT`].
#[track_caller]
pub fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + WAIT_TIMEOUT;
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(Instant::now() < deadline, "waited in vain for {what}");
        thread::sleep(PAUSE);
    }
}

/// Calls a function until it returns true, and fails the test after [`WAIT_TIMEOUT`]. Other tasks of the thread run
/// meanwhile.
pub async fn eventually_async(what: &str, mut probe: impl AsyncFnMut() -> bool) {
    let came = timeout(WAIT_TIMEOUT, async {
        while !probe().await {
            sleep(PAUSE).await;
        }
    });
    assert!(came.await.is_ok(), "waited in vain for {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_returned_once_there_is_one() {
        let mut calls = 0;
        let value = eventually("the third call", || {
            calls += 1;
            (calls == 3).then_some("value")
        });
        assert_eq!((value, calls), ("value", 3));
    }

    #[tokio::test]
    async fn other_tasks_go_on_meanwhile() {
        let task = tokio::spawn(async {});
        eventually_async("the task", async || task.is_finished()).await;
    }
}
