//! Disk tier: one file per entry, in a directory of its own.
//!
//! A miss costs one lookup in an in-memory index. A hit reads a small file, or opens a large one and keeps
//! it open. All other work is done in the background. For the rationale see docs/decisions/disk.md.

mod background;
pub(crate) mod chunked_write;
pub(crate) mod error;
pub(crate) mod expiry;
mod files;
pub mod format;
mod geometry;
pub(crate) mod health;
mod index;
pub(crate) mod io_pool;
mod journal;
mod layout;
mod list;
mod lock;
mod open_files;
mod read;
mod recent_removals;
mod renew;
mod settings;
mod spool;
mod state;
mod try_read;
mod write;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::error::DiskFailure;
use self::files::{EntryFiles, IndexLookup};
use self::health::PoolHealth;
use self::io_pool::IoPool;
use self::journal::DiskJournal;
use self::recent_removals::RemovalMark;
use self::renew::{HeadRenewal, RenewalOutcome};
use self::spool::DiskSpool;
use self::try_read::NonBlockingReads;
use crate::tier::{
    Entry, EntryId, JournalRecords, ListEntry, Listing, LocalTier, PutOutcome, Spool, Tier,
    TierError, TierFuture, TierStats, Token,
};

pub use self::error::DiskError;
pub use self::journal::JOURNAL_LIMIT;
pub use self::settings::DiskSettings;

/// Warning in reports until the next start.
const DAMAGED_JOURNAL: &str = "the journal was damaged; the original is kept as journal.damaged";

/// Disk tier.
pub struct Disk {
    files: Arc<EntryFiles>,
    journal: Arc<DiskJournal>,
    non_blocking: NonBlockingReads,
    reading: Arc<IoPool>,
    writing: Arc<IoPool>,
    listing: IoPool,
    journalling: IoPool,
    spools: Arc<Semaphore>,
    background: Mutex<JoinHandle<()>>,
    handle: Handle,
    refused: AtomicU64,
    corrupt: AtomicU64,
}

impl Disk {
    /// Opens a disk tier. I/O runs on the blocking threads of `handle`.
    ///
    /// # Errors
    ///
    /// [`DiskError`] if the directory is unusable, untrusted, or in use by another process.
    pub fn open(settings: DiskSettings, handle: &Handle) -> Result<Arc<Self>, DiskError> {
        let files = Arc::new(EntryFiles::open(settings)?);
        let settings = &files.settings;
        let pool = |work, places, deadline| {
            IoPool::new(
                handle,
                places,
                deadline,
                PoolHealth::new(work, settings.pause),
            )
        };
        let reading = Arc::new(pool("reading", settings.reads, settings.read_deadline));
        let background = background::run(Arc::downgrade(&files), Arc::clone(&reading));
        Ok(Arc::new(Self {
            reading,
            listing: pool("listing", 1, settings.write_deadline),
            journalling: pool("the journal", 1, settings.write_deadline),
            writing: Arc::new(pool("writing", settings.writes, settings.write_deadline)),
            spools: Arc::new(Semaphore::new(settings.spools)),
            background: Mutex::new(handle.spawn(background)),
            handle: handle.clone(),
            refused: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            journal: Arc::default(),
            non_blocking: NonBlockingReads::on(files.layout.open().home()),
            files,
        }))
    }

    /// Returns the size of the file system if it is less than the capacity: the disk would be full before
    /// anything is evicted.
    pub fn file_system_too_small(&self) -> Option<u64> {
        let found = rustix::fs::fstatvfs(self.files.layout.open().directory()).ok()?;
        let size = found.f_blocks.saturating_mul(found.f_frsize);
        (size < self.files.settings.capacity).then_some(size)
    }

    /// Waits until all files found at the start are indexed.
    pub async fn counted(&self) {
        self.files.complete().await;
    }

    fn pools(&self) -> [&IoPool; 4] {
        [
            &self.reading,
            &self.writing,
            &self.listing,
            &self.journalling,
        ]
    }

    async fn read(&self, id: EntryId, since: RemovalMark) -> Result<Option<Entry>, TierError> {
        let files = Arc::clone(&self.files);
        let read = self
            .reading
            .run(move || read::read(&files, id, since))
            .await;
        if let Err(TierError::Corrupt(_)) = read {
            self.corrupt.fetch_add(1, Ordering::Relaxed);
        }
        read
    }

    async fn write(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        began: RemovalMark,
    ) -> Result<PutOutcome, TierError> {
        if entry.body.len() > self.files.settings.max_object {
            return Ok(PutOutcome::Refused);
        }
        let files = Arc::clone(&self.files);
        let job = move || match write::write(&files, id, &entry, expiry::after(expires), began) {
            Ok(()) => Ok(PutOutcome::Stored),
            Err(DiskFailure::Removed) => Ok(PutOutcome::Superseded),
            Err(DiskFailure::NoRoom | DiskFailure::TooLarge) => Ok(PutOutcome::Refused),
            Err(failure) => Err(failure),
        };
        self.writing.run(job).await
    }
}

impl Tier for Disk {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn get(&self, id: EntryId) -> TierFuture<'_, Option<Entry>> {
        Box::pin(async move {
            match self.files.look_up(id) {
                IndexLookup::Missing => Ok(None),
                IndexLookup::Open(entry) => Ok(Some(entry)),
                IndexLookup::Closed(_, moment) | IndexLookup::Unknown(moment) => {
                    self.read(id, moment).await
                }
            }
        })
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        _: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        let began = self.files.now();
        Box::pin(async move {
            let put = self.write(id, entry, expires, began).await;
            if let Ok(PutOutcome::Refused) = put {
                self.refused.fetch_add(1, Ordering::Relaxed);
            }
            put
        })
    }

    fn renew(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
        _: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        let began = self.files.now();
        let files = Arc::clone(&self.files);
        let job = move || {
            let renewal = HeadRenewal {
                id,
                from,
                head,
                expires: expiry::after(expires),
                began,
            };
            match renew::renew(&files, &renewal) {
                Ok(RenewalOutcome::Done) => Ok(PutOutcome::Stored),
                Ok(RenewalOutcome::NotThere) | Err(DiskFailure::Removed) => {
                    Ok(PutOutcome::Superseded)
                }
                Err(DiskFailure::NoRoom | DiskFailure::TooLarge) => Ok(PutOutcome::Refused),
                Err(failure) => Err(failure),
            }
        };
        Box::pin(self.writing.run(job))
    }

    fn remove(&self, id: EntryId) -> TierFuture<'_, ()> {
        let forgotten = self.files.forget(id);
        Box::pin(async move {
            let Some(forgotten) = forgotten else {
                return Ok(());
            };
            let files = Arc::clone(&self.files);
            let job = move || {
                files
                    .finish_removal(id, forgotten)
                    .map_err(DiskFailure::Disk)
            };
            self.writing.run_minor(job).await
        })
    }

    fn stats(&self) -> TierStats {
        let totals = self.files.totals();
        TierStats {
            entries: Some(totals.entries),
            bytes: Some(totals.bytes),
            capacity: Some(self.files.settings.capacity),
            evicted: totals.evicted,
            refused: self.refused.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            degraded: self
                .pools()
                .iter()
                .filter_map(|pool| pool.health.report())
                .chain(self.journal.was_damaged().then(|| DAMAGED_JOURNAL.into()))
                .collect(),
            advice: Vec::new(),
            foreign: self.files.layout.foreign(),
        }
    }
}

impl LocalTier for Disk {
    fn try_get(&self, id: EntryId) -> Option<Entry> {
        match self.files.look_up(id) {
            IndexLookup::Open(entry) => Some(entry),
            IndexLookup::Closed(..) if self.reading.is_off() => None,
            IndexLookup::Closed(known, _) => try_read::read(&self.files, &self.non_blocking, known),
            IndexLookup::Missing | IndexLookup::Unknown(_) => None,
        }
    }

    fn give_up(&self) -> TierFuture<'_, ()> {
        Box::pin(async move {
            self.background.lock().abort();
            for pool in self.pools() {
                pool.stop().await;
            }
            let given_up = self.files.give_up();
            given_up.map_err(|error| TierError::Failed(error.to_string()))
        })
    }

    fn take_back(&self) -> Result<(), TierError> {
        let taken = self.files.take_back();
        taken.map_err(|error| TierError::Failed(error.to_string()))?;
        self.journal.forget_end();
        for pool in self.pools() {
            pool.resume();
        }
        let background = background::run(Arc::downgrade(&self.files), Arc::clone(&self.reading));
        *self.background.lock() = self.handle.spawn(background);
        Ok(())
    }

    fn largest(&self) -> u64 {
        self.files.settings.max_object
    }

    fn spool(&self) -> Option<Box<dyn Spool>> {
        let place = Arc::clone(&self.spools).try_acquire_owned().ok()?;
        let (files, writing) = (Arc::clone(&self.files), Arc::clone(&self.writing));
        Some(Box::new(DiskSpool::new(files, writing, place)))
    }

    fn list(&self, after: Option<EntryId>, most: usize) -> TierFuture<'_, Listing> {
        let files = Arc::clone(&self.files);
        Box::pin(self.listing.run(move || list::page(&files, after, most)))
    }

    fn remove_listed<'a>(&'a self, seen: &'a ListEntry) -> TierFuture<'a, bool> {
        let (files, seen) = (Arc::clone(&self.files), seen.clone());
        Box::pin(self.writing.run_minor(move || list::remove(&files, &seen)))
    }

    fn load_journal(&self) -> TierFuture<'_, JournalRecords> {
        let (journal, files) = (Arc::clone(&self.journal), Arc::clone(&self.files));
        Box::pin(self.journalling.run(move || journal.load(&files)))
    }

    fn append_to_journal(&self, records: Vec<Bytes>) -> TierFuture<'_, ()> {
        let (journal, files) = (Arc::clone(&self.journal), Arc::clone(&self.files));
        let job = move || journal.append(&files, &records);
        Box::pin(self.journalling.run(job))
    }

    fn replace_journal(&self, records: Vec<Bytes>) -> TierFuture<'_, ()> {
        let (journal, files) = (Arc::clone(&self.journal), Arc::clone(&self.files));
        let job = move || journal.replace(&files, &records);
        Box::pin(self.journalling.run(job))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.background.lock().abort();
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk")
            .field("directory", &self.files.settings.directory)
            .finish_non_exhaustive()
    }
}
