//! Which server of a cluster has which slots.
//!
//! Every master is a node with its own fate: one that is lost costs its own records only.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use redis::Value;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::address::{Address, Refusal};
use super::jittered;
use super::node::Node;
use super::settings::RedisSettings;

/// A cluster of servers.
pub(super) struct Cluster {
    /// Where to ask for the others.
    seeds: Vec<Address>,
    settings: RedisSettings,
    map: RwLock<Map>,
    look_again: Notify,
    /// Servers that slots are being moved to, and that may have none yet. They are let go with the next map.
    newcomers: Mutex<HashMap<String, Arc<Node>>>,
}

/// So many of them are known at a time.
const MAX_NEWCOMERS: usize = 16;

#[derive(Default)]
struct Map {
    /// In order.
    ranges: Vec<Range>,
    masters: HashMap<String, Master>,
}

struct Master {
    address: Address,
    node: Arc<Node>,
}

struct Range {
    first: u16,
    last: u16,
    node: Arc<Node>,
}

/// A range of slots and where it is, as a server says.
#[derive(Debug, PartialEq, Eq)]
struct Assignment {
    first: u16,
    last: u16,
    /// Nothing means the server that was asked.
    host: Option<String>,
    port: u16,
}

impl Cluster {
    /// Asks for the servers and connects to them.
    pub(super) async fn start(
        seeds: Vec<Address>,
        settings: &RedisSettings,
    ) -> (Self, Result<(), Refusal>) {
        let cluster = Self {
            seeds,
            settings: settings.clone(),
            map: RwLock::default(),
            look_again: Notify::new(),
            newcomers: Mutex::default(),
        };
        let outcome = cluster.look().await;
        if outcome.is_err() {
            cluster.look_again();
        }
        for node in cluster.nodes() {
            // One that is not there is tried again, and the others do not wait for it.
            let _ = node.started().await;
        }
        (cluster, outcome)
    }

    /// Keeps the map right: asks again when an operation went to the wrong place, but not often.
    pub(super) async fn follow(self: Arc<Self>) {
        loop {
            self.look_again.notified().await;
            if self.look().await.is_err() {
                self.look_again();
            }
            sleep(jittered(self.settings.retry_after)).await;
        }
    }

    /// Asks for the map to be brought up to date.
    pub(super) fn look_again(&self) {
        self.look_again.notify_one();
    }

    /// The master of a slot.
    pub(super) fn node(&self, slot: u16) -> Option<Arc<Node>> {
        let map = self.map.read();
        let after = map.ranges.partition_point(|range| range.first <= slot);
        let range = map.ranges.get(after.checked_sub(1)?)?;
        (slot <= range.last).then(|| Arc::clone(&range.node))
    }

    /// The server at this host and port, which another one has named.
    pub(super) fn newcomer(&self, place: &str) -> Option<Arc<Node>> {
        let (host, port) = place.rsplit_once(':')?;
        let address = self
            .seeds
            .first()?
            .of_peer(host.to_owned(), port.parse().ok()?);
        let name = address.name();
        if let Some(master) = self.map.read().masters.get(&name) {
            return Some(Arc::clone(&master.node));
        }
        let mut newcomers = self.newcomers.lock();
        if newcomers.len() >= MAX_NEWCOMERS && !newcomers.contains_key(&name) {
            return None;
        }
        let node = newcomers
            .entry(name)
            .or_insert_with(|| Node::start(address, &self.settings));
        Some(Arc::clone(node))
    }

    /// All masters.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        let map = self.map.read();
        map.masters
            .values()
            .map(|master| Arc::clone(&master.node))
            .collect()
    }

    /// What is not in service.
    pub(super) fn degraded(&self) -> Vec<String> {
        let nodes = self.nodes();
        if nodes.is_empty() {
            return vec!["no server of the cluster has been reached".to_owned()];
        }
        nodes.iter().filter_map(|node| node.degraded()).collect()
    }

    /// Asks one server after the other until one knows.
    async fn look(&self) -> Result<(), Refusal> {
        let mut candidates: Vec<Address> = {
            let map = self.map.read();
            map.masters
                .values()
                .map(|master| master.address.clone())
                .collect()
        };
        candidates.extend(self.seeds.iter().cloned());
        let mut outcome = Ok(());
        for candidate in candidates {
            match self.ask(&candidate).await {
                Ok(assignments) => {
                    self.adopt(&candidate, assignments);
                    return Ok(());
                }
                Err(why) => outcome = Err(why),
            }
        }
        outcome
    }

    async fn ask(&self, address: &Address) -> Result<Vec<Assignment>, Refusal> {
        let mut connection = address.connect(&self.settings).await?;
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let reply = slots.query_async::<Value>(&mut connection);
        let reply = timeout(self.settings.connect_deadline, reply).await;
        let reply = reply.map_err(|_| Refusal::Unreachable("it does not answer in time".into()))?;
        let reply = reply.map_err(|error| Refusal::of(&error))?;
        match assignments(reply) {
            Some(assignments) if !assignments.is_empty() => Ok(assignments),
            _ => Err(Refusal::Unreachable(
                "it does not know its cluster yet".into(),
            )),
        }
    }

    /// Keeps the nodes that are still masters, connects to new ones, lets the others go.
    fn adopt(&self, asked: &Address, assignments: Vec<Assignment>) {
        let mut map = self.map.write();
        let mut masters: HashMap<String, Master> = HashMap::new();
        let mut ranges = Vec::with_capacity(assignments.len());
        for Assignment {
            first,
            last,
            host,
            port,
        } in assignments
        {
            let host = host.or_else(|| asked.host().map(|(host, _)| host.to_owned()));
            let address = asked.of_peer(host.unwrap_or_default(), port);
            let name = address.name();
            let old = map.masters.remove(&name);
            let master = masters.entry(name).or_insert_with(|| {
                old.unwrap_or_else(|| Master {
                    node: Node::start(address.clone(), &self.settings),
                    address,
                })
            });
            let node = Arc::clone(&master.node);
            ranges.push(Range { first, last, node });
        }
        ranges.sort_by_key(|range| range.first);
        *map = Map { ranges, masters };
        drop(map);
        self.newcomers.lock().clear();
    }
}

/// What `CLUSTER SLOTS` says: for each range its ends, the master and the replicas.
fn assignments(reply: Value) -> Option<Vec<Assignment>> {
    let Value::Array(ranges) = reply else {
        return None;
    };
    ranges.iter().map(assignment).collect()
}

fn assignment(range: &Value) -> Option<Assignment> {
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
    Some(Assignment {
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
    fn what_is_no_map_is_told_apart() {
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
