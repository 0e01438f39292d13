//! Who may have how many file descriptors: clients, origins, and files on disk.

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;

use crate::config::Config;
use crate::connection::COPIES;

/// Kept back from clients: for listeners and the system.
const RESERVED: u64 = 64;
/// The disk tier keeps files open with one part in so many of all descriptors, within bounds:
/// each takes some two KiB of the system's memory.
const FILES_SHARE: u64 = 8;
const FEWEST_FILES: u64 = 64;
const MOST_FILES: u64 = 8192;

/// How many descriptors clients may have, for themselves and for what goes on for them towards the
/// origin without one of its places.
pub(crate) fn for_clients(config: &Config) -> usize {
    let all = all();
    let origin: usize = config
        .upstreams
        .iter()
        .map(|group| group.max_concurrent)
        .sum();
    let files = config.tiers.disk.as_ref().map_or(0, |_| for_files());
    let copies = config.threads.saturating_mul(COPIES);
    let others = origin.saturating_add(copies).saturating_add(files);
    let reserved = RESERVED.saturating_add(others as u64);
    let left = all.saturating_sub(reserved).max(all / 2).max(1);
    usize::try_from(left)
        .unwrap_or(usize::MAX)
        .min(Semaphore::MAX_PERMITS)
}

/// How many files the disk tier may keep open.
pub(crate) fn for_files() -> usize {
    (all() / FILES_SHARE).clamp(FEWEST_FILES, MOST_FILES) as usize
}

/// As many as the system allows are taken.
fn all() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() {
        limit = getrlimit(Resource::Nofile);
    }
    limit.current.unwrap_or(1 << 20)
}
