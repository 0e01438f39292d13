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
mod nodes;
mod pages;
mod phantom;
mod purge;
mod refused;
mod servers;

use std::process::Command;

use crate::support::{Folder, Origin, Proxy, Reply, Response};

/// So long that no test depends on it, unless it says something else.
const PATIENT: &[&str] = &["--memcached-timeout", "5s", "--redis-timeout", "5s"];

/// The value of `--disk`.
pub(crate) fn disk_in(folder: &Folder) -> String {
    format!("{},64MiB", folder.as_str())
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
    Reply::ok(&["Cache-Control: max-age=1000"], body)
}

/// Starts the program with what it cannot use. The line that it says, and the exit code.
fn refused(origin: &Origin, flags: &[&str]) -> (String, Option<i32>) {
    let output = Command::new(env!("CARGO_BIN_EXE_microcache"))
        .args(["--listen", "127.0.0.1:0", "--admin", "off"])
        .args(flags)
        .arg(origin.url())
        .output()
        .expect("the binary runs");
    let reported = String::from_utf8(output.stderr).expect("text");
    assert_eq!(reported.lines().count(), 1, "{reported}");
    (reported, output.status.code())
}
