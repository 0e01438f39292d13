//! A record in its file, in the format of the disk tier's files ([`crate::disk::format`]).

use std::fs::File;
use std::io::{IoSlice, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, statat};
use rustix::io::Errno;

use super::folder::{Folder, Locked, remove};
use super::place::failed;
use crate::content::Content;
use crate::disk::DiskFailure;
use crate::disk::expiry::is_over;
use crate::disk::format::{Flaw, Prefix, Sums, check_body, table};
use crate::random;
use crate::tier::{Entry, EntryId};

/// What a file may have beside its body.
const HEADS: u64 = 4 * 1024 * 1024;
/// The time of a file is when it was used last. That is noted so often at most.
const NOTED_EVERY: Duration = Duration::from_mins(1);
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

/// Reads a record. What is over, or too large for us, is not there.
pub(super) fn read(
    folder: &Folder,
    id: EntryId,
    max_object: u64,
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
    if about.len() > max_object.saturating_add(HEADS) {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(about.len() as usize + 1);
    let limit = about.len() + 1;
    let read = Read::by_ref(&mut file).take(limit).read_to_end(&mut bytes);
    read.map_err(DiskFailure::Disk)?;
    let entry = decode(&bytes.into(), id).map_err(DiskFailure::Flaw)?;
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
pub(super) struct Draft<'a> {
    folder: &'a Folder,
    id: EntryId,
    name: String,
    is_published: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn write(
        folder: &'a Folder,
        id: EntryId,
        parts: &Parts,
    ) -> Result<Self, DiskFailure> {
        let name = format!("{id}.{:016x}{UNFINISHED}", random::number());
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let created = openat(folder.fd(), &name, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(created.map_err(failed)?);
        let draft = Self {
            folder,
            id,
            name,
            is_published: false,
        };
        write_all(&mut file, parts)?;
        Ok(draft)
    }

    /// Gives it its name, in place of what has that so far.
    pub(super) fn publish(mut self, locked: &Locked<'_>) -> Result<(), DiskFailure> {
        let folder = locked.folder.fd();
        let renamed = renameat(folder, &self.name, folder, name(self.id));
        renamed.map_err(failed)?;
        self.is_published = true;
        Ok(())
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.is_published {
            let _ = remove(self.folder.fd(), &self.name);
        }
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
