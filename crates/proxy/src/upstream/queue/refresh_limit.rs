//! The limit of background refreshes under way, found by trial.
//!
//! An application that is bound by its processors answers no faster when more is asked of it at a time: each request
//! only takes longer, also the ones that clients wait for. One that waits for other servers does answer more.
//! So the limit starts low, and is raised as long as more refreshes are then completed in a second; later it is
//! lowered and raised by turns, and the change is undone if it made things worse.

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
/// Time after which one more refresh may begin although none has ended: a few slow pages do not hold up all others.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The limit, and the refreshes under way.
#[derive(Debug)]
pub(super) struct RefreshLimit {
    under_way: usize,
    limit: usize,
    /// Beginning of the latest refresh.
    latest: Option<Instant>,
    /// All places of the group.
    places: usize,
    measurement: Option<Measurement>,
    stage: Stage,
    /// Direction of the next trial.
    is_next_up: bool,
}

/// Refreshes completed since a time.
#[derive(Debug)]
struct Measurement {
    since: Instant,
    completed: usize,
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
    pub(super) const fn new(places: usize) -> Self {
        Self {
            under_way: 0,
            limit: least(places),
            latest: None,
            places,
            measurement: None,
            stage: Stage::Steady { left: 0 },
            is_next_up: true,
        }
    }

    /// Changes the number of places.
    pub(super) fn set_places(&mut self, places: usize) {
        if places != self.places {
            *self = Self {
                under_way: self.under_way,
                latest: self.latest,
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
        let is_stalled = || {
            let latest = self.latest;
            latest.is_some_and(|latest| now.duration_since(latest) >= PATIENCE)
        };
        self.under_way < self.limit || is_stalled()
    }

    /// Notes that a refresh begins.
    pub(super) const fn begin(&mut self, now: Instant) {
        self.under_way += 1;
        self.latest = Some(now);
    }

    /// Notes that a refresh has ended. While no others wait, or for another reason than the limit, the rate says
    /// nothing about it.
    pub(super) fn end(&mut self, now: Instant, others_wait: bool) {
        let is_reached = self.under_way >= self.limit;
        self.under_way -= 1;
        if !(others_wait && is_reached) {
            self.measurement = None;
            return;
        }
        let measured = self.measurement.get_or_insert(Measurement {
            since: now,
            completed: 0,
        });
        measured.completed += 1;
        let took = now.duration_since(measured.since);
        // All that began under an earlier limit have ended by then.
        let enough = FEWEST.max(3 * self.limit);
        if measured.completed >= enough && took >= SHORTEST {
            let rate = measured.completed as f64 / took.as_secs_f64();
            self.measurement = None;
            self.judge(rate);
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

    /// Runs an application for some seconds that takes so many milliseconds for each of so many requests at once,
    /// and returns the limits at the ends of all seconds.
    fn limits(seconds: usize, time: impl Fn(usize, usize) -> u64) -> Vec<usize> {
        let start = Instant::now();
        let mut limit = RefreshLimit::new(64);
        let mut ends: Vec<u64> = Vec::new();
        let mut limits = Vec::new();
        while limits.len() < seconds {
            let at = ends.iter().min().copied().unwrap_or_default();
            if let Some(first) = ends.iter().position(|end| *end == at) {
                ends.swap_remove(first);
                limit.end(start + Duration::from_millis(at), true);
            }
            limits.resize(at as usize / 1000, limit.limit());
            let now = start + Duration::from_millis(at);
            while limit.has_room(now) {
                limit.begin(now);
                ends.push(at + time(limits.len(), ends.len() + 1));
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
            limit.end(now, false);
        }
        assert_eq!(limit.limit(), 8);
        limit.set_places(4);
        assert_eq!(limit.limit(), 1);
        limit.set_places(1);
        assert!(limit.has_room(now));
    }

    #[test]
    fn slow_refreshes_do_not_hold_up_all_others() {
        let now = Instant::now();
        let mut limit = RefreshLimit::new(64);
        for _ in 0..8 {
            assert!(limit.has_room(now));
            limit.begin(now);
        }
        for second in 0..20 {
            let now = now + PATIENCE * second;
            assert!(!limit.has_room(now + PATIENCE / 2));
            assert!(limit.has_room(now + PATIENCE));
            limit.begin(now + PATIENCE);
        }
    }
}
