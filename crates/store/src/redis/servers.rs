//! Which server an operation goes to.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::address::{Address, RedisStartError, Refusal};
use super::cluster::Cluster;
use super::node::{Fault, Node};
use super::record::{PREFIX, slot};
use super::settings::RedisSettings;
use crate::tier::EntryId;

/// The servers there are.
pub(super) enum Servers {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
}

impl Servers {
    /// Connects to them, as far as they are there.
    pub(super) async fn start(
        addresses: Vec<Address>,
        settings: &RedisSettings,
    ) -> Result<Self, RedisStartError> {
        let mut unresolved = None;
        let mut known = Vec::new();
        for address in addresses {
            match address.resolve().await {
                Ok(()) => known.push(address),
                Err(error) => unresolved = Some(error),
            }
        }
        let Some(first) = known.first() else {
            return Err(unresolved.unwrap_or(RedisStartError::Addresses(0)));
        };
        let name = first.name();
        let (servers, outcome) = if settings.cluster {
            let (cluster, outcome) = Cluster::start(known, settings).await;
            (Self::Cluster(Arc::new(cluster)), outcome)
        } else {
            let node = Node::start(first.clone(), settings);
            let outcome = node.started().await;
            (Self::One(node), outcome)
        };
        match outcome {
            Err(Refusal::Rejected(why)) => Err(RedisStartError::Refused { address: name, why }),
            Ok(()) | Err(Refusal::Unreachable(_)) => Ok(servers),
        }
    }

    /// Sends a command about an id to the server that has it.
    pub(super) async fn send(
        &self,
        id: EntryId,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, Fault> {
        // Commands about one id stay in order.
        let lane = u128::from_be_bytes(id.to_bytes());
        match self {
            Self::One(node) => node.send(lane, command, deadline).await,
            Self::Cluster(cluster) => {
                let reply = match cluster.node(slot(id)) {
                    Some(node) => node.send(lane, command, deadline).await,
                    None => Err(Fault::Down),
                };
                if reply.as_ref().is_err_and(Fault::is_elsewhere) {
                    cluster.look_again();
                }
                reply
            }
        }
    }

    /// The server that a slot is being moved to, if that is the fault.
    pub(super) fn moved_to(&self, fault: &Fault) -> Option<Arc<Node>> {
        match self {
            Self::One(_) => None,
            Self::Cluster(cluster) => cluster.newcomer(fault.moved_to()?),
        }
    }

    /// Removes all records and claims, and says whether that succeeded everywhere.
    pub(super) async fn clear(&self, patience: Duration) -> bool {
        let nodes = match self {
            Self::One(node) => vec![Arc::clone(node)],
            Self::Cluster(cluster) => cluster.nodes(),
        };
        // Not before all are there: what is cleared would have to be cleared again.
        if nodes.is_empty() || nodes.iter().any(|node| node.degraded().is_some()) {
            return false;
        }
        for node in nodes {
            if clear(&node, patience).await.is_err() {
                return false;
            }
        }
        true
    }

    /// What is not in service.
    pub(super) fn degraded(&self) -> Vec<String> {
        match self {
            Self::One(node) => node.degraded().into_iter().collect(),
            Self::Cluster(cluster) => cluster.degraded(),
        }
    }
}

/// Goes through all keys of a server, so many at a time, and leaves alone what is not ours.
async fn clear(node: &Node, patience: Duration) -> Result<(), Fault> {
    const AT_A_TIME: u32 = 1000;
    let mut cursor = 0;
    loop {
        let mut scan = redis::cmd("SCAN");
        scan.arg(cursor).arg("MATCH").arg(format!("{PREFIX}*"));
        scan.arg("COUNT").arg(AT_A_TIME);
        let reply = node.send(0, &scan, Instant::now() + patience).await?;
        let (next, keys): (u64, Vec<Vec<u8>>) =
            redis::from_redis_value(reply).map_err(|error| Fault::Said(error.into()))?;
        for key in keys {
            // One by one: in a cluster the keys of one command have to be in one slot.
            let mut remove = redis::cmd("UNLINK");
            remove.arg(key);
            node.send(0, &remove, Instant::now() + patience).await?;
        }
        if next == 0 {
            return Ok(());
        }
        cursor = next;
    }
}
