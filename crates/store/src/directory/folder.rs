//! One of the 256 folders in which records lie, by the first two digits of their ids; and its lock, which whoever
//! gives or takes names there holds for that moment.

use std::fs::{File, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;

use super::place::{failed, folder_flags, open_or_make};
use crate::disk::DiskFailure;
use crate::tier::EntryId;

/// How many there are.
pub(super) const FOLDERS: u32 = 256;
/// How long somebody else may have a lock before whoever waits goes on without. Nobody has one for long, unless
/// his process was stopped.
const PATIENCE: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The lock of a folder.
const LOCK: &str = "lock";

/// A folder.
pub(super) struct Folder(OwnedFd);

impl Folder {
    /// The one in which the record of an id would be, if it is there.
    pub(super) fn open(home: &OwnedFd, id: EntryId) -> Result<Option<Self>, DiskFailure> {
        Self::named(home, &name(id))
    }

    pub(super) fn numbered(home: &OwnedFd, number: u32) -> Result<Option<Self>, DiskFailure> {
        Self::named(home, &format!("{number:02x}"))
    }

    /// The same; it is made if it is missing.
    pub(super) fn create(home: &OwnedFd, id: EntryId) -> Result<Self, DiskFailure> {
        let made = open_or_make(home, &name(id));
        made.map(Self).map_err(failed)
    }

    /// Waits for the lock, not for long.
    pub(super) fn lock(&self) -> Result<Locked<'_>, DiskFailure> {
        let lock = open_locked(&self.0, LOCK)?;
        Ok(Locked {
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

/// A folder in which nobody else gives or takes names.
pub(super) struct Locked<'a> {
    pub(super) folder: &'a Folder,
    _lock: File,
}

impl Locked<'_> {
    /// Takes a name away. What is gone already is fine.
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

/// A file of ours, which is made if it is missing, to read and to write.
pub(super) fn open_own(folder: &OwnedFd, name: &str) -> Result<File, DiskFailure> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = openat(folder, name, flags, Mode::RUSR | Mode::WUSR);
    opened.map(File::from).map_err(failed)
}

/// The same, once nobody else has its lock.
pub(super) fn open_locked(folder: &OwnedFd, name: &str) -> Result<File, DiskFailure> {
    let file = open_own(folder, name)?;
    wait_for(|| file.try_lock())?;
    Ok(file)
}

/// Tries to take a lock until it has it, or had its time.
pub(super) fn wait_for(take: impl Fn() -> Result<(), TryLockError>) -> Result<(), DiskFailure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match take() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(DiskFailure::Disk(error)),
            Err(TryLockError::WouldBlock) if Instant::now() >= deadline => {
                let what = "another process has the lock for too long";
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
