//! Settings of a shared directory.

use std::path::PathBuf;
use std::time::Duration;

/// Settings of a shared directory.
#[derive(Clone, Debug)]
pub struct DirectorySettings {
    /// Directory; created if missing.
    pub directory: PathBuf,
    /// Capacity for all records, in bytes, accounted in blocks of 4 KiB.
    pub capacity: u64,
    /// Maximum size of a body, in bytes.
    pub max_object: u64,
    /// Size up to which bodies are read into memory, in bytes; larger ones stay in their files.
    pub in_memory: u64,
    /// Maximum number of bodies written concurrently while they are received.
    pub spools: usize,
    /// Additional retention after expiry, capacity permitting: offline clients may use stale records, others
    /// revalidate them.
    pub keep_longer: Duration,
    /// Timeout of a read, including its queueing time.
    pub read_deadline: Duration,
    /// Timeout of a write or removal.
    pub write_deadline: Duration,
    /// Interval between attempts while the directory is failing.
    pub pause: Duration,
}

impl DirectorySettings {
    /// Returns the defaults for a directory and a capacity in bytes.
    pub fn new(directory: impl Into<PathBuf>, capacity: u64) -> Self {
        Self {
            directory: directory.into(),
            capacity,
            max_object: capacity / 4,
            in_memory: 8 * 1024 * 1024,
            spools: 16,
            keep_longer: Duration::from_hours(30 * 24),
            read_deadline: Duration::from_secs(2),
            write_deadline: Duration::from_secs(30),
            pause: Duration::from_secs(1),
        }
    }
}
