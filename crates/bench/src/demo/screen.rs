//! Terminal output: progress on stderr, the result on stdout.

use std::io::{IsTerminal, Write, stderr, stdout};

/// Control sequence that clears the current terminal line.
const OVER: &str = "\r\x1b[2K";

/// Output of the demonstration. Write errors are ignored: a closed pipe must not end it.
pub struct DemoScreen {
    progress: Box<dyn Write>,
    result: Box<dyn Write>,
    /// `true` if progress lines may be overwritten in place.
    live: bool,
}

impl DemoScreen {
    /// Returns stdout and stderr of the process, with live progress if stderr is a terminal.
    pub fn standard() -> Self {
        Self {
            progress: Box::new(stderr()),
            result: Box::new(stdout()),
            live: stderr().is_terminal(),
        }
    }

    /// Prints a notice.
    pub(super) fn notice(&mut self, text: &str) {
        let _ = writeln!(self.progress, "{text}");
    }

    /// Shows progress; the next line overwrites it.
    pub(super) fn live(&mut self, text: &str) {
        if self.live {
            let _ = write!(self.progress, "{OVER}{text}");
            let _ = self.progress.flush();
        }
    }

    /// Prints the final progress line of a phase.
    pub(super) fn done(&mut self, text: &str) {
        let over = if self.live { OVER } else { "" };
        let _ = writeln!(self.progress, "{over}{text}");
    }

    /// Prints the result on stdout.
    pub(super) fn result(&mut self, text: &str) {
        let _ = write!(self.result, "\n{text}");
        let _ = self.result.flush();
    }
}
