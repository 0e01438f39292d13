//! Report in the format of `wrk --latency`.

use std::fmt::Write;
use std::time::Duration;

use crate::load::outcome::RequestFault;
use crate::load::report::BenchReport;

pub(super) fn write(report: &BenchReport) -> String {
    let tally = &report.tally;
    let total = tally.overall().total;
    let mut out = String::new();
    let _ = writeln!(
        out,
        "Running {:.0}s test @ {}\n  {} threads and {} connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev",
        report.elapsed.as_secs_f64(),
        report.url,
        report.threads,
        report.connections
    );
    let (mean, stdev) = (total.mean(), total.stdev());
    let low = mean.saturating_sub(stdev).as_micros() as u64;
    let high = (mean + stdev).as_micros() as u64;
    let near = total.histogram().count_between(low, high);
    let near = 100.0 * near as f64 / total.count().max(1) as f64;
    let _ = writeln!(
        out,
        "    Latency   {:>8} {:>8} {:>8} {near:>8.2}%",
        time(mean),
        time(stdev),
        time(total.max())
    );
    rates(report, &mut out);
    out.push_str("  Latency Distribution\n");
    for percent in [50, 75, 90, 99] {
        let within = time(total.percentile(f64::from(percent)));
        let _ = writeln!(out, "{percent:>7}% {within:>8}");
    }
    let _ = writeln!(
        out,
        "  {} requests in {:.2}s, {} read",
        tally.answers(),
        report.elapsed.as_secs_f64(),
        bytes(tally.bytes() as f64)
    );
    errors(report, &mut out);
    let _ = writeln!(
        out,
        "Requests/sec: {:>10.2}\nTransfer/sec: {:>10}",
        report.rate(),
        bytes(report.throughput())
    );
    out
}

/// Appends the requests per second of one thread, over all slices.
fn rates(report: &BenchReport, out: &mut String) {
    let rates = report.time_line.iter();
    let rates: Vec<f64> = rates.map(|s| s.rate() / report.threads as f64).collect();
    let count = rates.len().max(1) as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let stdev = (rates.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / count).sqrt();
    let max = rates.iter().copied().fold(0.0, f64::max);
    let near = rates.iter().filter(|r| (**r - mean).abs() <= stdev).count();
    let near = 100.0 * near as f64 / count;
    let _ = writeln!(
        out,
        "    Req/Sec   {:>8} {:>8} {:>8} {near:>8.2}%",
        metric(mean),
        metric(stdev),
        metric(max)
    );
}

fn errors(report: &BenchReport, out: &mut String) {
    let tally = &report.tally;
    let of = |faults: &[RequestFault]| faults.iter().map(|f| tally.faults_of(*f)).sum::<u64>();
    if tally.faults() > 0 {
        let _ = writeln!(
            out,
            "  Socket errors: connect {}, read {}, write 0, timeout {}",
            of(&[
                RequestFault::Refused,
                RequestFault::Connect,
                RequestFault::Tls
            ]),
            of(&[
                RequestFault::Reset,
                RequestFault::ClosedEarly,
                RequestFault::Malformed
            ]),
            of(&[RequestFault::TimedOut])
        );
    }
    let refused = tally.statuses().range(400..).map(|(_, n)| n).sum::<u64>();
    if refused > 0 {
        let _ = writeln!(out, "  Non-2xx or 3xx responses: {refused}");
    }
}

fn time(time: Duration) -> String {
    let micros = time.as_secs_f64() * 1e6;
    if micros < 1e3 {
        format!("{micros:.2}us")
    } else if micros < 1e6 {
        format!("{:.2}ms", micros / 1e3)
    } else if micros < 6e7 {
        format!("{:.2}s", micros / 1e6)
    } else {
        format!("{:.2}m", micros / 6e7)
    }
}

fn bytes(count: f64) -> String {
    let mut value = count;
    for unit in ["B", "KB", "MB"] {
        if value < 1024.0 {
            return format!("{value:.2}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.2}GB")
}

fn metric(count: f64) -> String {
    if count >= 1e3 {
        format!("{:.2}k", count / 1e3)
    } else {
        format!("{count:.2}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::testing::report;

    #[test]
    fn scripts_that_parse_wrk_find_their_lines() {
        let text = write(&report());
        for line in [
            "Running 10s test @ http://localhost:8080/page/[1-50]?a=1&b=<2>",
            "  2 threads and 4 connections",
            "  100 requests in 10.00s, 976.56KB read",
            "  Socket errors: connect 1, read 0, write 0, timeout 4",
            "  Non-2xx or 3xx responses: 10",
            "Requests/sec:      10.00",
            "Transfer/sec:    97.66KB",
            "     50%   1.00ms",
            "     99% 100.03ms",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
        assert!(
            text.contains("    Req/Sec       5.00     5.00    10.00   100.00%"),
            "{text}"
        );
    }
}
