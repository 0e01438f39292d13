//! Lock file that reserves a directory for one process.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::error::DiskError;
use crate::dir_handle::DirHandle;

const NAME: &str = "microcache.lock";

/// Directory lock, held while the file is open. The kernel releases it when the process ends.
pub(super) struct DirectoryLock(File);

impl DirectoryLock {
    /// Acquires the lock.
    ///
    /// # Errors
    ///
    /// [`DiskError::Taken`] with the process id of its holder.
    pub(super) fn take(path: &Path, directory: &DirHandle) -> Result<Self, DiskError> {
        let unusable = |source| DiskError::unusable(path, source);
        let file = directory.file_to_write(NAME, OFlags::CREATE);
        let mut to_write = file.map_err(unusable)?;
        // A file open for writing would prevent the volume from being remounted read-only.
        let mut held = directory.file(NAME, OFlags::RDONLY).map_err(unusable)?;
        let mut locked = held.try_lock();
        if matches!(&locked, Err(TryLockError::Error(error)) if needs_writing(error)) {
            held = to_write.try_clone().map_err(unusable)?;
            locked = held.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(path, &mut held)),
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        // The pid only serves the error message of another process; failing on a full disk would prevent
        // hits.
        let _ = write_pid(&mut to_write);
        Ok(Self(held))
    }

    /// Releases the lock.
    pub(super) fn give_up(&self) -> io::Result<()> {
        self.0.unlock()
    }

    /// Reacquires the lock; fails if another process holds it.
    pub(super) fn take_back(&self) -> io::Result<()> {
        self.0.try_lock().map_err(io::Error::from)
    }

    /// Returns whether the lock file still has a name.
    pub(super) fn is_visible(&self) -> bool {
        self.0.metadata().is_ok_and(|file| file.nlink() > 0)
    }
}

/// Returns whether locking needs a file open for writing, as on NFS (flock(2)).
fn needs_writing(error: &io::Error) -> bool {
    Errno::from_io_error(error) == Some(Errno::BADF)
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn taken(directory: &Path, file: &mut File) -> DiskError {
    let mut pid = String::new();
    let _ = file.take(20).read_to_string(&mut pid);
    DiskError::Taken {
        directory: directory.into(),
        holder: pid
            .trim()
            .parse::<u32>()
            .map_or_else(|_| "another process".into(), |pid| format!("process {pid}")),
    }
}
