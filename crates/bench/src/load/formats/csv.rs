//! Report as CSV, one metric per line.

use std::fmt::Write;

use crate::load::outcome::{CacheOutcome, RequestFault};
use crate::load::report::BenchReport;
use crate::load::tally::Latency;
use crate::load::unit::millis;

pub(super) fn write(report: &BenchReport) -> String {
    let mut out = String::from("metric,value\n");
    let tally = &report.tally;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name},{value}");
    };
    line("elapsed_ms", format!("{:.3}", millis(report.elapsed)));
    line("connections", report.connections.to_string());
    line("threads", report.threads.to_string());
    line("requests", tally.answers().to_string());
    line("rate", format!("{:.3}", report.rate()));
    line("bytes", tally.bytes().to_string());
    line("errors", tally.faults().to_string());
    line("unfinished", report.unfinished.to_string());
    line("unsent", report.unsent.to_string());
    line("backlog", report.backlog.to_string());
    if let Some(origin) = report.origin {
        line("origin_requests", origin.requests.to_string());
    }
    for (status, count) in tally.statuses() {
        line(&format!("status_{status}"), count.to_string());
    }
    for fault in RequestFault::ALL {
        let name = fault.as_str().to_lowercase().replace(' ', "_");
        line(&format!("error_{name}"), tally.faults_of(fault).to_string());
    }
    let overall = tally.overall();
    latency("connect", &tally.connect(), &mut out);
    latency("first_byte", &overall.first_byte, &mut out);
    latency("total", &overall.total, &mut out);
    for outcome in CacheOutcome::ALL {
        let _ = writeln!(out, "outcome_{outcome},{}", tally.count_of(outcome));
        if let Some(timing) = tally.timing(outcome) {
            latency(&format!("total_{outcome}"), &timing.total, &mut out);
        }
    }
    out
}

fn latency(name: &str, latency: &Latency, out: &mut String) {
    let percentile = |percent| latency.percentile(percent);
    for (figure, time) in [
        ("mean", latency.mean()),
        ("stdev", latency.stdev()),
        ("p50", percentile(50.0)),
        ("p75", percentile(75.0)),
        ("p90", percentile(90.0)),
        ("p95", percentile(95.0)),
        ("p99", percentile(99.0)),
        ("p99.9", percentile(99.9)),
        ("max", latency.max()),
    ] {
        let _ = writeln!(out, "{name}_{figure}_ms,{:.3}", millis(time));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::load::testing::report;

    #[test]
    fn every_line_is_a_metric_and_a_number() {
        let text = write(&report());
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("metric,value"));
        let metrics: BTreeMap<_, f64> = lines
            .map(|line| line.split_once(',').expect(line))
            .map(|(name, value)| (name, value.parse().expect(value)))
            .collect();
        for (name, value) in [
            ("requests", 100.0),
            ("rate", 10.0),
            ("status_503", 10.0),
            ("error_timed_out", 4.0),
            ("outcome_hit", 90.0),
            ("outcome_stale", 0.0),
            ("total_p50_ms", 1.0),
            ("total_hit_max_ms", 1.0),
            ("origin_requests", 10.0),
        ] {
            assert!(
                (metrics[name] - value).abs() < 1e-9,
                "{name} {}",
                metrics[name]
            );
        }
    }
}
