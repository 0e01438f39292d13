//! What was done and how things stand, in numbers.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use microcache_engine::Outcome;
use microcache_proxy::TierReport;
use microcache_proxy::upstream::{GroupSnapshot, ServerSnapshot};
use serde_json::{Map, Value, json};

use crate::interface::Interface;

/// All of it. Counts are since the start.
pub(crate) async fn stats(State(interface): State<Arc<Interface>>) -> Json<Value> {
    let handle = &interface.handle;
    let engine = handle.engine();
    let counts: Vec<_> = Outcome::ALL
        .iter()
        .map(|&outcome| (outcome.as_str(), engine.counters.of(outcome)))
        .collect();
    let all: u64 = counts.iter().map(|(_, count)| count).sum();
    let mut requests: Map<_, _> = counts
        .into_iter()
        .map(|(outcome, count)| (outcome.to_owned(), json!(count)))
        .collect();
    requests.insert("total".to_owned(), json!(all));
    let memory = engine.cache.memory_stats();
    let taken = handle.connections();
    Json(json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime_seconds": interface.started.elapsed().as_secs(),
        "draining": handle.is_draining(),
        "requests": requests,
        "origin": { "requests": engine.counters.origin_requests() },
        "fetches": { "under_way": engine.cache.fetches() },
        "memory": {
            "keys": memory.keys,
            "bytes": memory.bytes,
            "capacity": memory.capacity,
            "evicted": memory.evicted,
            "refused": memory.refused,
        },
        "tiers": engine.cache.tier_reports().iter().map(tier).collect::<Vec<_>>(),
        "upstreams": handle.upstreams().iter().map(upstream).collect::<Vec<_>>(),
        "connections": {
            "open": taken.connections,
            "idle": taken.idle,
            "max": taken.max_connections,
            "tunnels": taken.tunnels,
            "max_tunnels": taken.max_tunnels,
        },
        "purges": { "live": engine.cache.live_rules() },
        "admin": { "refused": interface.refused.load(Ordering::Relaxed) },
    }))
}

fn tier(report: &TierReport) -> Value {
    json!({
        "name": report.name,
        "hits": report.hits,
        "misses": report.misses,
        "errors": report.errors,
        "timeouts": report.timeouts,
        "corrupt": report.corrupt,
        "written": report.written,
        "dropped": report.dropped,
        "not_removed": report.not_removed,
        "latency_microseconds": {
            "p50": report.slowest_of(50),
            "p99": report.slowest_of(99),
        },
        "entries": report.stats.entries,
        "bytes": report.stats.bytes,
        "capacity": report.stats.capacity,
        "evicted": report.stats.evicted,
        "refused": report.stats.refused,
        "degraded": report.stats.degraded,
    })
}

fn upstream(group: &GroupSnapshot) -> Value {
    json!({
        "name": group.name,
        "active": group.active,
        "queued": group.queued,
        "servers": group.servers.iter().map(server).collect::<Vec<_>>(),
    })
}

fn server(server: &ServerSnapshot) -> Value {
    json!({
        "host": server.settings.host,
        "port": server.settings.port,
        "weight": server.settings.weight,
        "backup": server.settings.backup,
        "up": server.standing.up,
        "active": server.standing.outstanding,
        "idle_connections": server.idle,
        "requests": server.standing.requests,
        "failures": server.standing.failures,
    })
}
