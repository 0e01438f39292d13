//! What is known of the files, and how much of them there may be.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;

use super::index::{Index, Known};
use super::open::{OpenFile, OpenFiles};
use super::removals::{Moment, Removals};
use super::{DiskFailure, DiskSettings};
use crate::content::FileBody;
use crate::tier::EntryId;

/// What a file takes is counted in blocks of this size, as most disks do.
pub(super) const DISK_BLOCK: u64 = 4096;
/// What a file's name takes in its folder, roughly.
const NAME: u64 = 80;
/// Until everything is counted, what is written may be this part of the capacity: so much and no
/// more can the bound be missed by, for the time of the scan.
const BLIND_SHARE: u64 = 64;

/// What is known of the files.
pub(super) struct DiskState {
    pub(super) index: Index,
    pub(super) open: Arc<OpenFiles>,
    pub(super) removals: Removals,
    /// For what is being written.
    reserved: Size,
    /// Out of the index, but not yet off the disk.
    leaving: Size,
    /// What that is: whose files, and how many blocks.
    pub(super) condemned: HashMap<EntryId, u32>,
    /// Written while the index is not complete.
    blind: Size,
    /// Whether everything on the disk is in the index.
    pub(super) is_complete: bool,
}

/// How much room something takes.
#[derive(Clone, Copy, Default)]
pub(super) struct Size {
    pub(super) blocks: u64,
    pub(super) files: u64,
}

/// What finding room comes to.
pub(super) enum Step {
    Reserved,
    /// This one has left, and its file has to follow.
    Leaves(EntryId, Option<OpenFile>),
    NoRoom,
}

/// The open file of an entry that is out of the index, if it had one.
pub(super) type Forgotten = Option<OpenFile>;

impl Size {
    pub(super) const fn bytes(self) -> u64 {
        self.blocks * DISK_BLOCK + self.files * NAME
    }

    /// One file.
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
            index: Index::new(),
            open,
            removals: Removals::default(),
            reserved: Size::default(),
            leaving: Size::default(),
            condemned: HashMap::new(),
            blind: Size::default(),
            is_complete,
        }
    }

    /// What is on the disk, or is about to be.
    pub(super) fn size(&self) -> Size {
        let mut size = Size {
            blocks: self.index.blocks(),
            files: self.index.len() as u64,
        };
        size.add(self.reserved);
        size.add(self.leaving);
        size
    }

    fn has_room(&self, more: Size, settings: &DiskSettings) -> bool {
        let mut size = self.size();
        size.add(more);
        size.bytes() <= settings.capacity && size.files <= settings.max_files
    }

    /// The next step on the way to so much room.
    pub(super) fn reserve(&mut self, more: Size, settings: &DiskSettings) -> Step {
        if !self.may_write_blind(more, settings) {
            return Step::NoRoom;
        }
        if self.has_room(more, settings) {
            self.reserved.add(more);
            if !self.is_complete {
                self.blind.add(more);
            }
            return Step::Reserved;
        }
        let open = &self.open;
        match self.index.evict(|id| open.take_used(id)) {
            Some(known) => {
                self.condemn(known.id, known.blocks);
                Step::Leaves(known.id, self.open.forget(known.id))
            }
            None => Step::NoRoom,
        }
    }

    /// What was reserved is not needed, or counted elsewhere.
    pub(super) fn give_back(&mut self, reserved: Size) {
        self.reserved.subtract(reserved);
    }

    /// Puts an entry in the index, whose file is about to get its name and whose room is reserved.
    /// Gives what it replaces.
    pub(super) fn announce(
        &mut self,
        known: Known,
        began: Moment,
        open: Option<(Bytes, Arc<FileBody>)>,
    ) -> Result<Option<OpenFile>, DiskFailure> {
        if self.removals.since(began, known.id) {
            return Err(DiskFailure::Removed);
        }
        self.acquit(known.id);
        self.index.insert(known);
        self.give_back(Size::of(known.blocks));
        let old = self.open.forget(known.id);
        if let Some((head, body)) = open
            && !self.open.admit(known.id, head, &body, known.expires.into())
        {
            self.open.lend(known.id, &body);
        }
        Ok(old)
    }

    /// Puts an entry in the index that the scan has found, if there is room for it.
    pub(super) fn adopt(&mut self, known: Known, settings: &DiskSettings) -> bool {
        let has_room = self.has_room(Size::of(known.blocks), settings);
        if has_room {
            self.index.insert(known);
        }
        has_room
    }

    /// Takes an entry out of the index; its file has to follow.
    pub(super) fn take_out(&mut self, id: EntryId) -> Option<Forgotten> {
        let blocks = match self.index.remove(id) {
            Some(known) => known.blocks,
            None if self.is_complete => return None,
            // There may be a file that was not counted yet.
            None => 0,
        };
        self.condemn(id, blocks);
        Some(self.open.forget(id))
    }

    fn may_write_blind(&self, more: Size, settings: &DiskSettings) -> bool {
        let mut blind = self.blind;
        blind.add(more);
        self.is_complete
            || blind.bytes() <= settings.capacity / BLIND_SHARE
                && blind.files <= settings.max_files / BLIND_SHARE
    }

    fn condemn(&mut self, id: EntryId, blocks: u32) {
        self.acquit(id);
        self.condemned.insert(id, blocks);
        self.leaving.add(Size::of(blocks));
    }

    /// The file is gone, or another has its name.
    pub(super) fn acquit(&mut self, id: EntryId) {
        if let Some(blocks) = self.condemned.remove(&id) {
            self.leaving.subtract(Size::of(blocks));
        }
    }

    /// Whether the scan has nothing to add: it is in the index, or on its way out.
    pub(super) fn is_settled(&self, id: EntryId) -> bool {
        self.index.get(id).is_some() || self.condemned.contains_key(&id)
    }

    /// Everything on the disk is in the index now.
    pub(super) fn complete(&mut self) {
        self.is_complete = true;
        self.blind = Size::default();
    }

    /// Everything that was on the disk is gone.
    pub(super) fn begin_anew(&mut self) {
        self.index = Index::new();
        self.open.clear();
        self.blind = Size::default();
        self.is_complete = false;
    }
}

/// How many blocks a file of this length takes.
pub(super) const fn blocks(len: u64) -> u64 {
    len.div_ceil(DISK_BLOCK)
}
