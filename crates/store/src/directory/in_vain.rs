//! Claims that ended because what their holders brought cannot be stored.
//!
//! Whoever waited for such a claim need not take the next turn to find the same out, and asks at once. Whoever comes
//! later claims as ever: what was not stored a moment ago may be now. So what is written down is which claims they were,
//! and only a process that waited for that very claim goes by it. A folder remembers its last few, in one small file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::claims::Mark;
use super::folder::{Locked, open_own};
use crate::disk::DiskFailure;
use crate::tier::EntryId;

/// The file.
const NAME: &str = "unstorable";
/// How many of them a folder remembers.
const KEPT: usize = 32;
/// What each takes: a line with the id and the mark of its claim.
const LENGTH: usize = 32 + 1 + 16 + 1;

/// Writes down that a claim ended in vain.
pub(super) fn note(locked: &Locked<'_>, id: EntryId, mark: Mark) -> Result<(), DiskFailure> {
    let file = open_own(locked.folder.fd(), NAME)?;
    let mut noted = line(id, mark).into_bytes();
    noted.extend_from_slice(&read(&file)?);
    noted.truncate(KEPT * LENGTH);
    file.write_all_at(&noted, 0).map_err(DiskFailure::Disk)
}

/// Whether this claim did.
pub(super) fn ended(locked: &Locked<'_>, id: EntryId, mark: Mark) -> Result<bool, DiskFailure> {
    let noted = read(&open_own(locked.folder.fd(), NAME)?)?;
    let wanted = line(id, mark);
    Ok(noted.chunks(LENGTH).any(|line| line == wanted.as_bytes()))
}

fn read(file: &File) -> Result<Vec<u8>, DiskFailure> {
    let mut noted = vec![0; KEPT * LENGTH];
    let length = file.read_at(&mut noted, 0).map_err(DiskFailure::Disk)?;
    noted.truncate(length);
    Ok(noted)
}

fn line(id: EntryId, Mark(mark): Mark) -> String {
    format!("{id} {mark:016x}\n")
}
