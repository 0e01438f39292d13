//! Counts and latency histograms that can be merged.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::outcome::{CacheOutcome, RequestFault};

/// Latency histogram: microsecond resolution, three significant digits, up to one hour.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Latency {
    const LONGEST_MICROS: u64 = 3_600_000_000;
    const DIGITS: u8 = 3;

    /// Returns an empty histogram.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, Self::LONGEST_MICROS, Self::DIGITS);
        Self(histogram.expect("the bounds are in order"))
    }

    /// Records a latency.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_micros() as u64);
    }

    /// Merges another histogram.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// Number of recorded latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Latency at a percentile; zero if empty.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_micros(self.0.value_at_percentile(percent))
    }

    /// Mean latency; zero if empty.
    pub fn mean(&self) -> Duration {
        micros(self.0.mean())
    }

    /// Standard deviation; zero if empty.
    pub fn stdev(&self) -> Duration {
        micros(self.0.stdev())
    }

    /// Minimum latency; zero if empty.
    pub fn min(&self) -> Duration {
        Duration::from_micros(self.0.min())
    }

    /// Maximum latency; zero if empty.
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.0.max())
    }

    /// Underlying histogram, in microseconds.
    pub fn histogram(&self) -> &Histogram<u64> {
        &self.0
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self::new()
    }
}

fn micros(micros: f64) -> Duration {
    Duration::from_secs_f64(micros / 1e6)
}

/// Latency histograms of a set of responses.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// Latency of the first byte.
    pub first_byte: Latency,
    /// Latency of the last byte.
    pub total: Latency,
}

/// Counts of a period.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    timings: [Option<Box<Timing>>; CacheOutcome::COUNT],
    connect: Option<Box<Latency>>,
    statuses: BTreeMap<u16, u64>,
    faults: [u64; RequestFault::COUNT],
    bytes: u64,
}

/// Complete response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordedResponse {
    pub(crate) status: u16,
    pub(crate) outcome: CacheOutcome,
    pub(crate) first_byte: Duration,
    pub(crate) total: Duration,
}

impl Tally {
    pub(crate) fn answered(&mut self, answer: &RecordedResponse) {
        let timing = self.timings[answer.outcome as usize].get_or_insert_default();
        timing.first_byte.record(answer.first_byte);
        timing.total.record(answer.total);
        *self.statuses.entry(answer.status).or_default() += 1;
    }

    pub(crate) fn failed(&mut self, fault: RequestFault) {
        self.faults[fault as usize] += 1;
    }

    pub(crate) fn connected(&mut self, after: Duration) {
        self.connect.get_or_insert_default().record(after);
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Merges another tally.
    pub(crate) fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.timings.iter_mut().zip(&other.timings) {
            if let Some(theirs) = theirs {
                let mine = mine.get_or_insert_default();
                mine.first_byte.add(&theirs.first_byte);
                mine.total.add(&theirs.total);
            }
        }
        if let Some(connect) = &other.connect {
            self.connect.get_or_insert_default().add(connect);
        }
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        for (mine, theirs) in self.faults.iter_mut().zip(other.faults) {
            *mine += theirs;
        }
        self.bytes += other.bytes;
    }

    /// Number of responses.
    pub fn answers(&self) -> u64 {
        CacheOutcome::ALL
            .iter()
            .map(|&outcome| self.count_of(outcome))
            .sum()
    }

    /// Number of responses with this outcome.
    pub fn count_of(&self, outcome: CacheOutcome) -> u64 {
        self.timing(outcome)
            .map_or(0, |timing| timing.total.count())
    }

    /// Latencies of the responses with this outcome; `None` without any.
    pub fn timing(&self, outcome: CacheOutcome) -> Option<&Timing> {
        self.timings[outcome as usize].as_deref()
    }

    /// Latencies of all responses.
    pub fn overall(&self) -> Timing {
        let mut all = Timing::default();
        for timing in self.timings.iter().flatten() {
            all.first_byte.add(&timing.first_byte);
            all.total.add(&timing.total);
        }
        all
    }

    /// Time to connect, including the TLS handshake.
    pub fn connect(&self) -> Latency {
        self.connect.as_deref().cloned().unwrap_or_default()
    }

    /// Number of responses, by status.
    pub fn statuses(&self) -> &BTreeMap<u16, u64> {
        &self.statuses
    }

    /// Number of responses whose status starts with this digit.
    pub fn statuses_of_class(&self, hundreds: u16) -> u64 {
        let first = hundreds * 100;
        self.statuses
            .range(first..first + 100)
            .map(|(_, n)| n)
            .sum()
    }

    /// Number of requests that failed for this reason.
    pub fn faults_of(&self, fault: RequestFault) -> u64 {
        self.faults[fault as usize]
    }

    /// Number of requests without a response.
    pub fn faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Received bytes, including response heads.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
