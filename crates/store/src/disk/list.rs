//! What lies on the disk, page by page in the order of ids: for who looks for entries by what their
//! heads say.
//!
//! A page reads the names of one folder, and the beginnings of so many files. The index knows the
//! ids too, but not in their order, and to look through it would hold up those who serve.

use std::fs::File;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rustix::io::ReadWriteFlags;

use super::DiskFailure;
use super::files::Files;
use super::layout::Layout;
use super::read::{self, Opened, Source};
use crate::tier::{EntryId, Listed, Listing};

/// A page takes about so long at most; then it is shorter than it might be.
const AT_ONCE: Duration = Duration::from_millis(50);
/// A page has at most so many entries, whoever asks for more: of heads that have at most 64 KiB.
const MOST: usize = 1024;

/// The entries after an id, or from the first on.
pub(super) fn page(
    files: &Files,
    after: Option<EntryId>,
    most: usize,
) -> Result<Listing, DiskFailure> {
    let (began, most) = (Instant::now(), most.clamp(1, MOST));
    let [first, ..] = after.map_or([0; 16], EntryId::to_bytes);
    let mut entries = Vec::new();
    for folder in u32::from(first)..Layout::FOLDERS {
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

/// Removes an entry if it is still the one that was seen. Says whether it was.
pub(super) fn remove(files: &Files, seen: &Listed) -> Result<bool, DiskFailure> {
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

fn ids(files: &Files, folder: u32) -> Result<Vec<EntryId>, DiskFailure> {
    let open = files.layout.folder(folder).map_err(DiskFailure::Disk)?;
    let ids = open.map(|open| files.layout.ids(folder, &open));
    ids.unwrap_or_else(|| Ok(Vec::new()))
        .map_err(DiskFailure::Disk)
}

/// What a file says, unless it is over, gone, or not as it should be: that shows when it is asked for.
fn look(files: &Files, id: EntryId) -> Result<Option<Listed>, DiskFailure> {
    let file: File = match read::open(files, id) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(DiskFailure::Disk(error)),
    };
    let source = Source {
        file: &file,
        flags: ReadWriteFlags::empty(),
    };
    match Opened::new(source, id, 0) {
        Ok(Some(opened)) => Ok(Some(Listed {
            id,
            // What was read with it is not kept.
            head: Bytes::copy_from_slice(&opened.head),
            version: opened.seal(),
        })),
        Ok(None) | Err(DiskFailure::Flaw(_)) => Ok(None),
        Err(failure) => Err(failure),
    }
}
