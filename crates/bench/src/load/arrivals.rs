//! Open loop: arrival times independent of the server's response times.

use std::time::{Duration, Instant};

/// Evenly spaced arrivals of one thread. The backlog is computed from two numbers, so no queue grows under
/// overload.
#[derive(Debug)]
pub(crate) struct ArrivalSchedule {
    first: Instant,
    interval: f64,
    taken: u64,
}

impl ArrivalSchedule {
    /// Returns the arrivals of thread `thread` of `threads`, at `rate` requests per second in total.
    pub(crate) fn new(begin: Instant, rate: f64, thread: usize, threads: usize) -> Self {
        let offset = thread as f64 / rate;
        Self {
            first: begin + Duration::from_secs_f64(offset),
            interval: threads as f64 / rate,
            taken: 0,
        }
    }

    /// Scheduled start of the next request.
    pub(crate) fn next(&self) -> Instant {
        self.first + Duration::from_secs_f64(self.taken as f64 * self.interval)
    }

    /// Takes the next request if it is due, and returns its scheduled start.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Instant> {
        let next = self.next();
        if next > now {
            return None;
        }
        self.taken += 1;
        Some(next)
    }

    /// Number of due requests that have not been taken.
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
            let mut arrivals = ArrivalSchedule::new(begin, 10.0, thread, 2);
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
    fn missed_arrivals_are_counted() {
        let before = Instant::now();
        let begin = before + Duration::from_secs(1);
        let mut arrivals = ArrivalSchedule::new(begin, 10.0, 0, 1);
        assert_eq!(arrivals.backlog(before), 0);
        assert_eq!(arrivals.backlog(begin + Duration::from_millis(450)), 5);
        assert_eq!(arrivals.take(begin), Some(begin));
        assert_eq!(arrivals.take(begin), None);
        assert_eq!(arrivals.backlog(begin + Duration::from_millis(450)), 4);
    }
}
