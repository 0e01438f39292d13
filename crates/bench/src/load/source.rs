//! Where a thread's requests come from: which is next, when, and whether there is another one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::choice::{Chooser, Chosen};
use super::pace::Arrivals;
use super::plan::{Ended, Plan, Share};
use super::random::Random;
use super::settings::Pace;

/// A number of requests is not waited for any longer when every request has failed for this long.
const HOPE: Duration = Duration::from_secs(10);

/// Where a thread's requests come from.
#[derive(Debug)]
pub(crate) struct Source {
    plan: Arc<Plan>,
    chooser: Chooser,
    arrivals: Option<Arrivals>,
    thoughts: Random,
    /// When measuring begins.
    measure: Instant,
    /// Requests that are left, where they are counted.
    left: Option<u64>,
    /// When no more requests are begun.
    last_call: Option<Instant>,
    /// The first fault since the last answer.
    down_since: Option<Instant>,
    gave_up: bool,
    /// Set once no more requests are begun: until when those under way are waited for.
    closing: Option<Instant>,
    unsent: u64,
}

impl Source {
    pub(crate) fn new(plan: &Arc<Plan>, share: Share) -> Self {
        let settings = &plan.settings;
        let measure = plan.begin + settings.warmup;
        Self {
            plan: Arc::clone(plan),
            chooser: Chooser::new(
                &settings.targets,
                settings.choice,
                settings.seed,
                share.thread,
                plan.threads,
            ),
            arrivals: match settings.pace {
                Pace::Rate(rate) => {
                    Some(Arrivals::new(plan.begin, rate, share.thread, plan.threads))
                }
                Pace::Closed | Pace::Think(..) => None,
            },
            // A stream of its own, so that thinking does not change what is asked for.
            thoughts: Random::new(!settings.seed, share.thread as u64),
            measure,
            left: share.requests,
            last_call: settings.duration.map(|duration| measure + duration),
            down_since: None,
            gave_up: false,
            closing: None,
            unsent: 0,
        }
    }

    /// What to ask for in a request that is to start at `start`, if there is one more.
    pub(crate) fn take(&mut self, start: Instant) -> Option<Chosen> {
        if self.closing.is_some() || self.last_call.is_some_and(|end| start >= end) {
            return None;
        }
        if start >= self.measure
            && let Some(left) = &mut self.left
        {
            *left = left.checked_sub(1)?;
        }
        Some(self.chooser.next())
    }

    /// In an open loop: when the next request is to start.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        match self.closing {
            None => self.arrivals.as_ref().map(Arrivals::next),
            Some(_) => None,
        }
    }

    /// In an open loop: takes a request that is due.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Instant> {
        if self.closing.is_some() || self.left == Some(0) {
            return None;
        }
        self.arrivals.as_mut()?.take(now)
    }

    /// In an open loop: how many requests are due and not taken.
    pub(crate) fn backlog(&self, now: Instant) -> u64 {
        match (&self.arrivals, self.closing, self.left) {
            (Some(arrivals), None, left) => arrivals.backlog(now).min(left.unwrap_or(u64::MAX)),
            _ => 0,
        }
    }

    pub(crate) fn thought(&mut self) -> Duration {
        match self.plan.settings.pace {
            Pace::Think(least, most) => self.thoughts.between(least, most),
            Pace::Closed | Pace::Rate(_) => Duration::ZERO,
        }
    }

    /// Of a user who is found thinking: the rest of a thought.
    pub(crate) fn first_thought(&mut self) -> Duration {
        let thought = self.thought();
        thought.mul_f64(self.thoughts.fraction())
    }

    pub(crate) fn succeeded(&mut self) {
        self.down_since = None;
    }

    pub(crate) fn failed(&mut self, now: Instant) {
        self.down_since.get_or_insert(now);
    }

    /// Sees whether requests are to be begun any more.
    pub(crate) fn look_for_end(&mut self, now: Instant) {
        if self.closing.is_some() {
            return;
        }
        if self.plan.settings.stop.is_wanted() {
            self.close(now, now);
        } else if let Some(end) = self.last_call.filter(|end| now >= *end) {
            self.close(end, now + self.plan.settings.patience);
        } else if self.left == Some(0) {
            self.close(now, now + self.plan.settings.timeout);
        } else if self.left.is_some() && self.down_since.is_some_and(|at| now - at >= HOPE) {
            self.gave_up = true;
            self.close(now, now);
        }
    }

    fn close(&mut self, end: Instant, closing: Instant) {
        self.unsent = self.backlog(end);
        self.closing = Some(closing);
    }

    /// Whether there is nothing more to do.
    pub(crate) fn is_over(&self, now: Instant, busy: u64) -> bool {
        self.closing.is_some_and(|end| busy == 0 || now >= end)
    }

    pub(crate) fn ended(&self, busy: u64) -> Ended {
        Ended {
            unfinished: busy,
            unsent: self.unsent,
            gave_up: self.gave_up,
        }
    }
}
