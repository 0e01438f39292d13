//! A real browser, where there is one.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::left_out;

/// Chromium without a window, with a profile of its own, until the end of the test.
pub(crate) struct Browser {
    child: Child,
    profile: PathBuf,
}

impl Browser {
    /// Opens a page. Where there is no such browser, it says that this was left out.
    pub(crate) fn open(url: &str, flags: &[&str], what: &str) -> Option<Self> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::SeqCst);
        let name = format!("{}-{number}.chromium", std::process::id());
        let profile = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
        let child = Command::new("chromium")
            .args(["--headless=new", "--no-sandbox", "--disable-gpu"])
            .args(flags)
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if child.is_err() {
            left_out(&format!("{what} with chromium, which is not installed"));
        }
        let child = child.ok()?;
        Some(Self { child, profile })
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Its other processes end a little later, and write until then.
        for _ in 0..100 {
            if fs::remove_dir_all(&self.profile).is_ok() {
                break;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}
