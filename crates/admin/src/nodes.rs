//! The nodes that share a tier: `GET /v1/nodes`. Each node with an admin interface writes a few figures into the tier, where
//! every other one reads them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use microcache_engine::cache::NodeSlot;
use serde_json::{Value, json};
use tokio::time::{MissedTickBehavior, interval};

use crate::interface::Interface;
use crate::node_list::{Figures, Standing, known};

/// Interval between two renewals of a node's figures.
const PERIOD: Duration = Duration::from_secs(2);
/// The time without a renewal after which a node counts as away.
const AWAY: Duration = Duration::from_secs(6);
/// The time without a purge that others know after which a node counts as behind. Figures are up to a period old.
const BEHIND: Duration = Duration::from_secs(5);

/// Lists the nodes that share the tier of this one, by name.
pub(crate) async fn nodes(State(interface): State<Arc<Interface>>) -> Json<Value> {
    let this = &interface.nodes;
    let read = interface.handle.engine().cache.nodes().await;
    let error = read.as_ref().err().map(ToString::to_string);
    let mut nodes: Vec<_> = read.unwrap_or_default().iter().filter_map(known).collect();
    nodes.retain(|(id, _)| *id != this.id());
    nodes.push((this.id(), this.own()));
    nodes.sort_by(|(_, a), (_, b)| (&a.name, a.pid).cmp(&(&b.name, b.pid)));
    let standings = this.standings(&nodes, Instant::now());
    let nodes = nodes.iter().zip(standings);
    let nodes = nodes.map(|((id, node), standing)| view(*id, node, standing, *id == this.id()));
    Json(json!({
        "nodes": nodes.collect::<Vec<_>>(),
        "last_error": error,
    }))
}

fn view(id: u64, node: &Figures, standing: Standing, is_this: bool) -> Value {
    let Standing { silent, behind } = standing;
    let away = (silent > AWAY && !is_this).then_some(silent);
    let behind = (behind > BEHIND).then_some(behind);
    json!({
        "id": format!("{id:016x}"),
        "name": node.name,
        "pid": node.pid,
        "version": node.version,
        "this": is_this,
        "away_seconds": away.map(|time| time.as_secs()),
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
            "behind_seconds": behind.map(|time| time.as_secs()),
            "unpublished": node.purges_unpublished,
        },
    })
}

/// Renews the figures of this node, forever.
pub(crate) async fn publish(interface: Arc<Interface>, mut slot: NodeSlot) {
    let mut periods = interval(PERIOD);
    periods.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut last = Instant::now();
    loop {
        periods.tick().await;
        let now = Instant::now();
        let uptime = interface.started.elapsed();
        let renewed = interface
            .nodes
            .renewed(&interface.handle, uptime, now - last);
        last = now;
        let text = serde_json::to_vec(&renewed).unwrap_or_default();
        let cache = &interface.handle.engine().cache;
        // The next period tries again; the statistics of the tier say why it fails.
        let _ = cache.write_node(&mut slot, Bytes::from(text)).await;
    }
}
