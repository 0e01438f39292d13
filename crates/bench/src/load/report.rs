//! Result of a run.

use std::time::{Duration, SystemTime};

use super::outcome::CacheOutcome;
use super::tally::Tally;
use super::target::TargetUrl;

/// Result of a run.
#[derive(Clone, Debug)]
pub struct BenchReport {
    /// Start of measuring, after the warm-up.
    pub began: SystemTime,
    /// Time from there to the last response.
    pub elapsed: Duration,
    /// First URL.
    pub url: TargetUrl,
    /// Number of URLs.
    pub urls: u64,
    /// Number of connections.
    pub connections: usize,
    /// Number of threads.
    pub threads: usize,
    /// Target rate of an open loop, in requests per second.
    pub rate_wanted: Option<f64>,
    /// Totals.
    pub tally: Tally,
    /// Requests still in flight when the grace period ended.
    pub unfinished: u64,
    /// Requests of an open loop that were due but never found a free connection.
    pub unsent: u64,
    /// Maximum backlog of an open loop, sampled at the end of each slice.
    pub backlog: u64,
    /// Slices in order of time.
    pub time_line: Vec<Slice>,
    /// Requests counted by the origin during the run.
    pub origin: Option<OriginCount>,
    /// `true` if a signal ended the run.
    pub interrupted: bool,
    /// `true` if the run was abandoned because all requests kept failing.
    pub gave_up: bool,
}

impl BenchReport {
    /// Responses per second.
    pub fn rate(&self) -> f64 {
        per_second(self.tally.answers() as f64, self.elapsed)
    }

    /// Received bytes per second.
    pub fn throughput(&self) -> f64 {
        per_second(self.tally.bytes() as f64, self.elapsed)
    }

    /// Fraction of requests without a response.
    pub fn error_share(&self) -> f64 {
        let faults = self.tally.faults();
        share(faults, faults + self.tally.answers())
    }

    /// Fraction of responses served without waiting for the origin, among those with `Cache-Status`.
    pub fn hit_share(&self) -> f64 {
        let answers = self.tally.answers();
        let silent = self.tally.count_of(CacheOutcome::None);
        let from_store = CacheOutcome::ALL.into_iter().filter(|o| o.is_from_store());
        share(
            from_store.map(|o| self.tally.count_of(o)).sum(),
            answers - silent,
        )
    }
}

/// Counter values reported by the origin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OriginCount {
    /// Requests.
    pub requests: u64,
    /// Rendered pages, if reported.
    pub renders: Option<u64>,
}

/// Figures of one slice of time.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// Start, relative to that of measuring.
    pub start: Duration,
    /// Length.
    pub length: Duration,
    /// Responses per outcome, in the order of [`CacheOutcome::ALL`].
    pub outcomes: [u64; CacheOutcome::COUNT],
    /// Requests without a response.
    pub faults: u64,
    /// Received bytes.
    pub bytes: u64,
    /// Mean latency.
    pub mean: Duration,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile of latency.
    pub p99: Duration,
    /// Maximum latency.
    pub max: Duration,
    /// Backlog of an open loop at the end of the slice.
    pub backlog: u64,
}

impl Slice {
    pub(crate) fn new(start: Duration, length: Duration, tally: &Tally, backlog: u64) -> Self {
        let total = tally.overall().total;
        Self {
            start,
            length,
            outcomes: CacheOutcome::ALL.map(|outcome| tally.count_of(outcome)),
            faults: tally.faults(),
            bytes: tally.bytes(),
            mean: total.mean(),
            p50: total.percentile(50.0),
            p99: total.percentile(99.0),
            max: total.max(),
            backlog,
        }
    }

    /// Number of responses.
    pub fn answers(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Responses per second.
    pub fn rate(&self) -> f64 {
        per_second(self.answers() as f64, self.length)
    }
}

/// Progress of a run, reported at the end of every slice.
#[derive(Debug)]
pub struct LoadProgress<'a> {
    /// The slice that has ended.
    pub slice: &'a Slice,
    /// Totals so far.
    pub tally: &'a Tally,
    /// Time since the start of measuring.
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
