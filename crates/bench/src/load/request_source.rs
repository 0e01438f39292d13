//! Request source of a thread: URL, scheduled start and end of the requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::arrivals::ArrivalSchedule;
use super::plan::{LoadPlan, ThreadOutcome, ThreadShare};
use super::random::Random;
use super::settings::RequestPace;
use super::url_selector::{UrlChoice, UrlSelector};

/// A run limited by a number of requests is abandoned after failing for this long.
const ABANDON_AFTER: Duration = Duration::from_secs(10);

/// Request source of a thread.
#[derive(Debug)]
pub(crate) struct RequestSource {
    plan: Arc<LoadPlan>,
    chooser: UrlSelector,
    arrivals: Option<ArrivalSchedule>,
    think_times: Random,
    /// Start of measuring.
    measure: Instant,
    /// Remaining requests, if the run is limited by their number.
    left: Option<u64>,
    /// End of the run, if limited by a duration.
    last_call: Option<Instant>,
    /// First failure since the last response.
    down_since: Option<Instant>,
    gave_up: bool,
    /// Deadline of the requests in flight, once no more are started.
    closing: Option<Instant>,
    unsent: u64,
}

impl RequestSource {
    pub(crate) fn new(plan: &Arc<LoadPlan>, share: ThreadShare) -> Self {
        let settings = &plan.settings;
        let measure = plan.begin + settings.warmup;
        Self {
            plan: Arc::clone(plan),
            chooser: UrlSelector::new(
                &settings.targets,
                settings.choice,
                settings.seed,
                share.thread,
                plan.threads,
            ),
            arrivals: match settings.pace {
                RequestPace::Rate(rate) => Some(ArrivalSchedule::new(
                    plan.begin,
                    rate,
                    share.thread,
                    plan.threads,
                )),
                RequestPace::Closed | RequestPace::Think(..) => None,
            },
            // Independent of the URLs' stream, so that think times do not change the order of requests.
            think_times: Random::new(!settings.seed, share.thread as u64),
            measure,
            left: share.requests,
            last_call: settings.duration.map(|duration| measure + duration),
            down_since: None,
            gave_up: false,
            closing: None,
            unsent: 0,
        }
    }

    /// Returns the URL for a request scheduled for `start`, unless the run has ended.
    pub(crate) fn take(&mut self, start: Instant) -> Option<UrlChoice> {
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

    /// Open loop: scheduled start of the next request.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        match self.closing {
            None => self.arrivals.as_ref().map(ArrivalSchedule::next),
            Some(_) => None,
        }
    }

    /// Open loop: takes a due request and returns its scheduled start.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Instant> {
        if self.closing.is_some() || self.left == Some(0) {
            return None;
        }
        self.arrivals.as_mut()?.take(now)
    }

    /// Open loop: number of due requests that have not been taken.
    pub(crate) fn backlog(&self, now: Instant) -> u64 {
        match (&self.arrivals, self.closing, self.left) {
            (Some(arrivals), None, left) => arrivals.backlog(now).min(left.unwrap_or(u64::MAX)),
            _ => 0,
        }
    }

    pub(crate) fn think_time(&mut self) -> Duration {
        match self.plan.settings.pace {
            RequestPace::Think(least, most) => self.think_times.between(least, most),
            RequestPace::Closed | RequestPace::Rate(_) => Duration::ZERO,
        }
    }

    /// Returns the remaining think time of a user at a random point of it.
    pub(crate) fn first_think_time(&mut self) -> Duration {
        let think_time = self.think_time();
        think_time.mul_f64(self.think_times.fraction())
    }

    pub(crate) fn succeeded(&mut self) {
        self.down_since = None;
    }

    pub(crate) fn failed(&mut self, now: Instant) {
        self.down_since.get_or_insert(now);
    }

    /// Ends the source if the run is over, interrupted or hopeless.
    pub(crate) fn check_end(&mut self, now: Instant) {
        if self.closing.is_some() {
            return;
        }
        if self.plan.settings.stop.is_set() {
            self.close(now, now);
        } else if let Some(end) = self.last_call.filter(|end| now >= *end) {
            self.close(end, now + self.plan.settings.grace_period);
        } else if self.left == Some(0) {
            self.close(now, now + self.plan.settings.timeout);
        } else if self.left.is_some() && self.down_since.is_some_and(|at| now - at >= ABANDON_AFTER)
        {
            self.gave_up = true;
            self.close(now, now);
        }
    }

    fn close(&mut self, end: Instant, closing: Instant) {
        self.unsent = self.backlog(end);
        self.closing = Some(closing);
    }

    /// Returns whether the thread is done.
    pub(crate) fn is_over(&self, now: Instant, busy: u64) -> bool {
        self.closing.is_some_and(|end| busy == 0 || now >= end)
    }

    pub(crate) fn outcome(&self, busy: u64) -> ThreadOutcome {
        ThreadOutcome {
            unfinished: busy,
            unsent: self.unsent,
            gave_up: self.gave_up,
        }
    }
}
