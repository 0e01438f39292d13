//! Report as text tables.

use std::fmt::Write;

use crate::load::outcome::{CacheOutcome, RequestFault};
use crate::load::report::BenchReport;
use crate::load::tally::Latency;
use crate::load::unit::{show_bytes, show_count, show_duration};

/// Percentiles in every table.
const PERCENTILES: [f64; 6] = [50.0, 75.0, 90.0, 95.0, 99.0, 99.9];

pub(super) fn write(report: &BenchReport) -> String {
    let mut out = String::new();
    head(report, &mut out);
    counts(report, &mut out);
    latencies(report, &mut out);
    outcomes(report, &mut out);
    statuses(report, &mut out);
    errors(report, &mut out);
    out
}

fn head(report: &BenchReport, out: &mut String) {
    let _ = write!(out, "{}", report.url);
    if report.urls > 1 {
        let _ = write!(out, " ({} urls)", show_count(report.urls));
    }
    let _ = write!(
        out,
        "\n{}, {}, {}",
        plural(report.connections as u64, "connection"),
        plural(report.threads as u64, "thread"),
        show_duration(report.elapsed)
    );
    if let Some(rate) = report.rate_wanted {
        let _ = write!(out, ", {rate} requests/s target");
    }
    out.push('\n');
    if report.interrupted {
        out.push_str("Interrupted: figures up to the interruption.\n");
    }
    if report.gave_up {
        out.push_str("Given up: all requests failed for 10 s.\n");
    }
}

fn counts(report: &BenchReport, out: &mut String) {
    let tally = &report.tally;
    let _ = write!(
        out,
        "\nrequests  {}, {:.1}/s\ntransfer  {}, {}/s\n",
        show_count(tally.answers()),
        report.rate(),
        show_bytes(tally.bytes() as f64),
        show_bytes(report.throughput())
    );
    if let Some(origin) = report.origin {
        let _ = write!(out, "origin    {}", plural(origin.requests, "request"));
        if let Some(renders) = origin.renders {
            let _ = write!(out, ", {}", plural(renders, "render"));
        }
        out.push('\n');
    }
    if report.rate_wanted.is_some() {
        let _ = writeln!(
            out,
            "backlog   {} at most; {} never sent",
            show_count(report.backlog),
            show_count(report.unsent)
        );
    }
    if report.unfinished > 0 {
        let count = show_count(report.unfinished);
        let _ = writeln!(out, "unfinished {count}");
    }
}

fn latencies(report: &BenchReport, out: &mut String) {
    let overall = report.tally.overall();
    let rows = [
        ("connect", report.tally.connect()),
        ("first byte", overall.first_byte),
        ("total", overall.total),
    ];
    out.push_str("\nlatency          mean     stdev");
    percentile_names(out);
    for (name, latency) in rows {
        let _ = write!(out, "{name:<11}");
        figures(&latency, out);
    }
}

fn outcomes(report: &BenchReport, out: &mut String) {
    let tally = &report.tally;
    if tally.count_of(CacheOutcome::None) == tally.answers() {
        return;
    }
    out.push_str("\noutcome       requests   share      mean     stdev");
    percentile_names(out);
    for outcome in CacheOutcome::ALL {
        let Some(timing) = tally.timing(outcome) else {
            continue;
        };
        let count = tally.count_of(outcome);
        let share = 100.0 * count as f64 / tally.answers() as f64;
        let _ = write!(out, "{outcome:<11}{:>11}{share:>7.2}%", show_count(count));
        figures(&timing.total, out);
    }
}

/// Appends the percentile columns of a table head; [`figures`] appends the matching values.
pub(in crate::load) fn percentile_names(out: &mut String) {
    for percentile in PERCENTILES {
        let _ = write!(out, "{:>10}", format!("p{percentile}"));
    }
    out.push_str("       max\n");
}

/// Appends the latency columns of a table row.
pub(in crate::load) fn figures(latency: &Latency, out: &mut String) {
    if latency.count() == 0 {
        out.push_str("         –\n");
        return;
    }
    let spread = [latency.mean(), latency.stdev()].into_iter();
    let percentiles = PERCENTILES.map(|percent| latency.percentile(percent));
    for time in spread.chain(percentiles).chain([latency.max()]) {
        let _ = write!(out, "{:>10}", show_duration(time));
    }
    out.push('\n');
}

fn statuses(report: &BenchReport, out: &mut String) {
    out.push_str("\nstatus");
    for (status, count) in report.tally.statuses() {
        let _ = write!(out, "  {status}: {}", show_count(*count));
    }
    out.push('\n');
}

fn errors(report: &BenchReport, out: &mut String) {
    out.push_str("errors");
    if report.tally.faults() == 0 {
        out.push_str("  none");
    }
    for fault in RequestFault::ALL {
        let count = report.tally.faults_of(fault);
        if count > 0 {
            let _ = write!(out, "  {fault}: {}", show_count(count));
        }
    }
    out.push('\n');
}

pub(in crate::load) fn plural(count: u64, what: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{} {what}{s}", show_count(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::report;

    #[test]
    fn everything_that_was_measured_is_there() {
        let text = write(&report());
        for line in [
            "http://localhost:8080/page/[1-50]?a=1&b=<2> (50 urls)",
            "4 connections, 2 threads, 10.0 s, 11.2 requests/s target",
            "requests  100, 10.0/s",
            "transfer  977 KiB, 97.7 KiB/s",
            "origin    10 requests, 9 renders",
            "backlog   7 at most; 7 never sent",
            "unfinished 2",
            "status  200: 90  503: 10",
            "errors  connection refused: 1  timed out: 4",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        for start in ["connect ", "first byte ", "total ", "hit  ", "miss  "] {
            assert!(
                text.lines().any(|l| l.starts_with(start)),
                "{start}\n{text}"
            );
        }
        assert!(!text.contains("stale"), "{text}");
    }

    #[test]
    fn the_columns_stand_below_their_names() {
        let text = write(&report());
        let width = |start: &str| {
            let line = text.lines().find(|l| l.starts_with(start));
            line.expect(start).chars().count()
        };
        assert_eq!(width("latency"), width("total"));
        assert_eq!(width("outcome"), width("hit"));
    }
}
