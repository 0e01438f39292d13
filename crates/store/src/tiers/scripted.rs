//! Scripted tier for tests: stores records in memory, and performs operations when the test permits them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::content::Content;
use crate::tier::{
    Claim, Entry, EntryId, GetOutcome, JournalRecords, ListEntry, Listing, LocalTier, LogPage,
    PutOutcome, SharedTier, Spool, Tier, TierError, TierFuture, TierStats, Token, count_in_log,
    in_log,
};

/// Scripted tier, usable as a local or as a shared one.
#[derive(Clone, Debug)]
pub struct ScriptedTier {
    /// Permits for writing pieces of spooled bodies; closed, the writes fail.
    pub writes: Arc<Semaphore>,
    /// Permits for finishing spooled bodies.
    pub names: Arc<Semaphore>,
    /// Permits for operations on these ids; others need none.
    hanging: Arc<HashMap<EntryId, Semaphore>>,
    begun: Arc<Mutex<Vec<ScriptedOperation>>>,
    records: Arc<Mutex<HashMap<EntryId, (Entry, Duration)>>>,
    log: Arc<Mutex<Vec<Bytes>>>,
}

/// Recorded operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScriptedOperation {
    /// Store of a record.
    Put(EntryId),
    /// Renewal of a head.
    Renew(EntryId),
    /// Removal of a record.
    Remove(EntryId),
    /// Release of a claim.
    Release(EntryId, Token),
}

impl ScriptedTier {
    /// Creates a tier with this many permits for writes and finishes.
    pub fn new(writes: usize, names: usize) -> Self {
        Self {
            writes: Arc::new(Semaphore::new(writes)),
            names: Arc::new(Semaphore::new(names)),
            hanging: Arc::default(),
            begun: Arc::default(),
            records: Arc::default(),
            log: Arc::default(),
        }
    }

    /// Creates a tier in which operations on these ids hang.
    pub fn hanging(ids: impl IntoIterator<Item = EntryId>) -> Self {
        let ids = ids.into_iter().map(|id| (id, Semaphore::new(0)));
        Self {
            hanging: Arc::new(ids.collect()),
            ..Self::new(0, 0)
        }
    }

    /// Permits a number of operations on a hanging id.
    pub fn permit(&self, id: EntryId, operations: usize) {
        self.hanging[&id].add_permits(operations);
    }

    /// Returns the recorded operations, in order.
    pub fn begun(&self) -> Vec<ScriptedOperation> {
        self.begun.lock().clone()
    }

    /// Returns a record with its lifetime.
    pub fn record(&self, id: EntryId) -> Option<(Entry, Duration)> {
        self.records.lock().get(&id).cloned()
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.lock().len()
    }

    /// Returns whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    async fn turn(&self, did: ScriptedOperation, id: EntryId) {
        self.begun.lock().push(did);
        if let Some(hanging) = self.hanging.get(&id) {
            pass(hanging).await;
        }
    }

    fn is_removed(&self, id: EntryId) -> bool {
        self.begun.lock().contains(&ScriptedOperation::Remove(id))
    }
}

async fn pass(permits: &Semaphore) -> bool {
    let permit = permits.acquire().await;
    permit.map(SemaphorePermit::forget).is_ok()
}

impl Tier for ScriptedTier {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn get(&self, id: EntryId) -> TierFuture<'_, Option<Entry>> {
        let found = self.record(id).map(|(entry, _)| entry);
        Box::pin(async { Ok(found) })
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        _: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(async move {
            self.turn(ScriptedOperation::Put(id), id).await;
            self.records.lock().insert(id, (entry, expires));
            Ok(PutOutcome::Stored)
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
        Box::pin(async move {
            self.turn(ScriptedOperation::Renew(id), id).await;
            let mut records = self.records.lock();
            let record = records.get_mut(&id);
            let Some(record) = record.filter(|(now, _)| now.head == from) else {
                return Ok(PutOutcome::Superseded);
            };
            record.0.head = head;
            record.1 = expires;
            Ok(PutOutcome::Stored)
        })
    }

    fn remove(&self, id: EntryId) -> TierFuture<'_, ()> {
        Box::pin(async move {
            self.turn(ScriptedOperation::Remove(id), id).await;
            self.records.lock().remove(&id);
            Ok(())
        })
    }

    fn stats(&self) -> TierStats {
        TierStats::default()
    }
}

/// Grants every claim.
impl SharedTier for ScriptedTier {
    fn get_or_claim(&self, id: EntryId, _: Duration) -> TierFuture<'_, GetOutcome> {
        let found = self.record(id).map(|(entry, _)| GetOutcome::Entry(entry));
        Box::pin(async { Ok(found.unwrap_or(GetOutcome::Missing(Claim::Granted(Token(1))))) })
    }

    fn head(&self, id: EntryId) -> TierFuture<'_, Option<Bytes>> {
        let found = self.record(id).map(|(entry, _)| entry.head);
        Box::pin(async { Ok(found) })
    }

    fn claim(&self, _: EntryId, _: Duration) -> TierFuture<'_, Claim> {
        Box::pin(async { Ok(Claim::Granted(Token(1))) })
    }

    fn release(&self, id: EntryId, token: Token) -> TierFuture<'_, ()> {
        self.begun
            .lock()
            .push(ScriptedOperation::Release(id, token));
        Box::pin(async { Ok(()) })
    }

    fn append_to_log(
        &self,
        _copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> TierFuture<'_, ()> {
        let mut log = self.log.lock();
        if log.is_empty() {
            log.push(beginning);
        }
        log.extend(records);
        Box::pin(async { Ok(()) })
    }

    fn read_log(&self, copy: usize, after: u64, beginning: Bytes) -> TierFuture<'_, LogPage> {
        Box::pin(async move {
            self.append_to_log(copy, Vec::new(), beginning).await?;
            let log = self.log.lock();
            // The log is never lost, so there is only one.
            let all = (in_log(1, 1)..).zip(log.iter().cloned());
            Ok(LogPage {
                records: all.skip(count_in_log(after) as usize).collect(),
                is_gapless: after > 0,
                ..LogPage::default()
            })
        })
    }
}

/// Non-blocking reads, listing and journal are unsupported.
impl LocalTier for ScriptedTier {
    fn try_get(&self, _: EntryId) -> Option<Entry> {
        None
    }

    fn largest(&self) -> u64 {
        u64::MAX
    }

    fn spool(&self) -> Option<Box<dyn Spool>> {
        Some(Box::new(ScriptedSpool(self.clone(), Vec::new())))
    }

    fn list(&self, _: Option<EntryId>, _: usize) -> TierFuture<'_, Listing> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn remove_listed<'a>(&'a self, _: &'a ListEntry) -> TierFuture<'a, bool> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn load_journal(&self) -> TierFuture<'_, JournalRecords> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn append_to_journal(&self, _: Vec<Bytes>) -> TierFuture<'_, ()> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn replace_journal(&self, _: Vec<Bytes>) -> TierFuture<'_, ()> {
        Box::pin(async { Err(TierError::Down) })
    }
}

struct ScriptedSpool(ScriptedTier, Vec<u8>);

impl Spool for ScriptedSpool {
    fn write(&mut self, chunk: Bytes) -> TierFuture<'_, ()> {
        Box::pin(async move {
            if !pass(&self.0.writes).await {
                return Err(TierError::Failed("no space".into()));
            }
            self.1.extend_from_slice(&chunk);
            Ok(())
        })
    }

    fn finish(
        self: Box<Self>,
        id: EntryId,
        head: Bytes,
        expires: Duration,
    ) -> TierFuture<'static, Content> {
        Box::pin(async move {
            let Self(tier, written) = *self;
            pass(&tier.names).await;
            if tier.is_removed(id) {
                return Err(TierError::Failed("removed meanwhile".into()));
            }
            let body = Content::Bytes(written.into());
            let entry = Entry {
                head,
                body: body.clone(),
            };
            tier.records.lock().insert(id, (entry, expires));
            Ok(body)
        })
    }
}
