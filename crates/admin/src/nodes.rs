//! The nodes that share a tier: `GET /v1/nodes`.
//!
//! Each node with an admin interface writes a few figures into the tier, where every other one reads them. No node
//! connects to another, and nothing that was read is used as an address or sent anywhere: any program that can write to
//! the tier can write these figures.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use microcache_engine::Outcome;
use microcache_engine::cache::{NodeFigures, NodeSlot};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::interface::Interface;

/// Interval between two renewals of a node's figures.
const PERIOD: Duration = Duration::from_secs(2);
/// The time without a renewal after which a node counts as away.
const AWAY: Duration = Duration::from_secs(6);
/// Maximum length of names and versions, in characters.
const MAX_TEXT: usize = 64;

/// The figures of a node, as they stand in the tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct Figures {
    name: String,
    version: String,
    pid: u32,
    /// Number of this renewal: a node that is away repeats none.
    round: u64,
    uptime_seconds: u64,
    draining: bool,
    requests: u64,
    stored: u64,
    errors: u64,
    origin_requests: u64,
    requests_per_second: f64,
    origin_per_second: f64,
    memory_bytes: u64,
    memory_capacity: u64,
    purge_position: u64,
    purges_unpublished: u64,
}

/// The figures of this node, and the renewals of others that were seen.
#[derive(Debug)]
pub(crate) struct Nodes {
    name: String,
    id: u64,
    own: Mutex<Figures>,
    renewals: Mutex<HashMap<u64, Renewal>>,
}

/// The last renewal of a node, and the time at which it was first seen.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    round: u64,
    seen: Instant,
}

impl Nodes {
    /// This node, and no other yet.
    pub(crate) fn new(slot: &NodeSlot) -> Self {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        Self {
            name: plain(name.trim()),
            id: slot.id(),
            own: Mutex::default(),
            renewals: Mutex::default(),
        }
    }

    /// Returns the figures of now, which count from here on.
    fn renewed(&self, interface: &Interface, since: Duration) -> Figures {
        let handle = &interface.handle;
        let (counts, engine) = (handle.metrics(), handle.engine());
        let memory = engine.cache.memory_stats();
        let purges = engine.cache.fleet().unwrap_or_default();
        let mut own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        let per_second = |now: u64, before: u64| {
            let seconds = since.as_secs_f64().max(0.001);
            (now.saturating_sub(before) as f64 / seconds * 10.0).round() / 10.0
        };
        let (requests, origin) = (counts.requests(), counts.origin().requests);
        let new = Figures {
            name: self.name.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            round: own.round + 1,
            uptime_seconds: interface.started.elapsed().as_secs(),
            draining: handle.is_leaving(),
            requests,
            stored: counts.of(Outcome::Hit) + counts.of(Outcome::Stale),
            errors: counts.of(Outcome::Error),
            origin_requests: origin,
            requests_per_second: per_second(requests, own.requests),
            origin_per_second: per_second(origin, own.origin_requests),
            memory_bytes: memory.bytes,
            memory_capacity: memory.capacity,
            purge_position: purges.position,
            purges_unpublished: purges.queued as u64,
        };
        own.clone_from(&new);
        new
    }

    /// Returns the time since each node was seen to renew its figures. Clocks of other machines do not matter.
    fn silent(&self, nodes: &[(u64, Figures)], now: Instant) -> Vec<Duration> {
        let mut renewals = self.renewals.lock().unwrap_or_else(PoisonError::into_inner);
        renewals.retain(|id, _| nodes.iter().any(|(present, _)| present == id));
        let since = |(id, figures): &(u64, Figures)| {
            let round = figures.round;
            let renewal = renewals.entry(*id).or_insert(Renewal { round, seen: now });
            if renewal.round != round {
                *renewal = Renewal { round, seen: now };
            }
            now.saturating_duration_since(renewal.seen)
        };
        nodes.iter().map(since).collect()
    }
}

/// Lists the nodes that share the tier of this one, by name.
pub(crate) async fn nodes(State(interface): State<Arc<Interface>>) -> Json<Value> {
    let this = &interface.nodes;
    let read = interface.handle.engine().cache.nodes().await;
    let error = read.as_ref().err().map(ToString::to_string);
    let mut nodes: Vec<_> = read.unwrap_or_default().iter().filter_map(known).collect();
    let own = this
        .own
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .clone();
    nodes.retain(|(id, _)| *id != this.id);
    nodes.push((this.id, own));
    nodes.sort_by(|(_, a), (_, b)| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    let newest = nodes.iter().map(|(_, node)| node.purge_position).max();
    let silent = this.silent(&nodes, Instant::now());
    let nodes = nodes.iter().zip(silent).map(|((id, node), silent)| {
        let is_away = silent > AWAY && *id != this.id;
        view(
            *id,
            node,
            is_away.then_some(silent),
            newest.unwrap_or(0),
            *id == this.id,
        )
    });
    Json(json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "last_error": error,
    }))
}

fn view(id: u64, node: &Figures, silent: Option<Duration>, newest: u64, is_this: bool) -> Value {
    json!({
        "id": format!("{id:016x}"),
        "name": node.name,
        "pid": node.pid,
        "version": node.version,
        "this": is_this,
        "away_seconds": silent.map(|silent| silent.as_secs()),
        "draining": node.draining,
        "uptime_seconds": node.uptime_seconds,
        "requests": node.requests,
        "stored": node.stored,
        "errors": node.errors,
        "origin_requests": node.origin_requests,
        "requests_per_second": node.requests_per_second,
        "origin_per_second": node.origin_per_second,
        "memory": { "bytes": node.memory_bytes, "capacity": node.memory_capacity },
        "purges": {
            "behind": newest.saturating_sub(node.purge_position),
            "unpublished": node.purges_unpublished,
        },
    })
}

/// Reads figures that any program may have written.
fn known(node: &NodeFigures) -> Option<(u64, Figures)> {
    let mut figures: Figures = serde_json::from_slice(&node.figures).ok()?;
    figures.name = plain(&figures.name);
    figures.version = plain(&figures.version);
    Some((node.id, figures))
}

/// Returns the printable part of a short text.
fn plain(text: &str) -> String {
    let is_plain = |letter: &char| letter.is_ascii_graphic();
    text.chars().filter(is_plain).take(MAX_TEXT).collect()
}

/// Renews the figures of this node, forever.
pub(crate) async fn publish(interface: Arc<Interface>, mut slot: NodeSlot) {
    let mut periods = interval(PERIOD);
    periods.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = Instant::now();
    loop {
        periods.tick().await;
        let now = Instant::now();
        let figures = interface.nodes.renewed(&interface, now - last);
        last = now;
        let text = serde_json::to_vec(&figures).unwrap_or_default();
        let cache = &interface.handle.engine().cache;
        // The next period tries again; the statistics of the tier say why it fails.
        let _ = cache.write_node(&mut slot, Bytes::from(text)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<Figures> {
        let figures = Bytes::copy_from_slice(text.as_bytes());
        known(&NodeFigures { id: 7, figures }).map(|(_, figures)| figures)
    }

    #[test]
    fn figures_of_other_versions_and_programs_are_read_as_far_as_they_can_be() {
        let newer = r#"{"name":"a","version":"9.0","requests":5,"invented":[1]}"#;
        let newer = read(newer).expect("figures");
        assert_eq!((newer.requests, newer.errors), (5, 0));
        let hostile = r#"{"name":"<b>\u0000\u202e\n\u001b[31m x","version":"é"}"#;
        let hostile = read(hostile).expect("figures");
        assert_eq!((&*hostile.name, &*hostile.version), ("<b>[31mx", ""));
        let long = format!(r#"{{"name":"{}"}}"#, "a".repeat(1000));
        assert_eq!(read(&long).expect("figures").name.len(), MAX_TEXT);
        for text in ["", "7", r#"{"requests":-1}"#, r#"{"name":"#] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_node_that_repeats_itself_is_away_whatever_its_clock_says() {
        let nodes = Nodes::new(&NodeSlot::new());
        let start = Instant::now();
        let at = |seconds, rounds: &[(u64, u64)]| {
            let figures = |&(id, round): &(u64, u64)| {
                let figures = Figures {
                    round,
                    ..Figures::default()
                };
                (id, figures)
            };
            let all: Vec<_> = rounds.iter().map(figures).collect();
            let silent = nodes.silent(&all, start + Duration::from_secs(seconds));
            silent.iter().map(Duration::as_secs).collect::<Vec<_>>()
        };
        assert_eq!(at(0, &[(1, 5), (2, 90)]), [0, 0]);
        assert_eq!(at(7, &[(1, 8), (2, 90)]), [0, 7]);
        assert_eq!(at(9, &[(2, 1)]), [0], "it was started again");
        assert_eq!(at(30, &[(1, 8)]), [0], "it was not listed meanwhile");
    }
}
