//! A pool of memcached servers, shared by whoever names the same ones.
//!
//! A record is one item, on the server that libmemcached's ketama ring says. A body that does not
//! fit lies in pieces beside it, on the same server: a lost server costs its own records and no
//! others. Servers that fail are left out and their keys go to the next on the ring, see
//! `docs/decisions/memcached.md`.

mod claims;
mod connection;
mod health;
mod keys;
mod log;
mod pages;
mod pieces;
mod probe;
pub mod protocol;
mod record;
mod ring;
mod server;
pub mod settings;
mod time;
mod unsure;
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
    BoxFuture, Claim, Entry, EntryId, Got, LogPage, Page, Put, SharedTier, Tier, TierError,
    TierStats, Token,
};
use claims::Grant;
use log::LogCopy;
pub use pages::{InvalidPageKey, PageKey, Pages};
use protocol::{MetaResponse, Request};
use record::Record;
use ring::Ring;
use server::{Lane, Server};
pub use settings::{InvalidAddress, InvalidSettings, MemcachedSettings, ServerAddress, WhenLost};

/// What memcached takes unless it is told otherwise. Items of this size are read even if we store
/// smaller ones: another node may not.
const USUAL_MAX_ITEM: usize = 1024 * 1024;

/// The pool.
#[derive(Debug)]
pub struct Memcached {
    servers: Vec<Server>,
    ring: Ring,
    when_lost: WhenLost,
    max_item: usize,
    max_object: u64,
    pages: Option<Pages>,
    /// Where files are read.
    handle: Handle,
    refused: AtomicU64,
    corrupt: AtomicU64,
    log: Vec<LogCopy>,
}

impl Memcached {
    /// Starts a pool; its tasks run on `handle`. A server that is not there is no error: it is left
    /// out until it is.
    pub fn start(
        settings: MemcachedSettings,
        handle: &Handle,
    ) -> Result<Arc<Self>, InvalidSettings> {
        settings.check()?;
        let max_value = settings.max_item.max(USUAL_MAX_ITEM);
        let start =
            |address: &ServerAddress| Server::start(address.clone(), max_value, &settings, handle);
        let ring = Ring::new(&settings.servers);
        Ok(Arc::new(Self {
            servers: settings.servers.iter().map(start).collect(),
            log: log::copies(&ring),
            ring,
            when_lost: settings.when_lost,
            max_item: settings.max_item,
            max_object: settings.max_object,
            pages: settings.pages,
            handle: handle.clone(),
            refused: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        }))
    }

    /// The body that an application keeps under a key of its own. Values with flags are none: a
    /// client compressed or serialised them.
    async fn body_at(&self, key: &str) -> Result<Option<Bytes>, TierError> {
        let (_, server) = self.server_of(key).ok_or(TierError::Down)?;
        let lane = Lane::of(EntryId::of(key.as_bytes()));
        Ok(
            match server.ask(lane, Request::default().get(key, None)).await? {
                MetaResponse::Done(item) if item.client_flags == 0 && !item.value.is_empty() => {
                    Some(item.value)
                }
                _ => None,
            },
        )
    }

    fn server_of(&self, key: &str) -> Option<(usize, &Server)> {
        let in_service = |index: usize| self.servers[index].is_in_service();
        let index = match self.when_lost {
            WhenLost::NextServer => self.ring.find(key.as_bytes(), in_service),
            WhenLost::Miss => {
                let index = self.ring.find(key.as_bytes(), |_| true);
                index.filter(|&index| in_service(index))
            }
        }?;
        Some((index, &self.servers[index]))
    }

    /// The server of a record.
    fn record(&self, id: EntryId) -> Result<Record<'_>, TierError> {
        let key = keys::record(id);
        let (index, server) = self.server_of(&key).ok_or(TierError::Down)?;
        Ok(self.record_at(id, index, server))
    }

    fn record_at<'a>(&self, id: EntryId, index: usize, server: &'a Server) -> Record<'a> {
        Record {
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
        grant: Option<Grant>,
    ) -> Result<Put, TierError> {
        let put = self.try_to_store(id, entry, expires, grant).await;
        if put == Ok(Put::Refused) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        put
    }

    async fn try_to_store(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        grant: Option<Grant>,
    ) -> Result<Put, TierError> {
        let record = self.record(id)?;
        if let Some(grant) = grant.filter(|grant| grant.server != record.index) {
            // The server that gave it was lost, or is back, and will be asked again. Nobody shall wait
            // there for what does not come.
            let giver = &self.servers[grant.server];
            let _ = self.record_at(id, grant.server, giver).release(grant).await;
            return Ok(Put::Superseded);
        }
        if entry.body.len() > self.max_object {
            return Ok(Put::Refused);
        }
        let body = self.in_memory(entry.body).await?;
        record.put(entry.head, body, expires, grant).await
    }

    /// Counts what turned out to be no record.
    fn noted<T>(&self, got: Result<T, TierError>) -> Result<T, TierError> {
        if matches!(got, Err(TierError::Corrupt(_))) {
            self.corrupt.fetch_add(1, Ordering::Relaxed);
        }
        got
    }

    async fn in_memory(&self, body: Content) -> Result<Bytes, TierError> {
        let file = match (body.file(), body) {
            (_, Content::Bytes(bytes)) => return Ok(bytes),
            (Some(file), _) => file,
            (None, _) => return Err(TierError::Failed("its file is closed".into())),
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

    fn get(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Entry>, TierError>> {
        Box::pin(async move { self.noted(self.record(id)?.get().await) })
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
        Box::pin(async move { self.record(id)?.renew(&from, head, expires, None).await })
    }

    /// From all servers: while one was lost, the record may have been kept on another. What cannot
    /// be told now is remembered, and that server is out of service until it knows.
    fn remove(&self, id: EntryId) -> BoxFuture<'_, Result<(), TierError>> {
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
    fn get_or_claim(&self, id: EntryId, hold: Duration) -> BoxFuture<'_, Result<Got, TierError>> {
        Box::pin(async move { self.noted(self.record(id)?.get_or_claim(hold).await) })
    }

    fn head(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Bytes>, TierError>> {
        Box::pin(async move { self.record(id)?.head().await })
    }

    fn claim(&self, id: EntryId, hold: Duration) -> BoxFuture<'_, Result<Claim, TierError>> {
        Box::pin(async move { self.record(id)?.claim(hold).await })
    }

    fn release(&self, id: EntryId, token: Token) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async move {
            let grant = Grant::from(token);
            let server = self.servers.get(grant.server).ok_or(TierError::Down)?;
            let record = self.record_at(id, grant.server, server);
            record.release(grant).await
        })
    }

    fn put_claimed(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(self.store(id, entry, expires, Some(token.into())))
    }

    fn renew_claimed(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
        token: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(async move {
            let grant = Some(token.into());
            self.record(id)?.renew(&from, head, expires, grant).await
        })
    }

    fn page(
        &self,
        host: &[u8],
        target: &[u8],
    ) -> Option<BoxFuture<'_, Result<Option<Page>, TierError>>> {
        let pages = self.pages.as_ref()?;
        let key = pages.key.of(host, target)?;
        let content_type = pages.content_type(target).to_owned();
        Some(Box::pin(async move {
            let body = self.body_at(&key).await?;
            Ok(body.map(|body| Page { body, content_type }))
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
    ) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async move { self.log_copy(copy)?.append(records, beginning).await })
    }

    fn read_log(
        &self,
        copy: usize,
        after: u64,
        beginning: Bytes,
    ) -> BoxFuture<'_, Result<LogPage, TierError>> {
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
