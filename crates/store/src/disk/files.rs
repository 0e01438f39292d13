//! Files of a disk tier and their index: lookups, capacity, renames and removals.
//!
//! A file gains or loses its name only under the write lock of its id's stripe, which serializes removals
//! and writes of an entry. A reader that shares the stripe may thus close a file it opened without being the
//! last to hold it. The index has its own lock, which is never held during a system call, so that lookups
//! never wait for the disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;

use super::error::{DiskError, DiskFailure};
use super::expiry::{is_over, now};
use super::index::IndexEntry;
use super::layout::{self, DiskLayout};
use super::lock::DirectoryLock;
use super::open_files::OpenFiles;
use super::recent_removals::RemovalMark;
use super::settings::DiskSettings;
use super::state::{DiskState, DiskUsage, RemovedFile, ReserveStep};
use crate::content::FileBody;
use crate::eviction::FetchCost;
use crate::tier::{Entry, EntryId};

const STRIPES: usize = 64;
/// Maximum of evictions per reservation; if they do not suffice, the new entry is rejected.
const EVICTIONS_AT_ONCE: usize = 1024;

/// Directory in use by this process.
pub(super) struct EntryFiles {
    pub(super) layout: DiskLayout,
    pub(super) settings: DiskSettings,
    lock: Mutex<DirectoryLock>,
    /// Open entries, found without the index lock. Changed only while that lock is held, so that an entry
    /// missing from the index is not found here.
    open: Arc<OpenFiles>,
    state: Mutex<DiskState>,
    stripes: [RwLock<()>; STRIPES],
    evicted: AtomicU64,
    completed: Notify,
}

/// Result of an index lookup, without disk access.
pub(super) enum IndexLookup {
    Missing,
    Open(Entry),
    /// Indexed at that moment.
    Closed(IndexEntry, RemovalMark),
    /// Not in the index, which was incomplete at that moment.
    Unknown(RemovalMark),
}

/// Totals of the index.
pub(super) struct DiskTotals {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) evicted: u64,
}

impl EntryFiles {
    /// Locks the directory and creates missing subdirectories.
    ///
    /// # Errors
    ///
    /// [`DiskError`] if the directory is unusable, untrusted or in use.
    pub(super) fn open(mut settings: DiskSettings) -> Result<Self, DiskError> {
        settings.max_object = settings.max_object.min(settings.capacity / 2);
        let directory = layout::open_directory(&settings.directory)?;
        let lock = DirectoryLock::take(&settings.directory, &directory)?;
        let (layout, is_new) = DiskLayout::new(&settings.directory, directory)?;
        let cleared = layout.clear_temporaries();
        cleared.map_err(|source| DiskError::unusable(&settings.directory, source))?;
        let open = Arc::new(OpenFiles::new(settings.open_files));
        Ok(Self {
            lock: Mutex::new(lock),
            state: Mutex::new(DiskState::new(Arc::clone(&open), is_new)),
            open,
            stripes: [const { RwLock::new(()) }; STRIPES],
            evicted: AtomicU64::new(0),
            completed: Notify::new(),
            layout,
            settings,
        })
    }

    /// Releases the lock of the directory.
    pub(super) fn give_up(&self) -> io::Result<()> {
        self.lock.lock().give_up()
    }

    /// Reacquires the lock. Changes made by another process in the meantime are discovered on lookup.
    pub(super) fn take_back(&self) -> io::Result<()> {
        self.lock.lock().take_back()
    }

    /// Looks up an id in the index.
    pub(super) fn look_up(&self, id: EntryId) -> IndexLookup {
        if let Some(entry) = self.open.get(id) {
            return IndexLookup::Open(entry);
        }
        let mut state = self.state.lock();
        let moment = state.removals.now();
        match state.index.get(id) {
            Some(known) if is_over(u64::from(known.expires)) => IndexLookup::Missing,
            None if state.is_complete => IndexLookup::Missing,
            None => IndexLookup::Unknown(moment),
            Some(known) => {
                state.index.touch(id);
                // It may have been opened since the first check.
                let open = self.open.get(id);
                open.map_or(IndexLookup::Closed(known, moment), IndexLookup::Open)
            }
        }
    }

    pub(super) fn now(&self) -> RemovalMark {
        self.state.lock().removals.now()
    }

    /// Indexes a file that was read and is found on disk only, unless its id was removed since `since`.
    pub(super) fn adopt_found(&self, known: IndexEntry, since: RemovalMark) {
        let mut state = self.state.lock();
        state.index.learn_cost(known.id, known.cost);
        if !state.is_settled(known.id) && !state.removals.since(since, known.id) {
            state.index.insert(known);
        }
    }

    /// Sets the cost of an entry whose file was read: the scan indexes files without their costs.
    pub(super) fn learn_cost(&self, id: EntryId, cost: FetchCost) {
        self.state.lock().index.learn_cost(id, cost);
    }

    /// Keeps a file open for further hits, limits permitting, provided that it still has the name. Returns
    /// the entry that is open afterwards.
    pub(super) fn keep_open(
        &self,
        id: EntryId,
        head: &Bytes,
        body: &Arc<FileBody>,
        is_it: impl FnOnce() -> bool,
    ) -> Option<Entry> {
        let _stripe = self.stripe(id);
        is_it().then(|| self.keep_named(id, head, body))?
    }

    /// Like [`Self::keep_open`], for a caller that holds the stripe since before it opened the file.
    pub(super) fn keep_named(
        &self,
        id: EntryId,
        head: &Bytes,
        body: &Arc<FileBody>,
    ) -> Option<Entry> {
        let state = self.state.lock();
        // An entry removed in the meantime must not be found again.
        let known = state.index.get(id)?;
        if let Some(entry) = self.open.get(id) {
            return Some(entry);
        }
        // Copied, so that the buffer it was read with is freed.
        let head = Bytes::copy_from_slice(head);
        self.open.admit(id, head, body, known.expires.into());
        self.open.get(id)
    }

    /// Reserves capacity for a write, evicting other entries as needed.
    ///
    /// # Errors
    ///
    /// [`DiskFailure::NoRoom`] if eviction does not free enough.
    pub(super) fn reserve(&self, blocks: u64, files: u64) -> Result<(), DiskFailure> {
        for _ in 0..EVICTIONS_AT_ONCE {
            let step = self
                .state
                .lock()
                .reserve(DiskUsage { blocks, files }, &self.settings);
            match step {
                ReserveStep::Reserved => return Ok(()),
                ReserveStep::NoRoom => return Err(DiskFailure::NoRoom),
                ReserveStep::Leaves(id, open) => {
                    self.finish_removal(id, open).map_err(DiskFailure::Disk)?;
                    self.evicted.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Err(DiskFailure::NoRoom)
    }

    pub(super) fn give_back(&self, blocks: u64, files: u64) {
        self.state.lock().give_back(DiskUsage { blocks, files });
    }

    /// Indexes an entry whose draft is about to be renamed, unless the id was removed since `began`. Returns
    /// the replaced open file. The caller holds the stripe.
    pub(super) fn announce(
        &self,
        known: IndexEntry,
        began: RemovalMark,
        open: Option<(Bytes, Arc<FileBody>)>,
    ) -> Result<RemovedFile, DiskFailure> {
        self.state.lock().announce(known, began, open)
    }

    /// Removes an announced entry from the index after its rename has failed.
    pub(super) fn withdraw(&self, id: EntryId) {
        self.state.lock().take_out(id);
    }

    /// Removes an id from the index. Returns a guard if a file may have to be removed.
    pub(super) fn forget(&self, id: EntryId) -> Option<RemovedFile> {
        let mut state = self.state.lock();
        state.removals.record(id);
        state.take_out(id)
    }

    /// Removes the file of an entry taken from the index, unless it was replaced. A failure leaves the id in
    /// [`EntryFiles::condemned`].
    pub(super) fn finish_removal(&self, id: EntryId, open: RemovedFile) -> io::Result<()> {
        let _stripe = self.stripe(id);
        if self.state.lock().condemned.contains_key(&id) {
            self.layout.remove_entry(id)?;
            self.state.lock().acquit(id);
        }
        drop(open);
        Ok(())
    }

    /// Removes an expired entry from the index. Returns a guard if there is a file to remove.
    pub(super) fn forget_expired(&self, id: EntryId) -> Option<RemovedFile> {
        let mut state = self.state.lock();
        let known = state.index.get(id)?;
        is_over(u64::from(known.expires))
            .then(|| state.take_out(id))
            .flatten()
    }

    /// Ids whose files are yet to be removed: in progress, or failed.
    pub(super) fn condemned(&self) -> Vec<EntryId> {
        self.state.lock().condemned.keys().copied().collect()
    }

    /// Removes a damaged or listed file, provided that `is_it` confirms its identity under the stripe.
    pub(super) fn remove_flawed(
        &self,
        id: EntryId,
        is_it: impl FnOnce() -> bool,
    ) -> io::Result<()> {
        let _stripe = self.stripe(id);
        if !is_it() {
            return Ok(());
        }
        let open = {
            let mut state = self.state.lock();
            state.index.remove(id);
            self.open.forget(id)
        };
        drop(open);
        self.layout.remove_entry(id)
    }

    /// Indexes a file found by the scan, or removes it if `look` rejects it or the capacity is exhausted.
    pub(super) fn count(
        &self,
        id: EntryId,
        look: impl FnOnce() -> io::Result<Option<IndexEntry>>,
    ) -> io::Result<()> {
        let _stripe = self.stripe(id);
        if self.state.lock().is_settled(id) {
            return Ok(());
        }
        let known = look()?;
        let is_kept = known.is_some_and(|known| self.state.lock().adopt(known, &self.settings));
        if is_kept {
            Ok(())
        } else {
            self.layout.remove_entry(id)
        }
    }

    pub(super) fn set_complete(&self) {
        self.state.lock().complete();
        self.completed.notify_waiters();
    }

    /// Waits until every file on disk is indexed.
    pub(super) async fn complete(&self) {
        loop {
            let completed = self.completed.notified();
            if self.is_complete() {
                return;
            }
            completed.await;
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.state.lock().is_complete
    }

    /// Returns the expired entries among `count` slots from `start`, and the slot to continue at.
    pub(super) fn expired(&self, start: u32, count: u32) -> (Vec<EntryId>, u32) {
        self.state.lock().index.expired(start, count, now())
    }

    /// Recreates a directory that was removed by another process.
    pub(super) fn repair(&self) -> Result<(), DiskFailure> {
        let failed = |error| match error {
            DiskError::Unusable { source, .. } => DiskFailure::Disk(source),
            error => DiskFailure::Disk(io::Error::other(error)),
        };
        let mut lock = self.lock.lock();
        let path = self.layout.directory();
        let directory = layout::open_directory(path).map_err(failed)?;
        if !lock.is_visible() {
            *lock = DirectoryLock::take(path, &directory).map_err(failed)?;
        }
        if self.layout.reopen(directory).map_err(failed)? {
            self.state.lock().begin_anew();
        }
        Ok(())
    }

    pub(super) fn totals(&self) -> DiskTotals {
        let state = self.state.lock();
        let size = state.size();
        DiskTotals {
            entries: state.index.len() as u64,
            bytes: size.bytes(),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }

    /// Returns whether an entry was removed since `began`, or is about to be.
    pub(super) fn was_removed(&self, id: EntryId, began: RemovalMark) -> bool {
        let state = self.state.lock();
        let is_known = state.index.get(id).is_some() || !state.is_complete;
        !is_known || state.condemned.contains_key(&id) || state.removals.since(began, id)
    }

    /// Records a renewed head, unless the entry was removed in the meantime. The caller holds the stripe.
    pub(super) fn was_renewed(&self, known: IndexEntry, began: RemovalMark, head: &Bytes) {
        let id = known.id;
        let mut state = self.state.lock();
        let is_gone = state.is_complete && state.index.get(id).is_none();
        if !(is_gone || state.condemned.contains_key(&id) || state.removals.since(began, id)) {
            state.index.insert(known);
            self.open.renew(id, head, known.expires.into());
        }
    }

    /// Read lock of a stripe: no file of this id gains or loses its name or head.
    pub(super) fn share(&self, id: EntryId) -> RwLockReadGuard<'_, ()> {
        self.stripe_of(id).read()
    }

    /// Like [`Self::share`], but `None` if the stripe is locked for writing.
    pub(super) fn try_share(&self, id: EntryId) -> Option<RwLockReadGuard<'_, ()>> {
        self.stripe_of(id).try_read()
    }

    pub(super) fn stripe(&self, id: EntryId) -> RwLockWriteGuard<'_, ()> {
        self.stripe_of(id).write()
    }

    fn stripe_of(&self, id: EntryId) -> &RwLock<()> {
        let [.., last] = id.to_bytes();
        &self.stripes[usize::from(last) % STRIPES]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use microcache_policy::{Fields, Lifetime, Time};
    use microcache_testkit::Folder;
    use tokio::runtime::Builder;

    use super::*;
    use crate::checksum::checksum;
    use crate::clock::Epoch;
    use crate::content::Content;
    use crate::disk::{Disk, write};
    use crate::encoding::encode;
    use crate::stored::Stored;
    use crate::tier::{LocalTier, Tier};

    #[test]
    fn an_open_file_is_found_during_any_operation() {
        let folder = Folder::absent_in("/dev/shm");
        let settings = DiskSettings::new(folder.path(), 1 << 20);
        let files = EntryFiles::open(settings).expect("a directory");
        let files = Arc::new(files);
        let id = EntryId::of(b"key");
        let body = Bytes::from(vec![b'x'; files.settings.inline as usize + 1]);
        let entry = Entry {
            head: Bytes::from_static(b"head"),
            body: Content::Bytes(body),
        };
        let written = write::write(&files, id, &entry, now() + 1000, files.now());
        assert!(written.is_ok());
        let busy = files.state.lock();
        assert!(matches!(files.look_up(id), IndexLookup::Open(_)));
        drop(busy);
        let forgotten = files.forget(id).expect("it is there");
        assert!(matches!(files.look_up(id), IndexLookup::Missing));
        // A lookup that found the file before its removal must not keep it open.
        let body = forgotten.as_ref().expect("it was open").body();
        assert!(files.keep_named(id, &entry.head, &body).is_none());
        assert!(files.open.get(id).is_none());
    }

    /// A record of a response that took two seconds.
    fn slow(body: &Bytes) -> Entry {
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
        let (fields, content) = (Fields::default(), Content::Bytes(body.clone()));
        let began = Time::default();
        let stored = Stored::new(b"key", 200, fields, content.clone(), lifetime, began)
            .with_cost(FetchCost::of(Duration::from_secs(2)));
        let sums = (body.len() as u64, checksum(body));
        Entry {
            head: encode(b"key", &stored, sums, Epoch::now()),
            body: content,
        }
    }

    #[test]
    fn the_cost_of_a_file_is_known_once_it_was_read_after_a_restart() {
        let folder = Folder::absent_in("/dev/shm");
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("a runtime");
        let settings = DiskSettings::new(folder.path(), 1 << 20);
        let open = || {
            let disk = Disk::open(settings.clone(), runtime.handle()).expect("a directory");
            runtime.block_on(disk.counted());
            disk
        };
        // Small bodies are read into memory, and files of larger ones are kept open.
        let ids = [b"small read", b"small seen", b"large read", b"large seen"]
            .map(|key| EntryId::of(key));
        let [small, large] =
            [1, settings.inline as usize + 1].map(|len| Bytes::from(vec![b'x'; len]));
        let before = open();
        for (id, body) in ids.into_iter().zip([&small, &small, &large, &large]) {
            let put = before.put(id, slow(body), Duration::from_hours(1), None);
            runtime.block_on(put).expect("a working disk");
        }
        let given_up = runtime.block_on(before.give_up());
        given_up.expect("a working disk");

        let disk = open();
        let cost = |id| {
            let known = disk.files.state.lock().index.get(id);
            known.expect("it is there").cost
        };
        assert_eq!(ids.map(cost), [FetchCost::default(); 4]);
        for id in [ids[0], ids[2]] {
            let read = runtime.block_on(disk.get(id)).expect("a working disk");
            assert!(read.is_some());
        }
        for id in [ids[1], ids[3]] {
            assert!(disk.try_get(id).is_some());
        }
        assert_eq!(ids.map(cost), [FetchCost::of(Duration::from_secs(2)); 4]);
    }
}
