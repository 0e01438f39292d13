//! Index and capacity accounting of a disk tier.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::error::DiskFailure;
use super::geometry::DISK_BLOCK;
use super::index::{DiskIndex, IndexEntry};
use super::open_files::{OpenFile, OpenFiles};
use super::recent_removals::{RecentRemovals, RemovalMark};
use super::settings::DiskSettings;
use crate::content::FileBody;
use crate::tier::EntryId;

/// Approximate size of a directory entry, in bytes.
const NAME: u64 = 80;
/// Inverse fraction of the capacity that may be written before the scan is complete; the capacity can be
/// exceeded by that much temporarily.
const BLIND_SHARE: u64 = 64;

/// Index and capacity accounting.
pub(super) struct DiskState {
    pub(super) index: DiskIndex,
    pub(super) open: Arc<OpenFiles>,
    pub(super) removals: RecentRemovals,
    /// Reserved by writes in progress.
    reserved: DiskUsage,
    /// Removed from the index, but not yet from disk.
    leaving: DiskUsage,
    /// Ids and block counts of the entries counted in `leaving`.
    pub(super) condemned: HashMap<EntryId, u32>,
    /// Written while the index was incomplete.
    blind: DiskUsage,
    /// `true` if all files on disk are indexed.
    pub(super) is_complete: bool,
}

/// Occupied space.
#[derive(Clone, Copy, Default)]
pub(super) struct DiskUsage {
    pub(super) blocks: u64,
    pub(super) files: u64,
}

/// Result of an attempt to reserve space.
pub(super) enum ReserveStep {
    Reserved,
    /// This entry was evicted and its file is to be removed.
    Leaves(EntryId, Option<OpenFile>),
    NoRoom,
}

/// Open file of an entry taken from the index, if there was one.
pub(super) type RemovedFile = Option<OpenFile>;

impl DiskUsage {
    pub(super) const fn bytes(self) -> u64 {
        self.blocks * DISK_BLOCK + self.files * NAME
    }

    /// Returns the size of one file.
    fn of(blocks: u32) -> Self {
        Self {
            blocks: u64::from(blocks),
            files: 1,
        }
    }

    const fn subtract(&mut self, less: Self) {
        self.blocks -= less.blocks;
        self.files -= less.files;
    }

    const fn add(&mut self, more: Self) {
        self.blocks += more.blocks;
        self.files += more.files;
    }
}

impl DiskState {
    pub(super) fn new(open: Arc<OpenFiles>, is_complete: bool) -> Self {
        Self {
            index: DiskIndex::new(),
            open,
            removals: RecentRemovals::default(),
            reserved: DiskUsage::default(),
            leaving: DiskUsage::default(),
            condemned: HashMap::new(),
            blind: DiskUsage::default(),
            is_complete,
        }
    }

    /// Space occupied or reserved on disk.
    pub(super) fn size(&self) -> DiskUsage {
        let mut size = DiskUsage {
            blocks: self.index.blocks(),
            files: self.index.len() as u64,
        };
        size.add(self.reserved);
        size.add(self.leaving);
        size
    }

    fn has_room(&self, more: DiskUsage, settings: &DiskSettings) -> bool {
        let mut size = self.size();
        size.add(more);
        size.bytes() <= settings.capacity && size.files <= settings.max_files
    }

    /// Reserves space, or evicts one entry towards it.
    pub(super) fn reserve(&mut self, more: DiskUsage, settings: &DiskSettings) -> ReserveStep {
        if !self.may_write_blind(more, settings) {
            return ReserveStep::NoRoom;
        }
        if self.has_room(more, settings) {
            self.reserved.add(more);
            if !self.is_complete {
                self.blind.add(more);
            }
            return ReserveStep::Reserved;
        }
        let open = &self.open;
        match self.index.evict(|id| open.take_used(id)) {
            Some(known) => {
                self.condemn(known.id, known.blocks);
                ReserveStep::Leaves(known.id, self.open.forget(known.id))
            }
            None => ReserveStep::NoRoom,
        }
    }

    /// Releases a reservation that is not needed, or accounted for elsewhere.
    pub(super) fn give_back(&mut self, reserved: DiskUsage) {
        self.reserved.subtract(reserved);
    }

    /// Indexes an entry whose file is about to be renamed and whose space is reserved. Returns the replaced
    /// open file.
    pub(super) fn announce(
        &mut self,
        known: IndexEntry,
        began: RemovalMark,
        open: Option<(Bytes, Arc<FileBody>)>,
    ) -> Result<Option<OpenFile>, DiskFailure> {
        if self.removals.since(began, known.id) {
            return Err(DiskFailure::Removed);
        }
        self.acquit(known.id);
        self.index.insert(known);
        self.give_back(DiskUsage::of(known.blocks));
        let old = self.open.forget(known.id);
        if let Some((head, body)) = open
            && !self.open.admit(known.id, head, &body, known.expires.into())
        {
            self.open.count_still_read(known.id, &body);
        }
        Ok(old)
    }

    /// Indexes an entry found by the scan, capacity permitting.
    pub(super) fn adopt(&mut self, known: IndexEntry, settings: &DiskSettings) -> bool {
        let has_room = self.has_room(DiskUsage::of(known.blocks), settings);
        if has_room {
            self.index.insert(known);
        }
        has_room
    }

    /// Removes an entry from the index; its file is to be removed afterwards.
    pub(super) fn take_out(&mut self, id: EntryId) -> Option<RemovedFile> {
        let blocks = match self.index.remove(id) {
            Some(known) => known.blocks,
            None if self.is_complete => return None,
            // There may be a file that the scan has not reached yet.
            None => 0,
        };
        self.condemn(id, blocks);
        Some(self.open.forget(id))
    }

    fn may_write_blind(&self, more: DiskUsage, settings: &DiskSettings) -> bool {
        let mut blind = self.blind;
        blind.add(more);
        self.is_complete
            || blind.bytes() <= settings.capacity / BLIND_SHARE
                && blind.files <= settings.max_files / BLIND_SHARE
    }

    fn condemn(&mut self, id: EntryId, blocks: u32) {
        self.acquit(id);
        self.condemned.insert(id, blocks);
        self.leaving.add(DiskUsage::of(blocks));
    }

    /// Records that a file was removed or replaced.
    pub(super) fn acquit(&mut self, id: EntryId) {
        if let Some(blocks) = self.condemned.remove(&id) {
            self.leaving.subtract(DiskUsage::of(blocks));
        }
    }

    /// Returns whether the scan can skip the id: indexed, or about to be removed.
    pub(super) fn is_settled(&self, id: EntryId) -> bool {
        self.index.get(id).is_some() || self.condemned.contains_key(&id)
    }

    /// Records that all files on disk are indexed.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
        self.blind = DiskUsage::default();
    }

    /// Resets the state after the directory was removed.
    pub(super) fn begin_anew(&mut self) {
        self.index = DiskIndex::new();
        self.open.clear();
        self.blind = DiskUsage::default();
        self.is_complete = false;
    }
}
