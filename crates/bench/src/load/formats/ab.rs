//! Report in the format of ab (`ApacheBench`), for scripts that parse it.

use std::fmt::Write;

use crate::load::report::BenchReport;
use crate::load::tally::Latency;
use crate::load::unit::millis;

pub(super) fn write(report: &BenchReport) -> String {
    let mut out = String::new();
    let tally = &report.tally;
    let overall = tally.overall();
    let answers = tally.answers();
    let server = &report.url.server;
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name:<24}{value}");
    };
    line("Server Hostname:", server.host.clone());
    line("Server Port:", format!("{}\n", server.port));
    line("Document Path:", format!("{}\n", report.url.path()));
    line("Concurrency Level:", report.connections.to_string());
    let seconds = report.elapsed.as_secs_f64();
    line("Time taken for tests:", format!("{seconds:.3} seconds"));
    line("Complete requests:", answers.to_string());
    line("Failed requests:", tally.faults().to_string());
    let refused = answers - tally.statuses_of_class(2);
    if refused > 0 {
        line("Non-2xx responses:", refused.to_string());
    }
    line("Total transferred:", format!("{} bytes", tally.bytes()));
    line(
        "Requests per second:",
        format!("{:.2} [#/sec] (mean)", report.rate()),
    );
    let across = 1e3 / report.rate().max(f64::MIN_POSITIVE);
    let each = across * report.connections as f64;
    if answers > 0 {
        line("Time per request:", format!("{each:.3} [ms] (mean)"));
        line(
            "Time per request:",
            format!("{across:.3} [ms] (mean, across all concurrent requests)"),
        );
    }
    line(
        "Transfer rate:",
        format!(
            "{:.2} [Kbytes/sec] received\n",
            report.throughput() / 1024.0
        ),
    );
    out.push_str("Connection Times (ms)\n              min  mean[+/-sd] median   max\n");
    row("Connect:", &tally.connect(), &mut out);
    row("Waiting:", &overall.first_byte, &mut out);
    row("Total:", &overall.total, &mut out);
    out.push_str("\nPercentage of the requests served within a certain time (ms)\n");
    for percent in [50, 66, 75, 80, 90, 95, 98, 99] {
        let time = millis(overall.total.percentile(f64::from(percent)));
        let _ = writeln!(out, "  {percent}% {time:>9.3}");
    }
    let longest = millis(overall.total.max());
    let _ = writeln!(out, " 100% {longest:>9.3} (longest request)");
    out
}

fn row(name: &str, latency: &Latency, out: &mut String) {
    let _ = writeln!(
        out,
        "{name:<12}{:>9.3}{:>9.3}{:>9.3}{:>9.3}{:>9.3}",
        millis(latency.min()),
        millis(latency.mean()),
        millis(latency.stdev()),
        millis(latency.percentile(50.0)),
        millis(latency.max())
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::report;

    #[test]
    fn scripts_that_parse_ab_find_their_lines() {
        let text = write(&report());
        let value = |name: &str| {
            let line = text.lines().find(|l| l.starts_with(name)).expect(name);
            let value = line[name.len()..].split_whitespace().next();
            value.expect(name).parse::<f64>().expect(name)
        };
        for (name, expected) in [
            ("Server Port:", 8080.0),
            ("Concurrency Level:", 4.0),
            ("Time taken for tests:", 10.0),
            ("Complete requests:", 100.0),
            ("Failed requests:", 5.0),
            ("Non-2xx responses:", 10.0),
            ("Total transferred:", 1_000_000.0),
            ("Requests per second:", 10.0),
            ("Time per request:", 400.0),
            ("Transfer rate:", 97.66),
            ("  50%", 1.0),
            ("  99%", 100.0),
            (" 100%", 100.0),
        ] {
            let found = value(name);
            assert!(
                (found - expected).abs() <= expected / 500.0,
                "{name} {found}"
            );
        }
    }
}
