//! One process to a directory.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::DiskError;
use crate::beneath::Folder;

const NAME: &str = "microcache.lock";

/// Held as long as the file is open; the system lets go of it when the process ends, however it
/// ends.
pub(super) struct Lock(File);

impl Lock {
    /// Takes the lock, or says who has it.
    pub(super) fn take(path: &Path, directory: &Folder) -> Result<Self, DiskError> {
        let unusable = |source| DiskError::unusable(path, source);
        let file = directory.file_to_write(NAME, OFlags::CREATE);
        let mut to_write = file.map_err(unusable)?;
        // A file that stays open for writing would keep the volume from being remounted read-only.
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
        // Only a courtesy to the process that comes second: a full disk must not keep us from reading.
        let _ = write_pid(&mut to_write);
        Ok(Self(held))
    }

    /// Lets another process have the directory.
    pub(super) fn give_up(&self) -> io::Result<()> {
        self.0.unlock()
    }

    /// Takes it back, or fails if another process has it.
    pub(super) fn take_back(&self) -> io::Result<()> {
        self.0.try_lock().map_err(io::Error::from)
    }

    /// Whether the file it is on can still be found by others.
    pub(super) fn is_visible(&self) -> bool {
        self.0.metadata().is_ok_and(|file| file.nlink() > 0)
    }
}

/// Whether only a file that is open for writing can be locked, as on NFS (flock(2)).
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
