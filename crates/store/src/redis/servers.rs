//! Routing of commands to servers.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::sync::watch;

use super::address::{ConnectError, RedisAddress, RedisStartError};
use super::cluster::Cluster;
use super::deadline::Deadline;
use super::endpoint::Endpoint;
use super::node::{CommandError, RedisNode};
use super::record::{PREFIX, slot};
use super::settings::RedisSettings;
use crate::tier::EntryId;

/// Configured servers: a single one, or a cluster.
pub(super) enum ServerSet {
    One(Arc<RedisNode>),
    Cluster(Arc<Cluster>),
}

impl ServerSet {
    /// Connects to the servers. Unreachable ones are retried in the background.
    ///
    /// # Errors
    ///
    /// [`RedisStartError`] if no host can be resolved or the connection is rejected.
    pub(super) async fn start(
        endpoints: Vec<Endpoint>,
        settings: &RedisSettings,
    ) -> Result<Self, RedisStartError> {
        let mut unresolved = None;
        let mut known = Vec::new();
        for endpoint in endpoints {
            match endpoint.resolve().await {
                Ok(()) => known.push(endpoint),
                Err(error) => unresolved = Some(error),
            }
        }
        let Some(first) = known.first() else {
            return Err(unresolved.unwrap_or(RedisStartError::Addresses(0)));
        };
        let name = first.name();
        let (servers, outcome) = if settings.cluster {
            let seeds = known.into_iter().filter_map(|endpoint| match endpoint {
                Endpoint::Address(address) => Some(*address),
                Endpoint::Master(_) => None,
            });
            let (cluster, outcome) = Cluster::start(seeds.collect(), settings).await;
            (Self::Cluster(Arc::new(cluster)), outcome)
        } else {
            let node = RedisNode::start(first.clone(), settings, &Arc::default());
            let outcome = node.started().await;
            (Self::One(node), outcome)
        };
        match outcome {
            Err(ConnectError::Rejected(why)) => {
                Err(RedisStartError::Refused { address: name, why })
            }
            Ok(()) | Err(ConnectError::Refused(_) | ConnectError::Unreachable(_)) => Ok(servers),
        }
    }

    /// Returns the address of the server of an id, if it is connected.
    pub(super) fn address(&self, id: EntryId) -> Option<RedisAddress> {
        let node = match self {
            Self::One(node) => Some(Arc::clone(node)),
            Self::Cluster(cluster) => cluster.node(slot(id)),
        };
        node?.server()
    }

    /// Returns a receiver that changes whenever a server is connected.
    pub(super) fn returns(&self) -> watch::Receiver<()> {
        match self {
            Self::One(node) => node.returns(),
            Self::Cluster(cluster) => cluster.returns(),
        }
    }

    /// Sends a command for an id to the server of its slot.
    pub(super) async fn send(
        &self,
        id: EntryId,
        command: &Cmd,
        deadline: Deadline,
    ) -> Result<Value, CommandError> {
        // Commands for one id share a lane and stay in order.
        let lane = u128::from_be_bytes(id.to_bytes());
        match self {
            Self::One(node) => node.send(lane, command, deadline).await,
            Self::Cluster(cluster) => {
                let reply = match cluster.node(slot(id)) {
                    Some(node) => node.send(lane, command, deadline).await,
                    None => Err(CommandError::Down),
                };
                if reply.as_ref().is_err_and(CommandError::needs_update) {
                    cluster.request_update();
                }
                reply
            }
        }
    }

    /// Sends a command for an id, and follows a redirection to the server that its slot moves or has moved to.
    pub(super) async fn send_following(
        &self,
        id: EntryId,
        command: &Cmd,
        deadline: Deadline,
    ) -> Result<Value, CommandError> {
        let reply = self.send(id, command, deadline).await;
        if let Err(fault) = &reply
            && let Self::Cluster(cluster) = self
            && let Some(node) = fault.redirection().and_then(|to| cluster.redirected(to))
        {
            return node.send_asking(command, deadline).await;
        }
        reply
    }

    /// Removes all records and claims. Returns whether that succeeded on all servers.
    pub(super) async fn clear(&self, timeout: Duration) -> bool {
        let nodes = match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.nodes(),
        };
        // All servers must be in service, since a partial removal would have to be repeated.
        if nodes.is_empty() || !nodes.iter().all(|node| node.server().is_some()) {
            return false;
        }
        for node in nodes {
            if clear(&node, timeout).await.is_err() {
                return false;
            }
        }
        true
    }

    /// Describes the servers that are out of service, or slow.
    pub(super) fn degraded(&self) -> Vec<String> {
        match self {
            Self::One(node) => node.degraded().into_iter().collect(),
            Self::Cluster(cluster) => cluster.degraded(),
        }
    }
}

/// Removes all keys of the tier from a server, in batches of SCAN; other keys are left alone.
async fn clear(node: &RedisNode, timeout: Duration) -> Result<(), CommandError> {
    const AT_A_TIME: u32 = 1000;
    let mut cursor = 0;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{PREFIX}*"));
        scan.arg("COUNT").arg(AT_A_TIME);
        let reply = node
            .send(0, &scan, Deadline::in_background(timeout))
            .await?;
        let (next, keys): (u64, Vec<Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|error| CommandError::Server(error.into()))?;
        for key in keys {
            // One command per key, since keys of one command must share a slot.
            let mut remove = redis::cmd("UNLINK");
            remove.arg(key);
            node.send(0, &remove, Deadline::in_background(timeout))
                .await?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}
