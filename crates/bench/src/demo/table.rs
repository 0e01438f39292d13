//! Text tables of the demonstration's figures.

use std::fmt::Write;
use std::time::Duration;

use super::Measurement;
use super::setup::Setup;
use crate::load::LoadProgress;

/// Duration of the published measurements.
const PUBLISHED_LENGTH: Duration = Duration::from_secs(30);

/// Formats the live progress line of a phase.
pub(super) fn live(setup: Setup, progress: &LoadProgress<'_>, origin_requests: u64) -> String {
    let slice = progress.slice;
    format!(
        "  {:<15} {:>3.0} s {:>8} req/s, p99 {:>7}; responses {}, to origin {}",
        setup.name(),
        progress.elapsed.as_secs_f64(),
        rate(slice.rate()),
        time(slice.p99),
        grouped(progress.tally.answers()),
        grouped(origin_requests),
    )
}

/// Formats the final line of a phase.
pub(super) fn line(measured: &Measurement) -> String {
    format!(
        "  {:<15} {:>8} req/s; responses {}, requests to the origin {}",
        measured.setup.name(),
        rate(measured.report.rate()),
        grouped(measured.report.tally.answers()),
        grouped(measured.origin_requests)
    )
}

/// Formats all set-ups next to the published figures.
pub(super) fn table(all: &[Measurement]) -> String {
    let mut out = row(
        "",
        [
            "req/s",
            "mean",
            "stdev",
            "max",
            "responses",
            "to origin",
            "in 30 s",
        ]
        .map(str::to_owned),
    );
    for measured in all {
        out.push_str(&row(measured.setup.name(), figures(measured)));
        out.push_str(&row("  published", published(measured.setup)));
    }
    out.push_str(
        "\nresponses: sent to clients. to origin: requests to the application; in 30 s: the\nsame, scaled to 30 s. \
         plain 1 s cache: without stale responses and coalescing.\npublished: NGINX's blog, \"The Benefits of \
         Microcaching with NGINX\", for WordPress\nbehind nginx, 30 s each on other machines, over a network; \
         compare the ratios.\n",
    );
    if let Some(times) = gain(all) {
        let _ = writeln!(
            out,
            "Microcache serves {times} times as many requests as the application alone."
        );
    }
    let faults: u64 = all.iter().map(|one| one.report.tally.faults()).sum();
    if faults > 0 {
        let _ = writeln!(out, "Failed requests: {faults}.");
    }
    out
}

fn figures(measured: &Measurement) -> [String; 7] {
    let report = &measured.report;
    let latency = report.tally.overall().total;
    let origin_requests = measured.origin_requests;
    let scale = PUBLISHED_LENGTH.as_secs_f64() / report.elapsed.as_secs_f64().max(f64::EPSILON);
    [
        rate(report.rate()),
        time(latency.mean()),
        time(latency.stdev()),
        time(latency.max()),
        grouped(report.tally.answers()),
        grouped(origin_requests),
        rate_whole(origin_requests as f64 * scale),
    ]
}

fn published(setup: Setup) -> [String; 7] {
    let published = setup.published();
    let millis = |known: Option<u64>| known.map_or_else(none, |ms| time(Duration::from_millis(ms)));
    [
        rate(published.rate),
        none(),
        millis(published.stdev_millis),
        millis(published.max_millis),
        none(),
        none(),
        published.origin_requests.map_or_else(none, grouped),
    ]
}

fn row(name: &str, figures: [String; 7]) -> String {
    let [rate, mean, stdev, max, requests, origin, scaled] = figures;
    format!("{name:<16}{rate:>8}{mean:>9}{stdev:>9}{max:>9}{requests:>10}{origin:>10}{scaled:>8}\n")
}

fn gain(all: &[Measurement]) -> Option<String> {
    let of = |setup| all.iter().find(|one| one.setup == setup);
    let (alone, cached) = (of(Setup::Alone)?, of(Setup::Default)?);
    let (slow, fast) = (alone.report.rate(), cached.report.rate());
    (slow > 0.0).then(|| rate_whole(fast / slow))
}

fn none() -> String {
    "-".to_owned()
}

fn rate(rate: f64) -> String {
    if rate < 100.0 {
        return format!("{rate:.1}");
    }
    rate_whole(rate)
}

#[expect(clippy::cast_sign_loss, reason = "a rate has no sign")]
fn rate_whole(rate: f64) -> String {
    grouped(rate.round() as u64)
}

/// Formats a duration with three significant digits.
fn time(time: Duration) -> String {
    let millis = time.as_secs_f64() * 1e3;
    match millis {
        _ if millis >= 1000.0 => format!("{:.2} s", millis / 1e3),
        _ if millis >= 100.0 => format!("{millis:.0} ms"),
        _ if millis >= 1.0 => format!("{millis:.1} ms"),
        _ => format!("{millis:.2} ms"),
    }
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_easy_to_read() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(rate(5.53), "5.5");
        assert_eq!(rate(2185.4), "2,185");
        let shown = |micros| time(Duration::from_micros(micros));
        assert_eq!(shown(320), "0.32 ms");
        assert_eq!(shown(8400), "8.4 ms");
        assert_eq!(shown(141_400), "141 ms");
        assert_eq!(shown(1_810_000), "1.81 s");
    }

    #[test]
    fn rows_have_their_columns_under_each_other() {
        let ends = |line: &str| line.trim_end().len();
        let all: Vec<String> = Setup::ALL
            .map(|setup| row(setup.name(), published(setup)))
            .to_vec();
        assert_eq!(ends(&all[1]), ends(&all[2]));
        assert!(
            all[2].contains("2,185") && all[2].contains("661 ms"),
            "{}",
            all[2]
        );
    }
}
