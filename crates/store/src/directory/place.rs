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
use rustix::process::geteuid;

use crate::disk::DiskFailure;

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
    /// Somebody else could put there what we would believe.
    #[error("{} belongs to another user ({owner}): choose a directory of your own", directory.display())]
    Foreign {
        /// Which.
        directory: PathBuf,
        /// The number of that user.
        owner: u32,
    },
    /// Somebody else may have put there what we would believe.
    #[error("others than its owner may write to {}: remove it, or choose another directory", directory.display())]
    Open {
        /// Which.
        directory: PathBuf,
    },
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
    is_ours(directory, &outer)?;
    let home = open_or_make(&outer, HOME).map_err(|error| unusable(error.into()))?;
    is_ours(&directory.join(HOME), &home)?;
    is_ours_alone(&directory.join(HOME), &home)?;
    Ok(home)
}

/// We made it so. It may have come from elsewhere since, by a copy that has not kept who may read it.
fn is_ours_alone(directory: &Path, home: &OwnedFd) -> Result<(), DirectoryError> {
    let unusable = |error: Errno| DirectoryError::Unusable {
        directory: directory.into(),
        source: error.into(),
    };
    let mode = Mode::from_raw_mode(fstat(home).map_err(unusable)?.st_mode);
    if mode.intersects(Mode::WGRP | Mode::WOTH) {
        return Err(DirectoryError::Open {
            directory: directory.into(),
        });
    }
    if mode.intersects(Mode::RWXG | Mode::RWXO) {
        // Where nothing can be written, it stays as open as whoever made it so has wanted it.
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

fn is_ours(directory: &Path, opened: &OwnedFd) -> Result<(), DirectoryError> {
    let stat = fstat(opened).map_err(|error| DirectoryError::Unusable {
        directory: directory.into(),
        source: error.into(),
    })?;
    if stat.st_uid == geteuid().as_raw() {
        Ok(())
    } else {
        Err(DirectoryError::Foreign {
            directory: directory.into(),
            owner: stat.st_uid,
        })
    }
}

pub(super) fn failed(error: Errno) -> DiskFailure {
    DiskFailure::Disk(error.into())
}
