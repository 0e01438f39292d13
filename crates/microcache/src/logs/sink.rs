//! Where a log ends up: a file or one of the standard streams.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use microcache_proxy::config::LogPlace;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Nobody but the operator and his group reads who asked for what.
const MODE: u32 = 0o640;

/// Where a log ends up.
pub(super) enum Sink {
    Stdout,
    Stderr,
    File(PathBuf, File),
}

impl Sink {
    /// Opens it, to be added to.
    pub(super) fn open(place: &LogPlace) -> io::Result<Self> {
        Ok(match place {
            LogPlace::Stdout => Self::Stdout,
            LogPlace::Stderr => Self::Stderr,
            LogPlace::File(path) => Self::File(path.clone(), open(path)?),
        })
    }

    /// Writes some of these bytes.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            // The standard library would hold back what stands behind the last end of line.
            Self::Stdout => Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?),
            Self::Stderr => Ok(rustix::io::write(rustix::stdio::stderr(), bytes)?),
            Self::File(_, file) => file.write(bytes),
        }
    }

    /// Opens the file anew. If that fails the old one stays.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Self::File(path, file) = self {
            *file = open(path)?;
        }
        Ok(())
    }

    /// Whether the file ends within a line, which a disk that was full has cut off. One that cannot be
    /// read is believed to be in order.
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

    /// Whether the path leads somewhere else by now: somebody has moved the file away.
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
        // A pipe that nobody reads is told at once instead of being waited for.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    let flags = fcntl_getfl(&file)?;
    fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    Ok(file)
}
