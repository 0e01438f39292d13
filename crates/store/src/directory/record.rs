//! Record files, in the format of the disk tier ([`crate::disk::format`]).

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::mem;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat};
use rustix::io::Errno;

use super::folder::{LockedFolder, RecordFolder, remove};
use super::home::failed;
use crate::content::{Content, FileBody};
use crate::disk::error::DiskFailure;
use crate::disk::expiry::is_over;
use crate::disk::format::{BlockSums, FilePrefix, FormatError, check_body, table};
use crate::random;
use crate::tier::{Entry, EntryId};

/// Maximum size of a file in addition to its body, in bytes.
const HEADS: u64 = 4 * 1024 * 1024;
/// Minimum interval between updates of a file's mtime, which is its time of last use.
const NOTED_EVERY: Duration = Duration::from_mins(1);
/// Space reserved for the head when the body is written first. It becomes a hole, which occupies no blocks.
pub(super) const HEAD_ROOM: u64 = 64 * 1024;
/// Suffix of incomplete record files.
pub(super) const UNFINISHED: &str = ".new";

pub(super) fn name(id: EntryId) -> String {
    id.to_string()
}

/// Record with the identity of its file.
pub(super) struct RecordFile {
    pub(super) entry: Entry,
    inode: (u64, u64),
}

impl RecordFile {
    /// Returns whether the file has not been replaced.
    pub(super) fn is_still_there(&self, folder: &RecordFolder, id: EntryId) -> bool {
        let stat = statat(folder.fd(), name(id), AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.inode)
    }
}

/// Size limits of records.
#[derive(Clone, Copy)]
pub(super) struct SizeLimits {
    /// Maximum size of a body, in bytes.
    pub(super) object: u64,
    /// Maximum size of a body that is read into memory, in bytes.
    pub(super) in_memory: u64,
}

/// Reads a record. Expired and oversized ones count as missing; a large body stays in its file.
pub(super) fn read(
    folder: &RecordFolder,
    id: EntryId,
    bounds: SizeLimits,
) -> Result<Option<RecordFile>, DiskFailure> {
    // `NONBLOCK` keeps a FIFO from blocking the open.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match openat(folder.fd(), name(id), flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(DiskFailure::Flaw(FormatError::Foreign)),
        Err(error) => return Err(failed(error)),
    };
    let about = file.metadata().map_err(DiskFailure::Disk)?;
    if !about.is_file() {
        return Err(DiskFailure::Flaw(FormatError::Foreign));
    }
    if about.len() > bounds.object.saturating_add(HEADS) {
        return Ok(None);
    }
    let entry = if about.len() > bounds.in_memory.saturating_add(HEAD_ROOM) {
        in_file(&file, about.len(), id)?
    } else {
        in_memory(&mut file, about.len(), id)?
    };
    if entry.is_some() {
        note_use(&file, about.modified().ok());
    }
    Ok(entry.map(|entry| RecordFile {
        entry,
        inode: (about.dev(), about.ino()),
    }))
}

/// Updates the time of last use. Fails silently on a read-only file system.
fn note_use(file: &File, last: Option<SystemTime>) {
    let now = SystemTime::now();
    let since = last.and_then(|last| now.duration_since(last).ok());
    if since.is_none_or(|since| since >= NOTED_EVERY) {
        let _ = file.set_modified(now);
    }
}

fn in_memory(file: &mut File, length: u64, id: EntryId) -> Result<Option<Entry>, DiskFailure> {
    let mut bytes = Vec::with_capacity(length as usize + 1);
    let read = Read::by_ref(file).take(length + 1).read_to_end(&mut bytes);
    read.map_err(DiskFailure::Disk)?;
    decode(&bytes.into(), id).map_err(DiskFailure::Flaw)
}

/// Opens a record whose body stays in the file; each block is verified when it is read.
fn in_file(file: &File, length: u64, id: EntryId) -> Result<Option<Entry>, DiskFailure> {
    let read = |length: usize, at: u64| {
        let mut bytes = vec![0; length];
        let read = file.read_exact_at(&mut bytes, at);
        read.map(|()| Bytes::from(bytes)).map_err(DiskFailure::Disk)
    };
    let opening = read(FilePrefix::LEN, 0)?;
    let prefix = FilePrefix::decode(&opening, length).map_err(DiskFailure::Flaw)?;
    if prefix.id != id {
        return Err(DiskFailure::Flaw(FormatError::Id));
    }
    if u64::from(prefix.head_len) > HEADS {
        return Err(DiskFailure::Flaw(FormatError::Length));
    }
    let head = read(prefix.head_len as usize, FilePrefix::LEN as u64)?;
    let checked = prefix.check_head(&opening, &head);
    checked.map_err(DiskFailure::Flaw)?;
    if is_over(prefix.expires) {
        return Ok(None);
    }
    let lies = prefix.body();
    let sums = prefix.sums(&read(prefix.table_len(), lies.end)?);
    let sums = sums.map_err(DiskFailure::Flaw)?;
    let file = file.try_clone().map_err(DiskFailure::Disk)?;
    let body = FileBody::new(file, lies.start, prefix.body_len, sums);
    let body = body.map_err(DiskFailure::Disk)?.truncated_when_damaged();
    Ok(Some(Entry {
        head,
        body: Content::File(Arc::new(body)),
    }))
}

fn decode(bytes: &Bytes, id: EntryId) -> Result<Option<Entry>, FormatError> {
    let prefix = FilePrefix::decode(bytes, bytes.len() as u64)?;
    if prefix.id != id {
        return Err(FormatError::Id);
    }
    let head = bytes.slice(prefix.head());
    prefix.check_head(bytes, &head)?;
    if is_over(prefix.expires) {
        return Ok(None);
    }
    let lies = prefix.body();
    let body = bytes.slice(lies.start as usize..lies.end as usize);
    let sums = prefix.sums(&bytes[lies.end as usize..])?;
    check_body(&body, &sums)?;
    Ok(Some(Entry {
        head,
        body: Content::Bytes(body),
    }))
}

/// Parts of a record file, in order.
pub(super) type RecordParts = [Bytes; 3];

pub(super) fn encode(
    id: EntryId,
    head: &Bytes,
    body: &Bytes,
    expires: u64,
) -> Result<RecordParts, DiskFailure> {
    let mut sums = BlockSums::new();
    sums.update(body);
    let (table, table_sum) = table(&sums.finish());
    let prefix = FilePrefix {
        id,
        expires,
        head_len: u32::try_from(head.len()).map_err(|_| DiskFailure::TooLarge)?,
        body_offset: u32::try_from(FilePrefix::LEN + head.len())
            .map_err(|_| DiskFailure::TooLarge)?,
        body_len: body.len() as u64,
        table_sum,
    };
    let opening = [&prefix.encode(head)[..], head].concat();
    Ok([opening.into(), body.clone(), table.into()])
}

pub(super) fn length(parts: &RecordParts) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// Draft of a record, under a temporary name. Removed on drop unless published; after a crash, eviction
/// removes it.
pub(super) struct RecordDraft {
    folder: OwnedFd,
    name: String,
    file: File,
    is_published: bool,
}

impl RecordDraft {
    fn create(folder: &RecordFolder) -> Result<Self, DiskFailure> {
        let number = || u128::from(random::number());
        let name = format!("{:032x}.{:016x}{UNFINISHED}", number(), number());
        let flags =
            OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = folder.fd().try_clone().map_err(DiskFailure::Disk)?;
        let created = openat(&folder, &name, flags, Mode::RUSR | Mode::WUSR);
        Ok(Self {
            file: File::from(created.map_err(failed)?),
            folder,
            name,
            is_published: false,
        })
    }

    pub(super) fn write(folder: &RecordFolder, parts: &RecordParts) -> Result<Self, DiskFailure> {
        let mut draft = Self::create(folder)?;
        write_all(&mut draft.file, parts)?;
        Ok(draft)
    }

    /// Renames the draft to the record of `id`, replacing an existing one.
    pub(super) fn publish(
        mut self,
        locked: &LockedFolder<'_>,
        id: EntryId,
    ) -> Result<(), DiskFailure> {
        let renamed = renameat(&self.folder, &self.name, locked.folder.fd(), name(id));
        renamed.map_err(failed)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for RecordDraft {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = remove(&self.folder, &self.name);
        }
    }
}

/// Draft whose body arrives in pieces and whose head is written last, into reserved space.
pub(super) struct SpooledDraft {
    draft: RecordDraft,
    sums: BlockSums,
}

impl SpooledDraft {
    pub(super) fn begin(folder: &RecordFolder) -> Result<Self, DiskFailure> {
        Ok(Self {
            draft: RecordDraft::create(folder)?,
            sums: BlockSums::new(),
        })
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), DiskFailure> {
        self.write_at(bytes, HEAD_ROOM + self.sums.len())?;
        self.sums.update(bytes);
        Ok(())
    }

    /// Writes the head and the checksum table. Returns the draft with its body.
    pub(super) fn complete(
        mut self,
        id: EntryId,
        head: &Bytes,
        expires: u64,
    ) -> Result<(RecordDraft, FileBody), DiskFailure> {
        if (FilePrefix::LEN + head.len()) as u64 > HEAD_ROOM {
            return Err(DiskFailure::TooLarge);
        }
        let length = self.sums.len();
        let sums = mem::replace(&mut self.sums, BlockSums::new()).finish();
        let (table, table_sum) = table(&sums);
        let prefix = FilePrefix {
            id,
            expires,
            head_len: u32::try_from(head.len()).map_err(|_| DiskFailure::TooLarge)?,
            body_offset: HEAD_ROOM as u32,
            body_len: length,
            table_sum,
        };
        self.write_at(&table, HEAD_ROOM + length)?;
        self.write_at(&[&prefix.encode(head)[..], head].concat(), 0)?;
        let file = self.draft.file.try_clone().map_err(DiskFailure::Disk)?;
        let body = FileBody::new(file, HEAD_ROOM, length, sums).map_err(DiskFailure::Disk)?;
        body.mark_verified();
        Ok((self.draft, body.truncated_when_damaged()))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), DiskFailure> {
        let written = self.draft.file.write_all_at(bytes, at);
        written.map_err(DiskFailure::Disk)
    }
}

/// Writes all parts, with a single system call for small records.
fn write_all(file: &mut File, parts: &RecordParts) -> Result<(), DiskFailure> {
    let slices = parts.each_ref().map(|part| IoSlice::new(part));
    let mut written = file.write_vectored(&slices).map_err(DiskFailure::Disk)?;
    for part in parts {
        let done = written.min(part.len());
        written -= done;
        file.write_all(&part[done..]).map_err(DiskFailure::Disk)?;
    }
    Ok(())
}
