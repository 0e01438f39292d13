//! The files of a directory and what is known of them: look-ups, room, renames and removals.
//!
//! A file gets its name, or loses it, only while its id's stripe is held. So a removal and a
//! write of one entry happen one after the other, and who shares the stripe can close a file
//! that it opened without being the last to have it. What is known is behind another lock, which is never held across
//! a system call: a look-up waits for nobody's disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use tokio::sync::Notify;

use super::expiry::{is_over, now};
use super::index::Known;
use super::journal::Journal;
use super::layout::{self, Layout};
use super::lock::Lock;
use super::no_wait::NoWait;
use super::open::OpenFiles;
use super::removals::Moment;
use super::state::{DiskState, Forgotten, Size, Step};
use super::write::Draft;
use super::{DiskError, DiskFailure, DiskSettings};
use crate::content::FileBody;
use crate::tier::{Entry, EntryId};

const STRIPES: usize = 64;
/// So many entries leave for one step of a new one; if that is not enough, it is not stored.
const EVICTIONS_AT_ONCE: usize = 1024;

/// A directory in use.
pub(super) struct Files {
    pub(super) layout: Layout,
    pub(super) settings: DiskSettings,
    pub(super) no_wait: NoWait,
    lock: Mutex<Lock>,
    /// They can be found without what is known. They change while it is held, so that nobody finds
    /// what is not known any more.
    open: Arc<OpenFiles>,
    state: Mutex<DiskState>,
    stripes: [RwLock<()>; STRIPES],
    pub(super) journal: Journal,
    evicted: AtomicU64,
    completed: Notify,
}

/// What is known of an id without looking at the disk.
pub(super) enum InIndex {
    Missing,
    Open(Entry),
    /// It was there at that moment, in a file of so many blocks.
    Closed(u32, Moment),
    /// The index did not know yet at that moment.
    Unknown(Moment),
}

/// What there is in all.
pub(super) struct Totals {
    pub(super) entries: u64,
    pub(super) bytes: u64,
    pub(super) evicted: u64,
}

impl Files {
    /// Takes the directory, and makes what is missing in it.
    pub(super) fn open(mut settings: DiskSettings) -> Result<Self, DiskError> {
        settings.max_object = settings.max_object.min(settings.capacity / 2);
        let directory = layout::open_directory(&settings.directory)?;
        let lock = Lock::take(&settings.directory, &directory)?;
        let (layout, is_new) = Layout::new(&settings.directory, directory)?;
        let cleared = layout.clear_temporaries();
        cleared.map_err(|source| DiskError::unusable(&settings.directory, source))?;
        let open = Arc::new(OpenFiles::new(settings.open_files));
        Ok(Self {
            no_wait: NoWait::on(layout.open().home()),
            lock: Mutex::new(lock),
            state: Mutex::new(DiskState::new(Arc::clone(&open), is_new)),
            open,
            stripes: [const { RwLock::new(()) }; STRIPES],
            journal: Journal::default(),
            evicted: AtomicU64::new(0),
            completed: Notify::new(),
            layout,
            settings,
        })
    }

    /// Lets another process have the directory.
    pub(super) fn give_up(&self) -> io::Result<()> {
        self.lock.lock().give_up()
    }

    /// Takes it back. What the other one has done there is found out as files are asked for.
    pub(super) fn take_back(&self) -> io::Result<()> {
        self.lock.lock().take_back()?;
        self.journal.forget_end();
        Ok(())
    }

    /// What is known of an id.
    pub(super) fn look_up(&self, id: EntryId) -> InIndex {
        if let Some(entry) = self.open.get(id) {
            return InIndex::Open(entry);
        }
        let mut state = self.state.lock();
        let asked = state.removals.now();
        match state.index.get(id) {
            Some(known) if is_over(u64::from(known.expires)) => InIndex::Missing,
            None if state.is_complete => InIndex::Missing,
            None => InIndex::Unknown(asked),
            Some(known) => {
                state.index.touch(id);
                // Somebody may have opened it by now.
                let open = self.open.get(id);
                open.map_or(InIndex::Closed(known.blocks, asked), InIndex::Open)
            }
        }
    }

    pub(super) fn now(&self) -> Moment {
        self.state.lock().removals.now()
    }

    /// Notes that a file that nobody knew of was found.
    pub(super) fn found(&self, known: Known, asked: Moment) {
        let mut state = self.state.lock();
        if !state.is_settled(known.id) && !state.removals.since(asked, known.id) {
            state.index.insert(known);
        }
    }

    /// Keeps a file open for the next one who asks, unless the bound forbids it, or it is no longer
    /// the one that has the name. Gives the one that is open already, if there is one.
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

    /// The same for who holds or shares the stripe, and has opened the file since.
    pub(super) fn keep_named(
        &self,
        id: EntryId,
        head: &Bytes,
        body: &Arc<FileBody>,
    ) -> Option<Entry> {
        let state = self.state.lock();
        // What was removed meanwhile is not to be found any more.
        let known = state.index.get(id)?;
        if let Some(entry) = self.open.get(id) {
            return Some(entry);
        }
        // What was read with it is not kept.
        let head = Bytes::copy_from_slice(head);
        self.open.admit(id, head, body, known.expires.into());
        self.open.get(id)
    }

    /// Finds room for what is to be written: others leave for it.
    pub(super) fn reserve(&self, blocks: u64, files: u64) -> Result<(), DiskFailure> {
        for _ in 0..EVICTIONS_AT_ONCE {
            let step = self
                .state
                .lock()
                .reserve(Size { blocks, files }, &self.settings);
            match step {
                Step::Reserved => return Ok(()),
                Step::NoRoom => return Err(DiskFailure::NoRoom),
                Step::Leaves(id, open) => {
                    self.finish_removal(id, open).map_err(DiskFailure::Disk)?;
                    self.evicted.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Err(DiskFailure::NoRoom)
    }

    pub(super) fn give_back(&self, blocks: u64, files: u64) {
        self.state.lock().give_back(Size { blocks, files });
    }

    /// Gives a complete file its name, unless its id was removed since it was begun. It may be kept
    /// open for the next one who asks.
    pub(super) fn commit(
        &self,
        mut draft: Draft,
        id: EntryId,
        expires: u64,
        began: Moment,
        open: Option<(Bytes, Arc<FileBody>)>,
    ) -> Result<(), DiskFailure> {
        let _stripe = self.stripe(id);
        let known = Known::new(id, draft.len(), expires).ok_or(DiskFailure::TooLarge)?;
        // The index comes first: who removes this id from now on finds it there, waits for
        // the stripe, and removes the file that is about to come.
        let old = self.state.lock().announce(known, began, open)?;
        draft.is_counted_elsewhere();
        if let Err(error) = self.layout.give_name(draft.name(), id) {
            self.state.lock().take_out(id);
            return Err(DiskFailure::Disk(error));
        }
        draft.was_renamed();
        drop(old);
        Ok(())
    }

    /// Takes an id out of the index, and says whether there may be a file to remove.
    pub(super) fn forget(&self, id: EntryId) -> Option<Forgotten> {
        let mut state = self.state.lock();
        state.removals.note(id);
        state.take_out(id)
    }

    /// Removes the file of what was taken out of the index, unless another has come in its place.
    /// If that fails, [`Files::condemned`] will say so.
    pub(super) fn finish_removal(&self, id: EntryId, open: Forgotten) -> io::Result<()> {
        let _stripe = self.stripe(id);
        if self.state.lock().condemned.contains_key(&id) {
            self.layout.remove_entry(id)?;
            self.state.lock().acquit(id);
        }
        drop(open);
        Ok(())
    }

    /// Takes out what is over, and says whether there is a file to remove.
    pub(super) fn forget_expired(&self, id: EntryId) -> Option<Forgotten> {
        let mut state = self.state.lock();
        let known = state.index.get(id)?;
        is_over(u64::from(known.expires))
            .then(|| state.take_out(id))
            .flatten()
    }

    /// Ids whose files are still to be removed: because it is about to happen, or because it failed.
    pub(super) fn condemned(&self) -> Vec<EntryId> {
        self.state.lock().condemned.keys().copied().collect()
    }

    /// Removes a file that is not what it should be, or that was looked for, unless another has come
    /// in its place.
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

    /// Counts a file that the scan has come upon, or removes it: if `look` does not find it
    /// usable, or there is no room for it any more.
    pub(super) fn count(
        &self,
        id: EntryId,
        look: impl FnOnce() -> io::Result<Option<Known>>,
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

    /// Ready when everything on the disk is in the index.
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

    /// What is over among `count` slots of the index from `start` on, and where to go on.
    pub(super) fn expired(&self, start: u32, count: u32) -> (Vec<EntryId>, u32) {
        self.state.lock().index.expired(start, count, now())
    }

    /// Puts a directory that somebody removed in its place again.
    pub(super) fn repair(&self) -> Result<(), DiskFailure> {
        let failed = |error| match error {
            DiskError::Unusable { source, .. } => DiskFailure::Disk(source),
            error => DiskFailure::Disk(io::Error::other(error)),
        };
        let mut lock = self.lock.lock();
        let path = self.layout.directory();
        let directory = layout::open_directory(path).map_err(failed)?;
        if !lock.is_visible() {
            *lock = Lock::take(path, &directory).map_err(failed)?;
        }
        if self.layout.reopen(directory).map_err(failed)? {
            self.state.lock().begin_anew();
        }
        Ok(())
    }

    pub(super) fn totals(&self) -> Totals {
        let state = self.state.lock();
        let size = state.size();
        Totals {
            entries: state.index.len() as u64,
            bytes: size.bytes(),
            evicted: self.evicted.load(Ordering::Relaxed),
        }
    }

    /// Whether an entry was removed since then, or is on its way out.
    pub(super) fn was_removed(&self, id: EntryId, began: Moment) -> bool {
        let state = self.state.lock();
        let is_known = state.index.get(id).is_some() || !state.is_complete;
        !is_known || state.condemned.contains_key(&id) || state.removals.since(began, id)
    }

    /// Notes that an entry has another head now, unless it was removed meanwhile. For who holds the
    /// stripe.
    pub(super) fn was_renewed(&self, known: Known, began: Moment, head: &Bytes) {
        let id = known.id;
        let mut state = self.state.lock();
        let is_gone = state.is_complete && state.index.get(id).is_none();
        if !(is_gone || state.condemned.contains_key(&id) || state.removals.since(began, id)) {
            state.index.insert(known);
            self.open.renew(id, head, known.expires.into());
        }
    }

    /// Keeps files of this id from getting or losing their name, or another head.
    pub(super) fn share(&self, id: EntryId) -> RwLockReadGuard<'_, ()> {
        self.stripe_of(id).read()
    }

    /// Keeps files of this id from getting or losing their name, unless that is happening now.
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
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::content::Content;
    use crate::disk::write;

    #[test]
    fn an_open_file_is_found_whatever_is_being_done() {
        let directory = PathBuf::from(format!("/dev/shm/microcache-open-{}", std::process::id()));
        let files = Files::open(DiskSettings::new(&directory, 1 << 20)).expect("a directory");
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
        assert!(matches!(files.look_up(id), InIndex::Open(_)));
        drop(busy);
        let forgotten = files.forget(id).expect("it is there");
        assert!(matches!(files.look_up(id), InIndex::Missing));
        // Who had found its file before that keeps it open for nobody.
        let body = forgotten.as_ref().expect("it was open").body();
        assert!(files.keep_named(id, &entry.head, &body).is_none());
        assert!(files.open.get(id).is_none());
        fs::remove_dir_all(&directory).expect("removed");
    }
}
