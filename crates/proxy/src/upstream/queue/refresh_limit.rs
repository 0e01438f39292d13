//! The limit of background refreshes under way, found by trial.
//!
//! An application that is bound by its processors answers no faster when more is asked of it at a time: each request
//! only takes longer, also the ones that clients wait for. One that waits for other servers does answer more.
//! So the limit starts low, and is raised as long as more refreshes are then completed in a second; later it is
//! lowered and raised by turns, and the change is undone if it made things worse.
//!
//! A few slow pages must not hold up the refreshes of all others, so one that takes much longer than usual no longer
//! counts. Where all pages are slow, none of them does.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The first and least limit is this part of all places.
const LEAST_PART: usize = 8;
/// Shortest time over which the rate of refreshes is measured.
const SHORTEST: Duration = Duration::from_secs(1);
/// Fewest refreshes by which the rate is measured.
const FEWEST: usize = 32;
/// Measurements between two trials, once a trial has failed.
const PAUSE: u32 = 4;
/// A refresh under way no longer counts after so many times the mean, within these bounds.
const SLOW_MEANS: u32 = 4;
const LEAST_SLOW: Duration = Duration::from_secs(1);
const MOST_SLOW: Duration = Duration::from_secs(15);
/// The mean before any refresh has ended.
const FIRST_MEAN: Duration = Duration::from_secs(1);
/// Weight of a refresh in the mean is one in so many.
const MEAN_OF: u32 = 8;

/// The limit, and the refreshes under way.
#[derive(Debug)]
pub(super) struct RefreshLimit {
    /// Beginnings of the refreshes under way, in order.
    under_way: VecDeque<Instant>,
    /// Moving mean of the time that refreshes take.
    mean: Duration,
    limit: usize,
    /// All places of the group.
    places: usize,
    measurement: Measurement,
    stage: Stage,
    /// Direction of the next trial.
    is_next_up: bool,
}

/// Refreshes completed while the limit was reached and others waited, and the time that took.
#[derive(Debug, Default)]
struct Measurement {
    completed: usize,
    took: Duration,
    /// Beginning of the interval that is being measured, if the limit is reached.
    since: Option<Instant>,
    /// Others waited at that time.
    is_wanted: bool,
}

/// Progress of the search.
#[derive(Debug)]
enum Stage {
    /// Measurements left before a trial.
    Steady { left: u32 },
    /// Another limit is being tried.
    Trial { before: usize, rate: f64 },
}

impl RefreshLimit {
    pub(super) fn new(places: usize) -> Self {
        Self {
            under_way: VecDeque::new(),
            mean: FIRST_MEAN,
            limit: least(places),
            places,
            measurement: Measurement::default(),
            stage: Stage::Steady { left: 0 },
            is_next_up: true,
        }
    }

    /// Changes the number of places.
    pub(super) fn set_places(&mut self, places: usize) {
        if places != self.places {
            *self = Self {
                under_way: std::mem::take(&mut self.under_way),
                mean: self.mean,
                ..Self::new(places)
            };
        }
    }

    /// The limit.
    pub(super) const fn limit(&self) -> usize {
        self.limit
    }

    /// Returns true if one more refresh may begin.
    pub(super) fn has_room(&self, now: Instant) -> bool {
        let most = self.limit.max(self.places / 2);
        self.counted(now) < self.limit && self.under_way.len() < most
    }

    /// Returns the time at which the oldest refresh that counts no longer will.
    pub(super) fn next_room(&self, now: Instant) -> Option<Instant> {
        let slow = self.under_way.len() - self.counted(now);
        self.under_way
            .get(slow)
            .map(|began| *began + self.slow_after())
    }

    /// Returns the number of refreshes under way that are not slow.
    fn counted(&self, now: Instant) -> usize {
        let slow_after = self.slow_after();
        let is_slow = |began: &Instant| now.duration_since(*began) >= slow_after;
        self.under_way.len() - self.under_way.partition_point(is_slow)
    }

    fn slow_after(&self) -> Duration {
        (self.mean * SLOW_MEANS).clamp(LEAST_SLOW, MOST_SLOW)
    }

    /// Notes that a refresh begins.
    pub(super) fn begin(&mut self, now: Instant) {
        self.under_way.push_back(now);
        self.measure_from(now);
    }

    /// Notes that a refresh has ended. While no others wait, or for another reason than the limit, the rate says
    /// nothing about it.
    pub(super) fn end(&mut self, began: Instant, now: Instant, others_wait: bool) {
        let at = self.under_way.partition_point(|other| *other < began);
        self.under_way.remove(at);
        let took = now.duration_since(began);
        self.mean = (self.mean * (MEAN_OF - 1) + took) / MEAN_OF;
        let measured = &mut self.measurement;
        if let Some(since) = measured.since.take()
            && (others_wait || measured.is_wanted)
        {
            measured.completed += 1;
            measured.took += now.duration_since(since);
        }
        measured.is_wanted = others_wait;
        // All that began under an earlier limit have ended by then.
        let enough = FEWEST.max(3 * self.limit);
        if measured.completed >= enough && measured.took >= SHORTEST {
            let rate = measured.completed as f64 / measured.took.as_secs_f64();
            *measured = Measurement::default();
            self.judge(rate);
        }
        self.measure_from(now);
    }

    /// Begins to measure an interval if the limit is reached.
    fn measure_from(&mut self, now: Instant) {
        if self.measurement.since.is_none() && self.counted(now) >= self.limit {
            self.measurement.since = Some(now);
        }
    }

    /// Continues the search with the rate of refreshes at the present limit.
    fn judge(&mut self, rate: f64) {
        match self.stage {
            Stage::Steady { left: 0 } => self.try_next(rate),
            Stage::Steady { left } => self.stage = Stage::Steady { left: left - 1 },
            Stage::Trial { before, rate: old } => {
                // A higher limit has to be worth a third of its increase, a lower one may cost a third of its decrease.
                let change = self.limit as f64 / before as f64 - 1.0;
                if rate >= old * (1.0 + change / 3.0) {
                    self.try_next(rate);
                } else {
                    self.limit = before;
                    self.is_next_up = !self.is_next_up;
                    self.stage = Stage::Steady { left: PAUSE };
                }
            }
        }
    }

    /// Tries a limit half higher, or a third lower.
    fn try_next(&mut self, rate: f64) {
        let (before, least) = (self.limit, least(self.places));
        self.limit = if self.is_next_up {
            (before + before.div_ceil(2)).min(self.places)
        } else {
            (before * 2 / 3).max(least)
        };
        self.stage = if self.limit == before {
            self.is_next_up = !self.is_next_up;
            Stage::Steady { left: PAUSE }
        } else {
            Stage::Trial { before, rate }
        };
    }
}

const fn least(places: usize) -> usize {
    places.div_ceil(LEAST_PART)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Reverse;

    /// Runs an application for some seconds that takes so many milliseconds for each of so many requests at once,
    /// and returns the limits at the ends of all seconds.
    fn limits(seconds: usize, time: impl Fn(usize, usize) -> u64) -> Vec<usize> {
        run(seconds, time)
            .into_iter()
            .map(|(limit, _)| limit)
            .collect()
    }

    /// The same, with the numbers of refreshes under way.
    fn run(seconds: usize, time: impl Fn(usize, usize) -> u64) -> Vec<(usize, usize)> {
        let start = Instant::now();
        let mut limit = RefreshLimit::new(64);
        let mut under_way: Vec<(u64, Instant)> = Vec::new();
        let mut limits = Vec::new();
        while limits.len() < seconds {
            under_way.sort_unstable_by_key(|(end, _)| Reverse(*end));
            let first = under_way.pop();
            let at = first.map_or(0, |(end, _)| end);
            let now = start + Duration::from_millis(at);
            if let Some((_, began)) = first {
                limit.end(began, now, true);
            }
            limits.resize(at as usize / 1000, (limit.limit(), under_way.len() + 1));
            while limit.has_room(now) {
                limit.begin(now);
                under_way.push((at + time(limits.len(), under_way.len() + 1), now));
            }
        }
        limits
    }

    #[test]
    fn an_application_bound_by_its_processors_gets_few_at_a_time() {
        // Two processors, 100 ms each.
        let limits = limits(600, |_, at_once| 50 * (at_once as u64).max(2));
        let high = limits.iter().filter(|limit| **limit > 20).count();
        assert!(high < 30, "{high} of 600 seconds: {limits:?}");
    }

    #[test]
    fn an_application_that_waits_gets_as_many_as_there_are_places() {
        let limits = limits(120, |_, _| 500);
        assert_eq!(limits[15], 64, "{limits:?}");
        assert!(
            limits.iter().skip(15).all(|limit| *limit >= 42),
            "{limits:?}"
        );
    }

    #[test]
    fn the_limit_follows_an_application_that_changes() {
        let limits = limits(900, |second, at_once| {
            if (200..600).contains(&second) {
                50 * at_once as u64
            } else {
                200
            }
        });
        assert!(limits[100] >= 42, "{limits:?}");
        assert!(limits[590] <= 20, "{limits:?}");
        assert!(limits[890] >= 42, "{limits:?}");
    }

    #[test]
    fn places_that_are_not_wanted_change_nothing() {
        let now = Instant::now();
        let mut limit = RefreshLimit::new(64);
        for second in 0..1000 {
            let now = now + Duration::from_secs(second);
            limit.begin(now);
            limit.end(now, now, false);
        }
        assert_eq!(limit.limit(), 8);
        limit.set_places(4);
        assert_eq!(limit.limit(), 1);
        limit.set_places(1);
        assert!(limit.has_room(now));
    }

    #[test]
    fn short_bursts_raise_the_limit_too() {
        let mut now = Instant::now();
        let mut limit = RefreshLimit::new(8);
        for _ in 0..20 {
            for left in (0..10).rev() {
                limit.begin(now);
                let began = now;
                now += Duration::from_millis(50);
                limit.end(began, now, left > 0);
            }
            now += Duration::from_secs(1);
        }
        assert!(limit.limit() > 1);
    }

    #[test]
    fn an_application_whose_pages_are_all_slow_gets_no_more_at_a_time() {
        // Two processors, 2 s each.
        let run = run(3600, |_, at_once| 1000 * (at_once as u64).max(2));
        let flooded = run.iter().filter(|(limit, under_way)| under_way > limit);
        assert!(flooded.count() < 100, "{run:?}");
    }

    #[test]
    fn slow_refreshes_do_not_hold_up_all_others() {
        let start = Instant::now();
        let mut limit = RefreshLimit::new(64);
        let slow_after = limit.slow_after();
        for period in 0..4 {
            let now = start + slow_after * period;
            for _ in 0..8 {
                assert!(limit.has_room(now));
                limit.begin(now);
            }
            assert!(!limit.has_room(now + slow_after / 2));
            assert_eq!(
                limit.next_room(now + slow_after / 2),
                Some(now + slow_after)
            );
        }
        // Half of the places.
        let now = start + slow_after * 4;
        assert!(!limit.has_room(now));
        assert_eq!(limit.next_room(now), None);
        // One ends, and those that began last are counted for longer now: the mean has risen.
        limit.end(start, now, true);
        assert!(!limit.has_room(now));
        assert!(limit.has_room(now + 2 * slow_after));
    }
}
