//! Paged listing of the entries on disk, ordered by id, for searches by head.
//!
//! A page reads the names of one folder and the heads of some files. The index is not used: it is unordered,
//! and a scan would block lookups.

use std::fs::File;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::io::ReadWriteFlags;

use super::error::DiskFailure;
use super::files::EntryFiles;
use super::layout::DiskLayout;
use super::read::{self, EntryFile, FileSource};
use crate::tier::{EntryId, ListEntry, Listing};

/// Time limit of a page, after which it is returned early.
const AT_ONCE: Duration = Duration::from_millis(50);
/// Maximum of entries per page; heads have up to 64 KiB.
const MOST: usize = 1024;

/// Returns the entries after an id, or from the first one.
pub(super) fn page(
    files: &EntryFiles,
    after: Option<EntryId>,
    most: usize,
) -> Result<Listing, DiskFailure> {
    let (began, most) = (Instant::now(), most.clamp(1, MOST));
    let [first, ..] = after.map_or([0; 16], EntryId::to_bytes);
    let mut entries = Vec::new();
    for folder in u32::from(first)..DiskLayout::FOLDERS {
        let mut ids = ids(files, folder)?;
        ids.retain(|id| after.is_none_or(|after| *id > after));
        ids.sort_unstable();
        for id in ids {
            entries.extend(look(files, id)?);
            if entries.len() == most || began.elapsed() > AT_ONCE {
                let next = Some(id);
                return Ok(Listing { entries, next });
            }
        }
    }
    let next = None;
    Ok(Listing { entries, next })
}

/// Removes an entry if it is unchanged since it was listed. Returns whether it was.
pub(super) fn remove(files: &EntryFiles, seen: &ListEntry) -> Result<bool, DiskFailure> {
    let mut is_gone = false;
    let is_it = || {
        let now = look(files, seen.id);
        is_gone = matches!(&now, Ok(Some(now)) if now.version == seen.version);
        is_gone
    };
    files
        .remove_flawed(seen.id, is_it)
        .map_err(DiskFailure::Disk)?;
    Ok(is_gone)
}

fn ids(files: &EntryFiles, folder: u32) -> Result<Vec<EntryId>, DiskFailure> {
    let open = files.layout.folder(folder).map_err(DiskFailure::Disk)?;
    let ids = open.map(|open| files.layout.ids(folder, &open));
    ids.unwrap_or_else(|| Ok(Vec::new()))
        .map_err(DiskFailure::Disk)
}

/// Reads the head of an entry. Expired, missing and damaged ones are skipped; damage is handled on lookup.
fn look(files: &EntryFiles, id: EntryId) -> Result<Option<ListEntry>, DiskFailure> {
    let file: File = match read::open(files, id) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DiskFailure::Disk(error)),
    };
    let source = FileSource {
        file: &file,
        flags: ReadWriteFlags::empty(),
    };
    match EntryFile::new(source, id, 0) {
        Ok(Some(opened)) => Ok(Some(ListEntry {
            id,
            // Copied, so that the buffer it was read with is freed.
            head: Bytes::copy_from_slice(&opened.head),
            version: opened.seal(),
        })),
        Ok(None) | Err(DiskFailure::Flaw(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}
