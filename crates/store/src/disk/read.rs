//! Reading a file: as little of it as is needed, and nothing that is not checked.

use std::fs::File;
use std::io::{self, ErrorKind, IoSliceMut};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::{OFlags, fstat};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::DiskFailure;
use super::expiry::is_over;
use super::files::Files;
use super::format::{self, Flaw, Prefix};
use super::index::Known;
use super::removals::Moment;
use super::renew::SECOND;
use super::write::HEAD_ROOM;
use crate::beneath;
use crate::content::{BLOCK, Content, FileBody};
use crate::tier::{Entry, EntryId};

/// Of a file whose body stays in it, so much is read first. It nearly always has all of the head.
const OPENING: u64 = 8 * 1024;
/// Files up to this size are read in one go, if their bodies go to memory.
const AT_ONCE: u64 = 256 * 1024;
/// Files up to this size have no hole before the body, and are read in one go anyway.
const UNBROKEN: u64 = HEAD_ROOM as u64;
/// When no more files may be open, bodies up to this size are read whole, and larger ones are
/// not found.
const WHOLE: u64 = 8 * 1024 * 1024;

/// Reads an entry. What is not as it should be is removed.
pub(super) fn read(
    files: &Files,
    id: EntryId,
    asked: Moment,
) -> Result<Option<Entry>, DiskFailure> {
    let file = match open(files, id) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let is_missing = || files.layout.is_missing(id);
            let forgotten = files.remove_flawed(id, is_missing);
            forgotten.map_err(DiskFailure::Disk)?;
            return Ok(None);
        }
        // A link in place of the file.
        Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
            files
                .remove_flawed(id, || true)
                .map_err(DiskFailure::Disk)?;
            return Err(DiskFailure::Flaw(Flaw::Foreign));
        }
        Err(error) => return Err(DiskFailure::Disk(error)),
    };
    let source = Source {
        file: &file,
        flags: ReadWriteFlags::empty(),
    };
    let inline = files.settings.inline;
    let opened = match Opened::new(source, id, inline) {
        // Its head may have been about to be renewed: nobody does that now.
        Err(DiskFailure::Flaw(_)) | Ok(None) => {
            let _shared = files.share(id);
            Opened::new(source, id, inline)
        }
        opened => opened,
    };
    let read = opened.and_then(|opened| match opened {
        Some(opened) => opened.entry(files, asked).map(Some),
        None => Ok(None),
    });
    if let Err(DiskFailure::Flaw(_)) | Ok(None) = read {
        let is_it = || files.layout.is_same(&file, id);
        files.remove_flawed(id, is_it).map_err(DiskFailure::Disk)?;
    }
    match read {
        Ok(Some(FromFile::Entry(entry))) => Ok(Some(entry)),
        Ok(Some(FromFile::TooMany) | None) => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// A file, and how to read it: `NOWAIT` reads what can be had at once, or fails.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) file: &'a File,
    pub(super) flags: ReadWriteFlags,
}

impl Source<'_> {
    /// `len` was checked against the length of the file. If that has changed since, it is damaged.
    fn read_at(self, offset: u64, len: usize) -> Result<Bytes, DiskFailure> {
        let mut buffer = vec![0; len];
        let mut done = 0;
        while done < len {
            let mut rest = [IoSliceMut::new(&mut buffer[done..])];
            match preadv2(self.file, &mut rest, offset + done as u64, self.flags) {
                Ok(0) => return Err(DiskFailure::Flaw(Flaw::Length)),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(error) => return Err(DiskFailure::Disk(error.into())),
            }
        }
        Ok(buffer.into())
    }
}

/// A file whose prefix and head have been read and checked.
pub(super) struct Opened<'a> {
    source: Source<'a>,
    file_len: u64,
    pub(super) prefix: Prefix,
    pub(super) head: Bytes,
    /// The head is the one that was written later, in the second place: see [`super::renew`].
    pub(super) is_second: bool,
    seal: u64,
    /// The beginning of the file, or all of it.
    opening: Bytes,
}

enum FromFile {
    Entry(Entry),
    /// It is there, but nobody may open more files now.
    TooMany,
}

impl<'a> Opened<'a> {
    /// `None` if what is in it is over.
    pub(super) fn new(
        source: Source<'a>,
        id: EntryId,
        inline: u64,
    ) -> Result<Option<Self>, DiskFailure> {
        let stat = fstat(source.file).map_err(|error| DiskFailure::Disk(error.into()))?;
        if !beneath::is_file(&stat) {
            return Err(DiskFailure::Flaw(Flaw::Foreign));
        }
        let file_len = stat.st_size.cast_unsigned();
        let at_once = AT_ONCE.min(inline.saturating_add(OPENING)).max(UNBROKEN);
        let wanted = if file_len <= at_once {
            file_len
        } else {
            OPENING
        };
        let opening = source.read_at(0, wanted as usize)?;
        let first = Headed::read(source, &opening, 0, id, file_len);
        let second = match &first {
            Ok(first) if !first.has_second_place() => None,
            Ok(_) | Err(DiskFailure::Flaw(_)) if file_len > HEAD_ROOM as u64 => {
                Headed::second(source, &opening, id, file_len)?
            }
            _ => None,
        };
        let is_second = second.is_some();
        let Headed { prefix, head, seal } = second.map_or(first, Ok)?;
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

    /// The checksum that this head has had since it was written, and no other one.
    pub(super) const fn seal(&self) -> u64 {
        self.seal
    }

    pub(super) const fn file_len(&self) -> u64 {
        self.file_len
    }

    fn entry(self, files: &Files, asked: Moment) -> Result<FromFile, DiskFailure> {
        let id = self.prefix.id;
        let known = Known::new(id, self.file_len, self.prefix.expires);
        files.found(known.ok_or(DiskFailure::Flaw(Flaw::Length))?, asked);
        if self.prefix.body_len <= files.settings.inline {
            return self.whole().map(FromFile::Entry);
        }
        let sums = self.sums()?;
        let file = self.source.file.try_clone().map_err(DiskFailure::Disk)?;
        let opened = in_file(file, &self.prefix, sums)?;
        let is_it = || files.layout.is_same(self.source.file, id);
        if let Some(entry) = files.keep_open(id, &self.head, &opened, is_it) {
            return Ok(FromFile::Entry(entry));
        }
        if self.prefix.body_len <= WHOLE {
            return self.whole().map(FromFile::Entry);
        }
        Ok(FromFile::TooMany)
    }

    /// With the body in memory.
    pub(super) fn whole(self) -> Result<Entry, DiskFailure> {
        let (body, _) = self.body()?;
        Ok(Entry {
            head: self.head,
            body: Content::Bytes(body),
        })
    }

    /// The checksums of a body that stays where it is. One that is a single block is checked now,
    /// so that nobody begins to send it in vain.
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

/// A prefix and its head.
struct Headed {
    prefix: Prefix,
    head: Bytes,
    seal: u64,
}

impl Headed {
    /// Those at `offset`, where `opening` has been read.
    fn read(
        source: Source<'_>,
        opening: &Bytes,
        offset: usize,
        id: EntryId,
        file_len: u64,
    ) -> Result<Self, DiskFailure> {
        let prefix = Prefix::decode(opening, file_len).map_err(DiskFailure::Flaw)?;
        if prefix.id != id {
            return Err(DiskFailure::Flaw(Flaw::Id));
        }
        let head = if prefix.head().end <= opening.len() {
            opening.slice(prefix.head())
        } else {
            source.read_at((offset + Prefix::LEN) as u64, prefix.head_len as usize)?
        };
        prefix
            .check_head(opening, &head)
            .map_err(DiskFailure::Flaw)?;
        let seal = Prefix::seal(opening);
        Ok(Self { prefix, head, seal })
    }

    /// Whether there may be another head in the room before the body.
    const fn has_second_place(&self) -> bool {
        self.prefix.body_offset as usize >= HEAD_ROOM && self.prefix.head().end <= SECOND
    }

    /// Those in the second place, if there is something whole. `beginning` was read of the file.
    fn second(
        source: Source<'_>,
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

/// The body in its file, with the checksums that [`Opened::sums`] gave.
pub(super) fn in_file(
    file: File,
    prefix: &Prefix,
    sums: Box<[u64]>,
) -> Result<Arc<FileBody>, DiskFailure> {
    let body = FileBody::new(file, prefix.body().start, prefix.body_len, sums);
    let body = body.map_err(DiskFailure::Disk)?;
    if prefix.body_len <= BLOCK {
        body.mark_verified();
    }
    Ok(Arc::new(body))
}

/// How files are opened. Whoever put something else in place of ours shall not make us wait for it,
/// or follow it. The time of the last access would be written to the disk at every look: here it is
/// always before the time of the last change, which is when the entry expires.
pub(super) const READ_ONLY: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOATIME);

pub(super) fn open(files: &Files, id: EntryId) -> io::Result<File> {
    match files.layout.open_entry(id, READ_ONLY) {
        // The file is another user's, who lets us read it.
        Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
            files.layout.open_entry(id, READ_ONLY - OFlags::NOATIME)
        }
        opened => opened,
    }
}
