//! Charts over time: requests per second by outcome, and latency.

use std::time::Duration;

use super::drawing::{Decades, Drawing, round_up};
use super::present_outcomes;
use crate::load::report::{BenchReport, Slice};
use crate::load::unit::{show_duration, show_rounded};

/// Maximum of points per line; adjacent slices are merged above it.
const MOST_POINTS: usize = 450;
/// Labels per axis.
const MARKS: u32 = 4;

/// Draws responses per second, with one layer per outcome and one for errors.
pub(super) fn rates(report: &BenchReport) -> String {
    let mut drawing = Drawing::new("requests per second over time");
    let groups: Vec<&[Slice]> = groups(&report.time_line).collect();
    let most = round_up(groups.iter().map(|g| rate(g, all)).fold(0.0, f64::max));
    for mark in 0..=MARKS {
        let y = f64::from(mark) / f64::from(MARKS);
        drawing.mark_y(y, show_rounded(y * most));
    }
    mark_times(report, &mut drawing);
    let mut below: Vec<_> = groups.iter().map(|g| (place(report, g), 0.0)).collect();
    let mut layer = |class: &str, count: &dyn Fn(&Slice) -> u64| {
        let above: Vec<_> = below
            .iter()
            .zip(&groups)
            .map(|((x, y), group)| (*x, y + rate(group, count) / most))
            .collect();
        drawing.area(class, &below, &above);
        below = above;
    };
    for outcome in present_outcomes(report) {
        layer(outcome.as_str(), &|slice| slice.outcomes[outcome as usize]);
    }
    if report.tally.faults() > 0 {
        layer("fault", &|slice| slice.faults);
    }
    drawing.end()
}

/// Draws p50, p99 and maximum latency.
pub(super) fn latencies(report: &BenchReport) -> String {
    let mut drawing = Drawing::new("latency over time");
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let total = report.tally.overall().total;
    let decades = Decades::spanning(micros(total.min()), micros(total.max()));
    for mark in decades.marks() {
        let time = Duration::from_secs_f64(mark / 1e6);
        drawing.mark_y(decades.place(mark), show_duration(time));
    }
    mark_times(report, &mut drawing);
    let mut line = |class: &str, figure: fn(&Slice) -> Duration| {
        // Merged slices show the worst of their values, so that no spike is smoothed away.
        let points: Vec<_> = groups(&report.time_line)
            .filter_map(|group| {
                let answered = group.iter().filter(|slice| slice.answers() > 0);
                let worst = answered.map(figure).max()?;
                Some((place(report, group), decades.place(micros(worst))))
            })
            .collect();
        drawing.line(class, &points);
    };
    line("max", |slice| slice.max);
    line("p99", |slice| slice.p99);
    line("p50", |slice| slice.p50);
    drawing.end()
}

fn all(slice: &Slice) -> u64 {
    slice.answers() + slice.faults
}

fn groups(slices: &[Slice]) -> impl Iterator<Item = &[Slice]> {
    slices.chunks(slices.len().div_ceil(MOST_POINTS).max(1))
}

fn rate(group: &[Slice], count: impl Fn(&Slice) -> u64) -> f64 {
    let seconds: f64 = group.iter().map(|slice| slice.length.as_secs_f64()).sum();
    let count: u64 = group.iter().map(count).sum();
    count as f64 / seconds.max(f64::MIN_POSITIVE)
}

/// Returns the midpoint of a group of slices, as a fraction of the run.
fn place(report: &BenchReport, group: &[Slice]) -> f64 {
    let (Some(first), Some(last)) = (group.first(), group.last()) else {
        return 0.0;
    };
    let middle = (first.start + last.start + last.length) / 2;
    middle.as_secs_f64() / span(report).as_secs_f64().max(f64::MIN_POSITIVE)
}

fn span(report: &BenchReport) -> Duration {
    let last = report.time_line.last();
    last.map_or(report.elapsed, |slice| slice.start + slice.length)
}

fn mark_times(report: &BenchReport, drawing: &mut Drawing) {
    for mark in 0..=MARKS {
        let x = f64::from(mark) / f64::from(MARKS);
        drawing.mark_x(x, show_duration(span(report).mul_f64(x)));
    }
}
