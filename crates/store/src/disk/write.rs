//! Writing a file: under a temporary name until it is complete.
//!
//! Nothing is forced to the disk. When the process is killed, the system still writes what was
//! written; the name comes after the contents. When the power fails, a file may have its name and not its
//! contents: then the checksums do not match, and it is removed when it is asked for.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;

use super::DiskFailure;
use super::files::Files;
use super::format::{self, Prefix, Sums};
use super::removals::Moment;
use super::state::blocks;
use crate::content::{Content, FileBody};
use crate::tier::{Entry, EntryId};

/// So much is written, and room made for it, in one go.
const PIECE: usize = 1024 * 1024;
/// When the body comes before its head is known, this is left free for prefix and head. It
/// becomes a hole, which takes no room.
pub(super) const HEAD_ROOM: usize = 64 * 1024;

/// From this size on there is room before a body, so that its head can be renewed where it is. Of
/// smaller ones the file is written anew.
const IN_PLACE_FROM: u64 = 1024 * 1024;

/// Writes an entry. A body that is not answered from memory later stays open.
pub(super) fn write(
    files: &Arc<Files>,
    id: EntryId,
    entry: &Entry,
    expires: u64,
    began: Moment,
) -> Result<(), DiskFailure> {
    let opening = Prefix::LEN + entry.head.len();
    let is_renewed_in_place = entry.body.len() >= IN_PLACE_FROM;
    let body_offset = if is_renewed_in_place {
        HEAD_ROOM.max(opening)
    } else {
        opening
    };
    let mut draft = Draft::begin(files, body_offset)?;
    match (&entry.body, entry.body.file()) {
        (Content::Bytes(bytes), _) => draft.append(bytes)?,
        (_, None) => return Err(DiskFailure::Source(ErrorKind::NotFound.into())),
        (_, Some(body)) => {
            for number in 0..body.blocks() {
                draft.append(&body.read_block(number).map_err(DiskFailure::Source)?)?;
            }
        }
    }
    draft.finish(id, &entry.head, expires, began)?;
    Ok(())
}

/// A file under a temporary name, and the room for it. Dropped, both are given back.
pub(super) struct Draft {
    files: Arc<Files>,
    file: File,
    /// Its temporary one.
    name: String,
    /// Written, but not yet to the file: what is small goes there in one call.
    buffer: Vec<u8>,
    body_offset: usize,
    /// Where the buffer belongs.
    at: u64,
    sums: Sums,
    reserved: u64,
    is_counted: bool,
    has_name: bool,
}

impl Draft {
    /// Begins a file whose head is not known yet.
    pub(super) fn begin_headless(files: &Arc<Files>) -> Result<Self, DiskFailure> {
        Self::begin(files, HEAD_ROOM)
    }

    fn begin(files: &Arc<Files>, body_offset: usize) -> Result<Self, DiskFailure> {
        files.reserve(0, 1)?;
        let created = match files.layout.create_temporary() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => files
                .repair()
                .and_then(|()| files.layout.create_temporary().map_err(DiskFailure::Disk)),
            created => created.map_err(DiskFailure::Disk),
        };
        let (file, name) = created.inspect_err(|_| files.give_back(0, 1))?;
        Ok(Self {
            files: Arc::clone(files),
            file,
            name,
            buffer: Vec::new(),
            body_offset,
            at: body_offset as u64,
            sums: Sums::new(),
            reserved: 0,
            is_counted: false,
            has_name: false,
        })
    }

    /// The next piece of the body.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), DiskFailure> {
        self.sums.update(bytes);
        for piece in bytes.chunks(PIECE) {
            self.buffer(piece)?;
        }
        Ok(())
    }

    /// Writes the rest, and gives the file its name.
    pub(super) fn finish(
        mut self,
        id: EntryId,
        head: &Bytes,
        expires: u64,
        began: Moment,
    ) -> Result<Arc<FileBody>, DiskFailure> {
        if Prefix::LEN + head.len() > self.body_offset {
            return Err(DiskFailure::TooLarge);
        }
        let body_len = self.sums.len();
        let sums = std::mem::replace(&mut self.sums, Sums::new()).finish();
        let (table, table_sum) = format::table(&sums);
        let prefix = Prefix {
            id,
            expires,
            head_len: u32::try_from(head.len()).map_err(|_| DiskFailure::TooLarge)?,
            body_offset: u32::try_from(self.body_offset).map_err(|_| DiskFailure::TooLarge)?,
            body_len,
            table_sum,
        };
        self.buffer(&table)?;
        self.write_opening(&[&prefix.encode(head)[..], head].concat())?;
        // The scan after a restart reads this instead of opening every file.
        let over = UNIX_EPOCH + Duration::from_secs(expires);
        self.file.set_modified(over).map_err(DiskFailure::Disk)?;
        // One that stays open for writing would keep the volume from being remounted read-only.
        let file = self.files.layout.open_temporary(&self.name);
        let file = file.map_err(DiskFailure::Disk)?;
        let body =
            FileBody::new(file, prefix.body().start, body_len, sums).map_err(DiskFailure::Disk)?;
        body.mark_verified();
        let body = Arc::new(body);
        let files = Arc::clone(&self.files);
        let is_large = body_len > files.settings.inline;
        let open = is_large.then(|| (head.clone(), Arc::clone(&body)));
        files.commit(self, id, expires, began, open)?;
        Ok(body)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// How long the file is.
    pub(super) const fn len(&self) -> u64 {
        self.at + self.buffer.len() as u64
    }

    /// Notes that its room is no longer a reservation.
    pub(super) const fn is_counted_elsewhere(&mut self) {
        self.is_counted = true;
    }

    /// Notes that the file has got its name.
    pub(super) fn was_renamed(mut self) {
        self.has_name = true;
    }

    fn buffer(&mut self, bytes: &[u8]) -> Result<(), DiskFailure> {
        if self.buffer.len() + bytes.len() > PIECE {
            self.flush()?;
        }
        let needed = blocks(self.len() + bytes.len() as u64);
        if let Some(more) = needed.checked_sub(self.reserved).filter(|more| *more > 0) {
            self.files.reserve(more, 0)?;
            self.reserved = needed;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DiskFailure> {
        self.file
            .write_all_at(&self.buffer, self.at)
            .map_err(DiskFailure::Disk)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes prefix and head, and what is still in the buffer: in one call if that is all there is.
    fn write_opening(&mut self, opening: &[u8]) -> Result<(), DiskFailure> {
        self.buffer(&[])?;
        if self.at == opening.len() as u64 {
            let all = [opening, &self.buffer].concat();
            return self.file.write_all_at(&all, 0).map_err(DiskFailure::Disk);
        }
        self.flush()?;
        self.file
            .write_all_at(opening, 0)
            .map_err(DiskFailure::Disk)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if !self.is_counted {
            self.files.give_back(self.reserved, 1);
        }
        if !self.has_name {
            // What cannot be removed now is removed at the next start.
            let _ = self.files.layout.remove_temporary(&self.name);
        }
    }
}
