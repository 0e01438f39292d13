//! Redis and Valkey as a tier: one server or a cluster, shared by every process that uses it.
//!
//! A record is one string under one key, a claim is another beside it. What has to happen at once
//! is a script, so that a claim and what is stored with it cannot miss each other.

mod address;
mod cluster;
mod line;
mod log;
mod node;
mod record;
mod releases;
mod removals;
mod scripts;
mod servers;
mod settings;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use self::address::RedisStartError;
pub use self::line::{Line, NoReply};
pub use self::scripts::Script;
pub use self::settings::{ClientCertificate, RedisSettings};
pub use ::redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};

use self::node::Fault;
use self::record::{claim_key, entry_key};
use self::releases::Releases;
use self::removals::Removals;
use self::scripts::{CLAIM, CLAIM_IF_MISSING, RELEASE, RENEW, STORE_IF_CLAIMED};
use self::servers::Servers;
use crate::random;
use crate::tier::{
    BoxFuture, Claim, Entry, EntryId, Got, LogPage, Page, Put, SharedTier, Tier, TierError,
    TierStats, Token,
};

/// So much of a record is read for its head. It nearly always has all of it.
const HEAD_AT_ONCE: u64 = 8 * 1024;

/// A Redis or Valkey server, or a cluster of them.
pub struct Redis {
    shared: Arc<Connected>,
    /// They end with the tier.
    _background: JoinSet<()>,
}

struct Connected {
    handle: Handle,
    servers: Servers,
    settings: RedisSettings,
    in_flight: Semaphore,
    removals: Removals,
    releases: Releases,
    refused: AtomicU64,
    corrupt: AtomicU64,
}

impl Redis {
    /// Connects, and keeps the connections up on `handle`.
    ///
    /// A server that cannot be reached is no error: it is tried again until it is there. One that
    /// answers and will never do is: it refuses the password, or is no Redis.
    pub async fn start(
        settings: RedisSettings,
        handle: &Handle,
    ) -> Result<Arc<Self>, RedisStartError> {
        let settings = settings.within_reason();
        let addresses = address::read(&settings)?;
        let starting = settings.clone();
        let starting = handle.spawn(async move { Servers::start(addresses, &starting).await });
        let servers = starting.await.map_err(|_| RedisStartError::Ended)??;
        let shared = Arc::new(Connected {
            handle: handle.clone(),
            servers,
            in_flight: Semaphore::new(settings.max_in_flight),
            removals: Removals::new(settings.max_removals),
            releases: Releases::default(),
            settings,
            refused: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        });
        let mut background = JoinSet::new();
        background.spawn_on(deliver_what_is_owed(Arc::clone(&shared)), handle);
        if let Servers::Cluster(cluster) = &shared.servers {
            background.spawn_on(Arc::clone(cluster).follow(), handle);
        }
        Ok(Arc::new(Self {
            shared,
            _background: background,
        }))
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stats = self.stats();
        f.debug_struct("Redis").field("stats", &stats).finish()
    }
}

impl Tier for Redis {
    fn name(&self) -> &'static str {
        "redis"
    }

    fn get(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Entry>, TierError>> {
        Box::pin(self.shared.get(id))
    }

    /// A body in a file is refused: whoever has it there has a disk nearer than this.
    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(async move { self.shared.put(id, &entry, expires, None).await })
    }

    fn renew(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(async move { self.shared.renew(id, &from, &head, expires, None).await })
    }

    /// An error means not yet: the removal is remembered, and until it is delivered this process
    /// neither reads nor writes what lies under the id.
    fn remove(&self, id: EntryId) -> BoxFuture<'_, Result<(), TierError>> {
        let shared = Arc::clone(&self.shared);
        // Goes on if the caller does not wait for it: a purge is never given up.
        let handle = &self.shared.handle;
        let removal = handle.spawn(async move { shared.remove(id).await });
        Box::pin(async move { removal.await.unwrap_or(Err(TierError::Down)) })
    }

    fn stats(&self) -> TierStats {
        let shared = &self.shared;
        let mut degraded = shared.servers.degraded();
        degraded.extend(shared.removals.degraded());
        TierStats {
            refused: shared.refused.load(Ordering::Relaxed),
            corrupt: shared.corrupt.load(Ordering::Relaxed),
            degraded,
            ..TierStats::default()
        }
    }
}

impl SharedTier for Redis {
    fn get_or_claim(&self, id: EntryId, hold: Duration) -> BoxFuture<'_, Result<Got, TierError>> {
        Box::pin(self.shared.get_or_claim(id, hold))
    }

    fn head(&self, id: EntryId) -> BoxFuture<'_, Result<Option<Bytes>, TierError>> {
        Box::pin(self.shared.head(id))
    }

    fn claim(&self, id: EntryId, hold: Duration) -> BoxFuture<'_, Result<Claim, TierError>> {
        Box::pin(self.shared.claim(id, hold))
    }

    fn release(&self, id: EntryId, token: Token) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(self.shared.release(id, token))
    }

    fn put_claimed(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        Box::pin(async move { self.shared.put(id, &entry, expires, Some(token)).await })
    }

    fn renew_claimed(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
        token: Token,
    ) -> BoxFuture<'_, Result<Put, TierError>> {
        let token = Some(token);
        Box::pin(async move { self.shared.renew(id, &from, &head, expires, token).await })
    }

    /// Applications keep their pages in memcached.
    fn page(&self, _: &[u8], _: &[u8]) -> Option<BoxFuture<'_, Result<Option<Page>, TierError>>> {
        None
    }

    fn append_to_log(
        &self,
        _copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> BoxFuture<'_, Result<(), TierError>> {
        Box::pin(async move { self.shared.append_to_log(&records, &beginning).await })
    }

    fn read_log(
        &self,
        _copy: usize,
        after: u64,
        beginning: Bytes,
    ) -> BoxFuture<'_, Result<LogPage, TierError>> {
        Box::pin(async move { self.shared.read_log(after, &beginning).await })
    }
}

impl Connected {
    async fn get(&self, id: EntryId) -> Result<Option<Entry>, TierError> {
        self.get_within(id, Instant::now() + self.settings.deadline)
            .await
    }

    async fn get_within(&self, id: EntryId, deadline: Instant) -> Result<Option<Entry>, TierError> {
        let found = self.read(id, self.most(), deadline).await;
        self.found(id, found)
    }

    /// The value up to this byte.
    async fn read(&self, id: EntryId, last: u64, deadline: Instant) -> Result<Value, Fault> {
        let mut read = redis::cmd("GETRANGE");
        read.arg(entry_key(id)).arg(0).arg(last);
        self.ask(id, &read, deadline).await
    }

    /// It is read for a renewal, for which nobody waits.
    async fn head(&self, id: EntryId) -> Result<Option<Bytes>, TierError> {
        let deadline = Instant::now() + self.settings.write_deadline;
        let mut len = HEAD_AT_ONCE;
        // Once more for a head that is longer, and nothing for one that is longer again.
        for _ in 0..2 {
            let beginning = self.read(id, len - 1, deadline).await;
            let Value::BulkString(beginning) = beginning.map_err(|fault| self.error(id, fault))?
            else {
                return Ok(None);
            };
            let mut beginning = Bytes::from(beginning);
            match record::opening_len(&beginning) {
                Some(opening) if opening <= beginning.len() as u64 => {
                    let head = beginning.split_to(opening as usize);
                    return Ok(Some(head.slice(record::ENVELOPE as usize..)));
                }
                Some(longer) if longer <= self.most() => len = longer,
                _ => break,
            }
        }
        Ok(None)
    }

    async fn renew(
        &self,
        id: EntryId,
        from: &[u8],
        head: &[u8],
        expires: Duration,
        token: Option<Token>,
    ) -> Result<Put, TierError> {
        let deadline = Instant::now() + self.settings.write_deadline;
        let (from, head) = (record::opening(from), record::opening(head));
        let mut arguments = vec![from, head, millis(expires), number(self.most())];
        arguments.extend(token.map(|token| number(token.0)));
        let renewed = self.call(&RENEW, id, &arguments, deadline).await;
        self.put_of(id, renewed)
    }

    async fn get_or_claim(self: &Arc<Self>, id: EntryId, hold: Duration) -> Result<Got, TierError> {
        let deadline = Instant::now() + self.settings.deadline;
        if let Some(entry) = self.get_within(id, deadline).await? {
            return Ok(Got::Entry(entry));
        }
        // Asks again whether it is there, because somebody may have stored it between the two.
        let token = Token(random::number());
        let attempt = Attempt::new(self, id, token);
        let arguments = [number(token.0), millis(hold), number(self.most())];
        let claimed = self.call(&CLAIM_IF_MISSING, id, &arguments, deadline).await;
        attempt.settle(&claimed);
        if let Ok(Value::Int(mine)) = claimed {
            return Ok(Got::Missing(claim_of(mine == 1, token)));
        }
        let neither = || TierError::Failed("neither a record nor a claim".to_owned());
        self.found(id, claimed)?.map(Got::Entry).ok_or_else(neither)
    }

    /// The last byte that is read of a record: one more than is taken, so that what is too long shows.
    const fn most(&self) -> u64 {
        record::ENVELOPE + self.settings.max_object
    }

    /// What a read brought, if it brought anything.
    fn found(&self, id: EntryId, reply: Result<Value, Fault>) -> Result<Option<Entry>, TierError> {
        let value = match reply.map_err(|fault| self.error(id, fault))? {
            Value::BulkString(value) => value,
            Value::Nil => return Ok(None),
            _ => return Err(self.damaged(id, "not a string")),
        };
        if value.is_empty() {
            return Ok(None);
        }
        if value.len() as u64 > self.most() {
            // Another process may have a higher bound: this is no reason to remove it.
            return Err(TierError::Failed(
                "larger than what is read here".to_owned(),
            ));
        }
        match record::decode(Bytes::from(value)) {
            Some(entry) => Ok(Some(entry)),
            None => Err(self.damaged(id, "truncated")),
        }
    }

    async fn claim(self: &Arc<Self>, id: EntryId, hold: Duration) -> Result<Claim, TierError> {
        let token = Token(random::number());
        let arguments = [number(token.0), millis(hold)];
        let deadline = Instant::now() + self.settings.deadline;
        let attempt = Attempt::new(self, id, token);
        let claimed = self.call(&CLAIM, id, &arguments, deadline).await;
        attempt.settle(&claimed);
        match claimed {
            Ok(reply) => Ok(claim_of(reply == Value::Int(1), token)),
            Err(fault) => Err(self.error(id, fault)),
        }
    }

    /// Gives a claim back: now, or when the server is in service again.
    async fn release(&self, id: EntryId, token: Token) -> Result<(), TierError> {
        let released = self.release_now(id, token).await;
        if released.as_ref().is_err_and(Fault::is_passing) {
            self.releases.add(id, token);
            self.removals.wake();
        }
        released.map_err(|fault| self.error(id, fault))
    }

    async fn release_now(&self, id: EntryId, token: Token) -> Result<(), Fault> {
        let deadline = Instant::now() + self.settings.write_deadline;
        let released = self.call(&RELEASE, id, &[number(token.0)], deadline).await;
        released.map(drop)
    }

    async fn put(
        &self,
        id: EntryId,
        entry: &Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> Result<Put, TierError> {
        let Some(value) = record::encode(entry, self.settings.max_object) else {
            return Ok(self.refuse());
        };
        let deadline = Instant::now() + self.settings.write_deadline;
        let expires = millis(expires);
        let stored = if let Some(token) = token {
            let arguments = [number(token.0), expires, value];
            self.call(&STORE_IF_CLAIMED, id, &arguments, deadline).await
        } else {
            let mut store = redis::cmd("SET");
            store.arg(entry_key(id)).arg(value).arg("PX").arg(expires);
            self.ask(id, &store, deadline).await
        };
        self.put_of(id, stored)
    }

    /// What a reply says of a record that was to be stored.
    fn put_of(&self, id: EntryId, reply: Result<Value, Fault>) -> Result<Put, TierError> {
        match reply {
            Ok(Value::Int(0)) => Ok(Put::Superseded),
            Ok(_) => Ok(Put::Stored),
            Err(fault) if fault.is_full() => Ok(self.refuse()),
            Err(fault) => Err(self.error(id, fault)),
        }
    }

    async fn remove(&self, id: EntryId) -> Result<(), TierError> {
        self.removals.add(id);
        match self.deliver(id).await {
            Ok(()) => {
                self.removals.delivered(id);
                Ok(())
            }
            Err(fault) => {
                // Again, because another removal of this id may have been delivered meanwhile.
                self.removals.add(id);
                self.removals.wake();
                Err(self.error(id, fault))
            }
        }
    }

    async fn deliver(&self, id: EntryId) -> Result<(), Fault> {
        let deadline = Instant::now() + self.settings.write_deadline;
        let mut remove = redis::cmd("UNLINK");
        remove.arg(entry_key(id)).arg(claim_key(id));
        self.servers.send(id, &remove, deadline).await.map(drop)
    }

    /// Delivers what was remembered, and says whether that was all.
    async fn deliver_all(&self) -> bool {
        if let Some(overflow) = self.removals.everything() {
            if !self.servers.clear(self.settings.write_deadline).await {
                return false;
            }
            self.removals.everything_delivered(overflow);
        }
        let mut all = true;
        for id in self.removals.waiting() {
            if self.deliver(id).await.is_ok() {
                self.removals.delivered(id);
            } else {
                all = false;
            }
        }
        for (id, token) in self.releases.waiting() {
            let released = self.release_now(id, token).await;
            if released.as_ref().is_err_and(Fault::is_passing) {
                all = false;
            } else {
                self.releases.delivered(token);
            }
        }
        all
    }

    /// Sends a command about an id, unless a removal of the id has to be delivered first.
    async fn ask(&self, id: EntryId, command: &Cmd, deadline: Instant) -> Result<Value, Fault> {
        if self.removals.covers(id) {
            return Err(Fault::Down);
        }
        let _place = self.in_flight.try_acquire().map_err(|_| Fault::Full)?;
        self.servers.send(id, command, deadline).await
    }

    /// Calls a script; the server may have forgotten it, after a restart for example.
    async fn call(
        &self,
        script: &Script,
        id: EntryId,
        arguments: &[Vec<u8>],
        deadline: Instant,
    ) -> Result<Value, Fault> {
        let keys = [entry_key(id), claim_key(id)];
        let by_hash = script.by_hash(&keys, arguments);
        match self.ask(id, &by_hash, deadline).await {
            Err(fault) if fault.is_unknown_script() => {
                let by_text = script.by_text(&keys, arguments);
                self.ask(id, &by_text, deadline).await
            }
            reply => reply,
        }
    }

    fn error(&self, id: EntryId, fault: Fault) -> TierError {
        if fault.is_wrong_type() {
            return self.damaged(id, "of another type");
        }
        fault.into()
    }

    /// Counts it and has it removed.
    fn damaged(&self, id: EntryId, what: &str) -> TierError {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
        self.removals.add(id);
        self.removals.wake();
        TierError::Corrupt(what.to_owned())
    }

    fn refuse(&self) -> Put {
        self.refused.fetch_add(1, Ordering::Relaxed);
        Put::Refused
    }
}

/// A claim that was asked for. If nobody learns whether it was granted, because the answer is late,
/// the connection broke or whoever asked has left, it is given back: the others would wait for
/// nothing.
struct Attempt {
    /// Nothing once the answer is known.
    shared: Option<Arc<Connected>>,
    id: EntryId,
    token: Token,
}

impl Attempt {
    fn new(shared: &Arc<Connected>, id: EntryId, token: Token) -> Self {
        let shared = Some(Arc::clone(shared));
        Self { shared, id, token }
    }

    fn settle(mut self, reply: &Result<Value, Fault>) {
        if !reply.as_ref().is_err_and(Fault::is_unanswered) {
            self.shared = None;
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let (id, token, handle) = (self.id, self.token, shared.handle.clone());
            handle.spawn(async move { shared.release(id, token).await });
        }
    }
}

async fn deliver_what_is_owed(shared: Arc<Connected>) {
    loop {
        shared.removals.woken().await;
        while !shared.deliver_all().await {
            tokio::time::sleep(jittered(shared.settings.retry_after)).await;
        }
    }
}

fn claim_of(mine: bool, token: Token) -> Claim {
    if mine {
        Claim::Mine(token)
    } else {
        Claim::Theirs
    }
}

fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A time as the server takes it: never zero, and nothing it cannot add to the time it is.
fn millis(time: Duration) -> Vec<u8> {
    const MOST: Duration = Duration::from_hours(365 * 24);
    number((time.min(MOST).as_millis() as u64).max(1))
}

/// Between half of a time and one and a half of it, so that processes do not come back together.
fn jittered(time: Duration) -> Duration {
    random::jittered(time, 0.5)
}
