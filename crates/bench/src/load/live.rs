//! Live progress line, overwritten in place.

use std::fmt::Write;
use std::time::Duration;

use super::outcome::CacheOutcome;
use super::report::LoadProgress;
use super::settings::Settings;
use super::unit::{show_count, show_duration, show_rounded};

/// Width of the progress bar, in columns.
const BAR: usize = 20;

/// Formats the line, at most as wide as a common terminal.
pub fn progress_line(progress: &LoadProgress<'_>, settings: &Settings) -> String {
    let slice = progress.slice;
    let mut line = format!(
        "{} {:>6}  {:>9}/s  p50 {}  p99 {}  max {}",
        bar(share(progress, settings)),
        show_duration(Duration::from_millis(progress.elapsed.as_millis() as u64)),
        show_rounded(slice.rate()),
        show_duration(slice.p50),
        show_duration(slice.p99),
        show_duration(slice.max),
    );
    let from_store: u64 = CacheOutcome::ALL
        .iter()
        .zip(slice.outcomes)
        .filter(|(outcome, _)| outcome.is_from_store())
        .map(|(_, count)| count)
        .sum();
    let with_status = slice.answers() - slice.outcomes[CacheOutcome::None as usize];
    if with_status > 0 {
        let share = 100.0 * from_store as f64 / with_status as f64;
        let _ = write!(line, "  hits {share:.0}%");
    }
    let faults = progress.tally.faults();
    if faults > 0 {
        let _ = write!(line, "  errors {}", show_count(faults));
    }
    line
}

/// Returns the completed fraction of the run.
fn share(progress: &LoadProgress<'_>, settings: &Settings) -> f64 {
    let of_time = settings
        .duration
        .map(|all| progress.elapsed.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE));
    let done = progress.tally.answers() + progress.tally.faults();
    let of_requests = settings.requests.map(|all| done as f64 / all.max(1) as f64);
    of_time
        .unwrap_or(0.0)
        .max(of_requests.unwrap_or(0.0))
        .min(1.0)
}

fn bar(share: f64) -> String {
    let full = (0..BAR)
        .take_while(|column| (*column as f64) < share * BAR as f64)
        .count();
    format!("{}{}", "█".repeat(full), "░".repeat(BAR - full))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::target::LoadTarget;
    use crate::load::testing::report;

    #[test]
    fn the_line_shows_the_progress() {
        let report = report();
        let mut settings = Settings::new(vec![LoadTarget::get(report.url)]);
        let progress = LoadProgress {
            slice: &report.time_line[0],
            tally: &report.tally,
            elapsed: Duration::from_secs(5),
        };
        assert_eq!(
            progress_line(&progress, &settings),
            "██████████░░░░░░░░░░ 5.00 s         20/s  p50 1.00 ms  p99 100 ms  max 100 ms  hits 90%  errors 5"
        );
        settings.duration = None;
        settings.requests = Some(105);
        assert!(progress_line(&progress, &settings).starts_with(&"█".repeat(BAR)));
    }
}
