//! Tiers behind memory: a disk, a memcached pool, Redis; and processes that share them.

mod confirmed;
mod crash;
mod disk;
mod failover;
mod fleet;
mod fleet_log;
mod fleet_purge;
mod last_copy;
mod lost;
mod mounted;
mod pages;
mod phantom;
mod purge;
mod refused;
pub(crate) mod servers;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Origin, Proxy, Reply, Response};

/// A directory for a disk tier, gone at the end of the test.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tier-{}-{number}", std::process::id());
        Self(Path::new(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    /// What `--disk` gets.
    pub(crate) fn disk(&self) -> String {
        format!("{},64MiB", self.0.display())
    }

    /// Every file in it, however deep.
    fn files(&self) -> Vec<PathBuf> {
        let (mut files, mut folders) = (Vec::new(), vec![self.0.clone()]);
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).expect("a folder") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        files.sort();
        files
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The tier that an answer was found in.
fn tier_of(response: &Response) -> Option<String> {
    response
        .is_hit()
        .then(|| response.cache().get("detail").map(str::to_owned))
        .flatten()
}

/// Asserts that the answer was found in that tier.
#[track_caller]
fn assert_found(response: &Response, tier: &str, body: &[u8]) {
    response.assert_hit();
    assert_eq!(tier_of(response).as_deref(), Some(tier), "{response:?}");
    assert!(
        response.body == body,
        "{} bytes, not the {} expected",
        response.body.len(),
        body.len()
    );
}

/// Ends a process such that everything is written.
pub(crate) fn end(mut proxy: Proxy) {
    proxy.terminate();
    let status = proxy.wait();
    assert!(status.success(), "{status}: {}", proxy.output());
}

/// An answer that may be kept for long.
fn lasting(body: impl AsRef<[u8]>) -> Reply {
    Reply::new(200)
        .with("Cache-Control: max-age=1000")
        .body(body)
}

/// Starts the program with what it cannot use. The line that it says, and the exit code.
fn refused(origin: &Origin, flags: &[&str]) -> (String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(["--listen", "127.0.0.1:0", "--admin", "off"])
        .args(flags)
        .arg(origin.url())
        .output()
        .expect("the binary runs");
    let told = String::from_utf8(output.stderr).expect("text");
    assert_eq!(told.lines().count(), 1, "{told}");
    (told, output.status.code())
}

/// Bytes in which no part looks like another.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
