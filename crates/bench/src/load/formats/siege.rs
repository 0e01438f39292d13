//! Report in the format of siege 4.

use std::fmt::Write;

use crate::load::report::BenchReport;

const MEGABYTE: f64 = 1024.0 * 1024.0;

pub(super) fn write(report: &BenchReport) -> String {
    let tally = &report.tally;
    let total = tally.overall().total;
    let answers = tally.answers();
    // Siege counts a status of 400 or above as failed, yet includes it in the transactions.
    let refused = tally
        .statuses()
        .range(400..)
        .map(|(_, count)| count)
        .sum::<u64>();
    let faults = tally.faults();
    let succeeded = answers - refused;
    let availability = 100.0 * succeeded as f64 / (answers + faults).max(1) as f64;
    let seconds = report.elapsed.as_secs_f64();
    let mean = total.mean().as_secs_f64();
    let busy = mean * answers as f64 / seconds.max(f64::MIN_POSITIVE);
    let fields = [
        ("transactions", answers.to_string()),
        ("availability", format!("{availability:.2}")),
        ("elapsed_time", format!("{seconds:.2}")),
        (
            "data_transferred",
            format!("{:.2}", tally.bytes() as f64 / MEGABYTE),
        ),
        ("response_time", format!("{mean:.4}")),
        ("transaction_rate", format!("{:.2}", report.rate())),
        (
            "throughput",
            format!("{:.2}", report.throughput() / MEGABYTE),
        ),
        ("concurrency", format!("{busy:.2}")),
        ("successful_transactions", succeeded.to_string()),
        ("failed_transactions", (faults + refused).to_string()),
        (
            "longest_transaction",
            format!("{:.4}", total.max().as_secs_f64()),
        ),
        (
            "shortest_transaction",
            format!("{:.4}", total.min().as_secs_f64()),
        ),
    ];
    let mut out = String::from("{");
    for (at, (name, value)) in fields.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let name = format!("\"{name}\":");
        let _ = write!(out, "{comma}\n\t{name:<32}{value:>12}");
    }
    out.push_str("\n}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::report;

    #[test]
    fn the_fields_are_siege_s() {
        let value: serde_json::Value = serde_json::from_str(&write(&report())).expect("JSON");
        for (name, expected) in [
            ("transactions", 100.0),
            ("availability", 85.71),
            ("elapsed_time", 10.0),
            ("data_transferred", 0.95),
            ("response_time", 0.0109),
            ("transaction_rate", 10.0),
            ("throughput", 0.1),
            ("concurrency", 0.11),
            ("successful_transactions", 90.0),
            ("failed_transactions", 15.0),
            ("longest_transaction", 0.1),
            ("shortest_transaction", 0.001),
        ] {
            let found = value[name].as_f64().expect(name);
            assert!((found - expected).abs() < 0.006, "{name} {found}");
        }
        assert_eq!(value.as_object().map(serde_json::Map::len), Some(12));
    }
}
