//! Latency histograms of the last minutes: hits, waiting requests, origin.
//!
//! Every second, the samples since the previous one are recorded; a window is the sum of its seconds. Only
//! non-empty histogram classes of a second are kept: a few hundred bytes under load, 13 KiB if all classes
//! are used.

use std::collections::VecDeque;
use std::time::Duration;

use microcache_proxy::{CompactLatencies, Latencies, MetricsSnapshot};
use serde_json::{Value, json};

use crate::latency::latency;

/// Lengths of the windows, in seconds. The last one is as long as the recording.
const WINDOWS: [u64; 3] = [60, 300, 600];
/// Number of recorded seconds.
const SECONDS: usize = 600;

/// Recorded seconds.
#[derive(Debug, Default)]
pub(crate) struct LatencyWindows {
    seconds: VecDeque<Second>,
    /// Totals at the end of the last recorded second.
    last: Option<(Duration, LatencyTotals)>,
}

/// Histograms since the start.
#[derive(Debug, Default)]
struct LatencyTotals {
    hits: Latencies,
    waits: Latencies,
    origin: Latencies,
}

/// Samples of one interval between two snapshots.
#[derive(Debug)]
struct Second {
    began: Duration,
    ended: Duration,
    hits: CompactLatencies,
    waits: CompactLatencies,
    origin: CompactLatencies,
}

impl LatencyWindows {
    /// Records the totals at this time since the start.
    pub(crate) fn note(&mut self, at: Duration, figures: &MetricsSnapshot) {
        self.note_times(at, LatencyTotals::of(figures));
    }

    fn note_times(&mut self, at: Duration, now: LatencyTotals) {
        let (began, before) = self.last.take().unwrap_or_default();
        if self.seconds.len() == SECONDS {
            self.seconds.pop_front();
        }
        self.seconds.push_back(Second {
            began,
            ended: at,
            hits: now.hits.since(&before.hits).kept(),
            waits: now.waits.since(&before.waits).kept(),
            origin: now.origin.since(&before.origin).kept(),
        });
        self.last = Some((at, now));
    }

    /// Returns the windows up to now, shortest first.
    pub(crate) fn view(&self, figures: &MetricsSnapshot) -> Vec<Value> {
        self.views(&LatencyTotals::of(figures))
    }

    fn views(&self, now: &LatencyTotals) -> Vec<Value> {
        WINDOWS
            .iter()
            .map(|&seconds| self.window(seconds, now))
            .collect()
    }

    fn window(&self, seconds: u64, now: &LatencyTotals) -> Value {
        let end = self.last.as_ref().map_or(Duration::ZERO, |(at, _)| *at);
        let beginning = end.saturating_sub(Duration::from_secs(seconds));
        let mut times = LatencyTotals::default();
        let mut covered = Duration::ZERO;
        // Samples after the last recorded second count as well.
        let none = LatencyTotals::default();
        let last = self.last.as_ref().map_or(&none, |(_, last)| last);
        times.hits.add_kept(&now.hits.since(&last.hits).kept());
        times.waits.add_kept(&now.waits.since(&last.waits).kept());
        times
            .origin
            .add_kept(&now.origin.since(&last.origin).kept());
        let in_it = self.seconds.iter().rev();
        for second in in_it.take_while(|second| second.ended > beginning) {
            times.hits.add_kept(&second.hits);
            times.waits.add_kept(&second.waits);
            times.origin.add_kept(&second.origin);
            covered = end.saturating_sub(second.began);
        }
        json!({
            "seconds": seconds,
            "covered_seconds": covered.as_secs_f64(),
            "hit_microseconds": latency(&times.hits),
            "wait_microseconds": latency(&times.waits),
            "first_byte_microseconds": latency(&times.origin),
        })
    }
}

impl LatencyTotals {
    fn of(figures: &MetricsSnapshot) -> Self {
        Self {
            hits: figures.hits(),
            waits: figures.waits(),
            origin: figures.origin().first_byte,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Totals with hits of this latency, in milliseconds, and as many waits a hundred times as long.
    fn times(millis: &[u64]) -> LatencyTotals {
        let of = |factor: u64| {
            let times = millis
                .iter()
                .map(|millis| Duration::from_millis(millis * factor));
            times.collect::<Latencies>()
        };
        LatencyTotals {
            hits: of(1),
            waits: of(100),
            origin: Latencies::default(),
        }
    }

    /// No samples since the last recorded second.
    fn view(windows: &LatencyWindows) -> Vec<Value> {
        let none = LatencyTotals::default();
        windows.views(windows.last.as_ref().map_or(&none, |(_, last)| last))
    }

    fn counts(windows: &LatencyWindows) -> Vec<(u64, f64)> {
        let view = view(windows);
        let of = |one: &Value| {
            let count = one["hit_microseconds"]["count"].as_u64();
            let covered = one["covered_seconds"].as_f64();
            (count.expect("a count"), covered.expect("a time"))
        };
        view.iter().map(of).collect()
    }

    #[test]
    fn a_window_contains_only_the_samples_of_its_seconds() {
        let mut windows = LatencyWindows::default();
        assert_eq!(counts(&windows), [(0, 0.0); 3]);
        let mut all = Vec::new();
        for second in 1..=1000 {
            all.push(if second <= 900 { 8 } else { 1 });
            windows.note_times(Duration::from_secs(second), times(&all));
        }
        assert_eq!(counts(&windows), [(60, 60.0), (300, 300.0), (600, 600.0)]);
        assert_eq!(windows.seconds.len(), SECONDS);
        let view = view(&windows);
        let is_about = |window: usize, what: &str, part: &str, millis: f64| {
            let view = view[window][what][part].as_f64().expect("a time") / 1000.0;
            // A class of times is an eighth of its octave wide.
            (millis..=millis * 1.125).contains(&view)
        };
        // The last hundred samples are eight times as fast.
        assert!(is_about(0, "hit_microseconds", "p999", 1.0), "{view:#?}");
        assert!(is_about(0, "wait_microseconds", "mean", 100.0), "{view:#?}");
        assert!(is_about(1, "hit_microseconds", "p50", 8.0), "{view:#?}");
        assert!(view[2]["first_byte_microseconds"]["p50"].is_null());
    }

    #[test]
    fn samples_since_the_last_full_second_count() {
        let mut windows = LatencyWindows::default();
        let count = |windows: &LatencyWindows, millis: &[u64]| {
            windows.views(&times(millis))[0]["hit_microseconds"]["count"].as_u64()
        };
        assert_eq!(count(&windows, &[3, 3]), Some(2));
        windows.note_times(Duration::from_secs(1), times(&[3, 3]));
        assert_eq!(count(&windows, &[3, 3, 3]), Some(3));
    }

    #[test]
    fn a_pause_is_a_long_second() {
        let mut windows = LatencyWindows::default();
        windows.note_times(Duration::from_secs(1), times(&[1]));
        windows.note_times(Duration::from_secs(200), times(&[1, 1]));
        assert_eq!(counts(&windows), [(1, 199.0), (2, 200.0), (2, 200.0)]);
    }
}
