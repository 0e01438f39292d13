//! The result of a run.

use std::time::{Duration, SystemTime};

use super::outcome::Outcome;
use super::tally::Tally;
use super::target::Url;

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Report {
    /// When measuring began, after warming.
    pub began: SystemTime,
    /// From then to the end of the run, or to the last answer that was waited for.
    pub elapsed: Duration,
    /// The first url.
    pub url: Url,
    /// How many urls there are.
    pub urls: u64,
    /// Connections.
    pub connections: usize,
    /// Threads.
    pub threads: usize,
    /// The rate that was wanted, in an open loop.
    pub rate_wanted: Option<f64>,
    /// Everything that was counted.
    pub tally: Tally,
    /// Requests still under way when patience ended.
    pub unfinished: u64,
    /// Requests of an open loop that were due and found no free connection until the end.
    pub unsent: u64,
    /// The most requests of an open loop that were due and not sent, seen at the end of a slice.
    pub backlog: u64,
    /// What happened when.
    pub time_line: Vec<Slice>,
    /// What the origin counted meanwhile.
    pub origin: Option<OriginCount>,
    /// Whether somebody ended the run.
    pub interrupted: bool,
    /// Whether the run ended because no connection could be opened any more.
    pub gave_up: bool,
}

impl Report {
    /// Answers per second.
    pub fn rate(&self) -> f64 {
        per_second(self.tally.answers() as f64, self.elapsed)
    }

    /// Bytes per second.
    pub fn throughput(&self) -> f64 {
        per_second(self.tally.bytes() as f64, self.elapsed)
    }

    /// The share of requests without an answer.
    pub fn error_share(&self) -> f64 {
        let faults = self.tally.faults();
        share(faults, faults + self.tally.answers())
    }

    /// The share of answers from a cache that did not wait for the origin, of those that say so.
    pub fn hit_share(&self) -> f64 {
        let answers = self.tally.answers();
        let silent = self.tally.of(Outcome::None);
        let from_store = Outcome::ALL.into_iter().filter(|o| o.is_from_store());
        share(from_store.map(|o| self.tally.of(o)).sum(), answers - silent)
    }
}

/// What an origin says it has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginCount {
    /// Requests.
    pub requests: u64,
    /// Pages made, where it tells.
    pub renders: Option<u64>,
}

/// One point on the time line.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Its beginning, since measuring began.
    pub start: Duration,
    /// Its length.
    pub length: Duration,
    /// Answers per outcome, as in [`Outcome::ALL`].
    pub outcomes: [u64; Outcome::COUNT],
    /// Requests without an answer.
    pub faults: u64,
    /// Bytes that came in.
    pub bytes: u64,
    /// The mean latency of its answers.
    pub mean: Duration,
    /// Their median.
    pub p50: Duration,
    /// What 99 % of them stayed within.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
    /// Requests of an open loop that were due and not sent at its end.
    pub backlog: u64,
}

impl Slice {
    pub(crate) fn new(start: Duration, length: Duration, tally: &Tally, backlog: u64) -> Self {
        let total = tally.overall().total;
        Self {
            start,
            length,
            outcomes: Outcome::ALL.map(|outcome| tally.of(outcome)),
            faults: tally.faults(),
            bytes: tally.bytes(),
            mean: total.mean(),
            p50: total.percentile(50.0),
            p99: total.percentile(99.0),
            max: total.max(),
            backlog,
        }
    }

    /// Answers.
    pub fn answers(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Answers per second.
    pub fn rate(&self) -> f64 {
        per_second(self.answers() as f64, self.length)
    }
}

/// How a run stands, told at the end of every slice.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The slice that has just ended.
    pub slice: &'a Slice,
    /// Everything so far.
    pub tally: &'a Tally,
    /// Since measuring began.
    pub elapsed: Duration,
}

fn per_second(count: f64, elapsed: Duration) -> f64 {
    if elapsed.is_zero() {
        return 0.0;
    }
    count / elapsed.as_secs_f64()
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}
