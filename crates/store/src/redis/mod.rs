//! Redis and Valkey tier: one server or a cluster, shared by all processes that use it.
//!
//! A record is a string, a claim another one in the same slot. Operations on both are scripts, so that they
//! are atomic.

mod address;
mod check;
mod clock;
mod cluster;
mod deadline;
mod dedicated;
mod endpoint;
mod log;
mod node;
mod pending_releases;
mod pending_removals;
mod record;
mod scripts;
mod sentinel;
mod servers;
mod settings;
mod subscriber;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;

pub use self::address::RedisStartError;
pub use self::dedicated::{DedicatedConnection, NoReply};
pub use self::scripts::Script;
pub use self::settings::{ClientCertificate, RedisSettings};
pub use ::redis::{Cmd, FromRedisValue, Value, cmd, from_redis_value};

use self::deadline::Deadline;
use self::endpoint::Endpoint;
use self::node::CommandError;
use self::pending_releases::PendingReleases;
use self::pending_removals::PendingRemovals;
use self::record::{awaiting_key, claim_key, entry_key, log_id};
use self::scripts::{CLAIM, CLAIM_IF_MISSING, RELEASE, RENEW, STORE_IF_CLAIMED};
use self::servers::ServerSet;
use crate::announcements::Announcements;
use crate::random;
use crate::tier::{
    BoxFuture, Claim, Entry, EntryId, GetOutcome, LogPage, PutOutcome, SharedTier, Tier, TierError,
    TierFuture, TierStats, Token,
};
use crate::tier_clock::TierClock;

/// Bytes of a record read for its head; nearly always sufficient.
const HEAD_AT_ONCE: u64 = 8 * 1024;

/// Redis or Valkey tier.
pub struct Redis {
    shared: Arc<RedisInner>,
    /// Tasks that are aborted with the tier.
    _background: JoinSet<()>,
}

struct RedisInner {
    handle: Handle,
    /// Configured servers.
    endpoints: Vec<Endpoint>,
    servers: ServerSet,
    settings: RedisSettings,
    in_flight: Semaphore,
    removals: PendingRemovals,
    releases: PendingReleases,
    announcements: Announcements,
    clock: TierClock,
    /// Remarks on the server for the operator.
    advice: Mutex<Vec<String>>,
    refused: AtomicU64,
    corrupt: AtomicU64,
}

impl Redis {
    /// Connects, and maintains the connections on `handle`. An unreachable server is not an error and is
    /// retried in the background.
    ///
    /// # Errors
    ///
    /// [`RedisStartError`] for invalid settings, or if the server rejects the connection, is not Redis, or lacks
    /// commands.
    pub async fn start(
        settings: RedisSettings,
        handle: &Handle,
    ) -> Result<Arc<Self>, RedisStartError> {
        let settings = settings.clamped();
        let endpoints = endpoint::read(&settings)?;
        let announcements = Announcements::new(endpoints.first().map_or(0, Endpoint::database));
        let starting = (endpoints.clone(), settings.clone());
        let starting = handle.spawn(async move { ServerSet::start(starting.0, &starting.1).await });
        let servers = starting.await.map_err(|_| RedisStartError::Ended)??;
        let shared = Arc::new(RedisInner {
            handle: handle.clone(),
            endpoints,
            servers,
            in_flight: Semaphore::new(settings.max_in_flight),
            removals: PendingRemovals::new(settings.max_removals),
            releases: PendingReleases::default(),
            announcements,
            clock: TierClock::default(),
            advice: Mutex::default(),
            settings,
            refused: AtomicU64::new(0),
            corrupt: AtomicU64::new(0),
        });
        shared
            .check()
            .await
            .map_err(|why| RedisStartError::Refused {
                address: shared
                    .servers
                    .address(log_id())
                    .map_or_else(String::new, |it| it.name()),
                why,
            })?;
        shared.look_at_clock().await;
        let mut background = JoinSet::new();
        background.spawn_on(deliver_pending(Arc::clone(&shared)), handle);
        background.spawn_on(Arc::clone(&shared).keep_subscribed(), handle);
        background.spawn_on(Arc::clone(&shared).note_returns(), handle);
        background.spawn_on(Arc::clone(&shared).keep_clock(), handle);
        if let ServerSet::Cluster(cluster) = &shared.servers {
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

    fn get(&self, id: EntryId) -> TierFuture<'_, Option<Entry>> {
        Box::pin(self.shared.get(id))
    }

    /// Stores a record. A body in a file is rejected, since it is stored in a nearer tier.
    fn put(
        &self,
        id: EntryId,
        entry: Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(async move { self.shared.put(id, &entry, expires, token).await })
    }

    fn renew(
        &self,
        id: EntryId,
        from: Bytes,
        head: Bytes,
        expires: Duration,
        token: Option<Token>,
    ) -> TierFuture<'_, PutOutcome> {
        Box::pin(async move { self.shared.renew(id, &from, &head, expires, token).await })
    }

    /// Removes a record. After an error the removal is pending; until it is delivered, this process neither
    /// reads nor writes the record.
    fn remove(&self, id: EntryId) -> TierFuture<'_, ()> {
        let shared = Arc::clone(&self.shared);
        // Runs to completion even if the caller does not wait, since a purge must not be abandoned.
        let handle = &self.shared.handle;
        let removal = handle.spawn(async move { shared.remove(id).await });
        Box::pin(async move { removal.await.unwrap_or(Err(TierError::Down)) })
    }

    fn stats(&self) -> TierStats {
        let shared = &self.shared;
        let mut degraded = shared.servers.degraded();
        degraded.extend(shared.removals.degraded());
        let refusal = shared.announcements.refusal();
        let clock = Vec::from_iter(shared.clock.advice());
        TierStats {
            refused: shared.refused.load(Ordering::Relaxed),
            corrupt: shared.corrupt.load(Ordering::Relaxed),
            degraded,
            advice: [&shared.advice.lock()[..], &refusal, &clock].concat(),
            ..TierStats::default()
        }
    }
}

impl SharedTier for Redis {
    fn get_or_claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, GetOutcome> {
        Box::pin(self.shared.get_or_claim(id, hold))
    }

    fn head(&self, id: EntryId) -> TierFuture<'_, Option<Bytes>> {
        Box::pin(self.shared.head(id))
    }

    fn claim(&self, id: EntryId, hold: Duration) -> TierFuture<'_, Claim> {
        Box::pin(self.shared.claim(id, hold))
    }

    fn release(&self, id: EntryId, token: Token) -> TierFuture<'_, ()> {
        Box::pin(self.shared.release(id, token))
    }

    fn change_login(&self, urls: Vec<String>) -> TierFuture<'_, ()> {
        let shared = &self.shared;
        Box::pin(
            async move { endpoint::change_login(&shared.endpoints, &shared.settings, urls).await },
        )
    }

    fn clock(&self) -> Option<&TierClock> {
        Some(&self.shared.clock)
    }

    fn claim_end(&self, id: EntryId) -> Option<BoxFuture<'_, ()>> {
        self.shared.announcements.claim_end(id)
    }

    fn log_news(&self, _copy: usize) -> Option<BoxFuture<'_, ()>> {
        self.shared.announcements.log_news()
    }

    fn log_wake(&self, _copy: usize) -> Option<BoxFuture<'_, ()>> {
        Some(self.shared.announcements.log_wake())
    }

    fn append_to_log(
        &self,
        _copy: usize,
        records: Vec<Bytes>,
        beginning: Bytes,
    ) -> TierFuture<'_, ()> {
        Box::pin(async move { self.shared.append_to_log(&records, &beginning).await })
    }

    fn read_log(&self, _copy: usize, after: u64, beginning: Bytes) -> TierFuture<'_, LogPage> {
        Box::pin(async move { self.shared.read_log(after, &beginning).await })
    }
}

impl RedisInner {
    async fn get(&self, id: EntryId) -> Result<Option<Entry>, TierError> {
        self.get_within(id, self.settings.request_deadline()).await
    }

    async fn get_within(
        &self,
        id: EntryId,
        deadline: Deadline,
    ) -> Result<Option<Entry>, TierError> {
        let found = self.read(id, self.last_byte(), deadline).await;
        self.found(id, found)
    }

    /// Reads the value up to this offset.
    async fn read(
        &self,
        id: EntryId,
        last: u64,
        deadline: Deadline,
    ) -> Result<Value, CommandError> {
        let mut read = redis::cmd("GETRANGE");
        read.arg(entry_key(id)).arg(0).arg(last);
        self.request(id, &read, deadline).await
    }

    /// Reads the head of a record, for a renewal in the background.
    async fn head(&self, id: EntryId) -> Result<Option<Bytes>, TierError> {
        let deadline = self.settings.background_deadline();
        let mut len = HEAD_AT_ONCE;
        // A longer head is read by a second request.
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
                Some(longer) if longer <= self.last_byte() => len = longer,
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
    ) -> Result<PutOutcome, TierError> {
        let deadline = self.settings.background_deadline();
        let (from, head) = (record::opening(from), record::opening(head));
        let mut arguments = vec![from, head, millis(expires), number(self.last_byte())];
        arguments.extend(token.map(|token| number(token.0)));
        let renewed = self.call(&RENEW, id, &arguments, deadline).await;
        self.put_of(id, renewed)
    }

    async fn get_or_claim(
        self: &Arc<Self>,
        id: EntryId,
        hold: Duration,
    ) -> Result<GetOutcome, TierError> {
        let deadline = self.settings.request_deadline();
        if let Some(entry) = self.get_within(id, deadline).await? {
            return Ok(GetOutcome::Entry(entry));
        }
        // The script checks again, since another process may have stored the record in between.
        let token = Token(random::number());
        let attempt = ClaimAttempt::new(self, id, token);
        let last = number(self.last_byte());
        let arguments = [number(token.0), millis(hold), self.await_end(id), last];
        let claimed = self.call(&CLAIM_IF_MISSING, id, &arguments, deadline).await;
        attempt.settle(&claimed);
        if let Ok(Value::Int(mine)) = claimed {
            return Ok(GetOutcome::Missing(self.claim_of(id, mine == 1, token)));
        }
        self.announcements.end(id);
        let neither = || TierError::Failed("unexpected reply to a claim".to_owned());
        self.found(id, claimed)?
            .map(GetOutcome::Entry)
            .ok_or_else(neither)
    }

    /// Offset of the last byte to read: one beyond the limit, to detect larger records.
    const fn last_byte(&self) -> u64 {
        record::ENVELOPE + self.settings.max_object
    }

    /// Decodes the reply of a read.
    fn found(
        &self,
        id: EntryId,
        reply: Result<Value, CommandError>,
    ) -> Result<Option<Entry>, TierError> {
        let value = match reply.map_err(|fault| self.error(id, fault))? {
            Value::BulkString(value) => value,
            Value::Nil => return Ok(None),
            _ => return Err(self.damaged(id, "not a string")),
        };
        if value.is_empty() {
            return Ok(None);
        }
        if value.len() as u64 > self.last_byte() {
            // Not deleted, since another process may have a higher limit.
            return Err(TierError::Failed(
                "record exceeds the size limit".to_owned(),
            ));
        }
        match record::decode(Bytes::from(value)) {
            Some(entry) => Ok(Some(entry)),
            None => Err(self.damaged(id, "truncated")),
        }
    }

    async fn claim(self: &Arc<Self>, id: EntryId, hold: Duration) -> Result<Claim, TierError> {
        let token = Token(random::number());
        let arguments = [number(token.0), millis(hold), self.await_end(id)];
        let deadline = self.settings.request_deadline();
        let attempt = ClaimAttempt::new(self, id, token);
        let claimed = self.call(&CLAIM, id, &arguments, deadline).await;
        attempt.settle(&claimed);
        match claimed {
            Ok(reply) => Ok(self.claim_of(id, reply == Value::Int(1), token)),
            Err(fault) => {
                self.announcements.end(id);
                Err(self.error(id, fault))
            }
        }
    }

    fn await_end(&self, id: EntryId) -> Vec<u8> {
        self.announcements.await_end(id).as_bytes().to_vec()
    }

    fn claim_of(&self, id: EntryId, mine: bool, token: Token) -> Claim {
        if !mine {
            return Claim::HeldElsewhere;
        }
        self.announcements.end(id);
        Claim::Granted(token)
    }

    /// Releases a claim, or queues the release until the server is back in service.
    async fn release(&self, id: EntryId, token: Token) -> Result<(), TierError> {
        let released = self.release_now(id, token).await;
        if released.as_ref().is_err_and(CommandError::is_transient) {
            self.releases.add(id, token);
            self.removals.wake();
        }
        released.map_err(|fault| self.error(id, fault))
    }

    async fn release_now(&self, id: EntryId, token: Token) -> Result<(), CommandError> {
        let deadline = self.settings.background_deadline();
        let released = self.call(&RELEASE, id, &[number(token.0)], deadline).await;
        released.map(drop)
    }

    async fn put(
        &self,
        id: EntryId,
        entry: &Entry,
        expires: Duration,
        token: Option<Token>,
    ) -> Result<PutOutcome, TierError> {
        let Some(value) = record::encode(entry, self.settings.max_object) else {
            return Ok(self.refuse());
        };
        let deadline = self.settings.background_deadline();
        let expires = millis(expires);
        let stored = if let Some(token) = token {
            let arguments = [number(token.0), expires, value];
            self.call(&STORE_IF_CLAIMED, id, &arguments, deadline).await
        } else {
            let mut store = redis::cmd("SET");
            store.arg(entry_key(id)).arg(value).arg("PX").arg(expires);
            self.request(id, &store, deadline).await
        };
        self.put_of(id, stored)
    }

    /// Evaluates the reply to a store or renewal.
    fn put_of(
        &self,
        id: EntryId,
        reply: Result<Value, CommandError>,
    ) -> Result<PutOutcome, TierError> {
        match reply {
            Ok(Value::Int(0)) => Ok(PutOutcome::Superseded),
            Ok(_) => Ok(PutOutcome::Stored),
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
                // Queued again, since another removal of this id may have been delivered in the meantime.
                self.removals.add(id);
                self.removals.wake();
                Err(self.error(id, fault))
            }
        }
    }

    async fn deliver(&self, id: EntryId) -> Result<(), CommandError> {
        let deadline = self.settings.background_deadline();
        let mut remove = redis::cmd("UNLINK");
        remove.arg(entry_key(id)).arg(claim_key(id));
        self.servers.send(id, &remove, deadline).await.map(drop)
    }

    /// Delivers pending removals and releases. Returns whether all succeeded.
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
            if released.as_ref().is_err_and(CommandError::is_transient) {
                all = false;
            } else {
                self.releases.delivered(token);
            }
        }
        all
    }

    /// Sends a command for an id, unless a removal of that id is pending.
    async fn request(
        &self,
        id: EntryId,
        command: &Cmd,
        deadline: Deadline,
    ) -> Result<Value, CommandError> {
        if self.removals.covers(id) {
            return Err(CommandError::Down);
        }
        let _place = self
            .in_flight
            .try_acquire()
            .map_err(|_| CommandError::Full)?;
        self.servers.send(id, command, deadline).await
    }

    /// Calls a script, sending its text if the server does not know it, for example after a restart.
    async fn call(
        &self,
        script: &Script,
        id: EntryId,
        arguments: &[Vec<u8>],
        deadline: Deadline,
    ) -> Result<Value, CommandError> {
        let keys = [entry_key(id), claim_key(id), awaiting_key(id)];
        let by_hash = script.by_hash(&keys, arguments);
        match self.request(id, &by_hash, deadline).await {
            Err(fault) if fault.is_unknown_script() => {
                let by_text = script.by_text(&keys, arguments);
                self.request(id, &by_text, deadline).await
            }
            reply => reply,
        }
    }

    fn error(&self, id: EntryId, fault: CommandError) -> TierError {
        if fault.is_wrong_type() {
            return self.damaged(id, "wrong type");
        }
        fault.into()
    }

    /// Counts a corrupt record and queues its removal.
    fn damaged(&self, id: EntryId, what: &str) -> TierError {
        self.corrupt.fetch_add(1, Ordering::Relaxed);
        self.removals.add(id);
        self.removals.wake();
        TierError::Corrupt(what.to_owned())
    }

    fn refuse(&self) -> PutOutcome {
        self.refused.fetch_add(1, Ordering::Relaxed);
        PutOutcome::Refused
    }
}

/// Claim request in progress. If its outcome remains unknown, because of a timeout, a lost connection or a
/// cancelled caller, the claim is released, since other processes would otherwise wait in vain.
struct ClaimAttempt {
    /// `None` once the outcome is known.
    shared: Option<Arc<RedisInner>>,
    id: EntryId,
    token: Token,
}

impl ClaimAttempt {
    fn new(shared: &Arc<RedisInner>, id: EntryId, token: Token) -> Self {
        let shared = Some(Arc::clone(shared));
        Self { shared, id, token }
    }

    fn settle(mut self, reply: &Result<Value, CommandError>) {
        if !reply.as_ref().is_err_and(CommandError::is_unknown_outcome) {
            self.shared = None;
        }
    }
}

impl Drop for ClaimAttempt {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.take() {
            let (id, token, handle) = (self.id, self.token, shared.handle.clone());
            handle.spawn(async move { shared.release(id, token).await });
        }
    }
}

async fn deliver_pending(shared: Arc<RedisInner>) {
    let mut returns = shared.servers.returns();
    loop {
        shared.removals.woken().await;
        returns.borrow_and_update();
        while !shared.deliver_all().await {
            let _ = timeout(shared.settings.retry_delay(), returns.changed()).await;
        }
    }
}

fn number(number: u64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// Formats a lifetime in milliseconds: never zero, and within the range of the server.
fn millis(time: Duration) -> Vec<u8> {
    const MOST: Duration = Duration::from_hours(365 * 24);
    number((time.min(MOST).as_millis() as u64).max(1))
}
