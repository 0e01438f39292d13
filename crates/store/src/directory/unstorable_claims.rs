//! Recently released claims whose responses were not storable.
//!
//! A process that waited for such a claim fetches at once instead of claiming in turn. Later processes claim as
//! usual, since the next response may be storable: only an entry with the id and timestamp of the awaited claim
//! counts. Each folder keeps its last few in one small file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::claims::ClaimTimestamp;
use super::folder::{LockedFolder, open_own};
use crate::disk::error::DiskFailure;
use crate::tier::EntryId;

/// Name of the file.
const NAME: &str = "unstorable";
/// Maximum of claims per folder.
const MAX_CLAIMS: usize = 32;
/// Length of a line in bytes: id and timestamp of a claim, in hexadecimal.
const LINE_LENGTH: usize = 32 + 1 + 16 + 1;

/// Records that a claim was released because the response was not storable.
pub(super) fn record(
    locked: &LockedFolder<'_>,
    id: EntryId,
    timestamp: ClaimTimestamp,
) -> Result<(), DiskFailure> {
    let file = open_own(locked.folder.fd(), NAME)?;
    let mut lines = line(id, timestamp).into_bytes();
    lines.extend_from_slice(&read(&file)?);
    lines.truncate(MAX_CLAIMS * LINE_LENGTH);
    file.write_all_at(&lines, 0).map_err(DiskFailure::Disk)
}

/// Returns whether a claim is recorded.
pub(super) fn contains(
    locked: &LockedFolder<'_>,
    id: EntryId,
    timestamp: ClaimTimestamp,
) -> Result<bool, DiskFailure> {
    let lines = read(&open_own(locked.folder.fd(), NAME)?)?;
    let wanted = line(id, timestamp);
    Ok(lines
        .chunks(LINE_LENGTH)
        .any(|line| line == wanted.as_bytes()))
}

fn read(file: &File) -> Result<Vec<u8>, DiskFailure> {
    let mut lines = vec![0; MAX_CLAIMS * LINE_LENGTH];
    let length = file.read_at(&mut lines, 0).map_err(DiskFailure::Disk)?;
    lines.truncate(length);
    Ok(lines)
}

fn line(id: EntryId, ClaimTimestamp(timestamp): ClaimTimestamp) -> String {
    format!("{id} {timestamp:016x}\n")
}
