//! Root folder of the tier: `DIRECTORY/microcache-shared-v1`, kept open. All access is relative to it, so
//! that no symbolic link can redirect it.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, mkdirat, openat};
use rustix::io::Errno;

use crate::disk::error::DiskFailure;
use crate::ownership::{self, OwnershipError};

/// Name of the root folder, with the version of its format.
const HOME: &str = "microcache-shared-v1";

/// Mode of all folders: private to the owner.
pub(super) const FOLDER_MODE: Mode = Mode::RWXU;

/// Reasons why a directory is rejected.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// The path is not a directory, or cannot be created or read.
    #[error("{} cannot be used: {source}", directory.display())]
    Unusable {
        /// The directory.
        directory: PathBuf,
        /// Error of the system call.
        source: io::Error,
    },
    /// Other users could plant records in it.
    #[error(transparent)]
    Untrusted(#[from] OwnershipError),
}

/// Configured directory and its open root folder.
pub(super) struct HomeFolder {
    directory: PathBuf,
    home: Mutex<Arc<OwnedFd>>,
}

impl HomeFolder {
    pub(super) fn open(directory: &Path) -> Result<Self, DirectoryError> {
        Ok(Self {
            home: Mutex::new(Arc::new(open(directory)?)),
            directory: directory.into(),
        })
    }

    /// Returns the root folder, recreating it if it was removed.
    pub(super) fn home(&self) -> Result<Arc<OwnedFd>, DiskFailure> {
        let mut home = self.home.lock();
        let stat = fstat(&**home).map_err(failed)?;
        if stat.st_nlink == 0 {
            let again = open(&self.directory);
            *home = Arc::new(again.map_err(|error| DiskFailure::Disk(io::Error::other(error)))?);
        }
        Ok(Arc::clone(&home))
    }
}

fn open(directory: &Path) -> Result<OwnedFd, DirectoryError> {
    let unusable = |source: io::Error| DirectoryError::Unusable {
        directory: directory.into(),
        source,
    };
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory);
    made.map_err(unusable)?;
    // The configured path itself may be a symbolic link.
    let outer = openat(CWD, directory, folder_flags(), Mode::empty());
    let outer = outer.map_err(|error| unusable(error.into()))?;
    ownership::check(directory, &outer)?;
    let home = open_or_make(&outer, HOME).map_err(|error| unusable(error.into()))?;
    ownership::check(&directory.join(HOME), &home)?;
    close_to_readers(&home).map_err(|error| unusable(error.into()))?;
    Ok(home)
}

/// Removes the permissions of other users, which a copy of the directory may have gained.
fn close_to_readers(home: &OwnedFd) -> Result<(), Errno> {
    if Mode::from_raw_mode(fstat(home)?.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
        // Fails on a read-only file system, where the mode stays as it is.
        let _ = fchmod(home, FOLDER_MODE);
    }
    Ok(())
}

/// Opens a subdirectory without following symbolic links, creating it if needed.
pub(super) fn open_or_make(outer: &OwnedFd, name: &str) -> Result<OwnedFd, Errno> {
    let open = || {
        openat(
            outer,
            name,
            folder_flags() | OFlags::NOFOLLOW,
            Mode::empty(),
        )
    };
    match open() {
        Err(Errno::NOENT) => {}
        opened => return opened,
    }
    match mkdirat(outer, name, FOLDER_MODE) {
        Ok(()) | Err(Errno::EXIST) => open(),
        Err(error) => Err(error),
    }
}

pub(super) fn folder_flags() -> OFlags {
    OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC
}

pub(super) fn failed(error: Errno) -> DiskFailure {
    DiskFailure::Disk(error.into())
}
