//! A record in its file, in the format of the disk tier's files ([`crate::disk::format`]).

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

use super::folder::{Folder, Locked, remove};
use super::place::failed;
use crate::content::{Content, FileBody};
use crate::disk::DiskFailure;
use crate::disk::expiry::is_over;
use crate::disk::format::{Flaw, Prefix, Sums, check_body, table};
use crate::random;
use crate::tier::{Entry, EntryId};

/// What a file may have beside its body.
const HEADS: u64 = 4 * 1024 * 1024;
/// The time of a file is when it was used last. That is noted so often at most.
const NOTED_EVERY: Duration = Duration::from_mins(1);
/// So much is left free for the head where the body comes before it is known. It becomes a hole, which takes no room.
pub(super) const HEAD_ROOM: u64 = 64 * 1024;
/// How the file of a record ends that is not complete.
pub(super) const UNFINISHED: &str = ".new";

pub(super) fn name(id: EntryId) -> String {
    id.to_string()
}

/// A record that was read, and the file that it is in.
pub(super) struct Found {
    pub(super) entry: Entry,
    inode: (u64, u64),
}

impl Found {
    /// Whether no other file has come in its place.
    pub(super) fn is_still_there(&self, folder: &Folder, id: EntryId) -> bool {
        let stat = statat(folder.fd(), name(id), AtFlags::SYMLINK_NOFOLLOW);
        stat.is_ok_and(|stat| (stat.st_dev, stat.st_ino) == self.inode)
    }
}

/// How large records may be.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// The largest body that is kept.
    pub(super) object: u64,
    /// The largest one that is read into memory.
    pub(super) in_memory: u64,
}

/// Reads a record. What is over, or too large for us, is not there. A large body stays in its file.
pub(super) fn read(
    folder: &Folder,
    id: EntryId,
    bounds: Bounds,
) -> Result<Option<Found>, DiskFailure> {
    // Who opens a pipe does not wait for the other end.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut file = match openat(folder.fd(), name(id), flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::LOOP) => return Err(DiskFailure::Flaw(Flaw::Foreign)),
        Err(error) => return Err(failed(error)),
    };
    let about = file.metadata().map_err(DiskFailure::Disk)?;
    if !about.is_file() {
        return Err(DiskFailure::Flaw(Flaw::Foreign));
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
    Ok(entry.map(|entry| Found {
        entry,
        inode: (about.dev(), about.ino()),
    }))
}

/// Where the directory is read-only, nothing is noted.
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

/// What is read of the body is checked when it is.
fn in_file(file: &File, length: u64, id: EntryId) -> Result<Option<Entry>, DiskFailure> {
    let read = |length: usize, at: u64| {
        let mut bytes = vec![0; length];
        let read = file.read_exact_at(&mut bytes, at);
        read.map(|()| Bytes::from(bytes)).map_err(DiskFailure::Disk)
    };
    let opening = read(Prefix::LEN, 0)?;
    let prefix = Prefix::decode(&opening, length).map_err(DiskFailure::Flaw)?;
    if prefix.id != id {
        return Err(DiskFailure::Flaw(Flaw::Id));
    }
    if u64::from(prefix.head_len) > HEADS {
        return Err(DiskFailure::Flaw(Flaw::Length));
    }
    let head = read(prefix.head_len as usize, Prefix::LEN as u64)?;
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
    let body = body.map_err(DiskFailure::Disk)?.emptied_when_damaged();
    Ok(Some(Entry {
        head,
        body: Content::File(Arc::new(body)),
    }))
}

fn decode(bytes: &Bytes, id: EntryId) -> Result<Option<Entry>, Flaw> {
    let prefix = Prefix::decode(bytes, bytes.len() as u64)?;
    if prefix.id != id {
        return Err(Flaw::Id);
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

/// The parts of a file, in their order.
pub(super) type Parts = [Bytes; 3];

pub(super) fn encode(
    id: EntryId,
    head: &Bytes,
    body: &Bytes,
    expires: u64,
) -> Result<Parts, DiskFailure> {
    let mut sums = Sums::new();
    sums.update(body);
    let (table, table_sum) = table(&sums.finish());
    let prefix = Prefix {
        id,
        expires,
        head_len: u32::try_from(head.len()).map_err(|_| DiskFailure::TooLarge)?,
        body_offset: u32::try_from(Prefix::LEN + head.len()).map_err(|_| DiskFailure::TooLarge)?,
        body_len: body.len() as u64,
        table_sum,
    };
    let opening = [&prefix.encode(head)[..], head].concat();
    Ok([opening.into(), body.clone(), table.into()])
}

pub(super) fn length(parts: &Parts) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}

/// A file under a name that nobody looks for. Dropped before it is published, it is removed; if the process is
/// killed before that, it is removed when room is made.
pub(super) struct Draft {
    folder: OwnedFd,
    name: String,
    file: File,
    is_published: bool,
}

impl Draft {
    fn create(folder: &Folder) -> Result<Self, DiskFailure> {
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

    pub(super) fn write(folder: &Folder, parts: &Parts) -> Result<Self, DiskFailure> {
        let mut draft = Self::create(folder)?;
        write_all(&mut draft.file, parts)?;
        Ok(draft)
    }

    /// Gives it the name of a record, in place of what has that so far.
    pub(super) fn publish(mut self, locked: &Locked<'_>, id: EntryId) -> Result<(), DiskFailure> {
        let renamed = renameat(&self.folder, &self.name, locked.folder.fd(), name(id));
        renamed.map_err(failed)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = remove(&self.folder, &self.name);
        }
    }
}

/// A draft whose body comes in pieces, and whose head comes last: room is left for that.
pub(super) struct Growing {
    draft: Draft,
    sums: Sums,
}

impl Growing {
    pub(super) fn begin(folder: &Folder) -> Result<Self, DiskFailure> {
        Ok(Self {
            draft: Draft::create(folder)?,
            sums: Sums::new(),
        })
    }

    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), DiskFailure> {
        self.write_at(bytes, HEAD_ROOM + self.sums.len())?;
        self.sums.update(bytes);
        Ok(())
    }

    /// Adds what stands around the body. Gives the body as it lies there, too.
    pub(super) fn complete(
        mut self,
        id: EntryId,
        head: &Bytes,
        expires: u64,
    ) -> Result<(Draft, FileBody), DiskFailure> {
        if (Prefix::LEN + head.len()) as u64 > HEAD_ROOM {
            return Err(DiskFailure::TooLarge);
        }
        let length = self.sums.len();
        let sums = mem::replace(&mut self.sums, Sums::new()).finish();
        let (table, table_sum) = table(&sums);
        let prefix = Prefix {
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
        Ok((self.draft, body.emptied_when_damaged()))
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> Result<(), DiskFailure> {
        let written = self.draft.file.write_all_at(bytes, at);
        written.map_err(DiskFailure::Disk)
    }
}

/// What is small goes in one call.
fn write_all(file: &mut File, parts: &Parts) -> Result<(), DiskFailure> {
    let slices = parts.each_ref().map(|part| IoSlice::new(part));
    let mut written = file.write_vectored(&slices).map_err(DiskFailure::Disk)?;
    for part in parts {
        let done = written.min(part.len());
        written -= done;
        file.write_all(&part[done..]).map_err(DiskFailure::Disk)?;
    }
    Ok(())
}
