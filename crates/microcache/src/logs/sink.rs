//! The destination of a log: a file or a standard stream.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use microcache_proxy::config::LogPlace;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// The mode of log files: readable by the user and the group only.
const MODE: u32 = 0o640;

/// An open destination of a log.
pub(super) enum Sink {
    Stdout,
    Stderr,
    File(PathBuf, File),
}

impl Sink {
    /// Opens the destination for appending.
    pub(super) fn open(place: &LogPlace) -> io::Result<Self> {
        Ok(match place {
            LogPlace::Stdout => Self::Stdout,
            LogPlace::Stderr => Self::Stderr,
            LogPlace::File(path) => Self::File(path.clone(), open(path)?),
        })
    }

    /// Writes some of the bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // The standard library would buffer the text after the last line end.
            Self::Stdout => Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?),
            Self::Stderr => Ok(rustix::io::write(rustix::stdio::stderr(), bytes)?),
            Self::File(_, file) => file.write(bytes),
        }
    }

    /// Reopens the file. If that fails, the old one stays open.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Self::File(path, file) = self {
            *file = open(path)?;
        }
        Ok(())
    }

    /// Returns whether the file ends within a line, as after a full disk. An unreadable file is taken to be
    /// complete.
    pub(super) fn is_within_a_line(&self) -> bool {
        let Self::File(path, file) = self else {
            return false;
        };
        let last = || -> io::Result<u8> {
            let mut file = File::open(path)?;
            file.seek(SeekFrom::End(-1))?;
            let mut last = [0];
            file.read_exact(&mut last)?;
            Ok(last[0])
        };
        let is_file = file.metadata().is_ok_and(|data| data.is_file());
        is_file && last().is_ok_and(|last| last != b'\n')
    }

    /// Returns whether the file was moved away from its path.
    pub(super) fn was_moved(&self) -> bool {
        let Self::File(path, file) = self else {
            return false;
        };
        let Ok(open) = file.metadata() else {
            return false;
        };
        match path.metadata() {
            Ok(there) => (there.dev(), there.ino()) != (open.dev(), open.ino()),
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        // A pipe without a reader is an error at once.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}
