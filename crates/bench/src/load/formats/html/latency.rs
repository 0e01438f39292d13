//! Chart of latency by percentile, one line per outcome.

use std::time::Duration;

use super::drawing::{Decades, Drawing};
use super::present_outcomes;
use crate::load::report::BenchReport;
use crate::load::tally::Latency;
use crate::load::unit::show_duration;

/// Number of nines at the right edge: 99.999 %.
const NINES: f64 = 5.0;
/// Points per line.
const STEPS: u32 = 120;

pub(super) fn draw(report: &BenchReport) -> String {
    let mut drawing = Drawing::new("latency by percentile");
    let total = report.tally.overall().total;
    let decades = Decades::spanning(micros(total.min()), micros(total.max()));
    for mark in decades.marks() {
        let time = Duration::from_secs_f64(mark / 1e6);
        drawing.mark_y(decades.place(mark), show_duration(time));
    }
    for percent in [0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999] {
        drawing.mark_x(place(percent), format_args!("{percent} %"));
    }
    for outcome in present_outcomes(report) {
        if let Some(timing) = report.tally.timing(outcome) {
            drawing.line(outcome, &points(&timing.total, &decades));
        }
    }
    drawing.end()
}

/// Maps a percentile to the horizontal axis: each additional nine takes the same width.
fn place(percent: f64) -> f64 {
    -(1.0 - percent / 100.0).log10() / NINES
}

fn points(latency: &Latency, decades: &Decades) -> Vec<(f64, f64)> {
    (0..=STEPS)
        .map(|step| {
            let x = f64::from(step) / f64::from(STEPS);
            let percent = 100.0 * (1.0 - 10f64.powf(-x * NINES));
            (x, decades.place(micros(latency.percentile(percent))))
        })
        .collect()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}
