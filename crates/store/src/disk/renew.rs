//! Another head for a body that stays where it is.
//!
//! A file with room before its body has two places for prefix and head, at its beginning and in the
//! middle of that room. What lies in the second one counts, if there is something whole. A renewal
//! writes to the one that does not count, and then makes it count: by being whole in the second
//! place, or by taking the second one's beginning away. So at any moment there is the old head or
//! the new one, and a process that is killed meanwhile leaves one of them.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use rustix::io::ReadWriteFlags;

use super::DiskFailure;
use super::files::Files;
use super::format::Prefix;
use super::index::Known;
use super::read::{self, Opened, Source};
use super::removals::Moment;
use super::write::{self, HEAD_ROOM};
use crate::content::Content;
use crate::tier::{Entry, EntryId};

/// Where the second place begins.
pub(super) const SECOND: usize = HEAD_ROOM / 2;

/// A head in place of another one.
pub(super) struct Renewal {
    pub(super) id: EntryId,
    /// The head that it has had so far.
    pub(super) from: Bytes,
    pub(super) head: Bytes,
    /// In seconds since 1970.
    pub(super) expires: u64,
    pub(super) began: Moment,
}

/// What became of it.
pub(super) enum Renewed {
    Done,
    /// Another entry has come, or this one is gone.
    NotThere,
}

/// Renews an entry if it is still what it was. Where the file has no room for that, it is written
/// anew: only of a body that memory might have taken.
pub(super) fn renew(files: &Arc<Files>, renewal: &Renewal) -> Result<Renewed, DiskFailure> {
    match in_place(files, renewal)? {
        InPlace::Done => Ok(Renewed::Done),
        InPlace::NotThere => Ok(Renewed::NotThere),
        InPlace::NoRoom(body) => {
            let head = renewal.head.clone();
            let entry = Entry { head, body };
            write::write(files, renewal.id, &entry, renewal.expires, renewal.began)?;
            Ok(Renewed::Done)
        }
    }
}

enum InPlace {
    Done,
    NotThere,
    /// The body, to be written anew.
    NoRoom(Content),
}

fn in_place(files: &Files, renewal: &Renewal) -> Result<InPlace, DiskFailure> {
    let id = renewal.id;
    // Nobody else gives the file another head, or takes it away, and nobody is misled who finds
    // one half-written: he looks again when this is over.
    let _stripe = files.stripe(id);
    if files.was_removed(id, renewal.began) {
        return Ok(InPlace::NotThere);
    }
    let Ok(file) = files.layout.open_entry_to_write(id) else {
        return Ok(InPlace::NotThere);
    };
    let source = Source {
        file: &file,
        flags: ReadWriteFlags::empty(),
    };
    let opened = match Opened::new(source, id, 0) {
        Ok(Some(opened)) if opened.head == renewal.from => opened,
        Ok(_) | Err(DiskFailure::Flaw(_)) => return Ok(InPlace::NotThere),
        Err(failure) => return Err(failure),
    };
    let new_end = Prefix::LEN + renewal.head.len();
    let has_room = opened.prefix.body_offset as usize >= HEAD_ROOM
        && new_end <= SECOND
        && opened.prefix.head().end <= SECOND;
    if !has_room {
        let again = file.try_clone().map_err(DiskFailure::Disk)?;
        let body = read::in_file(again, &opened.prefix, opened.sums()?)?;
        return Ok(InPlace::NoRoom(Content::File(body)));
    }
    let file_len = opened.file_len();
    let prefix = Prefix {
        expires: renewal.expires,
        head_len: u32::try_from(renewal.head.len()).map_err(|_| DiskFailure::TooLarge)?,
        ..opened.prefix
    };
    let opening = [&prefix.encode(&renewal.head)[..], &renewal.head].concat();
    write_opening(&file, &opening, opened.is_second).map_err(DiskFailure::Disk)?;
    // The scan after a restart reads this instead of opening every file.
    let over = UNIX_EPOCH + Duration::from_secs(renewal.expires);
    file.set_modified(over).map_err(DiskFailure::Disk)?;
    let known = Known::new(id, file_len, renewal.expires).ok_or(DiskFailure::TooLarge)?;
    files.was_renewed(known, renewal.began, &renewal.head);
    Ok(InPlace::Done)
}

fn write_opening(file: &File, opening: &[u8], second_counts: bool) -> std::io::Result<()> {
    if second_counts {
        file.write_all_at(opening, 0)?;
        // All of its prefix, so that nothing of this head comes back when the next one is begun here.
        file.write_all_at(&[0; Prefix::LEN], SECOND as u64)
    } else {
        file.write_all_at(opening, SECOND as u64)
    }
}
