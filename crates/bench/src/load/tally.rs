//! What was seen: counts and latencies that can be added up.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::outcome::{Fault, Outcome};

/// Latencies are kept in microseconds, to three digits, up to an hour.
#[derive(Clone, Debug)]
pub struct Latency(Histogram<u64>);

impl Latency {
    const LONGEST_MICROS: u64 = 3_600_000_000;
    const DIGITS: u8 = 3;

    /// None yet.
    pub fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, Self::LONGEST_MICROS, Self::DIGITS);
        Self(histogram.expect("the bounds are in order"))
    }

    /// Adds one.
    pub fn record(&mut self, latency: Duration) {
        self.0.saturating_record(latency.as_micros() as u64);
    }

    /// Adds all of another.
    pub fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("all have the same bounds");
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The time within which this many percent were done; zero without any.
    pub fn percentile(&self, percent: f64) -> Duration {
        Duration::from_micros(self.0.value_at_percentile(percent))
    }

    /// The mean; zero without any.
    pub fn mean(&self) -> Duration {
        micros(self.0.mean())
    }

    /// The standard deviation; zero without any.
    pub fn stdev(&self) -> Duration {
        micros(self.0.stdev())
    }

    /// The shortest; zero without any.
    pub fn min(&self) -> Duration {
        Duration::from_micros(self.0.min())
    }

    /// The longest; zero without any.
    pub fn max(&self) -> Duration {
        Duration::from_micros(self.0.max())
    }

    /// The histogram itself, in microseconds.
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

/// The two latencies of every answer.
#[derive(Clone, Debug, Default)]
pub struct Timing {
    /// Until its first byte.
    pub first_byte: Latency,
    /// Until its last byte.
    pub total: Latency,
}

/// What was seen in a while.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    timings: [Option<Box<Timing>>; Outcome::COUNT],
    connect: Option<Box<Latency>>,
    statuses: BTreeMap<u16, u64>,
    faults: [u64; Fault::COUNT],
    bytes: u64,
}

/// One whole answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) outcome: Outcome,
    pub(crate) first_byte: Duration,
    pub(crate) total: Duration,
}

impl Tally {
    pub(crate) fn answered(&mut self, answer: &Answer) {
        let timing = self.timings[answer.outcome as usize].get_or_insert_default();
        timing.first_byte.record(answer.first_byte);
        timing.total.record(answer.total);
        *self.statuses.entry(answer.status).or_default() += 1;
    }

    pub(crate) fn failed(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    pub(crate) fn connected(&mut self, after: Duration) {
        self.connect.get_or_insert_default().record(after);
    }

    pub(crate) fn received(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// Adds all of another.
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

    /// Requests that were answered.
    pub fn answers(&self) -> u64 {
        Outcome::ALL.iter().map(|&outcome| self.of(outcome)).sum()
    }

    /// Requests with this outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.timing(outcome)
            .map_or(0, |timing| timing.total.count())
    }

    /// The latencies of the requests with this outcome, if there are any.
    pub fn timing(&self, outcome: Outcome) -> Option<&Timing> {
        self.timings[outcome as usize].as_deref()
    }

    /// The latencies of all answers together.
    pub fn overall(&self) -> Timing {
        let mut all = Timing::default();
        for timing in self.timings.iter().flatten() {
            all.first_byte.add(&timing.first_byte);
            all.total.add(&timing.total);
        }
        all
    }

    /// How long connecting took, TLS included.
    pub fn connect(&self) -> Latency {
        self.connect.as_deref().cloned().unwrap_or_default()
    }

    /// Answers per status.
    pub fn statuses(&self) -> &BTreeMap<u16, u64> {
        &self.statuses
    }

    /// Answers whose status is at least this and less than the next hundred.
    pub fn statuses_of_class(&self, hundreds: u16) -> u64 {
        let first = hundreds * 100;
        self.statuses
            .range(first..first + 100)
            .map(|(_, n)| n)
            .sum()
    }

    /// Requests without an answer for this reason.
    pub fn faults_of(&self, fault: Fault) -> u64 {
        self.faults[fault as usize]
    }

    /// Requests without an answer.
    pub fn faults(&self) -> u64 {
        self.faults.iter().sum()
    }

    /// Bytes that came in, heads included.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
