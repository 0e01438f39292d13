//! Health state of an I/O pool: a circuit breaker with a retry interval.

use std::fmt;
use std::time::{Duration, Instant};

use microcache_policy::{Time, date};
use parking_lot::Mutex;

use crate::clock;

/// Number of consecutive failures that opens the breaker.
const FAIL_LIMIT: u32 = 3;

/// Health state of one kind of operation.
pub(crate) struct PoolHealth {
    work: &'static str,
    pause: Duration,
    trouble: Mutex<Option<FailureState>>,
}

struct FailureState {
    why: String,
    since: Time,
    failures: u32,
    not_before: Instant,
}

impl PoolHealth {
    pub(crate) const fn new(work: &'static str, pause: Duration) -> Self {
        Self {
            work,
            pause,
            trouble: Mutex::new(None),
        }
    }

    /// Returns whether to attempt an operation. While the breaker is open, one attempt per interval is
    /// admitted.
    pub(crate) fn admits(&self) -> bool {
        let mut trouble = self.trouble.lock();
        let Some(trouble) = trouble.as_mut().filter(|it| it.failures >= FAIL_LIMIT) else {
            return true;
        };
        let now = Instant::now();
        let is_over = now >= trouble.not_before;
        if is_over {
            trouble.not_before = now + self.pause;
        }
        is_over
    }

    pub(crate) fn failed(&self, why: &dyn fmt::Display) {
        let mut trouble = self.trouble.lock();
        let trouble = trouble.get_or_insert_with(|| FailureState {
            why: String::new(),
            since: clock::system_time(),
            failures: 0,
            not_before: Instant::now(),
        });
        trouble.why = why.to_string();
        trouble.failures = trouble.failures.saturating_add(1);
        trouble.not_before = Instant::now() + self.pause;
    }

    pub(crate) fn worked(&self) {
        *self.trouble.lock() = None;
    }

    /// Describes the last error and the time of the first one; `None` while healthy.
    pub(crate) fn report(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        let trouble = trouble.as_ref()?;
        let since = date::format(trouble.since);
        let since = String::from_utf8_lossy(&since);
        Some(format!("{}: {}, since {since}", self.work, trouble.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_failures_there_is_a_pause_and_one_success_ends_it() {
        let health = PoolHealth::new("writing", Duration::from_hours(1));
        for _ in 0..FAIL_LIMIT {
            assert!(health.admits());
            health.failed(&"no space");
        }
        assert!(!health.admits());
        let report = health.report().expect("there is trouble");
        assert!(report.starts_with("writing: no space, since "), "{report}");
        health.worked();
        assert!(health.admits());
        assert_eq!(health.report(), None);
    }

    #[test]
    fn when_the_pause_is_over_it_is_tried_again() {
        let health = PoolHealth::new("reading", Duration::ZERO);
        (0..9).for_each(|_| health.failed(&"broken"));
        assert!(health.admits());
    }
}
