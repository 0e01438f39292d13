//! Slot map of a Redis Cluster.
//!
//! Each master has its own health state, so a lost one only loses its own records.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use redis::Value;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use super::address::{ConnectError, RedisAddress};
use super::endpoint::Endpoint;
use super::node::RedisNode;
use super::settings::RedisSettings;

/// Redis Cluster.
pub(super) struct Cluster {
    /// Configured servers, to discover the others.
    seeds: Vec<RedisAddress>,
    settings: RedisSettings,
    map: RwLock<SlotMap>,
    refresh: Notify,
    /// Changes whenever a server is connected.
    returns: Arc<watch::Sender<()>>,
    /// Targets of slot migrations that may not own slots yet, forgotten with the next map.
    migration_targets: Mutex<HashMap<String, Arc<RedisNode>>>,
}

/// Maximum of known migration targets.
const MAX_MIGRATION_TARGETS: usize = 16;

#[derive(Default)]
struct SlotMap {
    /// Sorted slot ranges.
    ranges: Vec<SlotRange>,
    masters: HashMap<String, ClusterMaster>,
}

struct ClusterMaster {
    address: RedisAddress,
    node: Arc<RedisNode>,
}

struct SlotRange {
    first: u16,
    last: u16,
    node: Arc<RedisNode>,
}

/// Slot range with its master, as reported by a server.
#[derive(Debug, PartialEq, Eq)]
struct SlotAssignment {
    first: u16,
    last: u16,
    /// `None` means the server that was queried.
    host: Option<String>,
    port: u16,
}

impl Cluster {
    /// Discovers the servers and connects to them. Returns the outcome of the discovery.
    pub(super) async fn start(
        seeds: Vec<RedisAddress>,
        settings: &RedisSettings,
    ) -> (Self, Result<(), ConnectError>) {
        let cluster = Self {
            seeds,
            settings: settings.clone(),
            map: RwLock::default(),
            refresh: Notify::new(),
            returns: Arc::default(),
            migration_targets: Mutex::default(),
        };
        let outcome = cluster.update().await;
        if outcome.is_err() {
            cluster.request_update();
        }
        for node in cluster.nodes() {
            // An unreachable master is retried in the background.
            let _ = node.started().await;
        }
        (cluster, outcome)
    }

    /// Updates the map whenever an operation was redirected, with a pause in between.
    pub(super) async fn follow(self: Arc<Self>) {
        loop {
            self.refresh.notified().await;
            if self.update().await.is_err() {
                self.request_update();
            }
            sleep(self.settings.retry_delay()).await;
        }
    }

    /// Requests an update of the map.
    pub(super) fn request_update(&self) {
        self.refresh.notify_one();
    }

    /// Returns a receiver that changes whenever a server is connected.
    pub(super) fn returns(&self) -> watch::Receiver<()> {
        self.returns.subscribe()
    }

    /// Returns the master of a slot.
    pub(super) fn node(&self, slot: u16) -> Option<Arc<RedisNode>> {
        let map = self.map.read();
        let after = map.ranges.partition_point(|range| range.first <= slot);
        let range = map.ranges.get(after.checked_sub(1)?)?;
        (slot <= range.last).then(|| Arc::clone(&range.node))
    }

    /// Returns the server at `HOST:PORT`, named by a redirection.
    pub(super) fn redirected(&self, place: &str) -> Option<Arc<RedisNode>> {
        let (host, port) = place.rsplit_once(':')?;
        let address = self
            .seeds
            .first()?
            .of_peer(host.to_owned(), port.parse().ok()?);
        let name = address.name();
        if let Some(master) = self.map.read().masters.get(&name) {
            return Some(Arc::clone(&master.node));
        }
        let mut targets = self.migration_targets.lock();
        if targets.len() >= MAX_MIGRATION_TARGETS && !targets.contains_key(&name) {
            return None;
        }
        let node = targets.entry(name).or_insert_with(|| {
            RedisNode::start(Endpoint::of(address), &self.settings, &self.returns)
        });
        Some(Arc::clone(node))
    }

    /// Returns all masters.
    pub(super) fn nodes(&self) -> Vec<Arc<RedisNode>> {
        let map = self.map.read();
        map.masters
            .values()
            .map(|master| Arc::clone(&master.node))
            .collect()
    }

    /// Describes the servers that are out of service, or slow.
    pub(super) fn degraded(&self) -> Vec<String> {
        let nodes = self.nodes();
        if nodes.is_empty() {
            return vec!["no server of the cluster is reachable".to_owned()];
        }
        nodes.iter().filter_map(|node| node.degraded()).collect()
    }

    /// Queries the servers one after the other until one returns the slot map.
    async fn update(&self) -> Result<(), ConnectError> {
        let mut candidates: Vec<RedisAddress> = {
            let map = self.map.read();
            let mut masters: Vec<_> = map.masters.values().collect();
            // One that is lost may cost the whole time limit.
            masters.sort_by_key(|master| master.node.server().is_none());
            let addresses = masters.into_iter().map(|master| master.address.clone());
            addresses.collect()
        };
        candidates.extend(self.seeds.iter().cloned());
        let mut outcome = Ok(());
        for candidate in candidates {
            match self.query(&candidate).await {
                Ok(assignments) => {
                    self.adopt(&candidate, assignments);
                    return Ok(());
                }
                Err(why) => outcome = Err(why),
            }
        }
        outcome
    }

    async fn query(&self, address: &RedisAddress) -> Result<Vec<SlotAssignment>, ConnectError> {
        let mut connection = address.open(&self.settings).await?;
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let reply = slots.query_async::<Value>(&mut connection);
        let reply = timeout(self.settings.connect_deadline, reply).await;
        let reply = reply.map_err(|_| ConnectError::Unreachable("response timeout".into()))?;
        let reply = reply.map_err(|error| ConnectError::of(&error))?;
        match assignments(reply) {
            Some(assignments) if !assignments.is_empty() => Ok(assignments),
            _ => Err(ConnectError::Unreachable(
                "the server has not joined a cluster".into(),
            )),
        }
    }

    /// Replaces the map, keeping the connections of masters that remain.
    fn adopt(&self, queried: &RedisAddress, assignments: Vec<SlotAssignment>) {
        let mut map = self.map.write();
        let mut masters: HashMap<String, ClusterMaster> = HashMap::new();
        let mut ranges = Vec::with_capacity(assignments.len());
        for SlotAssignment {
            first,
            last,
            host,
            port,
        } in assignments
        {
            let host = host.or_else(|| queried.host().map(|(host, _)| host.to_owned()));
            let address = queried.of_peer(host.unwrap_or_default(), port);
            let name = address.name();
            let old = map.masters.remove(&name);
            let master = masters.entry(name).or_insert_with(|| {
                old.unwrap_or_else(|| ClusterMaster {
                    node: RedisNode::start(
                        Endpoint::of(address.clone()),
                        &self.settings,
                        &self.returns,
                    ),
                    address,
                })
            });
            let node = Arc::clone(&master.node);
            ranges.push(SlotRange { first, last, node });
        }
        ranges.sort_by_key(|range| range.first);
        *map = SlotMap { ranges, masters };
        drop(map);
        self.migration_targets.lock().clear();
    }
}

/// Parses the reply of `CLUSTER SLOTS`: range, master and replicas for each entry.
fn assignments(reply: Value) -> Option<Vec<SlotAssignment>> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    ranges.iter().map(assignment).collect()
}

fn assignment(range: &Value) -> Option<SlotAssignment> {
    let [
        Value::Int(first),
        Value::Int(last),
        Value::Array(master),
        ..,
    ] = sequence(range)?
    else {
        return None;
    };
    let [host, Value::Int(port), ..] = master.as_slice() else {
        return None;
    };
    let host = match host {
        Value::BulkString(host) if host.is_empty() || host == b"?" => None,
        Value::BulkString(host) => Some(String::from_utf8(host.clone()).ok()?),
        Value::Nil => None,
        _ => return None,
    };
    Some(SlotAssignment {
        first: u16::try_from(*first).ok()?,
        last: u16::try_from(*last).ok()?,
        host,
        port: u16::try_from(*port).ok()?,
    })
}

fn sequence(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: i64, last: i64, host: Value, port: i64) -> Value {
        let master = Value::Array(vec![host, Value::Int(port)]);
        Value::Array(vec![Value::Int(first), Value::Int(last), master])
    }

    fn text(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn ranges_with_and_without_hosts() {
        let reply = Value::Array(vec![
            range(0, 8191, text("10.0.0.1"), 7000),
            range(8192, 16383, Value::Nil, 7001),
        ]);
        let read = assignments(reply).unwrap();
        assert_eq!(read[0].host.as_deref(), Some("10.0.0.1"));
        assert_eq!((read[1].host.as_deref(), read[1].port), (None, 7001));
    }

    #[test]
    fn invalid_slot_maps_are_distinguished() {
        for bad in [
            Value::Nil,
            Value::Array(vec![Value::Int(1)]),
            Value::Array(vec![range(-1, 5, text("a"), 1)]),
            Value::Array(vec![range(0, 70_000, text("a"), 1)]),
            Value::Array(vec![range(0, 5, text("a"), 70_000)]),
            Value::Array(vec![range(0, 5, Value::Int(3), 1)]),
        ] {
            assert_eq!(assignments(bad), None);
        }
    }
}
