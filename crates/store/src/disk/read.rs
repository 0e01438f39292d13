//! Reading a file: as little of it as is needed, and nothing that is not checked.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::OFlags;
use rustix::io::Errno;

use super::Failure;
use super::expiry::is_over;
use super::files::Files;
use super::format::{self, Flaw, Prefix};
use super::index::Known;
use crate::content::{Content, FileBody};
use crate::tier::{Entry, EntryId, Token};

/// Of a file whose body stays in it, so much is read first. It nearly always has all of the head.
const OPENING: u64 = 8 * 1024;
/// Files up to this size are read in one go, if their bodies go to memory.
const AT_ONCE: u64 = 256 * 1024;
/// When no more files may be open, bodies up to this size are read whole, and larger ones are
/// not found.
const WHOLE: u64 = 8 * 1024 * 1024;

/// Reads an entry. What is not as it should be is removed.
pub(super) fn read(files: &Files, id: EntryId, asked: Token) -> Result<Option<Entry>, Failure> {
    let path = files.layout.entry(id);
    let file = match open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            forget_vanished(files, id, &path)?;
            return Ok(None);
        }
        // A link in place of the file.
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            files.remove_flawed(id, || true).map_err(Failure::Disk)?;
            return Err(Failure::Flaw(Flaw::Foreign));
        }
        Err(error) => return Err(Failure::Disk(error)),
    };
    let read = Opened::new(&file, id, files.settings.inline).and_then(|opened| match opened {
        Some(opened) => opened.entry(files, asked).map(Some),
        None => Ok(None),
    });
    if let Err(Failure::Flaw(_)) | Ok(None) = read {
        let is_it = || is_same(&file, &path);
        files.remove_flawed(id, is_it).map_err(Failure::Disk)?;
    }
    match read {
        Ok(Some(Answer::Entry(entry))) => Ok(Some(entry)),
        Ok(Some(Answer::TooMany) | None) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A file whose prefix and head have been read and checked.
struct Opened<'a> {
    file: &'a File,
    file_len: u64,
    prefix: Prefix,
    head: Bytes,
    /// The beginning of the file, or all of it.
    opening: Bytes,
}

enum Answer {
    Entry(Entry),
    /// It is there, but nobody may open more files now.
    TooMany,
}

impl<'a> Opened<'a> {
    /// `None` if what is in it is over.
    fn new(file: &'a File, id: EntryId, inline: u64) -> Result<Option<Self>, Failure> {
        let metadata = file.metadata().map_err(Failure::Disk)?;
        if !metadata.is_file() {
            return Err(Failure::Flaw(Flaw::Foreign));
        }
        let file_len = metadata.len();
        let at_once = AT_ONCE.min(inline.saturating_add(OPENING));
        let wanted = if file_len <= at_once {
            file_len
        } else {
            OPENING
        };
        let opening = read_at(file, 0, wanted as usize)?;
        let prefix = Prefix::decode(&opening, file_len).map_err(Failure::Flaw)?;
        if prefix.id != id {
            return Err(Failure::Flaw(Flaw::Id));
        }
        let head = if prefix.head().end <= opening.len() {
            opening.slice(prefix.head())
        } else {
            read_at(file, Prefix::LEN as u64, prefix.head_len as usize)?
        };
        prefix.check_head(&opening, &head).map_err(Failure::Flaw)?;
        Ok((!is_over(prefix.expires)).then_some(Self {
            file,
            file_len,
            prefix,
            head,
            opening,
        }))
    }

    fn entry(self, files: &Files, asked: Token) -> Result<Answer, Failure> {
        let id = self.prefix.id;
        let known = Known::new(id, self.file_len, self.prefix.expires);
        files.found(known.ok_or(Failure::Flaw(Flaw::Length))?, asked);
        if self.prefix.body_len <= files.settings.inline {
            return self.whole();
        }
        let body = self.prefix.body();
        let table = read_at(self.file, body.end, self.prefix.table_len())?;
        let sums = self.prefix.sums(&table).map_err(Failure::Flaw)?;
        let file = self.file.try_clone().map_err(Failure::Disk)?;
        let opened = FileBody::new(file, body.start, self.prefix.body_len, sums);
        let opened = Arc::new(opened.map_err(Failure::Disk)?);
        let is_it = || is_same(self.file, &files.layout.entry(id));
        if let Some(entry) = files.keep_open(id, &self.head, &opened, is_it) {
            return Ok(Answer::Entry(entry));
        }
        if self.prefix.body_len <= WHOLE {
            return self.whole();
        }
        Ok(Answer::TooMany)
    }

    /// With the body in memory.
    fn whole(self) -> Result<Answer, Failure> {
        let Self { file, prefix, .. } = self;
        let body_len = prefix.body_len as usize;
        let from = prefix.body().start;
        let rest = if self.file_len == self.opening.len() as u64 {
            self.opening.slice(from as usize..)
        } else {
            read_at(file, from, body_len + prefix.table_len())?
        };
        let sums = prefix.sums(&rest[body_len..]).map_err(Failure::Flaw)?;
        let body = rest.slice(..body_len);
        format::check_body(&body, &sums).map_err(Failure::Flaw)?;
        Ok(Answer::Entry(Entry {
            head: self.head,
            body: Content::Bytes(body),
        }))
    }
}

/// Whoever put something else in place of our files shall not make us wait for it, or follow it.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits().cast_signed())
        .open(path)
}

/// `len` was checked against the length of the file. If that has changed since, it is damaged.
fn read_at(file: &File, offset: u64, len: usize) -> Result<Bytes, Failure> {
    let mut buffer = vec![0; len];
    match file.read_exact_at(&mut buffer, offset) {
        Ok(()) => Ok(buffer.into()),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Err(Failure::Flaw(Flaw::Length)),
        Err(error) => Err(Failure::Disk(error)),
    }
}

fn forget_vanished(files: &Files, id: EntryId, path: &Path) -> Result<(), Failure> {
    let is_missing = || matches!(path.try_exists(), Ok(false));
    files.remove_flawed(id, is_missing).map_err(Failure::Disk)
}

/// Whether the file is still the one that has the name.
fn is_same(file: &File, path: &Path) -> bool {
    match (file.metadata(), fs::symlink_metadata(path)) {
        (Ok(one), Ok(other)) => (one.dev(), one.ino()) == (other.dev(), other.ino()),
        _ => false,
    }
}
