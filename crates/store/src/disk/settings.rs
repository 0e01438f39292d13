//! Settings of the disk tier.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of a disk tier.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// Directory, used by one process at a time; created if missing.
    pub directory: PathBuf,
    /// Capacity for files and their names, in bytes, accounted in blocks of 4 KiB.
    pub capacity: u64,
    /// Maximum number of files; each takes about sixty bytes of memory.
    pub max_files: u64,
    /// Maximum size of a body, in bytes; at most half of the capacity.
    pub max_object: u64,
    /// Size up to which bodies are read into memory, in bytes; larger ones stay in their files.
    pub inline: u64,
    /// Maximum of open files for larger bodies.
    pub open_files: usize,
    /// Maximum number of bodies of unknown size written concurrently.
    pub spools: usize,
    /// Maximum of concurrent reads.
    pub reads: usize,
    /// Maximum of concurrent writes and removals.
    pub writes: usize,
    /// Timeout of a read, including its queueing time.
    pub read_deadline: Duration,
    /// Timeout of a write or removal.
    pub write_deadline: Duration,
    /// Interval between attempts while the disk is failing.
    pub pause: Duration,
}

impl DiskSettings {
    /// Returns the defaults for a directory and a capacity in bytes.
    pub fn new(directory: impl Into<PathBuf>, capacity: u64) -> Self {
        Self {
            directory: directory.into(),
            capacity,
            max_files: 1_000_000,
            max_object: capacity / 4,
            inline: 16 * 1024,
            open_files: 512,
            spools: 64,
            reads: 32,
            writes: 4,
            read_deadline: Duration::from_millis(250),
            write_deadline: Duration::from_secs(10),
            pause: Duration::from_secs(1),
        }
    }
}
