//! A real browser, where there is one.

use std::process::{Command, Stdio};

use super::{Folder, Process, left_out};

/// Chromium without a window, with a profile of its own, until the end of the test.
pub(crate) struct Browser {
    _process: Process,
    _profile: Folder,
}

impl Browser {
    /// Opens a page. Where there is no such browser, it says that this was left out.
    pub(crate) fn open(url: &str, flags: &[&str], what: &str) -> Option<Self> {
        let profile = Folder::new();
        let mut command = Command::new("chromium");
        command
            .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(flags)
            .arg(format!("--user-data-dir={}", profile.as_str()))
            .arg(url);
        let process = Process::start(command.stdin(Stdio::null()));
        if process.is_none() {
            left_out(&format!("{what} with chromium, which is not installed"));
        }
        Some(Self {
            _process: process?,
            _profile: profile,
        })
    }
}
