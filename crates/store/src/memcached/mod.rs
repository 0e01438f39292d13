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
mod nginx;
mod probe;
pub mod protocol;
mod random;
mod ring;
mod server;
pub mod settings;
mod time;
pub mod value;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;

use crate::content::{Content, FileBody};
use crate::tier::{BoxFuture, Claim, Entry, EntryId, Got, Put, Tier, TierError, TierStats, Token};
use claims::{Grant, Purpose};
use protocol::{Answer, Item, Request, Storing};
use ring::Ring;
use server::Server;
pub use settings::{InvalidAddress, InvalidSettings, MemcachedSettings, ServerAddress, WhenLost};
use value::{Manifest, Value};

/// Pieces of one body that are on their way at once.
const WINDOW: usize = 16;
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
    nginx_prefix: Option<String>,
    /// Where files are read.
    handle: Handle,
    refused: AtomicU64,
    corrupt: AtomicU64,
}

/// What a look at an item says.
enum Look {
    /// A record.
    Entry(Entry),
    /// Nothing but the wish for something, and whether the caller is the one to bring it.
    Nothing(Claim),
    /// The beginning of a record whose rest is gone, or something marked as stale. With its
    /// number.
    Useless(u64),
    /// Not a record.
    Damaged(u64),
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
        Ok(Arc::new(Self {
            servers: settings.servers.iter().map(start).collect(),
            ring: Ring::new(&settings.servers),
            when_lost: settings.when_lost,
            max_item: settings.max_item,
            max_object: settings.max_object,
            nginx_prefix: settings.nginx_prefix,
            handle: handle.clone(),
            refused: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        }))
    }

    /// What an application keeps for nginx's memcached module under this request target: a body.
    /// Values that a client compressed or serialised are none.
    pub async fn nginx_entry(&self, target: &[u8]) -> Option<Bytes> {
        let key = nginx::key(self.nginx_prefix.as_ref()?, target)?;
        let (_, server) = self.server_of(&key)?;
        match server.ask(Request::default().get(&key, None)).await {
            Ok(Answer::Done(item)) if item.client_flags == 0 && !item.value.is_empty() => {
                Some(item.value)
            }
            _ => None,
        }
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

    async fn look_up(&self, id: EntryId, claim: Option<Duration>) -> Result<Got, TierError> {
        let key = keys::record(id);
        let (index, server) = self.server_of(&key).ok_or(TierError::Down)?;
        let claim = claim.map(time::expiry);
        // What is of no use is removed, and then there is nothing, which can be claimed.
        for _ in 0..2 {
            let item = match server.ask(Request::default().get(&key, claim)).await? {
                Answer::Done(item) => item,
                Answer::Missing => break,
                Answer::TooLong => return Err(self.damaged(server, &key, None).await),
                other => return Err(other.is_unexpected()),
            };
            match self.look_at(id, item, index).await? {
                Look::Entry(entry) => return Ok(Got::Entry(entry)),
                Look::Nothing(answer) => return Ok(Got::Missing(claim.map(|_| answer))),
                Look::Useless(number) => {
                    let delete = Request::default().delete(&key, Some(number));
                    server.ask(delete).await?;
                }
                Look::Damaged(number) => {
                    return Err(self.damaged(server, &key, Some(number)).await);
                }
            }
        }
        Ok(Got::Missing(None))
    }

    async fn look_at(&self, id: EntryId, item: Item, server: usize) -> Result<Look, TierError> {
        if item.stale {
            return Ok(Look::Useless(item.number));
        }
        if item.value.is_empty() {
            return Ok(match item {
                Item { won: true, .. } => Look::Nothing(won(&item, Purpose::Fill, server)),
                Item { taken: true, .. } => Look::Nothing(Claim::Theirs),
                // Nobody was told to bring anything, and nobody would be.
                Item { number, .. } => Look::Useless(number),
            });
        }
        Ok(match Value::decode(&item.value, self.max_object) {
            None => Look::Damaged(item.number),
            Some(Value::Whole { head, body }) => Look::Entry(Entry {
                head,
                body: Content::Bytes(body),
            }),
            Some(Value::Manifest(manifest)) => {
                match self.fetch(id, &manifest, &self.servers[server]).await? {
                    Some(body) => Look::Entry(Entry {
                        head: manifest.head,
                        body: Content::Bytes(body),
                    }),
                    None => Look::Useless(item.number),
                }
            }
        })
    }

    /// Fetches the pieces of a body. `None` if one is gone or another one's.
    async fn fetch(
        &self,
        id: EntryId,
        manifest: &Manifest,
        server: &Server,
    ) -> Result<Option<Bytes>, TierError> {
        let count = manifest.sums.len();
        let mut pieces = Vec::with_capacity(count);
        let mut pending = VecDeque::with_capacity(WINDOW);
        for number in 0..count {
            let key = keys::piece(id, manifest.generation, number);
            let request = Request::default().get(&key, None);
            pending.push_back(server.send(request, 1 + pending.len() as u32)?);
            if pending.len() < WINDOW && number + 1 < count {
                continue;
            }
            let keep = if number + 1 < count { WINDOW - 1 } else { 0 };
            while pending.len() > keep {
                let Some(answers) = pending.pop_front() else {
                    break;
                };
                match answers.await?.pop() {
                    Some(Answer::Done(item)) => pieces.push(item.value),
                    _ => return Ok(None),
                }
            }
        }
        Ok(manifest.assemble(&pieces))
    }

    async fn damaged(&self, server: &Server, key: &str, number: Option<u64>) -> TierError {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
        match server.ask(Request::default().delete(key, number)).await {
            Ok(_) => TierError::Corrupt(format!("{key} is not a record")),
            Err(error) => error,
        }
    }

    async fn claim_renewal(&self, id: EntryId, hold: Duration) -> Result<Claim, TierError> {
        let key = keys::record(id);
        let (index, server) = self.server_of(&key).ok_or(TierError::Down)?;
        let lock = Storing {
            expires: time::expiry(hold),
            only_new: true,
            only_if: None,
        };
        let request = Request::default()
            .set(&keys::lock(id), [], lock)
            .peek(&key, lock.expires);
        let answers = server.ask_all(request).await?;
        match &answers[..] {
            // There was nothing to renew any more, and this is the first to know.
            [_, Answer::Done(item)] if item.won => Ok(won(item, Purpose::Fill, index)),
            [Answer::Done(_), Answer::Done(item)] if !item.taken => {
                Ok(won(item, Purpose::Renewal, index))
            }
            [Answer::Done(_) | Answer::NotStored, Answer::Done(_)] => Ok(Claim::Theirs),
            [Answer::Done(_) | Answer::NotStored, other] | [other, ..] => {
                Err(other.is_unexpected())
            }
            [] => Err(TierError::Down),
        }
    }

    async fn give_back(&self, id: EntryId, token: Token) -> Result<(), TierError> {
        let grant = Grant::from(token);
        let server = self.servers.get(grant.server).ok_or(TierError::Down)?;
        let request = match grant.purpose {
            Purpose::Fill => Request::default().delete(&keys::record(id), Some(grant.number)),
            Purpose::Renewal => Request::default().delete(&keys::lock(id), None),
        };
        match server.ask(request).await? {
            Answer::Done(_) | Answer::Missing | Answer::Changed => Ok(()),
            other => Err(other.is_unexpected()),
        }
    }

    async fn store(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> Result<Put, TierError> {
        let grant = token.map(Grant::from);
        let key = keys::record(id);
        let (index, server) = self.server_of(&key).ok_or(TierError::Down)?;
        if grant.is_some_and(|grant| grant.server != index) {
            return Ok(Put::ClaimLost);
        }
        if entry.body.len() > self.max_object {
            return Ok(self.refused());
        }
        let body = self.in_memory(entry.body).await?;
        let how = Storing {
            expires: time::expiry(expires),
            only_if: grant.map(|grant| grant.number),
            only_new: false,
        };
        let first = value::whole(&entry.head);
        let request = if first.len() + body.len() <= self.max_item {
            Request::default().set(&key, [first, body], how)
        } else {
            let Some(manifest) = self
                .store_pieces(id, entry.head, &body, how, server)
                .await?
            else {
                return Ok(self.refused());
            };
            Request::default().set(&key, [manifest.encode()], how)
        };
        match server.ask(request).await? {
            Answer::Done(_) => {}
            Answer::Changed | Answer::Missing => return Ok(Put::ClaimLost),
            Answer::Refused(_) => return Ok(self.refused()),
            other => return Err(other.is_unexpected()),
        }
        if grant.is_some_and(|grant| grant.purpose == Purpose::Renewal) {
            // Nobody waits for this: without it, the lock expires.
            drop(server.send(Request::default().delete(&keys::lock(id), None), 1)?);
        }
        Ok(Put::Stored)
    }

    /// Stores a body in pieces, before anything says that it is there. `None` if the server does
    /// not take them.
    async fn store_pieces(
        &self,
        id: EntryId,
        head: Bytes,
        body: &Bytes,
        how: Storing,
        server: &Server,
    ) -> Result<Option<Manifest>, TierError> {
        let generation = u128::from(random::number()) << 64 | u128::from(random::number());
        let manifest = Manifest::new(head, body, self.max_item as u32, generation);
        if manifest.encoded_len() > self.max_item {
            return Ok(None);
        }
        let how = Storing {
            only_if: None,
            ..how
        };
        for (number, piece) in body.chunks(self.max_item).enumerate() {
            let key = keys::piece(id, generation, number);
            let request = Request::default().set(&key, [body.slice_ref(piece)], how);
            match server.ask(request).await? {
                Answer::Done(_) => {}
                Answer::Refused(_) => return Ok(None),
                other => return Err(other.is_unexpected()),
            }
        }
        Ok(Some(manifest))
    }

    async fn in_memory(&self, body: Content) -> Result<Bytes, TierError> {
        let file = match body {
            Content::Bytes(bytes) => return Ok(bytes),
            Content::File(file) => file,
        };
        let read = self.handle.spawn_blocking(move || read_file(&file)).await;
        let read = read.map_err(|error| TierError::Failed(error.to_string()))?;
        read.map_err(|error| TierError::Failed(error.to_string()))
    }

    fn refused(&self) -> Put {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Put::Refused
    }
}

impl Tier for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn is_shared(&self) -> bool {
        true
    }

    fn get(&self, id: EntryId, claim: Option<Duration>) -> BoxFuture<'_, Result<Got, TierError>> {
        Box::pin(self.look_up(id, claim))
    }

    fn claim(&self, id: EntryId, hold: Duration) -> BoxFuture<'_, Result<Claim, TierError>> {
        Box::pin(self.claim_renewal(id, hold))
    }

    fn release(&self, id: EntryId, token: Token) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(self.give_back(id, token))
    }

    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(self.store(id, entry, expires, token))
    }

    /// From all servers: while one was lost, the record may have been kept on another. What cannot
    /// be told now is remembered, and that server is out of service until it knows.
    fn remove(&self, id: EntryId) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async move {
            let mut removals: Vec<BoxFuture<'_, ()>> = Vec::with_capacity(self.servers.len());
            for server in &self.servers {
                removals.push(Box::pin(server.remove(id)));
            }
            all(removals).await;
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

fn won(item: &Item, purpose: Purpose, server: usize) -> Claim {
    let grant = Grant {
        purpose,
        server,
        number: item.number,
    };
    grant.to_token().map_or(Claim::Theirs, Claim::Mine)
}

fn read_file(file: &FileBody) -> io::Result<Bytes> {
    let mut bytes = Vec::with_capacity(file.len() as usize);
    for number in 0..file.blocks() {
        bytes.extend_from_slice(&file.read_block(number)?);
    }
    Ok(bytes.into())
}

/// Waits for all of them at once.
async fn all(mut futures: Vec<BoxFuture<'_, ()>>) {
    poll_fn(|cx| {
        futures.retain_mut(|future| future.as_mut().poll(cx).is_pending());
        if futures.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}
