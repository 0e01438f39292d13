//! Memcached tier: a pool of servers, shared by all processes that are configured with it.
//!
//! A record is one item, on the server selected by libmemcached's ketama ring. A body that does not fit is
//! split into pieces on the same server, so that a lost server only loses its own records. Keys of failed
//! servers move to the next one on the ring; see `docs/decisions/memcached.md`.

mod claims;
mod connection;
mod health;
mod keys;
mod link;
mod log;
mod pages;
mod pending_claims;
mod pieces;
mod probe;
pub mod protocol;
mod record;
mod record_item;
mod ring;
mod server;
pub mod settings;
mod time;
pub mod value;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::runtime::Handle;

use crate::content::{Content, FileBody};
use crate::tier::{
    ApplicationPage, BoxFuture, Claim, Entry, EntryId, GetOutcome, LogPage, PutOutcome, SharedTier,
    Tier, TierError, TierFuture, TierStats, Token,
};
use crate::tier_clock::TierClock;
use claims::ClaimGrant;
pub use link::{ServerLink, SimulatedConnect};
use log::{LogCopy, LogCopyHandle};
pub use pages::{ApplicationPages, InvalidPageKey, PageKey};
use protocol::{MetaRequest, MetaResponse};
use record_item::RecordItem;
use ring::KetamaRing;
use server::{ConnectionLane, PoolServer};
pub use settings::{
    InvalidAddress, InvalidSettings, LostServerPolicy, MemcachedSettings, ServerAddress,
};

/// Default item size limit of memcached. Items up to this size are accepted even if smaller ones are
/// written, since other nodes may be configured differently.
const USUAL_MAX_ITEM: usize = 1024 * 1024;

/// Pool of memcached servers.
#[derive(Debug)]
pub struct Memcached {
    servers: Vec<PoolServer>,
    ring: KetamaRing,
    when_lost: LostServerPolicy,
    max_item: usize,
    max_object: u64,
    pages: Option<ApplicationPages>,
    clock: Arc<TierClock>,
    /// Runtime for blocking file reads.
    handle: Handle,
    refused: AtomicU64,
    corrupt: AtomicU64,
    log: Vec<LogCopy>,
}

impl Memcached {
    /// Starts a pool; its tasks run on `handle`. An unreachable server is not an error: it is out of
    /// service until it responds.
    ///
    /// # Errors
    ///
    /// [`InvalidSettings`] for unusable settings.
    pub fn start(
        settings: MemcachedSettings,
        handle: &Handle,
    ) -> Result<Arc<Self>, InvalidSettings> {
        settings.check()?;
        let max_value = settings.max_item.max(USUAL_MAX_ITEM);
        let ring = KetamaRing::new(&settings.servers);
        let log = log::copies(&ring);
        let start = |(index, address): (usize, &ServerAddress)| {
            let log = log.iter().position(|copy| copy.is_on(index));
            PoolServer::start(address.clone(), max_value, &settings, log, handle)
        };
        Ok(Arc::new(Self {
            servers: settings.servers.iter().enumerate().map(start).collect(),
            log,
            ring,
            when_lost: settings.when_lost,
            max_item: settings.max_item,
            max_object: settings.max_object,
            pages: settings.pages,
            clock: settings.clock,
            handle: handle.clone(),
            refused: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        }))
    }

    /// Returns the body stored by an application under its own key. Values with client flags are ignored,
    /// since a client has compressed or serialized them.
    async fn body_at(&self, key: &str) -> Result<Option<Bytes>, TierError> {
        let (_, server) = self.server_of(key).ok_or(TierError::Down)?;
        let lane = ConnectionLane::of(EntryId::of(key.as_bytes()));
        Ok(
            match server
                .request(lane, MetaRequest::default().get(key, None))
                .await?
            {
                MetaResponse::Done(item) if item.client_flags == 0 && !item.value.is_empty() => {
                    Some(item.value)
                }
                _ => None,
            },
        )
    }

    fn log_copy(&self, copy: usize) -> Result<LogCopyHandle<'_>, TierError> {
        let copy = self.log.get(copy).ok_or(TierError::Down)?;
        Ok(copy.on(&self.servers))
    }

    fn server_of(&self, key: &str) -> Option<(usize, &PoolServer)> {
        let in_service = |index: usize| self.servers[index].is_in_service();
        let index = match self.when_lost {
            LostServerPolicy::NextServer => self.ring.find(key.as_bytes(), in_service),
            LostServerPolicy::Miss => {
                let index = self.ring.find(key.as_bytes(), |_| true);
                index.filter(|&index| in_service(index))
            }
        }?;
        Some((index, &self.servers[index]))
    }

    /// Returns the location of a record.
    fn record(&self, id: EntryId) -> Result<RecordItem<'_>, TierError> {
        let key = keys::record(id);
        let (index, server) = self.server_of(&key).ok_or(TierError::Down)?;
        Ok(self.record_at(id, index, server))
    }

    fn record_at<'a>(&self, id: EntryId, index: usize, server: &'a PoolServer) -> RecordItem<'a> {
        RecordItem {
            id,
            server,
            index,
            max_item: self.max_item,
            max_object: self.max_object,
        }
    }

    async fn store(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        grant: Option<ClaimGrant>,
    ) -> Result<PutOutcome, TierError> {
        let record = self.record(id)?;
        if let Some(grant) = grant.filter(|grant| grant.server != record.index) {
            // The granting server was lost or has returned. Its claim is released, since nothing will be
            // stored there.
            let giver = &self.servers[grant.server];
            let _ = self.record_at(id, grant.server, giver).release(grant).await;
            return Ok(PutOutcome::Superseded);
        }
        if entry.body.len() > self.max_object {
            return Ok(PutOutcome::Refused);
        }
        let body = self.in_memory(entry.body).await?;
        record.put(entry.head, body, expires, grant).await
    }

    /// Counts corrupt records.
    fn count_corrupt<T>(&self, got: Result<T, TierError>) -> Result<T, TierError> {
        if matches!(got, Err(TierError::Corrupt(_))) {
            self.corrupt.fetch_add(1, Ordering::Relaxed);
        }
        got
    }

    async fn in_memory(&self, body: Content) -> Result<Bytes, TierError> {
        let file = match (body.file(), body) {
            (_, Content::Bytes(bytes)) => return Ok(bytes),
            (Some(file), _) => file,
            (None, _) => return Err(TierError::Failed("the file of the body is closed".into())),
        };
        let read = self.handle.spawn_blocking(move || read_file(&file)).await;
        let read = read.map_err(|error| TierError::Failed(error.to_string()))?;
        read.map_err(|error| TierError::Failed(error.to_string()))
    }
}

impl Tier for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn get(&self, id: EntryId) -> TierFuture<'_, Option<Entry>> {
        Box::pin(async move { self.count_corrupt(self.record(id)?.get().await) })
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        let grant = token.map(ClaimGrant::from);
        Box::pin(async move {
            let put = self.store(id, entry, expires, grant).await;
            if put == Ok(PutOutcome::Refused) {
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
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        let grant = token.map(ClaimGrant::from);
        Box::pin(async move { self.record(id)?.renew(&from, head, expires, grant).await })
    }

    /// Removes from all servers, since a record may have been stored elsewhere during an outage. An
    /// undelivered removal is queued, and its server stays out of service until it is delivered.
    fn remove(&self, id: EntryId) -> TierFuture<'_, ()> {
        Box::pin(async move {
            let mut removals: Vec<BoxFuture<'_, ()>> = Vec::with_capacity(self.servers.len());
            for server in &self.servers {
                removals.push(Box::pin(server.remove(id)));
            }
            join_all(removals).await;
            Ok(())
        })
    }

    fn stats(&self) -> TierStats {
        let mut stats = TierStats {
            refused: self.refused.load(Ordering::Relaxed),
            corrupt: self.corrupt.load(Ordering::Relaxed),
            advice: Vec::from_iter(self.clock.advice()),
            ..TierStats::default()
        };
        for server in &self.servers {
            let (report, why) = server.describe();
            stats.degraded.extend(why);
            if let Some(report) = report {
                *stats.entries.get_or_insert(0) += report.items;
                *stats.bytes.get_or_insert(0) += report.bytes;
                stats.evicted += report.evicted;
            }
        }
        stats
    }
}

impl SharedTier for Memcached {
    fn get_or_claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, GetOutcome> {
        Box::pin(async move { self.count_corrupt(self.record(id)?.get_or_claim(hold).await) })
    }

    fn head(&self, id: EntryId) -> TierFuture<'_, Option<Bytes>> {
        Box::pin(async move { self.record(id)?.head().await })
    }

    fn claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, Claim> {
        Box::pin(async move { self.record(id)?.claim(hold).await })
    }

    fn release(&self, id: EntryId, token: Token) -> TierFuture<'_, ()> {
        Box::pin(async move {
            let grant = ClaimGrant::from(token);
            let server = self.servers.get(grant.server).ok_or(TierError::Down)?;
            let record = self.record_at(id, grant.server, server);
            record.release(grant).await
        })
    }

    fn clock(&self) -> Option<&TierClock> {
        Some(&self.clock)
    }

    fn page(&self, host: &[u8], target: &[u8]) -> Option<TierFuture<'_, Option<ApplicationPage>>> {
        let pages = self.pages.as_ref()?;
        let key = pages.key.build(host, target)?;
        let content_type = pages.content_type(target).to_owned();
        Some(Box::pin(async move {
            let body = self.body_at(&key).await?;
            Ok(body.map(|body| ApplicationPage { body, content_type }))
        }))
    }

    fn log_copies(&self) -> usize {
        self.log.len()
    }

    fn append_to_log(
        &self,
        copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> TierFuture<'_, ()> {
        Box::pin(async move { self.log_copy(copy)?.append(records, beginning).await })
    }

    fn read_log(&self, copy: usize, after: u64, beginning: Bytes) -> TierFuture<'_, LogPage> {
        Box::pin(async move { self.log_copy(copy)?.read(after, beginning).await })
    }
}

fn read_file(file: &FileBody) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(file.len() as usize);
    for number in 0..file.blocks() {
        bytes.extend_from_slice(&file.read_block(number)?);
    }
    Ok(bytes.into())
}
