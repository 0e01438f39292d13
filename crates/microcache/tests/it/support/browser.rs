//! A real browser, where there is one.

use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{Folder, Process, left_out};

/// One browser at a time: several that start at once on two cores take longer than the tests wait.
static TURN: Mutex<()> = Mutex::new(());

/// Waits until no other test runs a browser.
pub(crate) fn browser_turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Chromium without a window, with a profile of its own, until the end of the test.
pub(crate) struct Browser {
    // Dropped in this order: the turn ends when the process has ended.
    _process: Process,
    _profile: Folder,
    _turn: MutexGuard<'static, ()>,
}

impl Browser {
    /// Opens a page. Where there is no such browser, it says that this was left out.
    pub(crate) fn open(url: &str, flags: &[&str], what: &str) -> Option<Self> {
        let turn = browser_turn();
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
            _turn: turn,
        })
    }
}
