//! One server: its connections, and whether it is in service.
//!
//! A server goes out of service when a connection breaks, or when one fails some times in a row.
//! From then on nobody waits for it; one task alone tries it again, at times of its own.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Weak};

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::address::{Address, Refusal};
use super::jittered;
use super::settings::RedisSettings;
use crate::tier::TierError;

/// A server.
pub(super) struct Node {
    name: String,
    state: watch::Sender<NodeState>,
    max_failures: u32,
}

#[derive(Clone)]
enum NodeState {
    /// For the first time.
    Connecting,
    Up(Connections),
    Down(Refusal),
}

#[derive(Clone)]
struct Connections {
    /// Which connections they are: what becomes of an operation says nothing about later ones.
    round: u64,
    all: Arc<[Wire]>,
}

/// A connection. One may lead nowhere while the others are in order.
struct Wire {
    connection: MultiplexedConnection,
    /// In a row.
    failures: AtomicU32,
}

impl NodeState {
    fn is_up(&self, round: u64) -> bool {
        matches!(self, Self::Up(connections) if connections.round == round)
    }
}

impl Node {
    /// Begins to connect, and keeps the server connected until the node is dropped.
    pub(super) fn start(address: Address, settings: &RedisSettings) -> Arc<Self> {
        let node = Arc::new(Self {
            name: address.name(),
            state: watch::Sender::new(NodeState::Connecting),
            max_failures: settings.max_failures,
        });
        tokio::spawn(keep(Arc::downgrade(&node), address, settings.clone()));
        node
    }

    /// Waits for the first attempt to connect, and says what came of it.
    pub(super) async fn started(&self) -> Result<(), Refusal> {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| !matches!(state, NodeState::Connecting));
        match state.await.as_deref() {
            Ok(NodeState::Down(why)) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    /// Why it is not in service, if it is not.
    pub(super) fn degraded(&self) -> Option<String> {
        match &*self.state.borrow() {
            NodeState::Up(_) => None,
            NodeState::Connecting => Some(format!("{}: connecting", self.name)),
            NodeState::Down(why) => Some(format!("{}: {why}", self.name)),
        }
    }

    /// Sends a command and waits for its reply. Commands with the same `lane` are carried out in
    /// the order they are sent in.
    pub(super) async fn send(
        &self,
        lane: u128,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, Fault> {
        let NodeState::Up(connections) = self.state.borrow().clone() else {
            return Err(Fault::Down);
        };
        let wire = &connections.all[(lane % connections.all.len() as u128) as usize];
        let mut connection = wire.connection.clone();
        let reply = timeout_at(deadline, command.query_async(&mut connection));
        match reply.await {
            Ok(Ok(value)) => {
                wire.failures.store(0, Ordering::Relaxed);
                Ok(value)
            }
            Ok(Err(error)) => {
                self.judge(connections.round, wire, &error);
                Err(Fault::Said(error))
            }
            Err(_) => {
                self.failed(connections.round, wire, "it does not answer in time");
                Err(Fault::Late)
            }
        }
    }

    /// The same where the keys are being moved to. Waits for a server that was not known before.
    pub(super) async fn send_asking(
        &self,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, Fault> {
        let started = timeout_at(deadline, self.started()).await;
        started.map_err(|_| Fault::Late)?.map_err(|_| Fault::Down)?;
        let NodeState::Up(connections) = self.state.borrow().clone() else {
            return Err(Fault::Down);
        };
        let wire = &connections.all[0];
        let mut connection = wire.connection.clone();
        // Nothing comes between the two on their way.
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let replies = connection.send_packed_commands(&both, 0, 2);
        let reply = match timeout_at(deadline, replies).await {
            Ok(Ok(mut replies)) => replies.pop().unwrap_or(Value::Nil).extract_error(),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.failed(connections.round, wire, "it does not answer in time");
                return Err(Fault::Late);
            }
        };
        reply.map_err(|error| {
            self.judge(connections.round, wire, &error);
            Fault::Said(error)
        })
    }

    fn judge(&self, round: u64, wire: &Wire, error: &RedisError) {
        if error.is_io_error() || error.kind() == ErrorKind::Parse {
            self.lose(round, Refusal::of(error));
        } else if is_out_of_order(error) {
            self.failed(round, wire, &error.to_string());
        } else {
            wire.failures.store(0, Ordering::Relaxed);
        }
    }

    fn failed(&self, round: u64, wire: &Wire, why: &str) {
        if !self.state.borrow().is_up(round) {
            return;
        }
        let failures = wire.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= self.max_failures {
            self.lose(round, Refusal::Unreachable(why.to_owned()));
        }
    }

    fn lose(&self, round: u64, why: Refusal) {
        self.state.send_if_modified(|state| {
            let current = state.is_up(round);
            if current {
                *state = NodeState::Down(why);
            }
            current
        });
    }

    fn connected(&self, round: u64, all: Result<Vec<MultiplexedConnection>, Refusal>) {
        let wire = |connection| Wire {
            connection,
            failures: AtomicU32::new(0),
        };
        self.state.send_replace(match all {
            Ok(all) => NodeState::Up(Connections {
                round,
                all: all.into_iter().map(wire).collect(),
            }),
            Err(why) => NodeState::Down(why),
        });
    }
}

/// The life of a server's connections. Holds on to the node for moments only, so that dropping
/// the node ends it.
async fn keep(node: Weak<Node>, address: Address, settings: RedisSettings) {
    for round in 0.. {
        let connections = address.connect_all(&settings).await;
        let Some(alive) = node.upgrade() else { return };
        let state = alive.state.subscribe();
        alive.connected(round, connections);
        drop(alive);
        if !watch_over(&node, state, &settings).await {
            return;
        }
        sleep(jittered(settings.retry_after)).await;
    }
}

/// Returns when the server is out of service; false if the node is gone.
async fn watch_over(
    node: &Weak<Node>,
    mut state: watch::Receiver<NodeState>,
    settings: &RedisSettings,
) -> bool {
    for lane in 0.. {
        let lost = state.wait_for(|state| matches!(state, NodeState::Down(_)));
        let lost = timeout(settings.ping_every, lost).await;
        if let Ok(lost) = lost.map(|lost| lost.is_ok()) {
            return lost;
        }
        let Some(node) = node.upgrade() else { break };
        let deadline = Instant::now() + settings.write_deadline;
        // What comes of it, the node notes.
        let _ = node.send(lane, &redis::cmd("PING"), deadline).await;
    }
    false
}

/// Whether a server that says this is of no use to anybody now.
fn is_out_of_order(error: &RedisError) -> bool {
    let ErrorKind::Server(kind) = error.kind() else {
        return error.code() == Some("NOAUTH");
    };
    match kind {
        ServerErrorKind::BusyLoading
        | ServerErrorKind::ClusterDown
        | ServerErrorKind::MasterDown
        | ServerErrorKind::ReadOnly => true,
        // Old servers wrap it if it comes out of a script.
        ServerErrorKind::ResponseError => error.to_string().contains("-READONLY "),
        _ => false,
    }
}

/// Why an operation was not carried out.
#[derive(Debug)]
pub(super) enum Fault {
    /// The server is out of service, or it is not known which one to ask.
    Down,
    /// No answer within the deadline.
    Late,
    /// Too many operations are under way.
    Full,
    /// What the server said, or the connection.
    Said(RedisError),
}

impl Fault {
    /// Whether the server does not know a script by its hash.
    pub(super) fn is_unknown_script(&self) -> bool {
        self.is_said(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
    }

    /// Whether what lies under a key is something else than a string.
    pub(super) fn is_wrong_type(&self) -> bool {
        // Old servers wrap it if it comes out of a script.
        self.is_said(|error| error.to_string().contains("WRONGTYPE"))
    }

    /// Whether the server has no memory for it.
    pub(super) fn is_full(&self) -> bool {
        // Old servers wrap it if it comes out of a script.
        self.is_said(|error| error.code() == Some("OOM") || error.to_string().contains("-OOM "))
    }

    /// Whether it may have been carried out all the same.
    pub(super) fn is_unanswered(&self) -> bool {
        match self {
            Self::Late => true,
            Self::Down | Self::Full => false,
            Self::Said(error) => error.is_io_error(),
        }
    }

    /// Whether it may be carried out later.
    pub(super) fn is_passing(&self) -> bool {
        matches!(self, Self::Late | Self::Full) || self.is_elsewhere()
    }

    /// Whether this may mean that another server has to be asked from now on.
    pub(super) fn is_elsewhere(&self) -> bool {
        match self {
            Self::Down => true,
            Self::Late | Self::Full => false,
            Self::Said(error) => {
                error.is_cluster_error() || error.is_io_error() || is_out_of_order(error)
            }
        }
    }

    /// Where a slot is being moved to, which does not have this key any more, or not yet: host and port.
    pub(super) fn moved_to(&self) -> Option<&str> {
        match self {
            Self::Said(error) if error.kind() == ErrorKind::Server(ServerErrorKind::Ask) => {
                error.redirect_node().map(|(place, _)| place)
            }
            _ => None,
        }
    }

    fn is_said(&self, what: impl Fn(&RedisError) -> bool) -> bool {
        matches!(self, Self::Said(error) if what(error))
    }
}

impl From<Fault> for TierError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Down => Self::Down,
            Fault::Late => Self::Timeout,
            Fault::Full => Self::Failed("too many operations under way".to_owned()),
            Fault::Said(error) => Self::Failed(super::address::one_line(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_known_by_whatever_it_says() {
        let said =
            |kind, text: &str| RedisError::from((ErrorKind::Server(kind), "said", text.to_owned()));
        let wrapped = "Error running script (call to f_1): @user_script:9: @user_script: 9: \
                       -READONLY You can't write against a read only replica.";
        assert!(is_out_of_order(&said(ServerErrorKind::ReadOnly, "")));
        assert!(is_out_of_order(&said(
            ServerErrorKind::ResponseError,
            wrapped
        )));
        assert!(!is_out_of_order(&said(
            ServerErrorKind::ResponseError,
            "unknown command"
        )));
    }
}
