//! Where everything lies: in a folder of ours, `DIRECTORY/microcache-shared-v1`, which stays open. Whatever is done
//! is done relative to it, so that nobody can put a link in the way.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::fs::{CWD, Mode, OFlags, fchmod, fstat, mkdirat, openat};
use rustix::io::Errno;

use crate::disk::DiskFailure;
use crate::ownership::{self, OwnershipError};

/// The folder, by the version of what is in it.
const HOME: &str = "microcache-shared-v1";

/// Ours alone.
pub(super) const FOLDER_MODE: Mode = Mode::RWXU;

/// Why a directory is not used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryError {
    /// It is no directory, or cannot be made or read.
    #[error("{} cannot be used: {source}", directory.display())]
    Unusable {
        /// Which.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others may put there what would be believed.
    #[error(transparent)]
    Untrusted(#[from] OwnershipError),
}

/// A directory, and our folder in it.
pub(super) struct Place {
    directory: PathBuf,
    home: Mutex<Arc<OwnedFd>>,
}

impl Place {
    pub(super) fn open(directory: &Path) -> Result<Self, DirectoryError> {
        Ok(Self {
            home: Mutex::new(Arc::new(open(directory)?)),
            directory: directory.into(),
        })
    }

    /// Our folder. One that somebody has removed is made again.
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
    // That it is a link itself is its user's own doing.
    let outer = openat(CWD, directory, folder_flags(), Mode::empty());
    let outer = outer.map_err(|error| unusable(error.into()))?;
    ownership::check(directory, &outer)?;
    let home = open_or_make(&outer, HOME).map_err(|error| unusable(error.into()))?;
    ownership::check(&directory.join(HOME), &home)?;
    close_to_readers(&home).map_err(|error| unusable(error.into()))?;
    Ok(home)
}

/// We made it for its owner alone. A copy may not have kept who may read it.
fn close_to_readers(home: &OwnedFd) -> Result<(), Errno> {
    if Mode::from_raw_mode(fstat(home)?.st_mode).intersects(Mode::RWXG | Mode::RWXO) {
        // Where nothing can be written, it stays as open as it was made.
        let _ = fchmod(home, FOLDER_MODE);
    }
    Ok(())
}

/// A folder in another one, which is not reached through a link.
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
