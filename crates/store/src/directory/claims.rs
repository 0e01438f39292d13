//! Who asks the origin: whoever has the lock of a file that lies where the record will.
//!
//! The system lets go of the lock when its process ends, so there is nothing to wait for then. A process that lives
//! keeps it: a claim that ended with its time would keep what is slow to arrive from ever being stored. Only one
//! that takes longer than anything does ([`LONGEST`]), because it was stopped, gives way. Until when that is, the
//! file's own time says.
//!
//! A removal takes the file away, and with it the claim: whoever had it finds that out before it stores.

use std::collections::HashMap;
use std::fs::{File, TryLockError};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, statat};

use super::folder::{Folder, Locked, open_own};
use crate::disk::DiskFailure;
use crate::tier::{EntryId, Token};

/// How long a process that lives keeps its claim, if it asks for less.
const LONGEST: Duration = Duration::from_mins(10);
/// Claims of one process at a time: each has a file open. Beyond them it fetches without.
const MAX_CLAIMS: usize = 256;

/// How the file of a claim ends.
pub(super) const ENDING: &str = ".claim";

pub(super) fn name(id: EntryId) -> String {
    format!("{id}{ENDING}")
}

/// What tells a claim from all others for the same id: the time of its file, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark(pub(super) u64);

/// A claim of this process.
pub(super) struct Held {
    name: String,
    file: File,
    pub(super) mark: Mark,
}

/// What an attempt to claim an id came to.
pub(super) enum Attempt {
    Ours(Held),
    /// Somebody else has this claim.
    Theirs(Mark),
}

impl Held {
    /// Whether nobody has taken it away. Its name says so: where a file server keeps what is open under another
    /// one, the file is still there.
    pub(super) fn stands(&self, folder: &Folder) -> bool {
        let named = statat(folder.fd(), &self.name, AtFlags::SYMLINK_NOFOLLOW);
        let ours = self.file.metadata();
        named.is_ok_and(|named| {
            ours.is_ok_and(|ours| (named.st_dev, named.st_ino) == (ours.dev(), ours.ino()))
        })
    }

    /// Ends it.
    pub(super) fn end(&self, locked: &Locked<'_>) -> Result<(), DiskFailure> {
        // Another one may have come in its place.
        if self.stands(locked.folder) {
            locked.remove(&self.name)
        } else {
            Ok(())
        }
    }
}

/// Claims an id, unless somebody else has.
pub(super) fn claim(
    locked: &Locked<'_>,
    id: EntryId,
    hold: Duration,
) -> Result<Attempt, DiskFailure> {
    let name = name(id);
    let mut file = open_own(locked.folder.fd(), &name)?;
    if !try_lock(&file)? {
        let theirs = mark_of(&file)?;
        if !theirs.is_over() {
            return Ok(Attempt::Theirs(theirs));
        }
        locked.remove(&name)?;
        file = open_own(locked.folder.fd(), &name)?;
        if !try_lock(&file)? {
            return Ok(Attempt::Theirs(mark_of(&file)?));
        }
    }
    let until = SystemTime::now() + hold.max(LONGEST);
    file.set_modified(until).map_err(DiskFailure::Disk)?;
    // As the file system has it, which may keep less of it.
    let mark = mark_of(&file)?;
    Ok(Attempt::Ours(Held { name, file, mark }))
}

fn mark_of(file: &File) -> Result<Mark, DiskFailure> {
    let file = file.metadata().map_err(DiskFailure::Disk)?;
    let nanoseconds = file.mtime().saturating_mul(1_000_000_000) + file.mtime_nsec();
    Ok(Mark(nanoseconds.cast_unsigned()))
}

impl Mark {
    /// Whether the claim has had its time. One that ends later than anybody may ask for was made by another clock.
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

/// The claims of this process, by their tokens.
#[derive(Default)]
pub(super) struct Claims {
    held: Mutex<HashMap<u64, (EntryId, Arc<Held>)>>,
    next: AtomicU64,
}

/// There is no such claim any more.
pub(super) struct Gone;

impl Claims {
    /// `None` if there are too many.
    pub(super) fn keep(&self, id: EntryId, held: Held) -> Option<Token> {
        let mut all = self.held.lock();
        if all.len() >= MAX_CLAIMS {
            return None;
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        all.insert(number, (id, Arc::new(held)));
        Some(Token(number))
    }

    pub(super) fn get(&self, id: EntryId, token: Token) -> Result<Arc<Held>, Gone> {
        let all = self.held.lock();
        let found = all.get(&token.0).filter(|(of, _)| *of == id);
        found.map(|(_, held)| Arc::clone(held)).ok_or(Gone)
    }

    /// Whoever drops it lets go of it.
    pub(super) fn take(&self, id: EntryId, token: Token) -> Option<Arc<Held>> {
        let mut all = self.held.lock();
        all.get(&token.0).filter(|(of, _)| *of == id)?;
        all.remove(&token.0).map(|(_, held)| held)
    }
}
