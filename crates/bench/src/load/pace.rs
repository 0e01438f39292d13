//! The open loop: when each request is to start, whatever the server does.

use std::time::{Duration, Instant};

/// The requests of one thread, evenly spaced. What is due and not taken waits in no queue: it is a difference of two numbers.
#[derive(Debug)]
pub(crate) struct Arrivals {
    first: Instant,
    interval: f64,
    taken: u64,
}

impl Arrivals {
    /// For one thread of so many, which take turns.
    pub(crate) fn new(begin: Instant, rate: f64, thread: usize, threads: usize) -> Self {
        let offset = thread as f64 / rate;
        Self {
            first: begin + Duration::from_secs_f64(offset),
            interval: threads as f64 / rate,
            taken: 0,
        }
    }

    /// When the next one is to start.
    pub(crate) fn next(&self) -> Instant {
        self.first + Duration::from_secs_f64(self.taken as f64 * self.interval)
    }

    /// Takes the next one if it is due: when it was to start.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Instant> {
        let next = self.next();
        if next > now {
            return None;
        }
        self.taken += 1;
        Some(next)
    }

    /// How many are due and not taken.
    #[expect(clippy::cast_sign_loss, reason = "neither time is below zero")]
    pub(crate) fn backlog(&self, now: Instant) -> u64 {
        let Some(since) = now.checked_duration_since(self.first) else {
            return 0;
        };
        let due = (since.as_secs_f64() / self.interval) as u64 + 1;
        due.saturating_sub(self.taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns_at_the_rate() {
        let begin = Instant::now();
        let late = begin + Duration::from_millis(999);
        let mut starts = Vec::new();
        for thread in 0..2 {
            let mut arrivals = Arrivals::new(begin, 10.0, thread, 2);
            while let Some(start) = arrivals.take(late) {
                starts.push((start - begin).as_secs_f64());
            }
        }
        starts.sort_by(f64::total_cmp);
        assert_eq!(starts.len(), 10);
        for (number, start) in starts.iter().enumerate() {
            assert!((start - number as f64 / 10.0).abs() < 1e-6, "{starts:?}");
        }
    }

    #[test]
    fn what_is_not_taken_is_counted() {
        let before = Instant::now();
        let begin = before + Duration::from_secs(1);
        let mut arrivals = Arrivals::new(begin, 10.0, 0, 1);
        assert_eq!(arrivals.backlog(before), 0);
        assert_eq!(arrivals.backlog(begin + Duration::from_millis(450)), 5);
        assert_eq!(arrivals.take(begin), Some(begin));
        assert_eq!(arrivals.take(begin), None);
        assert_eq!(arrivals.backlog(begin + Duration::from_millis(450)), 4);
    }
}
