//! The log of all changes, which outlives the process. What is published to the Mercure hub is written in the same way.
//!
//! Changes are added at the end; when what is there is mostly out of date, it is written anew beside itself
//! and takes its own place. The last record may be torn, if the process was killed or the power failed while
//! it was written: then nobody was told that it is there, and it is cut off. If anything else is damaged,
//! the file is set aside, and what came before the damage is kept.

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

/// What the log begins with: the magic bytes, and three numbers.
const HEADER: usize = MAGIC.len() + 3 * 8;
/// A log that is shorter is never written anew.
const SMALL: u64 = 1024 * 1024;

/// What a log is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogOf {
    Documents,
    /// What is published to the Mercure hub.
    Updates,
}

impl LogOf {
    const fn what(self) -> &'static str {
        match self {
            Self::Documents => "documents",
            Self::Updates => "updates of the Mercure hub",
        }
    }

    /// The name of the log's file, or of one beside it.
    fn file(self, kind: &str) -> String {
        match self {
            Self::Documents => format!("documents.{kind}"),
            Self::Updates => format!("mercure.{kind}"),
        }
    }
}

/// When a change counts as written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sync {
    /// When it is on the disk: it outlives a power failure.
    #[default]
    Always,
    /// When the system has it: it outlives this process.
    Never,
}

/// Why documents cannot be kept in a directory, or what is published to the Mercure hub.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The system says so.
    #[error("cannot keep {what} in push_directory {}: {error}", path.display())]
    Unusable {
        /// What was to be kept.
        what: &'static str,
        /// The directory.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The thread that writes cannot be started.
    #[error("the thread that writes documents down cannot be started: {0}")]
    NoThread(io::Error),
    /// Another process has it.
    #[error("another process keeps its {what} in push_directory {}: choose another one, or stop it", path.display())]
    Taken {
        /// What was to be kept.
        what: &'static str,
        /// The directory.
        path: PathBuf,
    },
    /// A later version has written it.
    #[error("{} was written by another version, or is no log of {what}: move it away, or choose another push_directory", path.display())]
    Foreign {
        /// What was to be kept.
        what: &'static str,
        /// The file.
        path: PathBuf,
    },
}

/// What is true of all changes in a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) generations: Generations,
    /// The last change before the log was written anew.
    pub(crate) newest: u64,
    /// What was gone by this change may not be in the log any more.
    pub(crate) forgotten_through: u64,
}

/// What a log has in it.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) header: Header,
    /// The oldest first.
    pub(crate) changes: Vec<Arc<Change>>,
    /// What comes after them could not be read, and was set aside.
    pub(crate) is_damaged: bool,
}

impl Loaded {
    /// Of a log that begins.
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

/// The log of a directory, and the right to write to it.
pub(crate) struct Journal {
    of: LogOf,
    place: Place,
    sync: Sync,
    /// `None` after a failure: what is on the disk then is not known, and it has to be written anew.
    log: Option<Log>,
    /// It stands in the log before what is added next.
    begins: Option<Generation>,
    lock: File,
}

struct Log {
    file: File,
    end: u64,
}

impl Journal {
    /// Opens the log of a directory, or begins one.
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

    /// What is added from now on is of this generation.
    pub(crate) const fn begin(&mut self, begun: Generation) {
        self.begins = Some(begun);
    }

    /// Keeps what is cut off: if it is no torn record but one of a length that is wrong, others lie behind that.
    fn set_tail_aside(&self, tail: &[u8]) {
        let path = self.place.path_of(&self.of.file("torn"));
        let kept = self.set_aside("torn", tail);
        // It may be torn because the disk is full.
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

    /// Keeps these bytes beside the log.
    fn set_aside(&self, kind: &str, bytes: &[u8]) -> io::Result<()> {
        let file = self.place.file(&self.of.file(kind))?;
        file.set_len(0)?;
        file.write_all_at(bytes, 0)
    }

    /// Lets another process take it up.
    pub(crate) fn let_go(&self) {
        // It is let go of at the end of the process at the latest.
        let _ = self.lock.unlock();
    }

    /// Takes it back, unless another process has it. What that one has made of the log is not known: it is
    /// written anew before anything is added.
    pub(crate) fn take_back(&mut self) -> bool {
        let is_ours = self.lock.try_lock().is_ok();
        if is_ours {
            self.log = None;
        }
        is_ours
    }

    /// Adds records. When this returns, they are there.
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

    /// Whether it has to be written anew before anything can be added.
    pub(crate) const fn is_broken(&self) -> bool {
        self.log.is_none()
    }

    /// Whether most of it is out of date, if so much of it is not.
    pub(crate) fn is_mostly_old(&self, live: u64) -> bool {
        self.length() > SMALL && self.length() / 2 > live
    }

    /// How long it is, in bytes.
    pub(crate) fn length(&self) -> u64 {
        self.log.as_ref().map_or(0, |log| log.end)
    }

    /// Writes it anew, with these changes only.
    pub(crate) fn rewrite(&mut self, header: &Header, changes: &[Arc<Change>]) -> io::Result<()> {
        self.place.find_again()?;
        let name = self.of.file("new");
        let file = self.place.file(&name)?;
        let log = Log::write(file, header, changes).inspect_err(|_| {
            // The disk may be full, of this.
            let _ = self.place.remove(&name);
        })?;
        // From here on what was the log may have no name any more.
        self.log = None;
        self.place.rename(&name, &self.of.file("log"))?;
        self.log = Some(log);
        self.begins = None;
        Ok(())
    }
}

impl Log {
    /// Writes one with these changes.
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

    /// Adds a generation, if one begins, and what is of it.
    fn append(&mut self, opening: &[u8], records: &[u8]) -> io::Result<()> {
        if !opening.is_empty() {
            // Programs that do not know of generations are not to take them for damage.
            self.file.write_all_at(&MAGIC, 0)?;
        }
        let added = [opening, records].concat();
        self.file.write_all_at(&added, self.end)?;
        self.end += added.len() as u64;
        Ok(())
    }
}

/// What a log has in it, and where that ends; `None` if it is no log.
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

/// Whether what is left is the beginning of one record, and not something with others behind it.
fn is_torn(rest: &[u8]) -> bool {
    let Some((length, _)) = rest.split_first_chunk::<4>() else {
        return true;
    };
    let length = u32::from_le_bytes(*length) as usize;
    // A record that was written in part may have any bytes, zeros above all, where the rest belongs.
    length >= rest.len().saturating_sub(records::OPENING) || rest.iter().all(|&byte| byte == 0)
}
