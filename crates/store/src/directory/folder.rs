//! Record folder: one of 256, selected by the first two digits of an id, and its lock, which protects
//! renames and removals in it.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::home::{failed, folder_flags, open_or_make};
use crate::disk::error::DiskFailure;
use crate::tier::EntryId;

/// Number of record folders.
pub(super) const FOLDERS: u32 = 256;
/// Time limit for acquiring a lock. Locks are held briefly, except by a suspended process.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Lock file of a folder.
const LOCK: &str = "lock";

/// Record folder.
pub(super) struct RecordFolder(OwnedFd);

impl RecordFolder {
    /// Opens the folder of an id, if it exists.
    pub(super) fn open(home: &OwnedFd, id: EntryId) -> Result<Option<Self>, DiskFailure> {
        Self::named(home, &name(id))
    }

    pub(super) fn numbered(home: &OwnedFd, number: u32) -> Result<Option<Self>, DiskFailure> {
        Self::named(home, &format!("{number:02x}"))
    }

    /// Opens the folder of an id, creating it if needed.
    pub(super) fn create(home: &OwnedFd, id: EntryId) -> Result<Self, DiskFailure> {
        let made = open_or_make(home, &name(id));
        made.map(Self).map_err(failed)
    }

    /// Acquires the lock of the folder, for at most [`LOCK_TIMEOUT`].
    pub(super) fn lock(&self) -> Result<LockedFolder<'_>, DiskFailure> {
        let lock = open_locked(&self.0, LOCK)?;
        Ok(LockedFolder {
            folder: self,
            _lock: lock,
        })
    }

    pub(super) const fn fd(&self) -> &OwnedFd {
        &self.0
    }

    fn named(home: &OwnedFd, name: &str) -> Result<Option<Self>, DiskFailure> {
        let flags = folder_flags() | OFlags::NOFOLLOW;
        match openat(home, name, flags, Mode::empty()) {
            Ok(folder) => Ok(Some(Self(folder))),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

/// Record folder whose lock is held.
pub(super) struct LockedFolder<'a> {
    pub(super) folder: &'a RecordFolder,
    _lock: File,
}

impl LockedFolder<'_> {
    /// Removes a directory entry. Succeeds if it does not exist.
    pub(super) fn remove(&self, name: &str) -> Result<(), DiskFailure> {
        remove(self.folder.fd(), name)
    }
}

pub(super) fn remove(folder: &OwnedFd, name: &str) -> Result<(), DiskFailure> {
    match unlinkat(folder, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Opens a file for reading and writing, creating it if needed.
pub(super) fn open_own(folder: &OwnedFd, name: &str) -> Result<File, DiskFailure> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(folder, name, flags, Mode::RUSR | Mode::WUSR);
    opened.map(File::from).map_err(failed)
}

/// Opens such a file and acquires its lock.
pub(super) fn open_locked(folder: &OwnedFd, name: &str) -> Result<File, DiskFailure> {
    let file = open_own(folder, name)?;
    wait_for(|| file.try_lock())?;
    Ok(file)
}

/// Polls a lock until it is acquired or [`LOCK_TIMEOUT`] is over.
pub(super) fn wait_for(take: impl Fn() -> Result<(), TryLockError>) -> Result<(), DiskFailure> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match take() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(DiskFailure::Disk(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                let what = "timed out waiting for a file lock of another process";
                return Err(DiskFailure::Disk(io::Error::new(
                    io::ErrorKind::TimedOut,
                    what,
                )));
            }
            Err(TryLockError::WouldBlock) => sleep(LOOK_EVERY),
        }
    }
}

fn name(id: EntryId) -> String {
    let mut name = id.to_string();
    name.truncate(2);
    name
}
