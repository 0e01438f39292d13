//! The log of all changes, which survives the process. Updates of the Mercure hub use the same format.
//!
//! Changes are appended. When most of the log is outdated, it is compacted into a new file that replaces it.
//! The last record may be torn after a crash; it was never acknowledged, and is cut off. On any other damage
//! the file is set aside, and the records before the damage are kept.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use microcache_store::random;

use crate::changes::change::Change;
use crate::changes::generations::{Generation, Generations};
use crate::changes::place::Place;
use crate::changes::records::{self, MAGIC, OLD_MAGIC, Read};

/// Length of the log's header, in bytes: the magic bytes and three numbers.
const HEADER: usize = MAGIC.len() + 3 * 8;
/// Size below which a log is not compacted, in bytes.
const SMALL: u64 = 1024 * 1024;

/// The contents of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogOf {
    Documents,
    /// Updates of the Mercure hub.
    Updates,
}

impl LogOf {
    const fn what(self) -> &'static str {
        match self {
            Self::Documents => "documents",
            Self::Updates => "updates of the Mercure hub",
        }
    }

    /// Returns the name of a file of this log.
    fn file(self, kind: &str) -> String {
        match self {
            Self::Documents => format!("documents.{kind}"),
            Self::Updates => format!("mercure.{kind}"),
        }
    }
}

/// The point at which a write is acknowledged (`push_sync`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// After fsync: the write survives a power failure.
    #[default]
    Always,
    /// After the write call: it survives the process.
    Never,
}

/// Error opening the log of documents or of the Mercure hub.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// An I/O error.
    #[error("cannot keep {what} in push_directory {}: {error}", path.display())]
    Unusable {
        /// The contents of the log.
        what: &'static str,
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The writer thread cannot be started.
    #[error("the thread that writes documents down cannot be started: {0}")]
    NoThread(io::Error),
    /// Another process holds the lock.
    #[error("another process keeps its {what} in push_directory {}: choose another one, or stop it", path.display())]
    Taken {
        /// The contents of the log.
        what: &'static str,
        /// The directory.
        path: PathBuf,
    },
    /// The file has an unknown format, such as that of a later release.
    #[error("{} was written by another version, or is no log of {what}: move it away, or choose another push_directory", path.display())]
    Foreign {
        /// The contents of the log.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
}

/// The header of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) generations: Generations,
    /// The newest change at the last compaction.
    pub(crate) newest: u64,
    /// Upper bound of the deletions that may be missing from the log.
    pub(crate) forgotten_through: u64,
}

/// The contents of a log.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) header: Header,
    /// Oldest first.
    pub(crate) changes: Vec<Arc<Change>>,
    /// True if later records were damaged and set aside.
    pub(crate) is_damaged: bool,
}

impl Loaded {
    /// Returns the contents of a new log.
    fn nothing() -> Self {
        Self {
            header: Header {
                generations: Generations::new(random::number()),
                newest: 0,
                forgotten_through: 0,
            },
            changes: Vec::new(),
            is_damaged: false,
        }
    }
}

/// An open log, locked against other processes.
pub(crate) struct Journal {
    of: LogOf,
    place: Place,
    sync: Sync,
    /// `None` after a failed write: the file's end is unknown, so it has to be rewritten.
    log: Option<Log>,
    /// The generation to write before the next records.
    begins: Option<Generation>,
    lock: File,
}

struct Log {
    file: File,
    end: u64,
}

impl Journal {
    /// Opens the log in a directory, or creates it.
    pub(crate) fn open(
        of: LogOf,
        directory: &Path,
        sync: Sync,
    ) -> Result<(Self, Loaded), JournalError> {
        let what = of.what();
        let unusable = |error| JournalError::Unusable {
            what,
            path: directory.to_owned(),
            error,
        };
        let place = Place::open(directory).map_err(unusable)?;
        let lock = place.file(&of.file("lock")).map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(JournalError::Taken {
                    what,
                    path: directory.to_owned(),
                });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        let mut journal = Self {
            of,
            place,
            sync,
            log: None,
            begins: None,
            lock,
        };
        let name = of.file("log");
        let bytes = journal.place.read(&name).map_err(unusable)?;
        let bytes = Bytes::from(bytes);
        if bytes.is_empty() {
            let loaded = Loaded::nothing();
            let begun = journal.rewrite(&loaded.header, &[]);
            begun.map_err(unusable)?;
            return Ok((journal, loaded));
        }
        let (loaded, end) = load(bytes.clone()).ok_or_else(|| JournalError::Foreign {
            what,
            path: journal.place.path_of(&name),
        })?;
        if loaded.is_damaged {
            let kept = journal.set_aside("damaged", &bytes);
            kept.map_err(unusable)?;
        } else if end < bytes.len() as u64 {
            journal.set_tail_aside(&bytes[end as usize..]);
        }
        let file = journal.place.file(&name).map_err(unusable)?;
        file.set_len(end).map_err(unusable)?;
        journal.log = Some(Log { file, end });
        Ok((journal, loaded))
    }

    /// Starts a generation with the next record.
    pub(crate) const fn begin(&mut self, begun: Generation) {
        self.begins = Some(begun);
    }

    /// Sets the cut-off tail aside: with a corrupt length field it may contain further records.
    fn set_tail_aside(&self, tail: &[u8]) {
        let path = self.place.path_of(&self.of.file("torn"));
        let kept = self.set_aside("torn", tail);
        // The write may fail: a full disk also causes torn records.
        let place = match kept {
            Ok(()) => format!("lie in {}", path.display()),
            Err(error) => format!(
                "are lost, for {} cannot be written: {error}",
                path.display()
            ),
        };
        tracing::warn!(
            target: "microcache",
            "the last record of {} is not all there, for the process was killed or the power failed while it was written: {} bytes are cut off, and {place}",
            self.place.path_of(&self.of.file("log")).display(),
            tail.len(),
        );
    }

    /// Writes these bytes to a file next to the log.
    fn set_aside(&self, kind: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.place.file(&self.of.file(kind))?;
        file.set_len(0)?;
        file.write_all_at(bytes, 0)
    }

    /// Releases the lock for another process.
    pub(crate) fn let_go(&self) {
        // Errors are ignored: the lock ends with the process.
        let _ = self.lock.unlock();
    }

    /// Takes the lock back, unless another process holds it; returns whether it did. Since that process may
    /// have changed the log, it has to be rewritten before the next append.
    pub(crate) fn take_back(&mut self) -> bool {
        let is_ours = self.lock.try_lock().is_ok();
        if is_ours {
            self.log = None;
        }
        is_ours
    }

    /// Appends records; returns when they are durable as configured.
    pub(crate) fn append(&mut self, records: &[u8]) -> io::Result<()> {
        let Some(log) = &mut self.log else {
            return Err(io::Error::other("the log has to be written anew"));
        };
        let opening = self.begins.map(|begun| {
            let mut opening = Vec::new();
            records::write_generation(begun, &mut opening);
            opening
        });
        let written = log.append(opening.as_deref().unwrap_or_default(), records);
        let written = written.and_then(|()| match self.sync {
            Sync::Always => log.file.sync_data(),
            Sync::Never => Ok(()),
        });
        match written {
            Ok(()) => self.begins = None,
            Err(_) => self.log = None,
        }
        written
    }

    /// Returns whether the log has to be rewritten before the next append.
    pub(crate) const fn is_broken(&self) -> bool {
        self.log.is_none()
    }

    /// Returns whether most of the log is outdated, given the bytes that are not.
    pub(crate) fn is_mostly_old(&self, live: u64) -> bool {
        self.length() > SMALL && self.length() / 2 > live
    }

    /// Returns the length of the log, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.end)
    }

    /// Compacts the log to these changes.
    pub(crate) fn rewrite(&mut self, header: &Header, changes: &[Arc<Change>]) -> io::Result<()> {
        self.place.find_again()?;
        let name = self.of.file("new");
        let file = self.place.file(&name)?;
        let log = Log::write(file, header, changes).inspect_err(|_| {
            // The incomplete file may be what fills the disk.
            let _ = self.place.remove(&name);
        })?;
        // The previous log may have lost its name from here on.
        self.log = None;
        self.place.rename(&name, &self.of.file("log"))?;
        self.log = Some(log);
        self.begins = None;
        Ok(())
    }
}

impl Log {
    /// Writes a log with these changes.
    fn write(file: File, header: &Header, changes: &[Arc<Change>]) -> io::Result<Self> {
        let oldest = header.generations.version(0).epoch;
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        for number in [oldest, header.newest, header.forgotten_through] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for begun in header.generations.all().iter().skip(1) {
            records::write_generation(*begun, &mut out);
        }
        file.set_len(0)?;
        let mut end = 0;
        for change in changes {
            records::write(std::slice::from_ref(change), &mut out);
            if out.len() > 1 << 20 {
                file.write_all_at(&out, end)?;
                end += out.len() as u64;
                out.clear();
            }
        }
        file.write_all_at(&out, end)?;
        end += out.len() as u64;
        file.sync_all()?;
        Ok(Self { file, end })
    }

    /// Appends a generation, if one starts, and records.
    fn append(&mut self, opening: &[u8], records: &[u8]) -> io::Result<()> {
        if !opening.is_empty() {
            // Older releases that know no generations reject the file rather than treat it as damaged.
            self.file.write_all_at(&MAGIC, 0)?;
        }
        let added = [opening, records].concat();
        self.file.write_all_at(&added, self.end)?;
        self.end += added.len() as u64;
        Ok(())
    }
}

/// Parses a log; returns its contents and the end of the last valid record, or `None` for another format.
fn load(mut bytes: Bytes) -> Option<(Loaded, u64)> {
    let length = bytes.len();
    if length < HEADER {
        return None;
    }
    let mut header = bytes.split_to(HEADER);
    let magic = header.split_to(MAGIC.len());
    if magic != MAGIC[..] && magic != OLD_MAGIC[..] {
        return None;
    }
    let mut header = Header {
        generations: Generations::new(header.get_u64_le()),
        newest: header.get_u64_le(),
        forgotten_through: header.get_u64_le(),
    };
    let mut changes = Vec::new();
    let is_damaged = loop {
        match records::read(bytes.clone()) {
            Read::Record(more, rest) => {
                changes.extend(more.into_iter().map(Arc::new));
                bytes = rest;
            }
            Read::Generation(begun, rest) => {
                header.generations.begin(begun);
                bytes = rest;
            }
            Read::End => break false,
            Read::Damaged => break !is_torn(&bytes),
        }
    };
    let loaded = Loaded {
        header,
        changes,
        is_damaged,
    };
    Some((loaded, (length - bytes.len()) as u64))
}

/// Returns whether the rest is one incomplete record, with no further records after it.
fn is_torn(rest: &[u8]) -> bool {
    let Some((length, _)) = rest.split_first_chunk::<4>() else {
        return true;
    };
    let length = u32::from_le_bytes(*length) as usize;
    // An incomplete record may contain any bytes where data is missing, mostly zeros.
    length >= rest.len().saturating_sub(records::OPENING) || rest.iter().all(|&byte| byte == 0)
}
