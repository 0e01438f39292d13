//! Writes of entry files, under a temporary name until complete.
//!
//! Nothing is flushed explicitly. After a crash of the process, the kernel completes the writes, and the
//! rename comes after the contents. After a power failure, a file may have its name but not its contents;
//! its checksums fail then, and it is removed on lookup.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;

use super::error::DiskFailure;
use super::files::EntryFiles;
use super::format::{self, BlockSums, FilePrefix};
use super::geometry::{HEAD_ROOM, blocks};
use super::index::IndexEntry;
use super::recent_removals::RemovalMark;
use crate::content::{Content, FileBody};
use crate::encoding::cost_in;
use crate::eviction::FetchCost;
use crate::tier::{Entry, EntryId};

/// Size of one write, for which space is reserved, in bytes.
const PIECE: usize = 1024 * 1024;
/// Size of a body from which space is reserved so that its head can be renewed in place; smaller files are
/// rewritten.
const IN_PLACE_FROM: u64 = 1024 * 1024;

/// Writes an entry. A body above the inline limit is kept open.
pub(super) fn write(
    files: &Arc<EntryFiles>,
    id: EntryId,
    entry: &Entry,
    expires: u64,
    began: RemovalMark,
) -> Result<(), DiskFailure> {
    let opening = FilePrefix::LEN + entry.head.len();
    let is_renewed_in_place = entry.body.len() >= IN_PLACE_FROM;
    let body_offset = if is_renewed_in_place {
        HEAD_ROOM.max(opening)
    } else {
        opening
    };
    let mut draft = EntryDraft::begin(files, body_offset)?;
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

/// File under a temporary name, with its reserved space. Both are released on drop.
pub(super) struct EntryDraft {
    files: Arc<EntryFiles>,
    file: File,
    /// Temporary name.
    name: String,
    /// Bytes not yet written: small files are written with a single system call.
    buffer: Vec<u8>,
    body_offset: usize,
    /// Offset of the buffer.
    at: u64,
    sums: BlockSums,
    reserved: u64,
    is_counted: bool,
    has_name: bool,
}

impl EntryDraft {
    /// Creates a draft whose head is written last.
    pub(super) fn begin_headless(files: &Arc<EntryFiles>) -> Result<Self, DiskFailure> {
        Self::begin(files, HEAD_ROOM)
    }

    fn begin(files: &Arc<EntryFiles>, body_offset: usize) -> Result<Self, DiskFailure> {
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
            sums: BlockSums::new(),
            reserved: 0,
            is_counted: false,
            has_name: false,
        })
    }

    /// Appends a part of the body.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<(), DiskFailure> {
        self.sums.update(bytes);
        for piece in bytes.chunks(PIECE) {
            self.buffer(piece)?;
        }
        Ok(())
    }

    /// Writes the rest and renames the file to its entry.
    pub(super) fn finish(
        mut self,
        id: EntryId,
        head: &Bytes,
        expires: u64,
        began: RemovalMark,
    ) -> Result<Arc<FileBody>, DiskFailure> {
        if FilePrefix::LEN + head.len() > self.body_offset {
            return Err(DiskFailure::TooLarge);
        }
        let body_len = self.sums.len();
        let sums = std::mem::replace(&mut self.sums, BlockSums::new()).finish();
        let (table, table_sum) = format::table(&sums);
        let prefix = FilePrefix {
            id,
            expires,
            head_len: u32::try_from(head.len()).map_err(|_| DiskFailure::TooLarge)?,
            body_offset: u32::try_from(self.body_offset).map_err(|_| DiskFailure::TooLarge)?,
            body_len,
            table_sum,
        };
        self.buffer(&table)?;
        self.write_opening(&[&prefix.encode(head)[..], head].concat())?;
        // The scan after a restart reads the mtime instead of opening every file.
        let over = UNIX_EPOCH + Duration::from_secs(expires);
        self.file.set_modified(over).map_err(DiskFailure::Disk)?;
        // A file open for writing would prevent the volume from being remounted read-only.
        let file = self.files.layout.open_temporary(&self.name);
        let file = file.map_err(DiskFailure::Disk)?;
        let body =
            FileBody::new(file, prefix.body().start, body_len, sums).map_err(DiskFailure::Disk)?;
        body.mark_verified();
        let body = Arc::new(body);
        let files = Arc::clone(&self.files);
        let is_large = body_len > files.settings.inline;
        let open = is_large.then(|| (head.clone(), Arc::clone(&body)));
        self.commit((id, cost_in(head)), expires, began, open)?;
        Ok(body)
    }

    /// Renames the complete file to its entry, unless the id was removed since `began`. With `open`, the file
    /// is kept open for further hits.
    fn commit(
        mut self,
        (id, cost): (EntryId, FetchCost),
        expires: u64,
        began: RemovalMark,
        open: Option<(Bytes, Arc<FileBody>)>,
    ) -> Result<(), DiskFailure> {
        let files = Arc::clone(&self.files);
        let _stripe = files.stripe(id);
        let known = IndexEntry::new(id, self.len(), expires, cost);
        let known = known.ok_or(DiskFailure::TooLarge)?;
        // Indexed first: a removal from now on finds the id, waits for the stripe, and removes the renamed
        // file.
        let old = files.announce(known, began, open)?;
        self.is_counted = true;
        if let Err(error) = files.layout.give_name(&self.name, id) {
            files.withdraw(id);
            return Err(DiskFailure::Disk(error));
        }
        self.has_name = true;
        drop(self);
        drop(old);
        Ok(())
    }

    /// Length of the file.
    const fn len(&self) -> u64 {
        self.at + self.buffer.len() as u64
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

    /// Writes prefix and head, and the rest of the buffer, with a single system call if that is the whole
    /// file.
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

impl Drop for EntryDraft {
    fn drop(&mut self) {
        if !self.is_counted {
            self.files.give_back(self.reserved, 1);
        }
        if !self.has_name {
            // Leftovers are removed at the next start.
            let _ = self.files.layout.remove_temporary(&self.name);
        }
    }
}
