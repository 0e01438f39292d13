//! Latencies as JSON.

use std::time::Duration;

use microcache_proxy::Latencies;
use serde_json::{Value, json};

/// Latency in microseconds; only the count without samples.
pub(crate) fn latency(times: &Latencies) -> Value {
    let of = |time: Option<Duration>| time.map(|time| time.as_secs_f64() * 1e6);
    json!({
        "count": times.count(),
        "mean": of(times.mean()),
        "p50": of(times.longest_of(500)),
        "p90": of(times.longest_of(900)),
        "p99": of(times.longest_of(990)),
        "p999": of(times.longest_of(999)),
    })
}
