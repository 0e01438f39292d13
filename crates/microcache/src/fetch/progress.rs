//! Progress of a slow download, on the last line of a terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::output::is_printed;
use crate::cli::Fetch;

/// Delay before progress is shown.
const QUICK: Duration = Duration::from_secs(1);
/// Interval of updates.
const PACE: Duration = Duration::from_millis(200);

const WAITING: &str = "no answer yet, {elapsed}";
const OF_UNKNOWN_LENGTH: &str = "{bytes}, {binary_bytes_per_sec}";
const OF_KNOWN_LENGTH: &str = "{bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";

/// A progress line, removed on drop; empty if disabled.
pub(super) struct Progress(Option<ProgressLine>);

struct ProgressLine {
    line: ProgressBar,
    beginning: JoinHandle<()>,
}

impl Progress {
    pub(super) fn begin(fetch: &Fetch) -> Self {
        if !is_wanted(fetch) {
            return Self(None);
        }
        let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        line.set_style(style(WAITING));
        let drawn = line.clone();
        let beginning = tokio::spawn(async move {
            sleep(QUICK).await;
            drawn.set_draw_target(ProgressDrawTarget::stderr());
            drawn.enable_steady_tick(PACE);
        });
        Self(Some(ProgressLine { line, beginning }))
    }

    /// Starts a body, of this length if it is known.
    pub(super) fn body(&self, length: Option<u64>) {
        if let Self(Some(ProgressLine { line, .. })) = self {
            line.reset();
            let template = match length {
                Some(length) => {
                    line.set_length(length);
                    OF_KNOWN_LENGTH
                }
                None => OF_UNKNOWN_LENGTH,
            };
            line.set_style(style(template));
        }
    }

    /// Adds received bytes.
    pub(super) fn add(&self, bytes: usize) {
        if let Self(Some(ProgressLine { line, .. })) = self {
            line.inc(bytes as u64);
        }
    }

    /// Resets the line for another attempt.
    pub(super) fn again(&self) {
        if let Self(Some(ProgressLine { line, .. })) = self {
            line.reset();
            line.unset_length();
            line.set_style(style(WAITING));
        }
    }

    /// Prints with the progress line removed.
    pub(super) fn aside(&self, print: impl FnOnce()) {
        match self {
            Self(Some(ProgressLine { line, .. })) => line.suspend(print),
            Self(None) => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self(Some(ProgressLine { line, beginning })) = self {
            beginning.abort();
            line.finish_and_clear();
        }
    }
}

/// Returns true if standard error is a terminal, and the line would not mix with printed output.
fn is_wanted(fetch: &Fetch) -> bool {
    let body_is_on_terminal =
        fetch.output.as_deref().is_none_or(is_printed) && io::stdout().is_terminal();
    !fetch.silent && !fetch.verbose && !body_is_on_terminal && io::stderr().is_terminal()
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_templates_are_understood() {
        for template in [WAITING, OF_UNKNOWN_LENGTH, OF_KNOWN_LENGTH] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
    }
}
