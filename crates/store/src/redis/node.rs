//! Connections to a Redis server, and its health state.
//!
//! A server is taken out of service when a connection is lost or fails repeatedly. From then on commands
//! fail at once, and a single task reconnects.
//!
//! A server that responds, but too late for requests, is slow: requests do without it, while purges and everything
//! else in the background go on. Replies count by their time, so that those that a request would not have waited
//! for do not make it healthy.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind, Value};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};

use super::address::{ConnectError, RedisAddress};
use super::deadline::Deadline;
use super::endpoint::Endpoint;
use super::settings::RedisSettings;
use crate::reconnection::AttemptFailure;
use crate::tier::TierError;

/// Redis server.
pub(super) struct RedisNode {
    endpoint: Endpoint,
    state: watch::Sender<NodeState>,
    /// Changes whenever this server, or another one of the same cluster, is connected.
    returns: Arc<watch::Sender<()>>,
    /// Replies come too late for requests.
    is_slow: AtomicBool,
    max_failures: u32,
    /// Time within which a reply shows that the server is not slow.
    prompt: Duration,
}

#[derive(Clone)]
enum NodeState {
    /// Initial connection attempt in progress.
    Connecting,
    Up(Arc<ConnectionSet>),
    Down(ConnectError),
}

struct ConnectionSet {
    /// Generation of the connections, so that results of earlier ones are ignored.
    round: u64,
    /// Address of the server, which sentinels may have given.
    server: RedisAddress,
    all: Vec<NodeConnection>,
}

/// Connection with its failure count, since one may stall while the others work.
struct NodeConnection {
    connection: MultiplexedConnection,
    /// Consecutive failures.
    failures: AtomicU32,
}

impl NodeState {
    fn is_up(&self, round: u64) -> bool {
        matches!(self, Self::Up(connections) if connections.round == round)
    }
}

impl RedisNode {
    /// Starts to connect, and maintains the connections until the node is dropped.
    pub(super) fn start(
        endpoint: Endpoint,
        settings: &RedisSettings,
        returns: &Arc<watch::Sender<()>>,
    ) -> Arc<Self> {
        let node = Arc::new(Self {
            endpoint: endpoint.clone(),
            state: watch::Sender::new(NodeState::Connecting),
            returns: Arc::clone(returns),
            is_slow: AtomicBool::new(false),
            max_failures: settings.max_failures,
            prompt: settings.prompt(),
        });
        tokio::spawn(keep(Arc::downgrade(&node), endpoint, settings.clone()));
        node
    }

    /// Returns the address of the server, if it is connected.
    pub(super) fn server(&self) -> Option<RedisAddress> {
        match &*self.state.borrow() {
            NodeState::Up(connections) => Some(connections.server.clone()),
            _ => None,
        }
    }

    /// Returns a receiver that changes whenever a server is connected.
    pub(super) fn returns(&self) -> watch::Receiver<()> {
        self.returns.subscribe()
    }

    /// Waits for the initial connection attempt.
    pub(super) async fn started(&self) -> Result<(), ConnectError> {
        let mut state = self.state.subscribe();
        let state = state.wait_for(|state| !matches!(state, NodeState::Connecting));
        match state.await.as_deref() {
            Ok(NodeState::Down(why)) => Err(why.clone()),
            _ => Ok(()),
        }
    }

    fn is_slow(&self) -> bool {
        self.is_slow.load(Ordering::Relaxed)
    }

    /// Describes why the server is out of service, or slow; `None` if it is in service.
    pub(super) fn degraded(&self) -> Option<String> {
        match &*self.state.borrow() {
            NodeState::Up(_) => self.is_slow().then(|| {
                format!(
                    "{}: slow, used for purges only until it responds within {} ms",
                    self.endpoint.name(),
                    self.prompt.as_millis()
                )
            }),
            NodeState::Connecting => Some(format!("{}: connecting", self.endpoint.name())),
            NodeState::Down(why) => Some(format!("{}: {why}", self.endpoint.name())),
        }
    }

    /// Sends a command and waits for its reply. Commands in the same `lane` are executed in order.
    pub(super) async fn send(
        &self,
        lane: u128,
        command: &Cmd,
        deadline: Deadline,
    ) -> Result<Value, CommandError> {
        if deadline.is_of_request() && self.is_slow() {
            return Err(CommandError::Down);
        }
        let NodeState::Up(connections) = self.state.borrow().clone() else {
            return Err(CommandError::Down);
        };
        let sent = Instant::now();
        let wire = &connections.all[(lane % connections.all.len() as u128) as usize];
        let mut connection = wire.connection.clone();
        let reply = timeout_at(deadline.at(), command.query_async(&mut connection));
        match reply.await {
            Ok(Ok(value)) => {
                self.works(wire, sent);
                Ok(value)
            }
            Ok(Err(error)) => {
                self.judge(&connections, wire, sent, &error);
                Err(CommandError::Server(error))
            }
            Err(_) => {
                self.late(connections.round, wire, deadline);
                Err(CommandError::Late)
            }
        }
    }

    /// Sends a command to the target of a redirection, preceded by ASKING, which is harmless there if the slot has
    /// moved already. Waits for the connection to a
    /// newly known server.
    pub(super) async fn send_asking(
        &self,
        command: &Cmd,
        deadline: Deadline,
    ) -> Result<Value, CommandError> {
        let started = timeout_at(deadline.at(), self.started()).await;
        started
            .map_err(|_| CommandError::Late)?
            .map_err(|_| CommandError::Down)?;
        let NodeState::Up(connections) = self.state.borrow().clone() else {
            return Err(CommandError::Down);
        };
        let wire = &connections.all[0];
        let mut connection = wire.connection.clone();
        let sent = Instant::now();
        // Both commands are sent in one pipeline, since ASKING applies to the next command only.
        let mut both = redis::pipe();
        both.cmd("ASKING").add_command(command.clone());
        let replies = connection.send_packed_commands(&both, 0, 2);
        let reply = match timeout_at(deadline.at(), replies).await {
            Ok(Ok(mut replies)) => replies.pop().unwrap_or(Value::Nil).extract_error(),
            Ok(Err(error)) => Err(error),
            Err(_) => {
                self.late(connections.round, wire, deadline);
                return Err(CommandError::Late);
            }
        };
        reply.map_err(|error| {
            self.judge(&connections, wire, sent, &error);
            CommandError::Server(error)
        })
    }

    fn judge(
        &self,
        connections: &ConnectionSet,
        wire: &NodeConnection,
        sent: Instant,
        error: &RedisError,
    ) {
        let round = connections.round;
        if error.is_io_error() || error.kind() == ErrorKind::Parse {
            self.lose(round, ConnectError::of(error));
        } else if matches!(self.endpoint, Endpoint::Master(_)) && is_of_replica(error) {
            // Reads succeed there, and would make it healthy.
            let why = format!("{} is a replica", connections.server.name());
            self.lose(round, ConnectError::Unreachable(why));
        } else if is_out_of_order(error) {
            self.failed(round, wire, &error.to_string());
        } else {
            self.works(wire, sent);
        }
    }

    fn works(&self, wire: &NodeConnection, sent: Instant) {
        if sent.elapsed() <= self.prompt {
            wire.failures.store(0, Ordering::Relaxed);
        }
    }

    fn late(&self, round: u64, wire: &NodeConnection, deadline: Deadline) {
        let is_last = wire.failures.load(Ordering::Relaxed) + 1 >= self.max_failures;
        if is_last && deadline.is_of_request() && self.state.borrow().is_up(round) {
            self.is_slow.store(true, Ordering::Relaxed);
        }
        self.failed(round, wire, "response timeout");
    }

    fn failed(&self, round: u64, wire: &NodeConnection, why: &str) {
        if !self.state.borrow().is_up(round) {
            return;
        }
        let failures = wire.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures >= self.max_failures {
            self.lose(round, ConnectError::Unreachable(why.to_owned()));
        }
    }

    fn lose(&self, round: u64, why: ConnectError) {
        self.state.send_if_modified(|state| {
            let current = state.is_up(round);
            if current {
                *state = NodeState::Down(why);
            }
            current
        });
    }

    /// Takes the server out of service if sentinels name another one.
    async fn look_for_master(&self, settings: &RedisSettings) {
        let Endpoint::Master(sentinels) = &self.endpoint else {
            return;
        };
        let NodeState::Up(connections) = self.state.borrow().clone() else {
            return;
        };
        let server = connections.server.name();
        let present = sentinels.present(settings).await.map(|it| it.name());
        if let Some(present) = present.filter(|present| *present != server) {
            let why = format!("{present} has taken the place of {server}");
            self.lose(connections.round, ConnectError::Unreachable(why));
        }
    }

    fn connected(&self, round: u64, (server, all): (RedisAddress, Vec<MultiplexedConnection>)) {
        let wire = |connection| NodeConnection {
            connection,
            failures: AtomicU32::new(0),
        };
        self.state
            .send_replace(NodeState::Up(Arc::new(ConnectionSet {
                round,
                server,
                all: all.into_iter().map(wire).collect(),
            })));
        self.returns.send_replace(());
    }

    fn not_connected(&self, why: ConnectError) -> AttemptFailure {
        let failure = why.as_failure();
        self.state.send_replace(NodeState::Down(why));
        failure
    }
}

/// Maintains the connections of a node. Holds a strong reference only briefly, so that dropping the node
/// ends the task.
async fn keep(node: Weak<RedisNode>, endpoint: Endpoint, settings: RedisSettings) {
    let (reconnection, mut early_losses) = (settings.reconnection(), 0);
    let mut pause = Duration::ZERO;
    for round in 0.. {
        let attempt = || endpoint.connect_all(&settings);
        let failed = |why| node.upgrade().map(|node| node.not_connected(why));
        let connections = reconnection.connect(pause, attempt, failed).await;
        let Some((alive, connections)) = node.upgrade().zip(connections) else {
            return;
        };
        let state = alive.state.subscribe();
        alive.connected(round, connections);
        drop(alive);
        let connected = Instant::now();
        if !watch_over(&node, state, &settings).await {
            return;
        }
        // A server that is lost right after each connection is no better than one that is out of reach.
        let is_early = connected.elapsed() <= settings.retry_after;
        early_losses = if is_early { early_losses + 1 } else { 0 };
        pause = reconnection.pause_after_loss(early_losses);
    }
}

/// Waits until the server is out of service; returns `false` if the node was dropped.
async fn watch_over(
    node: &Weak<RedisNode>,
    mut state: watch::Receiver<NodeState>,
    settings: &RedisSettings,
) -> bool {
    let mut prompt = 0;
    for lane in 0.. {
        let is_slow = node.upgrade().is_some_and(|node| node.is_slow());
        let pause = match is_slow {
            true if lane == 0 => Duration::ZERO,
            true => settings.retry_delay(),
            false => settings.ping_every,
        };
        let lost = state.wait_for(|state| matches!(state, NodeState::Down(_)));
        let lost = timeout(pause, lost).await;
        if let Ok(lost) = lost.map(|lost| lost.is_ok()) {
            return lost;
        }
        let Some(node) = node.upgrade() else { break };
        let sent = Instant::now();
        let deadline = Deadline::in_background(settings.write_deadline);
        let replied = node.send(lane, &redis::cmd("PING"), deadline).await;
        prompt = match replied {
            Ok(_) if sent.elapsed() <= node.prompt => prompt + 1,
            _ => 0,
        };
        if prompt >= settings.max_failures {
            node.is_slow.store(false, Ordering::Relaxed);
        }
        node.look_for_master(settings).await;
    }
    false
}

/// Returns whether the error means that the server is currently unusable.
fn is_out_of_order(error: &RedisError) -> bool {
    let ErrorKind::Server(kind) = error.kind() else {
        return error.code() == Some("NOAUTH");
    };
    match kind {
        ServerErrorKind::BusyLoading
        | ServerErrorKind::ClusterDown
        | ServerErrorKind::MasterDown => true,
        _ => is_of_replica(error),
    }
}

fn is_of_replica(error: &RedisError) -> bool {
    match error.kind() {
        ErrorKind::Server(ServerErrorKind::ReadOnly) => true,
        // Old servers wrap the error if it is raised by a script.
        ErrorKind::Server(ServerErrorKind::ResponseError) => {
            error.to_string().contains("-READONLY ")
        }
        _ => false,
    }
}

/// Reasons why a command failed.
#[derive(Debug)]
pub(super) enum CommandError {
    /// The server is out of service, or the slot has no known master.
    Down,
    /// Timeout.
    Late,
    /// Too many concurrent operations.
    Full,
    /// Error reply of the server, or of the connection.
    Server(RedisError),
}

impl CommandError {
    /// Returns whether the server does not know a script by its hash.
    pub(super) fn is_unknown_script(&self) -> bool {
        self.is_server_error(|error| error.kind() == ErrorKind::Server(ServerErrorKind::NoScript))
    }

    /// Returns whether the key holds another type than a string.
    pub(super) fn is_wrong_type(&self) -> bool {
        // Old servers wrap the error if it is raised by a script.
        self.is_server_error(|error| error.to_string().contains("WRONGTYPE"))
    }

    /// Returns whether the server is out of memory.
    pub(super) fn is_full(&self) -> bool {
        // Old servers wrap the error if it is raised by a script.
        self.is_server_error(|error| {
            error.code() == Some("OOM") || error.to_string().contains("-OOM ")
        })
    }

    /// Returns whether the command may have been executed.
    pub(super) fn is_unknown_outcome(&self) -> bool {
        match self {
            Self::Late => true,
            Self::Down | Self::Full => false,
            Self::Server(error) => error.is_io_error(),
        }
    }

    /// Returns whether a retry may succeed.
    pub(super) fn is_transient(&self) -> bool {
        matches!(self, Self::Late | Self::Full) || self.needs_update()
    }

    /// Returns whether the slot map may be outdated.
    pub(super) fn needs_update(&self) -> bool {
        match self {
            Self::Down => true,
            Self::Late | Self::Full => false,
            Self::Server(error) => {
                error.is_cluster_error() || error.is_io_error() || is_out_of_order(error)
            }
        }
    }

    /// Server that has, or gets, the slot (MOVED and ASK redirections): host and port.
    pub(super) fn redirection(&self) -> Option<&str> {
        match self {
            Self::Server(error) => error.redirect_node().map(|(place, _)| place),
            _ => None,
        }
    }

    fn is_server_error(&self, what: impl Fn(&RedisError) -> bool) -> bool {
        matches!(self, Self::Server(error) if what(error))
    }
}

impl From<CommandError> for TierError {
    fn from(fault: CommandError) -> Self {
        match fault {
            CommandError::Down => Self::Down,
            CommandError::Late => Self::Timeout,
            CommandError::Full => Self::Failed("too many concurrent operations".to_owned()),
            CommandError::Server(error) => Self::Failed(super::address::one_line(&error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_is_recognized_by_its_replies() {
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
