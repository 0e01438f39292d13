//! A tier for tests: it keeps records in memory, and does what it is asked when the test lets it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::content::Content;
use crate::tier::{
    BoxFuture, Claim, Entry, EntryId, Got, JournalRecords, Listed, Listing, LocalTier, LogPage,
    Page, Put, SharedTier, Spool, Tier, TierError, TierStats, Token, count_in_log, in_log,
};

/// The tier, as a disk or as one that is shared.
#[derive(Clone, Debug)]
pub struct ScriptedTier {
    /// A permit for each piece of a large body that may be written. Closed, they fail.
    pub writes: Arc<Semaphore>,
    /// A permit for each large body that may get its name.
    pub names: Arc<Semaphore>,
    /// What concerns these needs a permit for each operation.
    hanging: Arc<HashMap<EntryId, Semaphore>>,
    begun: Arc<Mutex<Vec<Did>>>,
    records: Arc<Mutex<HashMap<EntryId, (Entry, Duration)>>>,
    log: Arc<Mutex<Vec<Bytes>>>,
}

/// What it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// To keep a record.
    Put(EntryId),
    /// To give a record another head.
    Renew(EntryId),
    /// To forget a record.
    Remove(EntryId),
    /// To take a claim back.
    Release(EntryId, Token),
}

impl ScriptedTier {
    /// It lets so many pieces of large bodies be written, and so many of them get their names.
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

    /// It does nothing about these until it is let.
    pub fn hanging(ids: impl IntoIterator<Item = EntryId>) -> Self {
        let ids = ids.into_iter().map(|id| (id, Semaphore::new(0)));
        Self {
            hanging: Arc::new(ids.collect()),
            ..Self::new(0, 0)
        }
    }

    /// Lets it do so much about one of them.
    pub fn let_go_on(&self, id: EntryId, operations: usize) {
        self.hanging[&id].add_permits(operations);
    }

    /// What it was asked for, in order.
    pub fn begun(&self) -> Vec<Did> {
        self.begun.lock().clone()
    }

    /// What it keeps under an id, and for how long.
    pub fn record(&self, id: EntryId) -> Option<(Entry, Duration)> {
        self.records.lock().get(&id).cloned()
    }

    /// How many records it keeps.
    pub fn len(&self) -> usize {
        self.records.lock().len()
    }

    /// Whether it keeps nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    async fn turn(&self, did: Did, id: EntryId) {
        self.begun.lock().push(did);
        if let Some(hanging) = self.hanging.get(&id) {
            pass(hanging).await;
        }
    }

    fn is_removed(&self, id: EntryId) -> bool {
        self.begun.lock().contains(&Did::Remove(id))
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

    fn get(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Entry>, TierError>> {
        let found = self.record(id).map(|(entry, _)| entry);
        Box::pin(async { Ok(found) })
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(async move {
            self.turn(Did::Put(id), id).await;
            self.records.lock().insert(id, (entry, expires));
            Ok(Put::Stored)
        })
    }

    fn renew(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(async move {
            self.turn(Did::Renew(id), id).await;
            let mut records = self.records.lock();
            let record = records.get_mut(&id);
            let Some(record) = record.filter(|(now, _)| now.head == from) else {
                return Ok(Put::Superseded);
            };
            record.0.head = head;
            record.1 = expires;
            Ok(Put::Stored)
        })
    }

    fn remove(&self, id: EntryId) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async move {
            self.turn(Did::Remove(id), id).await;
            self.records.lock().remove(&id);
            Ok(())
        })
    }

    fn stats(&self) -> TierStats {
        TierStats::default()
    }
}

/// Every claim is granted.
impl SharedTier for ScriptedTier {
    fn get_or_claim(&self, id: EntryId, _: Duration) -> BoxFuture<'_, Result<Got, TierError>> {
        let found = self.record(id).map(|(entry, _)| Got::Entry(entry));
        Box::pin(async { Ok(found.unwrap_or(Got::Missing(Claim::Mine(Token(1))))) })
    }

    fn head(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Bytes>, TierError>> {
        let found = self.record(id).map(|(entry, _)| entry.head);
        Box::pin(async { Ok(found) })
    }

    fn claim(&self, _: EntryId, _: Duration) -> BoxFuture<'_, Result<Claim, TierError>> {
        Box::pin(async { Ok(Claim::Mine(Token(1))) })
    }

    fn release(&self, id: EntryId, token: Token) -> BoxFuture<'_, Result<(), TierError>> {
        self.begun.lock().push(Did::Release(id, token));
        Box::pin(async { Ok(()) })
    }

    fn put_claimed(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        _: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        self.put(id, entry, expires)
    }

    fn renew_claimed(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
        _: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        self.renew(id, from, head, expires)
    }

    fn page(&self, _: &[u8], _: &[u8]) -> Option<BoxFuture<'_, Result<Option<Page>, TierError>>> {
        None
    }

    fn append_to_log(
        &self,
        _copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> BoxFuture<'_, Result<(), TierError>> {
        let mut log = self.log.lock();
        if log.is_empty() {
            log.push(beginning);
        }
        log.extend(records);
        Box::pin(async { Ok(()) })
    }

    fn read_log(
        &self,
        copy: usize,
        after: u64,
        beginning: Bytes,
    ) -> BoxFuture<'_, Result<LogPage, TierError>> {
        Box::pin(async move {
            self.append_to_log(copy, Vec::new(), beginning).await?;
            let log = self.log.lock();
            // It is never lost: there is one.
            let all = (in_log(1, 1)..).zip(log.iter().cloned());
            Ok(LogPage {
                records: all.skip(count_in_log(after) as usize).collect(),
                is_gapless: after > 0,
                ..LogPage::default()
            })
        })
    }
}

/// It has nothing at hand, and neither list nor journal.
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

    fn list(&self, _: Option<EntryId>, _: usize) -> BoxFuture<'_, Result<Listing, TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn remove_listed<'a>(&'a self, _: &'a Listed) -> BoxFuture<'a, Result<bool, TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn load_journal(&self) -> BoxFuture<'_, Result<JournalRecords, TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn append_to_journal(&self, _: Vec<Bytes>) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }

    fn replace_journal(&self, _: Vec<Bytes>) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async { Err(TierError::Down) })
    }
}

struct ScriptedSpool(ScriptedTier, Vec<u8>);

impl Spool for ScriptedSpool {
    fn write(&mut self, chunk: Bytes) -> BoxFuture<'_, Result<(), TierError>> {
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
    ) -> BoxFuture<'static, Result<Content, TierError>> {
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
