//! Shared directory tier: one file per record, without a server process.
//!
//! It serves many short-lived processes, such as commands in scripts. The disk tier ([`crate::disk`]) in
//! contrast belongs to one long-lived process with an index in memory; here the directory itself is the
//! index.
//!
//! - A record gets its name when it is complete and is immutable from then on: reads take no lock.
//! - Renames and removals in a folder hold the folder's lock ([`folder`]).
//! - A process that fetches from the origin holds the lock of a claim file ([`claims`]), which the kernel
//!   releases when the process ends. If the response is not storable, waiting processes learn that
//!   ([`unstorable_claims`]).
//! - The total size is kept in a small file; above the capacity, the least recently used records are
//!   evicted ([`capacity`]).
//! - A body too large for memory is written to a file while it is received ([`spool`]).
//! - Purges of more than one URL are propagated through a log ([`log`]).
//!
//! A full, read-only or missing directory only costs its hits; requests never fail because of it.

mod capacity;
mod claims;
mod folder;
mod home;
mod log;
mod record;
mod settings;
mod spool;
mod state;
mod unstorable_claims;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::capacity::CapacityLimit;
use self::claims::{ClaimFile, ClaimOutcome, ClaimTable, ClaimTimestamp};
use self::folder::{LockedFolder, RecordFolder};
pub use self::home::DirectoryError;
use self::home::HomeFolder;
pub use self::settings::DirectorySettings;
use self::spool::DirectorySpool;
use self::state::{DirectoryState, LookupOutcome, StoreRequest};
use crate::disk::error::DiskFailure;
use crate::disk::health::PoolHealth;
use crate::disk::io_pool::IoPool;
use crate::tier::{
    Claim, Entry, EntryId, GetOutcome, LogPage, PutOutcome, SharedTier, Spool, Tier, TierError,
    TierFuture, TierStats, Token,
};

/// Concurrent reads, and concurrent other operations.
const READS: usize = 16;
const WRITES: usize = 4;
/// Maximum of foreign claims remembered for waiting callers.
const MAX_AWAITED: usize = 1024;

/// Shared directory tier.
pub struct Directory {
    shared: Arc<DirectoryState>,
    claims: Arc<ClaimTable>,
    /// Foreign claims that callers of this process wait for.
    awaited: Mutex<HashMap<EntryId, ClaimTimestamp>>,
    reading: IoPool,
    writing: Arc<IoPool>,
    spools: Arc<Semaphore>,
    /// Separate, since the frequent reads of the log say nothing about the health of records.
    logging: IoPool,
    refused: AtomicU64,
}

impl Directory {
    /// Opens a shared directory. I/O runs on the blocking threads of `handle`.
    ///
    /// # Errors
    ///
    /// [`DirectoryError`] if the directory is unusable, or writable by other users.
    pub fn open(settings: DirectorySettings, handle: &Handle) -> Result<Arc<Self>, DirectoryError> {
        let pool = |work, places, deadline| {
            IoPool::new(
                handle,
                places,
                deadline,
                PoolHealth::new(work, settings.pause),
            )
        };
        Ok(Arc::new(Self {
            claims: Arc::default(),
            awaited: Mutex::default(),
            reading: pool("reading", READS, settings.read_deadline),
            writing: Arc::new(pool("writing", WRITES, settings.write_deadline)),
            spools: Arc::new(Semaphore::new(settings.spools)),
            logging: pool("the purge log", 1, settings.write_deadline),
            refused: AtomicU64::new(0),
            shared: Arc::new(DirectoryState {
                place: HomeFolder::open(&settings.directory)?,
                room: CapacityLimit::new(settings.capacity),
                corrupt: AtomicU64::new(0),
                settings,
            }),
        }))
    }

    /// Ends a claim after `first` has run under the lock of its folder.
    async fn end_claim(
        &self,
        id: EntryId,
        token: Token,
        first: impl FnOnce(&LockedFolder<'_>, &ClaimFile) -> Result<(), DiskFailure> + Send + 'static,
    ) -> Result<(), TierError> {
        let Some(held) = self.claims.take(id, token) else {
            return Ok(());
        };
        let shared = Arc::clone(&self.shared);
        let job = move || {
            let Some(folder) = RecordFolder::open(&*shared.place.home()?, id)? else {
                return Ok(());
            };
            let locked = folder.lock()?;
            let recorded = first(&locked, &held);
            held.end(&locked)?;
            recorded
        };
        self.writing.run_minor(job).await
    }

    /// Remembers the claim that callers wait for, if any.
    fn set_awaited(&self, id: EntryId, claim: Option<ClaimTimestamp>) {
        let mut awaited = self.awaited.lock();
        match claim {
            Some(claim) if awaited.len() < MAX_AWAITED || awaited.contains_key(&id) => {
                awaited.insert(id, claim);
            }
            // Most are no longer awaited. A caller whose claim is forgotten takes its turn as before.
            Some(_) => awaited.clear(),
            None => {
                awaited.remove(&id);
            }
        }
    }

    fn keep(&self, id: EntryId, held: ClaimFile) -> Result<Token, TierError> {
        let kept = self.claims.keep(id, held);
        kept.ok_or_else(|| TierError::Failed("too many concurrent claims".into()))
    }
}

impl Tier for Directory {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn get(&self, id: EntryId) -> TierFuture<'_, Option<Entry>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(self.reading.run(move || shared.read(id)))
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(async move {
            if entry.body.len() > self.shared.settings.max_object {
                self.refused.fetch_add(1, Ordering::Relaxed);
                return Ok(PutOutcome::Refused);
            }
            let Ok(claim) = token.map(|token| self.claims.get(id, token)).transpose() else {
                return Ok(PutOutcome::Superseded);
            };
            let wanted = StoreRequest {
                id,
                entry,
                expires: self.shared.kept_until(expires),
                claim,
            };
            let shared = Arc::clone(&self.shared);
            let put = self.writing.run(move || shared.put(&wanted)).await;
            if let (Ok(_), Some(token)) = (&put, token) {
                // Stored or superseded, the claim is of no further use.
                self.claims.take(id, token);
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
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(async move {
            let Ok(claim) = token.map(|token| self.claims.get(id, token)).transpose() else {
                return Ok(PutOutcome::Superseded);
            };
            let shared = Arc::clone(&self.shared);
            let expires = self.shared.kept_until(expires);
            let job = move || shared.renew(id, &from, &head, expires, claim.as_deref());
            let put = self.writing.run(job).await;
            if let (Ok(PutOutcome::Stored), Some(token)) = (&put, token) {
                self.claims.take(id, token);
            }
            put
        })
    }

    fn remove(&self, id: EntryId) -> TierFuture<'_, ()> {
        let shared = Arc::clone(&self.shared);
        Box::pin(self.writing.run_minor(move || shared.remove(id)))
    }

    fn stats(&self) -> TierStats {
        let shared = &self.shared;
        let pools = [&self.reading, &self.writing, &self.logging];
        let reports = pools.iter().filter_map(|it| it.health.report());
        let place = shared.settings.directory.display();
        TierStats {
            bytes: shared.room.known(),
            capacity: Some(shared.settings.capacity),
            evicted: shared.room.evicted(),
            refused: self.refused.load(Ordering::Relaxed),
            corrupt: shared.corrupt.load(Ordering::Relaxed),
            degraded: reports.map(|report| format!("{place}: {report}")).collect(),
            ..TierStats::default()
        }
    }
}

impl SharedTier for Directory {
    fn is_on_this_machine(&self) -> bool {
        true
    }

    fn get_or_claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, GetOutcome> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let awaited = self.awaited.lock().get(&id).copied();
            let job = move || shared.look_or_claim(id, hold, awaited);
            // A claim won after the deadline is released with the job's result, which is dropped.
            let outcome = self.reading.run(job).await?;
            let held_elsewhere = match &outcome {
                LookupOutcome::HeldElsewhere(claim) => Some(*claim),
                _ => None,
            };
            if held_elsewhere != awaited {
                self.set_awaited(id, held_elsewhere);
            }
            Ok(match outcome {
                LookupOutcome::Entry(entry) => GetOutcome::Entry(entry),
                LookupOutcome::HeldElsewhere(_) => GetOutcome::Missing(Claim::HeldElsewhere),
                LookupOutcome::Unstorable => GetOutcome::Missing(Claim::Unstorable),
                LookupOutcome::Claimed(claim) => {
                    GetOutcome::Missing(Claim::Granted(self.keep(id, claim)?))
                }
            })
        })
    }

    fn head(&self, id: EntryId) -> TierFuture<'_, Option<Bytes>> {
        Box::pin(async move { Ok(self.get(id).await?.map(|entry| entry.head)) })
    }

    fn claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, Claim> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let claimed = self.reading.run(move || shared.claim(id, hold)).await?;
            Ok(match claimed {
                ClaimOutcome::HeldElsewhere(_) => Claim::HeldElsewhere,
                ClaimOutcome::Granted(claim) => Claim::Granted(self.keep(id, claim)?),
            })
        })
    }

    fn release(&self, id: EntryId, token: Token) -> TierFuture<'_, ()> {
        Box::pin(self.end_claim(id, token, |_, _| Ok(())))
    }

    fn release_unstorable(&self, id: EntryId, token: Token) -> TierFuture<'_, ()> {
        Box::pin(self.end_claim(id, token, move |locked, held| {
            unstorable_claims::record(locked, id, held.timestamp)
        }))
    }

    fn largest(&self) -> u64 {
        self.shared.settings.max_object
    }

    fn spool(&self, id: EntryId, token: Token) -> Option<Box<dyn Spool>> {
        let place = Arc::clone(&self.spools).try_acquire_owned().ok()?;
        let claim = (Arc::clone(&self.claims), id, token);
        let (shared, writing) = (Arc::clone(&self.shared), Arc::clone(&self.writing));
        Some(Box::new(DirectorySpool::new(shared, writing, claim, place)))
    }

    fn append_to_log(
        &self,
        _copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> TierFuture<'_, ()> {
        let shared = Arc::clone(&self.shared);
        let job = move || log::append(&*shared.place.home()?, &records, &beginning);
        Box::pin(self.logging.run(job))
    }

    fn read_log(&self, _copy: usize, after: u64, beginning: Bytes) -> TierFuture<'_, LogPage> {
        let shared = Arc::clone(&self.shared);
        let job = move || log::read(&*shared.place.home()?, after, &beginning);
        Box::pin(self.logging.run(job))
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Directory")
            .field("directory", &self.shared.settings.directory)
            .finish_non_exhaustive()
    }
}
