//! File descriptor budget: clients, origins, and files of the disk tier.

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::sync::Semaphore;

use crate::config::Config;

/// Reserved for listeners and the system.
const RESERVED: u64 = 64;
/// Part of all descriptors for files of the disk tier, within limits: each open file costs about two KiB of
/// kernel memory.
const FILES_SHARE: u64 = 8;
const FEWEST_FILES: u64 = 64;
const MOST_FILES: u64 = 8192;

/// Descriptors available to clients, including connections to origins that have given back their permit.
pub(crate) fn for_clients(config: &Config) -> usize {
    let all = all();
    let origin: usize = config
        .upstreams
        .iter()
        .map(|group| group.max_concurrent)
        .sum();
    let files = config.tiers.disk.as_ref().map_or(0, |_| for_files());
    let reserved = RESERVED.saturating_add(origin.saturating_add(files) as u64);
    let left = all.saturating_sub(reserved).max(all / 2).max(1);
    usize::try_from(left)
        .unwrap_or(usize::MAX)
        .min(Semaphore::MAX_PERMITS)
}

/// Limit of files that the disk tier keeps open.
pub(crate) fn for_files() -> usize {
    (all() / FILES_SHARE).clamp(FEWEST_FILES, MOST_FILES) as usize
}

/// Raises the limit to the maximum that the system allows, and returns it.
fn all() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if setrlimit(Resource::Nofile, limit).is_err() {
        limit = getrlimit(Resource::Nofile);
    }
    limit.current.unwrap_or(1 << 20)
}
