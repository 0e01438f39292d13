//! The progress of a body that takes its time, on the last line of a terminal.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::output::is_printed;
use crate::cli::Fetch;

/// Nothing is shown of what is done sooner.
const QUICK: Duration = Duration::from_secs(1);
/// How often it is drawn.
const PACE: Duration = Duration::from_millis(200);

const WAITING: &str = "no answer yet, {elapsed}";
const OF_UNKNOWN_LENGTH: &str = "{bytes}, {binary_bytes_per_sec}";
const OF_KNOWN_LENGTH: &str = "{bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";

/// A line that is drawn until this is dropped, or nothing where none is wanted.
pub(super) struct Progress(Option<Shown>);

struct Shown {
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
        Self(Some(Shown { line, beginning }))
    }

    /// A body begins, of this length if it is known.
    pub(super) fn body(&self, length: Option<u64>) {
        if let Self(Some(Shown { line, .. })) = self {
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

    /// So much more of it is there.
    pub(super) fn add(&self, bytes: usize) {
        if let Self(Some(Shown { line, .. })) = self {
            line.inc(bytes as u64);
        }
    }

    /// The answer is given up, and another one is waited for.
    pub(super) fn again(&self) {
        if let Self(Some(Shown { line, .. })) = self {
            line.reset();
            line.unset_length();
            line.set_style(style(WAITING));
        }
    }

    /// Prints something without the line in its way.
    pub(super) fn aside(&self, print: impl FnOnce()) {
        match self {
            Self(Some(Shown { line, .. })) => line.suspend(print),
            Self(None) => print(),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Self(Some(Shown { line, beginning })) = self {
            beginning.abort();
            line.finish_and_clear();
        }
    }
}

/// Whether somebody sees it, and it gets in nothing's way: not between the lines of what is printed.
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
