//! The cache under test, run as a child process.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::error::Error;

/// Time limit for the child process to start listening.
const START: Duration = Duration::from_secs(10);

/// Running cache process, killed on drop.
pub(super) struct CacheProcess {
    child: Child,
    address: SocketAddr,
}

impl CacheProcess {
    /// Starts the cache in front of `url` and waits until it listens.
    ///
    /// # Errors
    ///
    /// [`Error::Cache`] with the first line of its stderr if it does not report an address in time.
    pub(super) fn start(
        program: &Path,
        url: &str,
        listen: SocketAddr,
        flags: &[&str],
    ) -> Result<Self, Error> {
        let mut child = Command::new(program)
            .args(["--listen", &listen.to_string(), "--admin", "off"])
            .args(flags)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let first = child.stderr.take().map(first_line);
        let mut cache = Self {
            child,
            address: listen,
        };
        let line = first
            .and_then(|line| line.recv_timeout(START).ok())
            .unwrap_or_default();
        let address = line.trim_end().rsplit_once("listening on http://");
        cache.address = address
            .and_then(|(_, address)| address.parse().ok())
            .ok_or_else(|| Error::Cache(line.trim_end().to_owned()))?;
        Ok(cache)
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for CacheProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a channel for the first line of stderr. The remaining output is drained so that the child never
/// blocks on a full pipe.
fn first_line(stderr: ChildStderr) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut lines = BufReader::new(stderr);
        let mut line = String::new();
        if lines.read_line(&mut line).is_ok() {
            let _ = sender.send(line);
        }
        let _ = std::io::copy(&mut lines, &mut std::io::sink());
    });
    receiver
}
