//! Whether reading, or writing, works; and when to try again if it does not.

use std::fmt;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;

/// From so many failures in a row on, there is a pause between attempts.
const PATIENCE: u32 = 3;

/// The health of one kind of work.
pub(crate) struct Health {
    work: &'static str,
    pause: Duration,
    trouble: Mutex<Option<Trouble>>,
}

struct Trouble {
    why: String,
    since: SystemTime,
    failures: u32,
    not_before: Instant,
}

impl Health {
    pub(crate) const fn new(work: &'static str, pause: Duration) -> Self {
        Self {
            work,
            pause,
            trouble: Mutex::new(None),
        }
    }

    /// Whether to try at all. In a pause one attempt gets through each time it is over.
    pub(crate) fn admits(&self) -> bool {
        let mut trouble = self.trouble.lock();
        let Some(trouble) = trouble.as_mut().filter(|it| it.failures >= PATIENCE) else {
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
        let trouble = trouble.get_or_insert_with(|| Trouble {
            why: String::new(),
            since: SystemTime::now(),
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

    /// What is wrong, and since when.
    pub(crate) fn report(&self) -> Option<String> {
        let trouble = self.trouble.lock();
        let trouble = trouble.as_ref()?;
        let since = httpdate::fmt_http_date(trouble.since);
        Some(format!("{}: {}, since {since}", self.work, trouble.why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_failures_there_is_a_pause_and_one_success_ends_it() {
        let health = Health::new("writing", Duration::from_hours(1));
        for _ in 0..PATIENCE {
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
        let health = Health::new("reading", Duration::ZERO);
        (0..9).for_each(|_| health.failed(&"broken"));
        assert!(health.admits());
    }
}
