//! The cache, as a process of its own.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::Error;

/// How long it may take to listen.
const START: Duration = Duration::from_secs(10);

/// A running cache; it ends when this is dropped.
pub(super) struct Cache {
    child: Child,
    address: SocketAddr,
}

impl Cache {
    /// Starts it before this url, and waits until it listens.
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
        let told = child.stderr.take().map(first_line);
        let mut cache = Self {
            child,
            address: listen,
        };
        let line = told
            .and_then(|told| told.recv_timeout(START).ok())
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

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The first line of what it tells. The rest is read and forgotten, so that it never waits for a reader.
fn first_line(stderr: ChildStderr) -> mpsc::Receiver<String> {
    let (tell, told) = mpsc::sync_channel(1);
    thread::spawn(move || {
        let mut lines = BufReader::new(stderr);
        let mut line = String::new();
        if lines.read_line(&mut line).is_ok() {
            let _ = tell.send(line);
        }
        let _ = std::io::copy(&mut lines, &mut std::io::sink());
    });
    told
}
