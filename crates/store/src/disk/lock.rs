//! One process to a directory.

use std::fs::{File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;

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
        let mut file = file.map_err(unusable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(taken(path, &mut file)),
            Err(TryLockError::Error(source)) => return Err(unusable(source)),
        }
        // Only a courtesy to whoever comes second: a full disk must not keep us from reading.
        let _ = write_pid(&mut file);
        Ok(Self(file))
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
