//! Documents shared by several nodes: Redis or Valkey stores them, and every node has a full copy.
//!
//! A change is a Lua script in Redis, which checks the preconditions, writes, and appends to a stream that
//! all nodes follow, atomically. A reader on each node applies the stream; a change takes effect on a node
//! when its reader reaches it, whichever node made it, so that all nodes deliver the same changes in the same
//! order and with the same numbers.

mod change_stream;
pub(crate) mod connection;
mod expiry;
mod lost_writes;
mod record;
mod script_call;
mod scripts;
mod snapshot;
pub(crate) mod state;
mod stream_reader;
pub(crate) mod thread;

use std::sync::Arc;
use std::time::Duration;

use microcache_store::TierError;
use microcache_store::redis::NoReply;
use tokio::sync::{Mutex, MutexGuard, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use xxhash_rust::xxh3::xxh3_64;

use self::connection::{FleetConnection, MAX_CONCURRENT, REPLY_TIMEOUT, TARGET, transfer_time};
use self::expiry::Expiry;
use self::script_call::{ScriptArgument, script_call};
use self::scripts::{CHANGE, ChangeReply, STREAM_LENGTH, epoch};
pub use self::state::FleetStats;
use self::state::{APPLY_TIMEOUT, FIRST_LOAD, OutageTexts, State};
use self::stream_reader::StreamReader;
pub use self::thread::FleetError;
use self::thread::start_thread;
use crate::changes::version::DocumentVersion;
use crate::documents::Documents;
use crate::publishing::write_error::WriteError;
use crate::publishing::write_request::{WriteOp, WriteOutcome, WriteRequest};
use crate::settings::FleetSettings;

/// Limit of the retries of a patch while other writers change the document.
const CONTENTION: Duration = Duration::from_secs(5);
/// Limit of concurrent patches, each of which may hold a document of the largest size.
const PATCH_LOCKS: usize = 16;
/// The messages about documents.
const DOCUMENTS: OutageTexts = OutageTexts {
    during: "documents are served unchanged, and writes are rejected",
    after: "documents can be changed again",
    rejection: "documents stay unchanged",
    foreign: "a document",
};

/// A node of several, connected to Redis.
pub(crate) struct RedisBackend {
    documents: Arc<Documents>,
    connection: FleetConnection,
    state: Arc<State>,
    in_progress: Semaphore,
    /// Locks that serialize patches of the same document, by a hash of its name: each starts from the result
    /// of the one before.
    patch_locks: [Mutex<()>; PATCH_LOCKS],
    /// Stops the thread when dropped.
    _thread_alive: oneshot::Sender<()>,
}

impl RedisBackend {
    /// Connects, and waits up to [`FIRST_LOAD`] for the documents.
    pub(crate) fn start(
        settings: FleetSettings,
        documents: &Arc<Documents>,
    ) -> Result<Self, FleetError> {
        let state = Arc::new(State::new(&DOCUMENTS));
        let (copy, states) = (Arc::clone(documents), Arc::clone(&state));
        let (connection, alive) =
            start_thread("push", settings, move |reading, expiring| async move {
                let expiry = Expiry::new(expiring, Arc::clone(&copy), Arc::clone(&states));
                let reader = StreamReader::new(reading, copy, states);
                tokio::join!(reader.run(), expiry.run());
            })?;
        if !state.wait_for_documents(FIRST_LOAD) {
            tracing::error!(
                target: TARGET,
                "no documents yet: requests for them are answered 503 until push_redis is reachable"
            );
        }
        Ok(Self {
            documents: Arc::clone(documents),
            connection,
            state,
            in_progress: Semaphore::new(MAX_CONCURRENT),
            patch_locks: std::array::from_fn(|_| Mutex::default()),
            _thread_alive: alive,
        })
    }

    pub(crate) fn stats(&self) -> FleetStats {
        self.state.stats()
    }

    /// Uses the user and password of these URLs for connections from now on.
    pub(crate) async fn change_login(&self, urls: &[String]) -> Result<(), TierError> {
        self.connection.line.change_login(urls.to_vec()).await
    }

    /// Executes all of these write requests, or none of them.
    pub(crate) async fn submit(
        &self,
        writes: &[WriteRequest],
    ) -> Result<Vec<WriteOutcome>, WriteError> {
        let _place = self
            .in_progress
            .try_acquire()
            .map_err(|_| WriteError::Busy)?;
        let counters = &self.documents.counters;
        let done = self.change(writes).await;
        match &done {
            Ok(done) => {
                let same = done.iter().filter(|it| matches!(it, WriteOutcome::Same(_)));
                counters.same.add(same.count() as u64);
            }
            Err(WriteError::Unreachable(_) | WriteError::Unknown(_)) => {
                counters.unwritten.add_one();
            }
            Err(_) => counters.refused.add_one(),
        }
        done
    }

    async fn change(&self, writes: &[WriteRequest]) -> Result<Vec<WriteOutcome>, WriteError> {
        let needs_condition = self.documents.settings.conditions;
        if needs_condition && writes.iter().any(|write| !write.condition.is_set()) {
            return Err(WriteError::ConditionRequired);
        }
        let end = Instant::now() + CONTENTION;
        let lock_patched = timeout_at(end, self.lock_patched(writes));
        let _turn = lock_patched.await.map_err(|_| WriteError::Contended)?;
        while Instant::now() < end {
            let mut fault = None;
            let mut arguments = self.common_arguments();
            for write in writes {
                let call = script_call(&self.documents, write)?;
                fault = fault.or(call.local_error);
                arguments.extend(call.arguments);
            }
            let reply = self.call(&arguments).await.map_err(refused)?;
            match reply {
                ChangeReply::Done {
                    epoch,
                    newest,
                    done,
                } => {
                    let number = newest;
                    self.state
                        .lost_writes
                        .record(DocumentVersion { epoch, number });
                    self.wait_until_applied(epoch, newest).await;
                    return fault.map_or_else(|| self::done(epoch, &done), Err);
                }
                ChangeReply::Stale { epoch, number } => {
                    self.wait_until_applied(epoch, number).await;
                }
                ChangeReply::Missing => return Err(WriteError::Missing),
                ChangeReply::Condition => return Err(WriteError::ConditionFailed),
                ChangeReply::Full => return Err(WriteError::Full),
            }
        }
        Err(WriteError::Contended)
    }

    /// Locks the document of the first patch, if any: patches of one document do not run concurrently.
    async fn lock_patched(&self, writes: &[WriteRequest]) -> Option<MutexGuard<'_, ()>> {
        let mut writes = writes.iter();
        let patch = writes.find(|write| matches!(write.op, WriteOp::Patch(_)))?;
        let at = xxh3_64(patch.name.as_bytes()) as usize % PATCH_LOCKS;
        Some(self.patch_locks[at].lock().await)
    }

    fn common_arguments(&self) -> Vec<ScriptArgument> {
        let settings = &self.documents.settings;
        vec![
            epoch(microcache_store::random::number()).into_bytes(),
            settings.memory.to_string().into_bytes(),
            STREAM_LENGTH.to_string().into_bytes(),
            (settings.history.max(1) - 1).to_string().into_bytes(),
        ]
    }

    async fn call(&self, arguments: &[ScriptArgument]) -> Result<ChangeReply, NoReply> {
        let (line, keys) = (&self.connection.line, self.connection.keys());
        let bytes: usize = arguments.iter().map(Vec::len).sum();
        let time_limit = REPLY_TIMEOUT + transfer_time(bytes as u64);
        let reply = line.call(&CHANGE, &keys, arguments, time_limit).await;
        self.state.record_reply(reply.as_ref().err());
        ChangeReply::read(reply?)
    }

    /// Waits until the reader has reached a change, but only for a limited time.
    async fn wait_until_applied(&self, epoch: u64, number: u64) {
        let _ = timeout(APPLY_TIMEOUT, self.state.wait_until_applied(epoch, number)).await;
    }
}

fn done(epoch: u64, done: &[(String, u64)]) -> Result<Vec<WriteOutcome>, WriteError> {
    let each = done.iter().map(|(what, number)| {
        let number = *number;
        let version = DocumentVersion { epoch, number };
        Ok(match what.as_str() {
            "created" => WriteOutcome::Created(version),
            "changed" => WriteOutcome::Changed(version),
            "same" => WriteOutcome::Same(version),
            "deleted" => WriteOutcome::Deleted,
            _ => return Err(refused(NoReply::Unreadable)),
        })
    });
    each.collect()
}

fn refused(why: NoReply) -> WriteError {
    match why {
        NoReply::Full => WriteError::BackendFull,
        why if why.is_unknown() => WriteError::Unknown(why.to_string()),
        why => WriteError::Unreachable(why.to_string()),
    }
}
