//! The disk tier: one file for each entry, in a directory of ours.
//!
//! The common miss asks an index in memory and nothing else. A hit reads one small file, or opens
//! a large one and keeps it open. Everything else is done where nobody waits for it.
//! docs/decisions/disk.md says why it is like this.

mod background;
pub(crate) mod by_turns;
pub(crate) mod crew;
pub(crate) mod expiry;
mod files;
pub mod format;
pub(crate) mod health;
mod index;
mod journal;
mod layout;
mod list;
mod lock;
mod no_wait;
mod open;
mod read;
mod removals;
mod renew;
mod spool;
mod state;
mod write;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::crew::Crew;
use self::files::{Files, InIndex};
use self::format::Flaw;
use self::health::Health;
use self::removals::Moment;
use self::renew::{Renewal, Renewed};
use self::spool::DiskSpool;
use crate::ownership::OwnershipError;
use crate::tier::{
    BoxFuture, Entry, EntryId, JournalRecords, Listed, Listing, LocalTier, Put, Spool, Tier,
    TierError, TierStats,
};

pub use self::journal::JOURNAL_LIMIT;

/// What reports say until the next start.
const DAMAGED_JOURNAL: &str =
    "the journal was damaged: what could not be read of it lies in journal.damaged";

/// Where, and how much.
#[derive(Clone, Debug)]
pub struct DiskSettings {
    /// The directory. It is made if it is missing, and used by one process at a time.
    pub directory: PathBuf,
    /// What all files take together, in bytes, counted in blocks of 4 KiB, and their names.
    pub capacity: u64,
    /// How many files there may be. Each takes some fifty bytes of memory.
    pub max_files: u64,
    /// The largest body that is kept; half of the capacity if that is less.
    pub max_object: u64,
    /// Bodies up to this size are read into memory, larger ones stay in their files.
    pub inline: u64,
    /// How many files may be open for those larger ones.
    pub open_files: usize,
    /// How many bodies of unknown size may be on their way into files.
    pub spools: usize,
    /// How many reads may go on at once.
    pub reads: usize,
    /// How many writes and removals may go on at once.
    pub writes: usize,
    /// How long a read may take, with the wait for its turn.
    pub read_deadline: Duration,
    /// How long a write or a removal may take.
    pub write_deadline: Duration,
    /// When nothing works, how long until it is tried again.
    pub pause: Duration,
}

impl DiskSettings {
    /// So much in this directory, and everything else as usual.
    pub fn new(directory: impl Into<PathBuf>, capacity: u64) -> Self {
        Self {
            directory: directory.into(),
            capacity,
            max_files: 1_000_000,
            max_object: capacity / 4,
            inline: 16 * 1024,
            open_files: 512,
            spools: 64,
            reads: 32,
            writes: 4,
            read_deadline: Duration::from_millis(250),
            write_deadline: Duration::from_secs(10),
            pause: Duration::from_secs(1),
        }
    }
}

/// Why the disk tier does not start.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// It is no directory, or may not be written to.
    #[error("{} cannot be used: {source}", directory.display())]
    Unusable {
        /// Which.
        directory: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Others could put there what would be believed.
    #[error(transparent)]
    Ownership(#[from] OwnershipError),
    /// Another process has it.
    #[error("{} is in use by {holder}: every process needs a directory of its own", directory.display())]
    Taken {
        /// Which.
        directory: PathBuf,
        /// Who.
        holder: String,
    },
}

impl DiskError {
    fn unusable(directory: &Path, source: io::Error) -> Self {
        Self::Unusable {
            directory: directory.into(),
            source,
        }
    }
}

/// The disk tier.
pub struct Disk {
    files: Arc<Files>,
    reading: Arc<Crew>,
    writing: Arc<Crew>,
    listing: Crew,
    journalling: Crew,
    spools: Arc<Semaphore>,
    background: Mutex<JoinHandle<()>>,
    handle: Handle,
    refused: AtomicU64,
    corrupt: AtomicU64,
}

/// Why a job was not done.
pub(crate) enum DiskFailure {
    /// The system says so.
    Disk(io::Error),
    /// What was read is not what was written.
    Flaw(Flaw),
    /// Where the body was to be copied from, it could not be read.
    Source(io::Error),
    /// There is no room, and not enough of what is there may leave at once.
    NoRoom,
    /// Larger than what is kept.
    TooLarge,
    /// It was removed while it was on its way.
    Removed,
    /// Somebody stopped waiting for an earlier part of it.
    GivenUp,
}

impl Disk {
    /// Takes a directory into use. Reading from it and writing to it is done by `handle`'s threads
    /// for blocking work.
    pub fn open(settings: DiskSettings, handle: &Handle) -> Result<Arc<Self>, DiskError> {
        let files = Arc::new(Files::open(settings)?);
        let settings = &files.settings;
        let crew = |work, places, deadline| {
            Crew::new(handle, places, deadline, Health::new(work, settings.pause))
        };
        let reading = Arc::new(crew("reading", settings.reads, settings.read_deadline));
        let background = background::run(Arc::downgrade(&files), Arc::clone(&reading));
        Ok(Arc::new(Self {
            reading,
            listing: crew("reading through", 1, settings.write_deadline),
            journalling: crew("the journal", 1, settings.write_deadline),
            writing: Arc::new(crew("writing", settings.writes, settings.write_deadline)),
            spools: Arc::new(Semaphore::new(settings.spools)),
            background: Mutex::new(handle.spawn(background)),
            handle: handle.clone(),
            refused: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
            files,
        }))
    }

    /// How large the file system is, if that is less than what may be taken of it: it would be full
    /// before anything leaves for something new.
    pub fn file_system_too_small(&self) -> Option<u64> {
        let found = rustix::fs::fstatvfs(self.files.layout.open().directory()).ok()?;
        let size = found.f_blocks.saturating_mul(found.f_frsize);
        (size < self.files.settings.capacity).then_some(size)
    }

    /// Ready when everything that was on the disk at the start has been counted.
    pub async fn counted(&self) {
        self.files.complete().await;
    }

    fn crews(&self) -> [&Crew; 4] {
        [
            &self.reading,
            &self.writing,
            &self.listing,
            &self.journalling,
        ]
    }

    async fn read(&self, id: EntryId, asked: Moment) -> Result<Option<Entry>, TierError> {
        let files = Arc::clone(&self.files);
        let read = self
            .reading
            .run(move || read::read(&files, id, asked))
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
        began: Moment,
    ) -> Result<Put, TierError> {
        if entry.body.len() > self.files.settings.max_object {
            return Ok(Put::Refused);
        }
        let files = Arc::clone(&self.files);
        let job = move || match write::write(&files, id, &entry, expiry::after(expires), began) {
            Ok(()) => Ok(Put::Stored),
            Err(DiskFailure::Removed) => Ok(Put::Superseded),
            Err(DiskFailure::NoRoom | DiskFailure::TooLarge) => Ok(Put::Refused),
            Err(failure) => Err(failure),
        };
        self.writing.run(job).await
    }
}

impl Tier for Disk {
    fn name(&self) -> &'static str {
        "disk"
    }

    fn get(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Entry>, TierError>> {
        Box::pin(async move {
            match self.files.look_up(id) {
                InIndex::Missing => Ok(None),
                InIndex::Open(entry) => Ok(Some(entry)),
                InIndex::Closed(_, asked) | InIndex::Unknown(asked) => self.read(id, asked).await,
            }
        })
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        let began = self.files.now();
        Box::pin(async move {
            let put = self.write(id, entry, expires, began).await;
            if let Ok(Put::Refused) = put {
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
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        let began = self.files.now();
        let files = Arc::clone(&self.files);
        let job = move || {
            let renewal = Renewal {
                id,
                from,
                head,
                expires: expiry::after(expires),
                began,
            };
            match renew::renew(&files, &renewal) {
                Ok(Renewed::Done) => Ok(Put::Stored),
                Ok(Renewed::NotThere) | Err(DiskFailure::Removed) => Ok(Put::Superseded),
                Err(DiskFailure::NoRoom | DiskFailure::TooLarge) => Ok(Put::Refused),
                Err(failure) => Err(failure),
            }
        };
        Box::pin(self.writing.run(job))
    }

    fn remove(&self, id: EntryId) -> BoxFuture<'_, Result<(), TierError>> {
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
                .crews()
                .iter()
                .filter_map(|crew| crew.health.report())
                .chain(
                    self.files
                        .journal
                        .was_damaged()
                        .then(|| DAMAGED_JOURNAL.into()),
                )
                .collect(),
            foreign: self.files.layout.foreign(),
        }
    }
}

impl LocalTier for Disk {
    fn try_get(&self, id: EntryId) -> Option<Entry> {
        match self.files.look_up(id) {
            InIndex::Open(entry) => Some(entry),
            InIndex::Closed(..) if self.reading.is_off() => None,
            InIndex::Closed(blocks, _) => no_wait::read(&self.files, id, blocks),
            InIndex::Missing | InIndex::Unknown(_) => None,
        }
    }

    fn give_up(&self) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async move {
            self.background.lock().abort();
            for crew in self.crews() {
                crew.stop().await;
            }
            let given_up = self.files.give_up();
            given_up.map_err(|error| TierError::Failed(error.to_string()))
        })
    }

    fn take_back(&self) -> Result<(), TierError> {
        let taken = self.files.take_back();
        taken.map_err(|error| TierError::Failed(error.to_string()))?;
        for crew in self.crews() {
            crew.resume();
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

    fn list(
        &self,
        after: Option<EntryId>,
        most: usize,
    ) -> BoxFuture<'_, Result<Listing, TierError>> {
        let files = Arc::clone(&self.files);
        Box::pin(self.listing.run(move || list::page(&files, after, most)))
    }

    fn remove_listed<'a>(&'a self, seen: &'a Listed) -> BoxFuture<'a, Result<bool, TierError>> {
        let (files, seen) = (Arc::clone(&self.files), seen.clone());
        Box::pin(self.writing.run_minor(move || list::remove(&files, &seen)))
    }

    fn load_journal(&self) -> BoxFuture<'_, Result<JournalRecords, TierError>> {
        let files = Arc::clone(&self.files);
        Box::pin(self.journalling.run(move || files.journal.load(&files)))
    }

    fn append_to_journal(&self, records: Vec<Bytes>) -> BoxFuture<'_, Result<(), TierError>> {
        let files = Arc::clone(&self.files);
        let job = move || files.journal.append(&files, &records);
        Box::pin(self.journalling.run(job))
    }

    fn replace_journal(&self, records: Vec<Bytes>) -> BoxFuture<'_, Result<(), TierError>> {
        let files = Arc::clone(&self.files);
        let job = move || files.journal.replace(&files, &records);
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

impl From<DiskFailure> for TierError {
    fn from(failure: DiskFailure) -> Self {
        match failure {
            DiskFailure::Flaw(flaw) => Self::Corrupt(flaw.to_string()),
            DiskFailure::Disk(error) | DiskFailure::Source(error) => {
                Self::Failed(error.to_string())
            }
            DiskFailure::NoRoom => Self::Failed("no room".into()),
            DiskFailure::TooLarge => Self::Failed("larger than what is kept".into()),
            DiskFailure::Removed => Self::Failed("removed while it was on its way".into()),
            DiskFailure::GivenUp => Self::Failed("given up before".into()),
        }
    }
}
