//! Report as JSON, with times in milliseconds.

use std::time::UNIX_EPOCH;

use serde_json::{Map, Value, json};

use crate::load::outcome::{CacheOutcome, RequestFault};
use crate::load::report::{BenchReport, Slice};
use crate::load::tally::Latency;
use crate::load::unit::millis;

pub(super) fn write(report: &BenchReport) -> String {
    format!("{:#}\n", value(report))
}

fn value(report: &BenchReport) -> Value {
    let tally = &report.tally;
    let overall = tally.overall();
    let began = report.began.duration_since(UNIX_EPOCH).unwrap_or_default();
    json!({
        "url": report.url.to_string(),
        "urls": report.urls,
        "connections": report.connections,
        "threads": report.threads,
        "rate_wanted": report.rate_wanted,
        "began_unix": began.as_secs_f64(),
        "elapsed_ms": millis(report.elapsed),
        "interrupted": report.interrupted,
        "gave_up": report.gave_up,
        "requests": tally.answers(),
        "rate": report.rate(),
        "bytes": tally.bytes(),
        "bytes_per_second": report.throughput(),
        "errors": tally.faults(),
        "error_rate": report.error_share(),
        "hit_ratio": report.hit_share(),
        "unfinished": report.unfinished,
        "unsent": report.unsent,
        "backlog": report.backlog,
        "origin": report.origin.map(|origin| json!({
            "requests": origin.requests,
            "renders": origin.renders,
        })),
        "latency_ms": {
            "connect": latency(&tally.connect()),
            "first_byte": latency(&overall.first_byte),
            "total": latency(&overall.total),
        },
        "outcomes": outcomes(report),
        "statuses": tally.statuses().iter()
            .map(|(status, count)| (status.to_string(), json!(count)))
            .collect::<Map<_, _>>(),
        "faults": RequestFault::ALL.iter()
            .map(|fault| (fault.as_str().to_lowercase().replace(' ', "_"), json!(tally.faults_of(*fault))))
            .collect::<Map<_, _>>(),
        "time_line": report.time_line.iter().map(slice).collect::<Vec<_>>(),
    })
}

fn outcomes(report: &BenchReport) -> Map<String, Value> {
    let mut outcomes = Map::new();
    for outcome in CacheOutcome::ALL {
        if let Some(timing) = report.tally.timing(outcome) {
            let value = json!({
                "requests": timing.total.count(),
                "first_byte_ms": latency(&timing.first_byte),
                "total_ms": latency(&timing.total),
            });
            outcomes.insert(outcome.as_str().to_owned(), value);
        }
    }
    outcomes
}

/// Returns a latency distribution as JSON, in milliseconds.
pub(in crate::load) fn latency(latency: &Latency) -> Value {
    let percentile = |percent| millis(latency.percentile(percent));
    json!({
        "count": latency.count(),
        "mean": millis(latency.mean()),
        "stdev": millis(latency.stdev()),
        "min": millis(latency.min()),
        "p50": percentile(50.0),
        "p75": percentile(75.0),
        "p90": percentile(90.0),
        "p95": percentile(95.0),
        "p99": percentile(99.0),
        "p99.9": percentile(99.9),
        "max": millis(latency.max()),
    })
}

fn slice(slice: &Slice) -> Value {
    let outcomes = CacheOutcome::ALL.iter().zip(slice.outcomes);
    json!({
        "start_ms": millis(slice.start),
        "length_ms": millis(slice.length),
        "requests": slice.answers(),
        "outcomes": outcomes
            .filter(|(_, count)| *count > 0)
            .map(|(outcome, count)| (outcome.as_str().to_owned(), json!(count)))
            .collect::<Map<_, _>>(),
        "errors": slice.faults,
        "bytes": slice.bytes,
        "mean_ms": millis(slice.mean),
        "p50_ms": millis(slice.p50),
        "p99_ms": millis(slice.p99),
        "max_ms": millis(slice.max),
        "backlog": slice.backlog,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::report;

    #[test]
    fn the_output_is_valid_json() {
        let value: Value = serde_json::from_str(&write(&report())).expect("JSON");
        for (path, expected) in [
            ("/url", json!("http://localhost:8080/page/[1-50]?a=1&b=<2>")),
            ("/requests", json!(100)),
            ("/rate", json!(10.0)),
            ("/errors", json!(5)),
            ("/hit_ratio", json!(0.9)),
            ("/origin/renders", json!(9)),
            ("/latency_ms/total/p50", json!(1.0)),
            ("/latency_ms/connect/count", json!(1)),
            ("/outcomes/miss/requests", json!(10)),
            ("/outcomes/hit/first_byte_ms/max", json!(0.5)),
            ("/statuses/503", json!(10)),
            ("/faults/timed_out", json!(4)),
            ("/time_line/0/outcomes/hit", json!(90)),
            ("/time_line/1/backlog", json!(7)),
        ] {
            assert_eq!(value.pointer(path), Some(&expected), "{path}");
        }
        assert_eq!(value.pointer("/outcomes/stale"), None);
    }
}
