//! Errors of the disk tier: at start, and of its jobs.

use std::io;
use std::path::{Path, PathBuf};

use super::format::FormatError;
use crate::ownership::OwnershipError;
use crate::tier::TierError;

/// Reasons why a disk tier does not start.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The path is not a directory, or not writable.
    #[error("{} cannot be used: {source}", directory.display())]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// Other users could plant entries in it.
    #[error(transparent)]
    Ownership(#[from] OwnershipError),
    /// Another process uses the directory.
    #[error("{} is in use by {holder}; each process needs its own directory", directory.display())]
    Taken {
        /// The directory.
        directory: PathBuf,
        /// Description of the other process.
        holder: String,
    },
}

impl DiskError {
    pub(super) fn unusable(directory: &Path, source: io::Error) -> Self {
        Self::Unusable {
            directory: directory.into(),
            source,
        }
    }
}

/// Reasons why a job failed.
pub(crate) enum DiskFailure {
    /// I/O error.
    Disk(io::Error),
    /// The file is damaged.
    Flaw(FormatError),
    /// The body to be copied could not be read.
    Source(io::Error),
    /// The capacity is exhausted and eviction did not free enough.
    NoRoom,
    /// The entry exceeds a size limit.
    TooLarge,
    /// The entry was removed during the write.
    Removed,
    /// An earlier write of the same body was abandoned.
    GivenUp,
}

impl From<DiskFailure> for TierError {
    fn from(failure: DiskFailure) -> Self {
        match failure {
            DiskFailure::Flaw(flaw) => Self::Corrupt(flaw.to_string()),
            DiskFailure::Disk(error) | DiskFailure::Source(error) => {
                Self::Failed(error.to_string())
            }
            DiskFailure::NoRoom => Self::Failed("capacity exhausted".into()),
            DiskFailure::TooLarge => Self::Failed("larger than the size limit".into()),
            DiskFailure::Removed => Self::Failed("removed during the write".into()),
            DiskFailure::GivenUp => Self::Failed("write abandoned".into()),
        }
    }
}
