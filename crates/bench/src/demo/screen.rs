//! What is shown: progress on standard error, the result on standard output.

use std::io::{IsTerminal, Write, stderr, stdout};

/// Takes the cursor to the beginning of its line, and the line away.
const OVER: &str = "\r\x1b[2K";

/// Where it is shown. A reader that has gone away has seen enough.
pub struct Screen {
    progress: Box<dyn Write>,
    result: Box<dyn Write>,
    /// A line of the progress can be written over.
    live: bool,
}

impl Screen {
    /// The process's own: live if somebody watches, plain lines otherwise.
    pub fn standard() -> Self {
        Self {
            progress: Box::new(stderr()),
            result: Box::new(stdout()),
            live: stderr().is_terminal(),
        }
    }

    /// Something to know.
    pub(super) fn note(&mut self, text: &str) {
        let _ = writeln!(self.progress, "{text}");
    }

    /// How it stands. The next line takes its place.
    pub(super) fn live(&mut self, text: &str) {
        if self.live {
            let _ = write!(self.progress, "{OVER}{text}");
            let _ = self.progress.flush();
        }
    }

    /// How it stood at the end.
    pub(super) fn done(&mut self, text: &str) {
        let over = if self.live { OVER } else { "" };
        let _ = writeln!(self.progress, "{over}{text}");
    }

    /// The result.
    pub(super) fn result(&mut self, text: &str) {
        let _ = write!(self.result, "\n{text}");
        let _ = self.result.flush();
    }
}
