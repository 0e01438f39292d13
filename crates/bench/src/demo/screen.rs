//! What is shown: progress on standard error, the result on standard output.

use std::io::{IsTerminal, Write, stderr, stdout};

/// Where it is shown. A reader that has gone away has seen enough.
#[derive(Debug)]
pub struct Screen {
    /// A line can be written over.
    live: bool,
}

impl Screen {
    /// The process's own: live if somebody watches, plain lines otherwise.
    pub fn standard() -> Self {
        Self {
            live: stderr().is_terminal(),
        }
    }

    /// Something to know.
    pub(super) fn note(&self, text: &str) {
        let _ = writeln!(stderr(), "{text}");
    }

    /// How it stands. The next line takes its place.
    pub(super) fn live(&self, text: &str) {
        if self.live {
            let _ = write!(stderr(), "\r\x1b[2K{text}");
        }
    }

    /// How it stood at the end.
    pub(super) fn done(&self, text: &str) {
        let start = if self.live { "\r\x1b[2K" } else { "" };
        let _ = writeln!(stderr(), "{start}{text}");
    }

    /// The result.
    pub(super) fn result(&self, text: &str) {
        let _ = write!(stdout(), "\n{text}");
        let _ = stdout().flush();
    }
}
