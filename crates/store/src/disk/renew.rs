//! In-place renewal of an entry's head, without copying the body.
//!
//! A file with reserved space before its body has two positions for prefix and head: its beginning, and the
//! middle of that space. A valid pair in the second position takes precedence. A renewal writes to the
//! inactive position and then activates it, either by completing the second one or by erasing its prefix. At
//! any time either the old or the new head is valid, so a crash leaves one of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use rustix::io::ReadWriteFlags;

use super::error::DiskFailure;
use super::files::EntryFiles;
use super::format::FilePrefix;
use super::geometry::{HEAD_ROOM, SECOND};
use super::index::IndexEntry;
use super::read::{self, EntryFile, FileSource};
use super::recent_removals::RemovalMark;
use super::write;
use crate::content::Content;
use crate::encoding::cost_in;
use crate::tier::{Entry, EntryId};

/// Renewal of an entry's head.
pub(super) struct HeadRenewal {
    pub(super) id: EntryId,
    /// Expected current head.
    pub(super) from: Bytes,
    pub(super) head: Bytes,
    /// Expiry, in seconds since the Unix epoch.
    pub(super) expires: u64,
    pub(super) began: RemovalMark,
}

/// Outcome of a renewal.
pub(super) enum RenewalOutcome {
    Done,
    /// The entry was removed or replaced.
    NotThere,
}

/// Renews an entry if its head is as expected. A file without reserved space is rewritten, which only
/// concerns small bodies.
pub(super) fn renew(
    files: &Arc<EntryFiles>,
    renewal: &HeadRenewal,
) -> Result<RenewalOutcome, DiskFailure> {
    match in_place(files, renewal)? {
        InPlaceOutcome::Done => Ok(RenewalOutcome::Done),
        InPlaceOutcome::NotThere => Ok(RenewalOutcome::NotThere),
        InPlaceOutcome::NoRoom(body) => {
            let head = renewal.head.clone();
            let entry = Entry { head, body };
            write::write(files, renewal.id, &entry, renewal.expires, renewal.began)?;
            Ok(RenewalOutcome::Done)
        }
    }
}

enum InPlaceOutcome {
    Done,
    NotThere,
    /// No reserved space; the body is to be rewritten.
    NoRoom(Content),
}

fn in_place(files: &EntryFiles, renewal: &HeadRenewal) -> Result<InPlaceOutcome, DiskFailure> {
    let id = renewal.id;
    // The stripe excludes concurrent renewals and removals; a reader that finds a half-written head retries
    // under the stripe.
    let _stripe = files.stripe(id);
    if files.was_removed(id, renewal.began) {
        return Ok(InPlaceOutcome::NotThere);
    }
    let Ok(file) = files.layout.open_entry_to_write(id) else {
        return Ok(InPlaceOutcome::NotThere);
    };
    let source = FileSource {
        file: &file,
        flags: ReadWriteFlags::empty(),
    };
    let opened = match EntryFile::new(source, id, 0) {
        Ok(Some(opened)) if opened.head == renewal.from => opened,
        Ok(_) | Err(DiskFailure::Flaw(_)) => return Ok(InPlaceOutcome::NotThere),
        Err(failure) => return Err(failure),
    };
    let new_end = FilePrefix::LEN + renewal.head.len();
    let has_room = opened.prefix.body_offset as usize >= HEAD_ROOM
        && new_end <= SECOND
        && opened.prefix.head().end <= SECOND;
    if !has_room {
        let again = file.try_clone().map_err(DiskFailure::Disk)?;
        let body = read::in_file(again, &opened.prefix, opened.sums()?)?;
        return Ok(InPlaceOutcome::NoRoom(Content::File(body)));
    }
    let file_len = opened.file_len();
    let prefix = FilePrefix {
        expires: renewal.expires,
        head_len: u32::try_from(renewal.head.len()).map_err(|_| DiskFailure::TooLarge)?,
        ..opened.prefix
    };
    let opening = [&prefix.encode(&renewal.head)[..], &renewal.head].concat();
    write_opening(&file, &opening, opened.is_second).map_err(DiskFailure::Disk)?;
    // The scan after a restart reads the mtime instead of opening every file.
    let over = UNIX_EPOCH + Duration::from_secs(renewal.expires);
    file.set_modified(over).map_err(DiskFailure::Disk)?;
    let cost = cost_in(&renewal.head);
    let known = IndexEntry::new(id, file_len, renewal.expires, cost);
    let known = known.ok_or(DiskFailure::TooLarge)?;
    files.was_renewed(known, renewal.began, &renewal.head);
    Ok(InPlaceOutcome::Done)
}

fn write_opening(file: &File, opening: &[u8], second_counts: bool) -> std::io::Result<()> {
    if second_counts {
        file.write_all_at(opening, 0)?;
        // Erases the entire prefix, so that a partial write here can never combine with remains of this
        // head.
        file.write_all_at(&[0; FilePrefix::LEN], SECOND as u64)
    } else {
        file.write_all_at(opening, SECOND as u64)
    }
}
