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

use crate::changes::change::DocumentChange;
use crate::changes::generations::{Generation, Generations};
use crate::changes::log_directory::LogDirectory;
use crate::changes::records::{self, MAGIC, OLD_MAGIC, ParsedRecord};

/// Length of the log's header, in bytes: the magic bytes and three numbers.
const HEADER_LENGTH: usize = MAGIC.len() + 3 * 8;
/// Size below which a log is not compacted, in bytes.
const MIN_COMPACTION: u64 = 1024 * 1024;

/// The contents of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogKind {
    Documents,
    /// Updates of the Mercure hub.
    Updates,
}

impl LogKind {
    const fn what(self) -> &'static str {
        match self {
            Self::Documents => "documents",
            Self::Updates => "updates of the Mercure hub",
        }
    }

    /// Returns the name of a file of this log.
    fn file(self, suffix: &str) -> String {
        match self {
            Self::Documents => format!("documents.{suffix}"),
            Self::Updates => format!("mercure.{suffix}"),
        }
    }
}

/// The point at which a write is acknowledged (`push_sync`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncPolicy {
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
    #[error("cannot store {what} in push_directory {}: {error}", path.display())]
    Unusable {
        /// The contents of the log.
        what: &'static str,
        /// The directory.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The writer thread cannot be started.
    #[error("the writer thread of documents cannot be started: {0}")]
    NoThread(io::Error),
    /// Another process holds the lock.
    #[error("another process stores its {what} in push_directory {}: stop it, or choose another directory", path.display())]
    Taken {
        /// The contents of the log.
        what: &'static str,
        /// The directory.
        path: PathBuf,
    },
    /// The file has an unknown format, such as that of a later release.
    #[error("{} is not a log of {what}, or was written by another version: move it away, or choose another push_directory", path.display())]
    Foreign {
        /// The contents of the log.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
}

/// The header of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LogHeader {
    pub(crate) generations: Generations,
    /// The newest change at the last compaction.
    pub(crate) newest: u64,
    /// Upper bound of the deletions that may be missing from the log.
    pub(crate) forgotten_through: u64,
}

/// The contents of a log.
#[derive(Debug)]
pub(crate) struct LogContents {
    pub(crate) header: LogHeader,
    /// Oldest first.
    pub(crate) changes: Vec<Arc<DocumentChange>>,
    /// True if later records were damaged and set aside.
    pub(crate) is_damaged: bool,
}

impl LogContents {
    /// Returns the contents of a new log.
    fn empty() -> Self {
        Self {
            header: LogHeader {
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
pub(crate) struct ChangeJournal {
    kind: LogKind,
    directory: LogDirectory,
    sync: SyncPolicy,
    /// `None` after a failed write: the file's end is unknown, so it has to be rewritten.
    log: Option<LogFile>,
    /// The generation to write before the next records.
    next_generation: Option<Generation>,
    lock: File,
}

struct LogFile {
    file: File,
    end: u64,
}

impl ChangeJournal {
    /// Opens the log in a directory, or creates it.
    pub(crate) fn open(
        kind: LogKind,
        directory: &Path,
        sync: SyncPolicy,
    ) -> Result<(Self, LogContents), JournalError> {
        let what = kind.what();
        let unusable = |error| JournalError::Unusable {
            what,
            path: directory.to_owned(),
            error,
        };
        let handle = LogDirectory::open(directory).map_err(unusable)?;
        let lock = handle.file(&kind.file("lock")).map_err(unusable)?;
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
            kind,
            directory: handle,
            sync,
            log: None,
            next_generation: None,
            lock,
        };
        let name = kind.file("log");
        let bytes = journal.directory.read(&name).map_err(unusable)?;
        let bytes = Bytes::from(bytes);
        if bytes.is_empty() {
            let loaded = LogContents::empty();
            let generation = journal.rewrite(&loaded.header, &[]);
            generation.map_err(unusable)?;
            return Ok((journal, loaded));
        }
        let (loaded, end) = load(bytes.clone()).ok_or_else(|| JournalError::Foreign {
            what,
            path: journal.directory.path_of(&name),
        })?;
        if loaded.is_damaged {
            let kept = journal.set_aside("damaged", &bytes);
            kept.map_err(unusable)?;
        } else if end < bytes.len() as u64 {
            journal.set_tail_aside(&bytes[end as usize..]);
        }
        let file = journal.directory.file(&name).map_err(unusable)?;
        file.set_len(end).map_err(unusable)?;
        journal.log = Some(LogFile { file, end });
        Ok((journal, loaded))
    }

    /// Starts a generation with the next record.
    pub(crate) const fn begin(&mut self, generation: Generation) {
        self.next_generation = Some(generation);
    }

    /// Sets the cut-off tail aside: with a corrupt length field it may contain further records.
    fn set_tail_aside(&self, tail: &[u8]) {
        let path = self.directory.path_of(&self.kind.file("torn"));
        let kept = self.set_aside("torn", tail);
        // The write may fail: a full disk also causes torn records.
        let place = match kept {
            Ok(()) => format!("were saved to {}", path.display()),
            Err(error) => format!("are lost: cannot write {}: {error}", path.display()),
        };
        tracing::warn!(
            target: "microcache",
            "the last record of {} is incomplete, since the process was killed or the power failed during the write: its {} bytes were cut off and {place}",
            self.directory.path_of(&self.kind.file("log")).display(),
            tail.len(),
        );
    }

    /// Writes these bytes to a file next to the log.
    fn set_aside(&self, suffix: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.directory.file(&self.kind.file(suffix))?;
        file.set_len(0)?;
        file.write_all_at(bytes, 0)
    }

    /// Releases the lock for another process.
    pub(crate) fn unlock(&self) {
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
            return Err(io::Error::other("the log has to be rewritten"));
        };
        let opening = self.next_generation.map(|generation| {
            let mut opening = Vec::new();
            records::write_generation(generation, &mut opening);
            opening
        });
        let written = log.append(opening.as_deref().unwrap_or_default(), records);
        let written = written.and_then(|()| match self.sync {
            SyncPolicy::Always => log.file.sync_data(),
            SyncPolicy::Never => Ok(()),
        });
        match written {
            Ok(()) => self.next_generation = None,
            Err(_) => self.log = None,
        }
        written
    }

    /// Returns whether the log has to be rewritten before the next append.
    pub(crate) const fn needs_rewrite(&self) -> bool {
        self.log.is_none()
    }

    /// Returns whether most of the log is outdated, given the bytes that are not.
    pub(crate) fn is_mostly_outdated(&self, live: u64) -> bool {
        self.length() > MIN_COMPACTION && self.length() / 2 > live
    }

    /// Returns the length of the log, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.end)
    }

    /// Compacts the log to these changes.
    pub(crate) fn rewrite(
        &mut self,
        header: &LogHeader,
        changes: &[Arc<DocumentChange>],
    ) -> io::Result<()> {
        self.directory.reopen_if_replaced()?;
        let name = self.kind.file("new");
        let file = self.directory.file(&name)?;
        let log = LogFile::write(file, header, changes).inspect_err(|_| {
            // The incomplete file may be what fills the disk.
            let _ = self.directory.remove(&name);
        })?;
        // The previous log may have lost its name from here on.
        self.log = None;
        self.directory.rename(&name, &self.kind.file("log"))?;
        self.log = Some(log);
        self.next_generation = None;
        Ok(())
    }
}

impl LogFile {
    /// Writes a log with these changes.
    fn write(file: File, header: &LogHeader, changes: &[Arc<DocumentChange>]) -> io::Result<Self> {
        let oldest = header.generations.version(0).epoch;
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        for number in [oldest, header.newest, header.forgotten_through] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for generation in header.generations.all().iter().skip(1) {
            records::write_generation(*generation, &mut out);
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
fn load(mut bytes: Bytes) -> Option<(LogContents, u64)> {
    let length = bytes.len();
    if length < HEADER_LENGTH {
        return None;
    }
    let mut header = bytes.split_to(HEADER_LENGTH);
    let magic = header.split_to(MAGIC.len());
    if magic != MAGIC[..] && magic != OLD_MAGIC[..] {
        return None;
    }
    let mut header = LogHeader {
        generations: Generations::new(header.get_u64_le()),
        newest: header.get_u64_le(),
        forgotten_through: header.get_u64_le(),
    };
    let mut changes = Vec::new();
    let is_damaged = loop {
        match records::read(bytes.clone()) {
            ParsedRecord::Changes(more, rest) => {
                changes.extend(more.into_iter().map(Arc::new));
                bytes = rest;
            }
            ParsedRecord::Generation(generation, rest) => {
                header.generations.begin(generation);
                bytes = rest;
            }
            ParsedRecord::End => break false,
            ParsedRecord::Damaged => break !is_torn(&bytes),
        }
    };
    let loaded = LogContents {
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
    length >= rest.len().saturating_sub(records::PREFIX) || rest.iter().all(|&byte| byte == 0)
}
