//! Blocking operations on a shared directory.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::capacity::CapacityLimit;
use super::claims::{self, ClaimFile, ClaimOutcome, ClaimTimestamp};
use super::folder::{LockedFolder, RecordFolder};
use super::home::HomeFolder;
use super::record::{self, RecordDraft, SizeLimits, SpooledDraft};
use super::settings::DirectorySettings;
use super::unstorable_claims;
use crate::content::Content;
use crate::disk::error::DiskFailure;
use crate::disk::expiry;
use crate::tier::{Entry, EntryId, PutOutcome};

/// State shared with blocking jobs.
pub(super) struct DirectoryState {
    pub(super) place: HomeFolder,
    pub(super) room: CapacityLimit,
    pub(super) settings: DirectorySettings,
    pub(super) corrupt: AtomicU64,
}

/// Record to be stored.
pub(super) struct StoreRequest {
    pub(super) id: EntryId,
    pub(super) entry: Entry,
    pub(super) expires: u64,
    pub(super) claim: Option<Arc<ClaimFile>>,
}

/// Result of a lookup that may claim the entry.
pub(super) enum LookupOutcome {
    Entry(Entry),
    Claimed(ClaimFile),
    HeldElsewhere(ClaimTimestamp),
    /// The awaited claim was released because the response is not storable.
    Unstorable,
}

impl DirectoryState {
    pub(super) const fn bounds(&self) -> SizeLimits {
        SizeLimits {
            object: self.settings.max_object,
            in_memory: self.settings.in_memory,
        }
    }

    pub(super) fn kept_until(&self, expires: Duration) -> u64 {
        expiry::after(expires.saturating_add(self.settings.keep_longer))
    }

    /// Reads the record of an id. A damaged one is removed and reported as missing.
    pub(super) fn read(&self, id: EntryId) -> Result<Option<Entry>, DiskFailure> {
        let Some(folder) = RecordFolder::open(&*self.place.home()?, id)? else {
            return Ok(None);
        };
        self.read_in(&folder, id)
    }

    pub(super) fn read_in(
        &self,
        folder: &RecordFolder,
        id: EntryId,
    ) -> Result<Option<Entry>, DiskFailure> {
        match record::read(folder, id, self.bounds()) {
            Ok(found) => Ok(found.map(|found| found.entry)),
            Err(DiskFailure::Flaw(_)) => {
                self.corrupt.fetch_add(1, Ordering::Relaxed);
                // If removal fails, the next reader detects the damage again.
                let _ = folder.lock().and_then(|locked| {
                    let is_flawed = record::read(folder, id, self.bounds());
                    match is_flawed {
                        Err(DiskFailure::Flaw(_)) => locked.remove(&record::name(id)),
                        _ => Ok(()),
                    }
                });
                Ok(None)
            }
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn look_or_claim(
        &self,
        id: EntryId,
        hold: Duration,
        awaited: Option<ClaimTimestamp>,
    ) -> Result<LookupOutcome, DiskFailure> {
        if let Some(entry) = self.read(id)? {
            return Ok(LookupOutcome::Entry(entry));
        }
        let folder = RecordFolder::create(&*self.place.home()?, id)?;
        let locked = folder.lock()?;
        if let Some(awaited) = awaited
            && unstorable_claims::contains(&locked, id, awaited)?
        {
            return Ok(LookupOutcome::Unstorable);
        }
        let claim = match claims::claim(&locked, id, hold)? {
            ClaimOutcome::Granted(claim) => claim,
            ClaimOutcome::HeldElsewhere(claim) => return Ok(LookupOutcome::HeldElsewhere(claim)),
        };
        // The previous holder may have stored a record since the lookup.
        match record::read(&folder, id, self.bounds()) {
            Ok(Some(found)) => {
                claim.end(&locked)?;
                Ok(LookupOutcome::Entry(found.entry))
            }
            Ok(None) | Err(DiskFailure::Flaw(_)) => Ok(LookupOutcome::Claimed(claim)),
            Err(failure) => Err(failure),
        }
    }

    pub(super) fn claim(&self, id: EntryId, hold: Duration) -> Result<ClaimOutcome, DiskFailure> {
        let folder = RecordFolder::create(&*self.place.home()?, id)?;
        claims::claim(&folder.lock()?, id, hold)
    }

    pub(super) fn put(&self, wanted: &StoreRequest) -> Result<PutOutcome, DiskFailure> {
        let home = self.place.home()?;
        let folder = RecordFolder::create(&home, wanted.id)?;
        let is_gone = |claim: &Arc<ClaimFile>| !claim.stands(&folder);
        if wanted.claim.as_ref().is_some_and(is_gone) {
            return Ok(PutOutcome::Superseded);
        }
        let Some(draft) = self.draft(&home, &folder, wanted.id, &wanted.entry, wanted.expires)?
        else {
            return Ok(PutOutcome::Refused);
        };
        publish(draft, &folder.lock()?, wanted.id, wanted.claim.as_deref())
    }

    /// Writes an unnamed draft of a record; `None` if it does not fit into the capacity.
    pub(super) fn draft(
        &self,
        home: &OwnedFd,
        folder: &RecordFolder,
        id: EntryId,
        entry: &Entry,
        expires: u64,
    ) -> Result<Option<RecordDraft>, DiskFailure> {
        let has_room = |length| self.room.take(home, length);
        if let Content::Bytes(body) = &entry.body {
            let parts = record::encode(id, &entry.head, body, expires)?;
            if !has_room(record::length(&parts))? {
                return Ok(None);
            }
            return RecordDraft::write(folder, &parts).map(Some);
        }
        let gone = || DiskFailure::Source(io::ErrorKind::NotFound.into());
        let body = entry.body.file().ok_or_else(gone)?;
        if !has_room(record::HEAD_ROOM + body.len())? {
            return Ok(None);
        }
        let mut growing = SpooledDraft::begin(folder)?;
        for number in 0..body.blocks() {
            let block = body.read_block(number).inspect_err(|_| body.mark_damaged());
            growing.append(&block.map_err(DiskFailure::Source)?)?;
        }
        let (draft, _) = growing.complete(id, &entry.head, expires)?;
        Ok(Some(draft))
    }

    /// Replaces the head. The body is copied, since files are immutable.
    pub(super) fn renew(
        &self,
        id: EntryId,
        from: &Bytes,
        head: &Bytes,
        expires: u64,
        claim: Option<&ClaimFile>,
    ) -> Result<PutOutcome, DiskFailure> {
        let home = self.place.home()?;
        let Some(folder) = RecordFolder::open(&home, id)? else {
            return Ok(PutOutcome::Superseded);
        };
        let Ok(Some(found)) = record::read(&folder, id, self.bounds()) else {
            return Ok(PutOutcome::Superseded);
        };
        if found.entry.head != *from {
            return Ok(PutOutcome::Superseded);
        }
        let entry = Entry {
            head: head.clone(),
            body: found.entry.body.clone(),
        };
        let Some(draft) = self.draft(&home, &folder, id, &entry, expires)? else {
            return Ok(PutOutcome::Refused);
        };
        let locked = folder.lock()?;
        if !found.is_still_there(&folder, id) {
            return Ok(PutOutcome::Superseded);
        }
        publish(draft, &locked, id, claim)
    }

    pub(super) fn remove(&self, id: EntryId) -> Result<(), DiskFailure> {
        let Some(folder) = RecordFolder::open(&*self.place.home()?, id)? else {
            return Ok(());
        };
        let locked = folder.lock()?;
        locked.remove(&claims::name(id))?;
        locked.remove(&record::name(id))
    }
}

/// Renames a draft to its record if the claim it was fetched under still exists, and releases the claim. A
/// removal deletes the claim file under the same lock, so that a removed record cannot reappear.
pub(super) fn publish(
    draft: RecordDraft,
    locked: &LockedFolder<'_>,
    id: EntryId,
    claim: Option<&ClaimFile>,
) -> Result<PutOutcome, DiskFailure> {
    if claim.is_some_and(|claim| !claim.stands(locked.folder)) {
        return Ok(PutOutcome::Superseded);
    }
    draft.publish(locked, id)?;
    if let Some(claim) = claim {
        claim.end(locked)?;
    }
    Ok(PutOutcome::Stored)
}
