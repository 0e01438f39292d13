//! Claims of shared directories: the process that fetches an entry holds the lock of a claim file next to
//! the record.
//!
//! The kernel releases the lock when the process ends, so a crashed process blocks no other. A live process
//! keeps its claim regardless of `hold`, since slow responses could otherwise never be stored; only after
//! [`LONGEST`], as for a suspended process, it expires. The mtime of the claim file is the expiry.
//!
//! Removing an entry also removes its claim file; its holder detects that before it stores.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, statat};

use super::folder::{LockedFolder, RecordFolder, open_own};
use crate::disk::error::DiskFailure;
use crate::tier::{EntryId, Token};

/// Minimum lifetime of the claim of a live process.
const LONGEST: Duration = Duration::from_mins(10);
/// Maximum of concurrent claims per process, each with an open file. Above it, entries are fetched without a
/// claim.
const MAX_CLAIMS: usize = 256;

/// Suffix of claim files.
pub(super) const ENDING: &str = ".claim";

pub(super) fn name(id: EntryId) -> String {
    format!("{id}{ENDING}")
}

/// Timestamp that distinguishes a claim from others on the same id: the mtime of its file, in nanoseconds since
/// the Unix epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ClaimTimestamp(pub(super) u64);

/// Claim held by this process.
pub(super) struct ClaimFile {
    name: String,
    file: File,
    pub(super) timestamp: ClaimTimestamp,
}

/// Result of an attempt to claim an id.
pub(super) enum ClaimOutcome {
    Granted(ClaimFile),
    /// Held by another process or request.
    HeldElsewhere(ClaimTimestamp),
}

impl ClaimFile {
    /// Returns whether the claim file still has its name. The open descriptor alone does not prove it: NFS
    /// keeps removed files under another name.
    pub(super) fn stands(&self, folder: &RecordFolder) -> bool {
        let named = statat(folder.fd(), &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let ours = self.file.metadata();
        named.is_ok_and(|named| {
            ours.is_ok_and(|ours| (named.st_dev, named.st_ino) == (ours.dev(), ours.ino()))
        })
    }

    /// Removes the claim file.
    pub(super) fn end(&self, locked: &LockedFolder<'_>) -> Result<(), DiskFailure> {
        // Another process may have replaced it.
        if self.stands(locked.folder) {
            locked.remove(&self.name)
        } else {
            Ok(())
        }
    }
}

/// Claims an id.
pub(super) fn claim(
    locked: &LockedFolder<'_>,
    id: EntryId,
    hold: Duration,
) -> Result<ClaimOutcome, DiskFailure> {
    let name = name(id);
    let mut file = open_own(locked.folder.fd(), &name)?;
    if !try_lock(&file)? {
        let theirs = timestamp_of(&file)?;
        if !theirs.is_over() {
            return Ok(ClaimOutcome::HeldElsewhere(theirs));
        }
        locked.remove(&name)?;
        file = open_own(locked.folder.fd(), &name)?;
        if !try_lock(&file)? {
            return Ok(ClaimOutcome::HeldElsewhere(timestamp_of(&file)?));
        }
    }
    let until = SystemTime::now() + hold.max(LONGEST);
    file.set_modified(until).map_err(DiskFailure::Disk)?;
    // Read back, since the file system may store it with less precision.
    let timestamp = timestamp_of(&file)?;
    Ok(ClaimOutcome::Granted(ClaimFile {
        name,
        file,
        timestamp,
    }))
}

fn timestamp_of(file: &File) -> Result<ClaimTimestamp, DiskFailure> {
    let file = file.metadata().map_err(DiskFailure::Disk)?;
    let nanoseconds = file.mtime().saturating_mul(1_000_000_000) + file.mtime_nsec();
    Ok(ClaimTimestamp(nanoseconds.cast_unsigned()))
}

impl ClaimTimestamp {
    /// Returns whether the claim has expired. An expiry beyond the longest possible one stems from another clock
    /// and counts as expired.
    fn is_over(self) -> bool {
        let until = SystemTime::UNIX_EPOCH + Duration::from_nanos(self.0);
        let left = until.duration_since(SystemTime::now()).unwrap_or_default();
        left.is_zero() || left > 2 * LONGEST
    }
}

fn try_lock(file: &File) -> Result<bool, DiskFailure> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(DiskFailure::Disk(error)),
    }
}

/// Claims of this process, by token.
#[derive(Default)]
pub(super) struct ClaimTable {
    held: Mutex<HashMap<u64, (EntryId, Arc<ClaimFile>)>>,
    next: AtomicU64,
}

/// Error: the claim does not exist.
pub(super) struct NoSuchClaim;

impl ClaimTable {
    /// Registers a claim; `None` if there are too many.
    pub(super) fn keep(&self, id: EntryId, held: ClaimFile) -> Option<Token> {
        let mut all = self.held.lock();
        if all.len() >= MAX_CLAIMS {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        all.insert(number, (id, Arc::new(held)));
        Some(Token(number))
    }

    pub(super) fn get(&self, id: EntryId, token: Token) -> Result<Arc<ClaimFile>, NoSuchClaim> {
        let all = self.held.lock();
        let found = all.get(&token.0).filter(|(of, _)| *of == id);
        found.map(|(_, held)| Arc::clone(held)).ok_or(NoSuchClaim)
    }

    /// Removes a claim from the table. Dropping the last reference releases its lock.
    pub(super) fn take(&self, id: EntryId, token: Token) -> Option<Arc<ClaimFile>> {
        let mut all = self.held.lock();
        all.get(&token.0).filter(|(of, _)| *of == id)?;
        all.remove(&token.0).map(|(_, held)| held)
    }
}
