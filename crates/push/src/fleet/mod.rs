//! Documents shared by several nodes: Redis or Valkey stores them, and every node has a full copy.
//!
//! A change is a Lua script in Redis, which checks the preconditions, writes, and appends to a stream that
//! all nodes follow, atomically. A reader on each node applies the stream; a change takes effect on a node
//! when its reader reaches it, whichever node made it, so that all nodes deliver the same changes in the same
//! order and with the same numbers.

mod draft;
mod expiry;
mod reader;
mod record;
mod scripts;
mod snapshot;
mod state;
mod written;

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use microcache_store::redis::{Line, NoReply, RedisSettings, RedisStartError};
use tokio::sync::{Mutex, MutexGuard, Semaphore, oneshot};
use tokio::time::{Instant, timeout, timeout_at};
use xxhash_rust::xxh3::xxh3_64;

use self::draft::{Argument, draft};
use self::expiry::Expiry;
use self::reader::Reader;
use self::scripts::{CHANGE, Changed, KEPT, epoch};
pub use self::state::FleetStats;
use self::state::State;
use crate::changes::version::Version;
use crate::documents::Documents;
use crate::publishing::wish::{Deed, Done, Refused, Wish};
use crate::settings::FleetSettings;

/// Limit of concurrent write requests.
const MAX_WAITING: usize = 1024;
/// Deadline of a Redis reply.
const PATIENCE: Duration = Duration::from_secs(2);
/// Limit of the wait for this node's reader to reach a change before it is acknowledged.
const UNTIL_SEEN: Duration = Duration::from_secs(1);
/// Limit of the retries of a patch while other writers change the document.
const CONTENTION: Duration = Duration::from_secs(5);
/// Limit of concurrent patches, each of which may hold a document of the largest size.
const TURNS: usize = 16;
/// Limit of the wait for the documents at the start. Without them, requests for documents are answered 503.
const FIRST_LOAD: Duration = Duration::from_secs(3);

impl FleetSettings {
    /// Returns the settings of one pipelined connection.
    fn redis(&self, patience: Duration) -> RedisSettings {
        RedisSettings {
            urls: self.urls.clone(),
            cluster: self.cluster,
            authorities: self.authorities.clone(),
            connections: 1,
            max_failures: 1,
            max_in_flight: MAX_WAITING,
            write_deadline: patience,
            retry_after: Duration::from_millis(500),
            ..RedisSettings::default()
        }
    }
}

/// A node of several, connected to Redis.
pub(crate) struct Fleet {
    documents: Arc<Documents>,
    wire: Wire,
    state: Arc<State>,
    under_way: Semaphore,
    /// Locks that serialize patches of the same document, by a hash of its name: each starts from the result
    /// of the one before.
    turns: [Mutex<()>; TURNS],
    /// Stops the thread when dropped.
    _alive: oneshot::Sender<()>,
}

/// A connection to Redis, with the keys of the documents.
struct Wire {
    line: Line,
    documents: String,
    changes: String,
    /// Key of the earlier versions.
    history: String,
}

impl Wire {
    async fn start(settings: &FleetSettings, patience: Duration) -> Result<Self, RedisStartError> {
        let line = Line::start(settings.redis(patience), b"documents that are pushed").await?;
        Ok(Self {
            documents: line.key("mcd1"),
            changes: line.key("mcd1c"),
            history: line.key("mcd1h"),
            line,
        })
    }

    fn keys(&self) -> [String; 3] {
        let keys = [&self.documents, &self.changes, &self.history];
        keys.map(String::clone)
    }
}

impl Fleet {
    /// Connects, and waits up to [`FIRST_LOAD`] for the documents.
    pub(crate) fn start(
        settings: FleetSettings,
        documents: &Arc<Documents>,
    ) -> Result<Self, FleetError> {
        let (started, starting) = sync_channel(1);
        let (alive, ended) = oneshot::channel();
        let state = Arc::new(State::new());
        let thread = Thread {
            settings,
            documents: Arc::clone(documents),
            state: Arc::clone(&state),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(FleetError::Thread)?;
        let named = std::thread::Builder::new().name("push".to_owned());
        named
            .spawn(move || runtime.block_on(thread.run(started, ended)))
            .map_err(FleetError::Thread)?;
        let wire = starting
            .recv()
            .unwrap_or(Err(RedisStartError::Ended))
            .map_err(FleetError::Redis)?;
        if !state.wait_for_documents(FIRST_LOAD) {
            tracing::error!(
                target: TARGET,
                "no documents yet: requests for them are answered 503 until push_redis can be read"
            );
        }
        Ok(Self {
            documents: Arc::clone(documents),
            wire,
            state,
            under_way: Semaphore::new(MAX_WAITING),
            turns: std::array::from_fn(|_| Mutex::default()),
            _alive: alive,
        })
    }

    pub(crate) fn stats(&self) -> FleetStats {
        self.state.stats()
    }

    /// Executes all of these write requests, or none of them.
    pub(crate) async fn ask(&self, wishes: &[Wish]) -> Result<Vec<Done>, Refused> {
        let _place = self.under_way.try_acquire().map_err(|_| Refused::Busy)?;
        let counters = &self.documents.counters;
        let done = self.change(wishes).await;
        match &done {
            Ok(done) => {
                let same = done.iter().filter(|it| matches!(it, Done::Same(_)));
                counters.same.add(same.count() as u64);
            }
            Err(Refused::Unreachable(_) | Refused::Unknown(_)) => counters.unwritten.add_one(),
            Err(_) => counters.refused.add_one(),
        }
        done
    }

    async fn change(&self, wishes: &[Wish]) -> Result<Vec<Done>, Refused> {
        let needs_condition = self.documents.settings.conditions;
        if needs_condition && wishes.iter().any(|wish| !wish.condition.is_set()) {
            return Err(Refused::NoCondition);
        }
        let end = Instant::now() + CONTENTION;
        let turn = timeout_at(end, self.turn(wishes));
        let _turn = turn.await.map_err(|_| Refused::Contended)?;
        while Instant::now() < end {
            let mut fault = None;
            let mut arguments = self.beginning();
            for wish in wishes {
                let drafted = draft(&self.documents, wish)?;
                fault = fault.or(drafted.fault);
                arguments.extend(drafted.arguments);
            }
            let reply = self.call(&arguments).await.map_err(refused)?;
            match reply {
                Changed::Done {
                    epoch,
                    newest,
                    done,
                } => {
                    let number = newest;
                    self.state.written.note(Version { epoch, number });
                    self.until_seen(epoch, newest).await;
                    return fault.map_or_else(|| self::done(epoch, &done), Err);
                }
                Changed::Stale { epoch, number } => self.until_seen(epoch, number).await,
                Changed::Missing => return Err(Refused::Missing),
                Changed::Condition => return Err(Refused::Condition),
                Changed::Full => return Err(Refused::Full),
            }
        }
        Err(Refused::Contended)
    }

    /// Locks the document of the first patch, if any: patches of one document do not run concurrently.
    async fn turn(&self, wishes: &[Wish]) -> Option<MutexGuard<'_, ()>> {
        let mut wishes = wishes.iter();
        let patch = wishes.find(|wish| matches!(wish.deed, Deed::Patch(_)))?;
        let at = xxh3_64(patch.name.as_bytes()) as usize % TURNS;
        Some(self.turns[at].lock().await)
    }

    fn beginning(&self) -> Vec<Argument> {
        let settings = &self.documents.settings;
        vec![
            epoch(microcache_store::random::number()).into_bytes(),
            settings.memory.to_string().into_bytes(),
            KEPT.to_string().into_bytes(),
            (settings.history.max(1) - 1).to_string().into_bytes(),
        ]
    }

    async fn call(&self, arguments: &[Argument]) -> Result<Changed, NoReply> {
        let (line, keys) = (&self.wire.line, self.wire.keys());
        let bytes: usize = arguments.iter().map(Vec::len).sum();
        let patience = PATIENCE + while_sent(bytes as u64);
        let reply = line.call(&CHANGE, &keys, arguments, patience).await;
        self.state.note_answer(reply.as_ref().err());
        Changed::read(reply?)
    }

    /// Waits until the reader has reached a change, but only for a limited time.
    async fn until_seen(&self, epoch: u64, number: u64) {
        let _ = timeout(UNTIL_SEEN, self.state.until_seen(epoch, number)).await;
    }
}

fn done(epoch: u64, done: &[(String, u64)]) -> Result<Vec<Done>, Refused> {
    let each = done.iter().map(|(what, number)| {
        let number = *number;
        let version = Version { epoch, number };
        Ok(match what.as_str() {
            "created" => Done::Created(version),
            "changed" => Done::Changed(version),
            "same" => Done::Same(version),
            "deleted" => Done::Deleted,
            _ => return Err(refused(NoReply::Unreadable)),
        })
    });
    each.collect()
}

/// Returns the additional deadline for transferring so many bytes.
const fn while_sent(bytes: u64) -> Duration {
    const EACH_SECOND: u64 = 16 * 1024 * 1024;
    Duration::from_secs(bytes / EACH_SECOND)
}

fn refused(why: NoReply) -> Refused {
    match why {
        NoReply::Full => Refused::KeeperFull,
        why if why.is_unknown() => Refused::Unknown(why.to_string()),
        why => Refused::Unreachable(why.to_string()),
    }
}

/// Error starting a node.
#[derive(Debug, thiserror::Error)]
pub enum FleetError {
    /// The settings are invalid, or Redis rejects them.
    #[error("push_redis: {0}")]
    Redis(RedisStartError),
    /// The thread cannot be started.
    #[error("the thread that follows push_redis cannot be started: {0}")]
    Thread(std::io::Error),
}

/// The thread that follows the stream and owns all connections.
struct Thread {
    settings: FleetSettings,
    documents: Arc<Documents>,
    state: Arc<State>,
}

type Started = SyncSender<Result<Wire, RedisStartError>>;

impl Thread {
    async fn run(self, started: Started, ended: oneshot::Receiver<()>) {
        let wires = self.connect().await;
        let (reading, expiring) = match wires {
            Ok((writing, reading, expiring)) => {
                let _ = started.send(Ok(writing));
                (reading, expiring)
            }
            Err(error) => {
                let _ = started.send(Err(error));
                return;
            }
        };
        let expiry = Expiry::new(
            expiring,
            Arc::clone(&self.documents),
            Arc::clone(&self.state),
        );
        let reader = Reader::new(reading, self.documents, self.state);
        tokio::select! {
            () = reader.run() => {}
            () = expiry.run() => {}
            _ = ended => {}
        }
    }

    async fn connect(&self) -> Result<(Wire, Wire, Wire), RedisStartError> {
        let of = &self.settings;
        // The blocking reads of the stream have a connection of their own.
        tokio::try_join!(
            Wire::start(of, PATIENCE),
            Wire::start(of, reader::PATIENCE),
            Wire::start(of, PATIENCE)
        )
    }
}

/// Target of log messages for the operator.
const TARGET: &str = "microcache";
