//! A directory that processes share: one file for each record, and no process that has to be running.
//!
//! It is made for many short processes, such as commands in scripts. The disk tier ([`crate::disk`]) belongs to
//! one long process, which has an index in memory; here the directory itself is the index.
//!
//! - A record gets its name when it is complete, and is never changed: to read takes no lock.
//! - Whoever gives or takes names in a folder has the folder's lock meanwhile ([`folder`]).
//! - Whoever asks the origin holds the lock of a file beside the record ([`claims`]). The system lets go of it when
//!   the process ends, however it ends. That it was in vain is told to those who waited ([`in_vain`]).
//! - How much there is stands in a small file; when it is too much, what was used least recently goes ([`room`]).
//! - A body too large for memory is written while it arrives ([`spool`]), and read from its file.
//! - Purges of more than one url are told in another one ([`log`]).
//!
//! A directory that is full, read-only, or gone costs requests nothing but what would have been found there.

mod claims;
mod folder;
mod in_vain;
mod log;
mod place;
mod record;
mod room;
mod spool;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

use self::claims::{Attempt, Claims, Held, Mark};
use self::folder::{Folder, Locked};
pub use self::place::DirectoryError;
use self::place::Place;
use self::record::{Bounds, Draft, Growing};
use self::room::Room;
use self::spool::DirectorySpool;
use crate::content::Content;
use crate::disk::DiskFailure;
use crate::disk::crew::Crew;
use crate::disk::expiry;
use crate::disk::health::Health;
use crate::tier::{
    BoxFuture, Claim, Entry, EntryId, Got, LogPage, Page, Put, SharedTier, Spool, Tier, TierError,
    TierStats, Token,
};

/// How many reads may go on at once, and how many of everything else.
const READS: usize = 16;
const WRITES: usize = 4;
/// How many claims of others are remembered for callers who wait for them.
const MAX_AWAITED: usize = 1024;

/// Where, and how much.
#[derive(Clone, Debug)]
pub struct DirectorySettings {
    /// The directory. It is made if it is missing.
    pub directory: PathBuf,
    /// What all records take together, in bytes, counted in blocks of 4 KiB.
    pub capacity: u64,
    /// The largest body that is kept.
    pub max_object: u64,
    /// Bodies up to this size are read into memory; larger ones stay in their files.
    pub in_memory: u64,
    /// How many bodies may be written at a time while they arrive.
    pub spools: usize,
    /// Records are kept for so much longer than whoever puts them needs them, while there is room: who is offline
    /// may take what is stale, and who is not may have it confirmed.
    pub keep_longer: Duration,
    /// How long a look may take, with the wait for its turn.
    pub read_deadline: Duration,
    /// How long a write or a removal may take.
    pub write_deadline: Duration,
    /// When nothing works, how long until it is tried again.
    pub pause: Duration,
}

impl DirectorySettings {
    /// So much in this directory, and everything else as usual.
    pub fn new(directory: impl Into<PathBuf>, capacity: u64) -> Self {
        Self {
            directory: directory.into(),
            capacity,
            max_object: capacity / 4,
            in_memory: 8 * 1024 * 1024,
            spools: 16,
            keep_longer: Duration::from_hours(30 * 24),
            read_deadline: Duration::from_secs(2),
            write_deadline: Duration::from_secs(30),
            pause: Duration::from_secs(1),
        }
    }
}

/// The tier.
pub struct Directory {
    shared: Arc<Shared>,
    claims: Arc<Claims>,
    /// The claims of others for which callers here wait.
    awaited: Mutex<HashMap<EntryId, Mark>>,
    reading: Crew,
    writing: Arc<Crew>,
    spools: Arc<Semaphore>,
    /// It is read all the time, which says nothing of how it stands with the records.
    logging: Crew,
    refused: AtomicU64,
}

/// What jobs need.
struct Shared {
    place: Place,
    room: Room,
    settings: DirectorySettings,
    corrupt: AtomicU64,
}

/// What is to be stored.
struct Wanted {
    id: EntryId,
    entry: Entry,
    expires: u64,
    claim: Option<Arc<Held>>,
}

/// What a look came to that may end in a claim.
enum Looked {
    Entry(Entry),
    Claimed(Held),
    Theirs(Mark),
    /// The claim that was waited for ended because of what cannot be stored.
    Unstorable,
}

impl Directory {
    /// Takes a directory into use, beside whoever else does. What is done there is done by `handle`'s threads for
    /// blocking work.
    pub fn open(settings: DirectorySettings, handle: &Handle) -> Result<Arc<Self>, DirectoryError> {
        let crew = |work, places, deadline| {
            Crew::new(handle, places, deadline, Health::new(work, settings.pause))
        };
        Ok(Arc::new(Self {
            claims: Arc::default(),
            awaited: Mutex::default(),
            reading: crew("reading", READS, settings.read_deadline),
            writing: Arc::new(crew("writing", WRITES, settings.write_deadline)),
            spools: Arc::new(Semaphore::new(settings.spools)),
            logging: crew("the log of purges", 1, settings.write_deadline),
            refused: AtomicU64::new(0),
            shared: Arc::new(Shared {
                place: Place::open(&settings.directory)?,
                room: Room::new(settings.capacity),
                corrupt: AtomicU64::new(0),
                settings,
            }),
        }))
    }

    async fn store(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> Result<Put, TierError> {
        if entry.body.len() > self.shared.settings.max_object {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Ok(Put::Refused);
        }
        let Ok(claim) = token.map(|token| self.claims.get(id, token)).transpose() else {
            return Ok(Put::Superseded);
        };
        let wanted = Wanted {
            id,
            entry,
            expires: self.shared.kept_until(expires),
            claim,
        };
        let shared = Arc::clone(&self.shared);
        let put = self.writing.run(move || shared.put(&wanted)).await;
        if let (Ok(_), Some(token)) = (&put, token) {
            // Stored or superseded, nobody comes back to it.
            self.claims.take(id, token);
        }
        put
    }

    async fn renew(
        &self,
        id: EntryId,
        (from, head): (Bytes, Bytes),
        expires: Duration,
        token: Option<Token>,
    ) -> Result<Put, TierError> {
        let Ok(claim) = token.map(|token| self.claims.get(id, token)).transpose() else {
            return Ok(Put::Superseded);
        };
        let shared = Arc::clone(&self.shared);
        let expires = self.shared.kept_until(expires);
        let job = move || shared.renew(id, &from, &head, expires, claim.as_deref());
        let put = self.writing.run(job).await;
        if let (Ok(Put::Stored), Some(token)) = (&put, token) {
            self.claims.take(id, token);
        }
        put
    }

    /// Ends a claim, after this was done.
    async fn end_claim(
        &self,
        id: EntryId,
        token: Token,
        first: impl FnOnce(&Locked<'_>, &Held) -> Result<(), DiskFailure> + Send + 'static,
    ) -> Result<(), TierError> {
        let Some(held) = self.claims.take(id, token) else {
            return Ok(());
        };
        let shared = Arc::clone(&self.shared);
        let job = move || {
            let Some(folder) = Folder::open(&*shared.place.home()?, id)? else {
                return Ok(());
            };
            let locked = folder.lock()?;
            let noted = first(&locked, &held);
            held.end(&locked)?;
            noted
        };
        self.writing.run_minor(job).await
    }

    /// Remembers which claim a caller waits for from now on, if any.
    fn waits_for(&self, id: EntryId, claim: Option<Mark>) {
        let mut awaited = self.awaited.lock();
        match claim {
            Some(claim) if awaited.len() < MAX_AWAITED || awaited.contains_key(&id) => {
                awaited.insert(id, claim);
            }
            // Most of them are not waited for any more. Without it, a caller takes its turn as before.
            Some(_) => awaited.clear(),
            None => {
                awaited.remove(&id);
            }
        }
    }

    fn keep(&self, id: EntryId, held: Held) -> Result<Token, TierError> {
        let kept = self.claims.keep(id, held);
        kept.ok_or_else(|| TierError::Failed("too many claims at a time".into()))
    }
}

impl Shared {
    const fn bounds(&self) -> Bounds {
        Bounds {
            object: self.settings.max_object,
            in_memory: self.settings.in_memory,
        }
    }

    fn kept_until(&self, expires: Duration) -> u64 {
        expiry::after(expires.saturating_add(self.settings.keep_longer))
    }

    /// The record of an id. What is none is removed, and nothing is found.
    fn read(&self, id: EntryId) -> Result<Option<Entry>, DiskFailure> {
        let Some(folder) = Folder::open(&*self.place.home()?, id)? else {
            return Ok(None);
        };
        self.read_in(&folder, id)
    }

    fn read_in(&self, folder: &Folder, id: EntryId) -> Result<Option<Entry>, DiskFailure> {
        match record::read(folder, id, self.bounds()) {
            Ok(found) => Ok(found.map(|found| found.entry)),
            Err(DiskFailure::Flaw(_)) => {
                self.corrupt.fetch_add(1, Ordering::Relaxed);
                // Where it cannot be removed, the next one has the same to say of it.
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

    fn look_or_claim(
        &self,
        id: EntryId,
        hold: Duration,
        awaited: Option<Mark>,
    ) -> Result<Looked, DiskFailure> {
        if let Some(entry) = self.read(id)? {
            return Ok(Looked::Entry(entry));
        }
        let folder = Folder::create(&*self.place.home()?, id)?;
        let locked = folder.lock()?;
        if let Some(awaited) = awaited
            && in_vain::ended(&locked, id, awaited)?
        {
            return Ok(Looked::Unstorable);
        }
        let claim = match claims::claim(&locked, id, hold)? {
            Attempt::Ours(claim) => claim,
            Attempt::Theirs(claim) => return Ok(Looked::Theirs(claim)),
        };
        // Whoever had it before may have stored something since the look.
        match record::read(&folder, id, self.bounds()) {
            Ok(Some(found)) => {
                claim.end(&locked)?;
                Ok(Looked::Entry(found.entry))
            }
            Ok(None) | Err(DiskFailure::Flaw(_)) => Ok(Looked::Claimed(claim)),
            Err(failure) => Err(failure),
        }
    }

    fn claim(&self, id: EntryId, hold: Duration) -> Result<Attempt, DiskFailure> {
        let folder = Folder::create(&*self.place.home()?, id)?;
        claims::claim(&folder.lock()?, id, hold)
    }

    fn put(&self, wanted: &Wanted) -> Result<Put, DiskFailure> {
        let home = self.place.home()?;
        let folder = Folder::create(&home, wanted.id)?;
        let is_gone = |claim: &Arc<Held>| !claim.stands(&folder);
        if wanted.claim.as_ref().is_some_and(is_gone) {
            return Ok(Put::Superseded);
        }
        let Some(draft) = self.draft(&home, &folder, wanted.id, &wanted.entry, wanted.expires)?
        else {
            return Ok(Put::Refused);
        };
        publish(draft, &folder.lock()?, wanted.id, wanted.claim.as_deref())
    }

    /// A record that has not got its name yet, if there is room for it.
    fn draft(
        &self,
        home: &OwnedFd,
        folder: &Folder,
        id: EntryId,
        entry: &Entry,
        expires: u64,
    ) -> Result<Option<Draft>, DiskFailure> {
        let has_room = |length| self.room.take(home, length);
        if let Content::Bytes(body) = &entry.body {
            let parts = record::encode(id, &entry.head, body, expires)?;
            if !has_room(record::length(&parts))? {
                return Ok(None);
            }
            return Draft::write(folder, &parts).map(Some);
        }
        let gone = || DiskFailure::Source(io::ErrorKind::NotFound.into());
        let body = entry.body.file().ok_or_else(gone)?;
        if !has_room(record::HEAD_ROOM + body.len())? {
            return Ok(None);
        }
        let mut growing = Growing::begin(folder)?;
        for number in 0..body.blocks() {
            let block = body.read_block(number).inspect_err(|_| body.mark_damaged());
            growing.append(&block.map_err(DiskFailure::Source)?)?;
        }
        let (draft, _) = growing.complete(id, &entry.head, expires)?;
        Ok(Some(draft))
    }

    /// The body is written once more, with the other head: a file is never changed.
    fn renew(
        &self,
        id: EntryId,
        from: &Bytes,
        head: &Bytes,
        expires: u64,
        claim: Option<&Held>,
    ) -> Result<Put, DiskFailure> {
        let home = self.place.home()?;
        let Some(folder) = Folder::open(&home, id)? else {
            return Ok(Put::Superseded);
        };
        let Ok(Some(found)) = record::read(&folder, id, self.bounds()) else {
            return Ok(Put::Superseded);
        };
        if found.entry.head != *from {
            return Ok(Put::Superseded);
        }
        let entry = Entry {
            head: head.clone(),
            body: found.entry.body.clone(),
        };
        let Some(draft) = self.draft(&home, &folder, id, &entry, expires)? else {
            return Ok(Put::Refused);
        };
        let locked = folder.lock()?;
        if !found.is_still_there(&folder, id) {
            return Ok(Put::Superseded);
        }
        publish(draft, &locked, id, claim)
    }

    fn remove(&self, id: EntryId) -> Result<(), DiskFailure> {
        let Some(folder) = Folder::open(&*self.place.home()?, id)? else {
            return Ok(());
        };
        let locked = folder.lock()?;
        locked.remove(&claims::name(id))?;
        locked.remove(&record::name(id))
    }
}

impl Tier for Directory {
    fn name(&self) -> &'static str {
        "directory"
    }

    fn get(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Entry>, TierError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(self.reading.run(move || shared.read(id)))
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(self.store(id, entry, expires, None))
    }

    fn renew(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(self.renew(id, (from, head), expires, None))
    }

    fn remove(&self, id: EntryId) -> BoxFuture<'_, Result<(), TierError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(self.writing.run_minor(move || shared.remove(id)))
    }

    fn stats(&self) -> TierStats {
        let shared = &self.shared;
        let crews = [&self.reading, &self.writing, &self.logging];
        let reports = crews.iter().filter_map(|it| it.health.report());
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

    fn get_or_claim(&self, id: EntryId, hold: Duration) -> BoxFuture<'_, Result<Got, TierError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let awaited = self.awaited.lock().get(&id).copied();
            let job = move || shared.look_or_claim(id, hold, awaited);
            // A claim that comes too late for its deadline ends with the job's answer, which nobody takes.
            let looked = self.reading.run(job).await?;
            let theirs = match &looked {
                Looked::Theirs(claim) => Some(*claim),
                _ => None,
            };
            if theirs != awaited {
                self.waits_for(id, theirs);
            }
            Ok(match looked {
                Looked::Entry(entry) => Got::Entry(entry),
                Looked::Theirs(_) => Got::Missing(Claim::Theirs),
                Looked::Unstorable => Got::Missing(Claim::Unstorable),
                Looked::Claimed(claim) => Got::Missing(Claim::Mine(self.keep(id, claim)?)),
            })
        })
    }

    fn head(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Bytes>, TierError>> {
        Box::pin(async move { Ok(self.get(id).await?.map(|entry| entry.head)) })
    }

    fn claim(&self, id: EntryId, hold: Duration) -> BoxFuture<'_, Result<Claim, TierError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            let claimed = self.reading.run(move || shared.claim(id, hold)).await?;
            Ok(match claimed {
                Attempt::Theirs(_) => Claim::Theirs,
                Attempt::Ours(claim) => Claim::Mine(self.keep(id, claim)?),
            })
        })
    }

    fn release(&self, id: EntryId, token: Token) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(self.end_claim(id, token, |_, _| Ok(())))
    }

    fn release_unstorable(
        &self,
        id: EntryId,
        token: Token,
    ) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(self.end_claim(id, token, move |locked, held| {
            in_vain::note(locked, id, held.mark)
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

    fn put_claimed(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(self.store(id, entry, expires, Some(token)))
    }

    fn renew_claimed(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
        token: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(self.renew(id, (from, head), expires, Some(token)))
    }

    fn page(
        &self,
        _host: &[u8],
        _target: &[u8],
    ) -> Option<BoxFuture<'_, Result<Option<Page>, TierError>>> {
        None
    }

    fn append_to_log(
        &self,
        _copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> BoxFuture<'_, Result<(), TierError>> {
        let shared = Arc::clone(&self.shared);
        let job = move || log::append(&*shared.place.home()?, &records, &beginning);
        Box::pin(self.logging.run(job))
    }

    fn read_log(
        &self,
        _copy: usize,
        after: u64,
        beginning: Bytes,
    ) -> BoxFuture<'_, Result<LogPage, TierError>> {
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

/// Gives a draft its name, if the claim with which it was brought still stands, and ends that. A removal takes away the
/// claim, and has the lock meanwhile: what it means does not come back.
fn publish(
    draft: Draft,
    locked: &Locked<'_>,
    id: EntryId,
    claim: Option<&Held>,
) -> Result<Put, DiskFailure> {
    if claim.is_some_and(|claim| !claim.stands(locked.folder)) {
        return Ok(Put::Superseded);
    }
    draft.publish(locked, id)?;
    if let Some(claim) = claim {
        claim.end(locked)?;
    }
    Ok(Put::Stored)
}
