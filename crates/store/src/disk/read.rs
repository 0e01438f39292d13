//! Blocking reads of entry files: only the necessary parts, each of them verified.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{OFlags, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::error::DiskFailure;
use super::expiry::is_over;
use super::files::EntryFiles;
use super::format::{self, FilePrefix, FormatError};
use super::geometry::{HEAD_ROOM, SECOND};
use super::index::IndexEntry;
use super::recent_removals::RemovalMark;
use crate::content::{BLOCK, Content, FileBody};
use crate::dir_handle;
use crate::encoding::cost_in;
use crate::tier::{Entry, EntryId};

/// Initial read of a file whose body stays in it; nearly always covers the head.
const OPENING: u64 = 8 * 1024;
/// Size up to which a file is read at once if its body is kept in memory, in bytes.
const AT_ONCE: u64 = 256 * 1024;
/// Size up to which a file cannot have a hole before its body, so that it is read at once in any case.
const UNBROKEN: u64 = HEAD_ROOM as u64;
/// Size up to which bodies are read into memory when the limit of open files is reached; larger ones count
/// as misses.
const WHOLE: u64 = 8 * 1024 * 1024;

/// Reads an entry. Damaged and expired files are removed.
pub(super) fn read(
    files: &EntryFiles,
    id: EntryId,
    since: RemovalMark,
) -> Result<Option<Entry>, DiskFailure> {
    let file = match open(files, id) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let is_missing = || files.layout.is_missing(id);
            let forgotten = files.remove_flawed(id, is_missing);
            forgotten.map_err(DiskFailure::Disk)?;
            return Ok(None);
        }
        // A symbolic link in place of the file.
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            files
                .remove_flawed(id, || true)
                .map_err(DiskFailure::Disk)?;
            return Err(DiskFailure::Flaw(FormatError::Foreign));
        }
        Err(error) => return Err(DiskFailure::Disk(error)),
    };
    let source = FileSource {
        file: &file,
        flags: ReadWriteFlags::empty(),
    };
    let inline = files.settings.inline;
    let opened = match EntryFile::new(source, id, inline) {
        // The head may have been renewed during the read. The stripe excludes that in the second attempt.
        Err(DiskFailure::Flaw(_)) | Ok(None) => {
            let _shared = files.share(id);
            EntryFile::new(source, id, inline)
        }
        opened => opened,
    };
    let read = opened.and_then(|opened| match opened {
        Some(opened) => opened.entry(files, since).map(Some),
        None => Ok(None),
    });
    if let Err(DiskFailure::Flaw(_)) | Ok(None) = read {
        let is_it = || files.layout.is_same(&file, id);
        files.remove_flawed(id, is_it).map_err(DiskFailure::Disk)?;
    }
    match read {
        Ok(Some(ReadOutcome::Entry(entry))) => Ok(Some(entry)),
        Ok(Some(ReadOutcome::TooMany) | None) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// File with its read flags: `NOWAIT` fails instead of blocking.
#[derive(Clone, Copy)]
pub(super) struct FileSource<'a> {
    pub(super) file: &'a File,
    pub(super) flags: ReadWriteFlags,
}

impl FileSource<'_> {
    /// Reads `len` bytes, which the caller has checked against the length of the file; a shorter file has
    /// been damaged since.
    fn read_at(self, offset: u64, len: usize) -> Result<Bytes, DiskFailure> {
        let mut buffer = vec![0; len];
        let mut done = 0;
        while done < len {
            let mut rest = [IoSliceMut::new(&mut buffer[done..])];
            match preadv2(self.file, &mut rest, offset + done as u64, self.flags) {
                Ok(0) => return Err(DiskFailure::Flaw(FormatError::Length)),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(DiskFailure::Disk(error.into())),
            }
        }
        Ok(buffer.into())
    }
}

/// File whose prefix and head have been read and verified.
pub(super) struct EntryFile<'a> {
    source: FileSource<'a>,
    file_len: u64,
    pub(super) prefix: FilePrefix,
    pub(super) head: Bytes,
    /// `true` if this head was found in the second position; see [`super::renew`].
    pub(super) is_second: bool,
    seal: u64,
    /// Beginning of the file, or all of it.
    opening: Bytes,
}

enum ReadOutcome {
    Entry(Entry),
    /// The limit of open files is reached.
    TooMany,
}

impl<'a> EntryFile<'a> {
    /// Reads prefix and head; `None` if the entry has expired.
    pub(super) fn new(
        source: FileSource<'a>,
        id: EntryId,
        inline: u64,
    ) -> Result<Option<Self>, DiskFailure> {
        let stat = fstat(source.file).map_err(|error| DiskFailure::Disk(error.into()))?;
        if !dir_handle::is_file(&stat) {
            return Err(DiskFailure::Flaw(FormatError::Foreign));
        }
        let file_len = stat.st_size.cast_unsigned();
        let at_once = AT_ONCE.min(inline.saturating_add(OPENING)).max(UNBROKEN);
        let wanted = if file_len <= at_once {
            file_len
        } else {
            OPENING
        };
        let opening = source.read_at(0, wanted as usize)?;
        let first = HeadPair::read(source, &opening, 0, id, file_len);
        let second = match &first {
            Ok(first) if !first.has_second_place() => None,
            Ok(_) | Err(DiskFailure::Flaw(_)) if file_len > HEAD_ROOM as u64 => {
                HeadPair::second(source, &opening, id, file_len)?
            }
            _ => None,
        };
        let is_second = second.is_some();
        let HeadPair { prefix, head, seal } = second.map_or(first, Ok)?;
        Ok((!is_over(prefix.expires)).then_some(Self {
            source,
            file_len,
            prefix,
            head,
            is_second,
            seal,
            opening,
        }))
    }

    /// Checksum of prefix and head, which identifies this version of the head.
    pub(super) const fn seal(&self) -> u64 {
        self.seal
    }

    pub(super) const fn file_len(&self) -> u64 {
        self.file_len
    }

    fn entry(self, files: &EntryFiles, since: RemovalMark) -> Result<ReadOutcome, DiskFailure> {
        let id = self.prefix.id;
        let cost = cost_in(&self.head);
        let known = IndexEntry::new(id, self.file_len, self.prefix.expires, cost);
        files.adopt_found(known.ok_or(DiskFailure::Flaw(FormatError::Length))?, since);
        if self.prefix.body_len <= files.settings.inline {
            return self.whole().map(ReadOutcome::Entry);
        }
        let sums = self.sums()?;
        let file = self.source.file.try_clone().map_err(DiskFailure::Disk)?;
        let opened = in_file(file, &self.prefix, sums)?;
        let is_it = || files.layout.is_same(self.source.file, id);
        if let Some(entry) = files.keep_open(id, &self.head, &opened, is_it) {
            return Ok(ReadOutcome::Entry(entry));
        }
        if self.prefix.body_len <= WHOLE {
            return self.whole().map(ReadOutcome::Entry);
        }
        Ok(ReadOutcome::TooMany)
    }

    /// Reads the body into memory.
    pub(super) fn whole(self) -> Result<Entry, DiskFailure> {
        let (body, _) = self.body()?;
        Ok(Entry {
            head: self.head,
            body: Content::Bytes(body),
        })
    }

    /// Reads the block checksums of a body that stays in the file. A single block is verified at once, so
    /// that no response starts with a damaged body.
    pub(super) fn sums(&self) -> Result<Box<[u64]>, DiskFailure> {
        if self.prefix.body_len <= BLOCK {
            return Ok(self.body()?.1);
        }
        let table = self.prefix.body().end;
        let table = self.source.read_at(table, self.prefix.table_len())?;
        self.prefix.sums(&table).map_err(DiskFailure::Flaw)
    }

    fn body(&self) -> Result<(Bytes, Box<[u64]>), DiskFailure> {
        let prefix = &self.prefix;
        let body_len = prefix.body_len as usize;
        let from = prefix.body().start;
        let mut body = if self.file_len == self.opening.len() as u64 {
            self.opening.slice(from as usize..)
        } else {
            self.source.read_at(from, body_len + prefix.table_len())?
        };
        let table = body.split_off(body_len);
        let sums = prefix.sums(&table).map_err(DiskFailure::Flaw)?;
        format::check_body(&body, &sums).map_err(DiskFailure::Flaw)?;
        Ok((body, sums))
    }
}

/// Prefix with its head.
struct HeadPair {
    prefix: FilePrefix,
    head: Bytes,
    seal: u64,
}

impl HeadPair {
    /// Reads the pair at `offset`, where `opening` has been read.
    fn read(
        source: FileSource<'_>,
        opening: &Bytes,
        offset: usize,
        id: EntryId,
        file_len: u64,
    ) -> Result<Self, DiskFailure> {
        let prefix = FilePrefix::decode(opening, file_len).map_err(DiskFailure::Flaw)?;
        if prefix.id != id {
            return Err(DiskFailure::Flaw(FormatError::Id));
        }
        let head = if prefix.head().end <= opening.len() {
            opening.slice(prefix.head())
        } else {
            source.read_at((offset + FilePrefix::LEN) as u64, prefix.head_len as usize)?
        };
        prefix
            .check_head(opening, &head)
            .map_err(DiskFailure::Flaw)?;
        let seal = FilePrefix::seal(opening);
        Ok(Self { prefix, head, seal })
    }

    /// Returns whether the reserved space before the body may contain another head.
    const fn has_second_place(&self) -> bool {
        self.prefix.body_offset as usize >= HEAD_ROOM && self.prefix.head().end <= SECOND
    }

    /// Reads the pair in the second position, if it is valid. `beginning` is the beginning of the file.
    fn second(
        source: FileSource<'_>,
        beginning: &Bytes,
        id: EntryId,
        file_len: u64,
    ) -> Result<Option<Self>, DiskFailure> {
        let opening = match beginning.get(SECOND..HEAD_ROOM) {
            Some(_) => beginning.slice(SECOND..HEAD_ROOM),
            None => source.read_at(SECOND as u64, OPENING as usize)?,
        };
        match Self::read(source, &opening, SECOND, id, file_len) {
            Ok(headed) if headed.prefix.body_offset as usize >= HEAD_ROOM => Ok(Some(headed)),
            Ok(_) | Err(DiskFailure::Flaw(_)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }
}

/// Creates the body in its file, with the checksums from [`EntryFile::sums`].
pub(super) fn in_file(
    file: File,
    prefix: &FilePrefix,
    sums: Box<[u64]>,
) -> Result<Arc<FileBody>, DiskFailure> {
    let body = FileBody::new(file, prefix.body().start, prefix.body_len, sums);
    let body = body.map_err(DiskFailure::Disk)?;
    if prefix.body_len <= BLOCK {
        body.mark_verified();
    }
    Ok(Arc::new(body))
}

/// Flags for opening entry files. Anything planted in place of a file must neither block the open nor be
/// followed. `NOATIME` avoids a disk write per read: the access time always precedes the mtime, which is the
/// expiry.
pub(super) const READ_ONLY: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOATIME);

pub(super) fn open(files: &EntryFiles, id: EntryId) -> io::Result<File> {
    match files.layout.open_entry(id, READ_ONLY) {
        // `NOATIME` is reserved to the owner of the file.
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            files.layout.open_entry(id, READ_ONLY - OFlags::NOATIME)
        }
        opened => opened,
    }
}
