//! Statistics of pushed documents.

use microcache_proxy::{FleetStats, Handle, PushStats};
use serde_json::{Value, json};

/// Builds the statistics; `None` without documents and watched pages.
pub(crate) fn view(handle: &Handle) -> Option<Value> {
    let stats = handle.push_stats()?;
    Some(json!({
        "documents": stats.documents,
        "bytes": stats.bytes,
        "capacity_bytes": stats.capacity,
        "changes": changes(&stats),
        "syncs": stats.syncs,
        "subscribers": stats.subscribers,
        "sockets": stats.sockets,
        "topics": stats.topics,
        "subscriptions": stats.subscribed,
        "subscriptions_rejected": stats.turned_away,
        "events": stats.events,
        "deltas": stats.deltas,
        "resets": stats.resets,
        "gaps": stats.gaps,
        "redis": handle.fleet_stats().map(|fleet| shared(&fleet)),
    }))
}

/// State of the Redis connection, if nodes share documents.
fn shared(fleet: &FleetStats) -> Value {
    json!({
        "connected": fleet.is_connected,
        "last_contact_ms": fleet.silent_for,
        "outages": fleet.outages,
        "full_syncs": fleet.loads,
        "last_change": fleet.newest,
        "warnings": fleet.warnings,
    })
}

/// Warnings for `GET /v1/health`.
pub(crate) fn warnings(handle: &Handle) -> Vec<String> {
    handle.fleet_stats().map_or_else(Vec::new, |it| it.warnings)
}

/// Reasons against readiness.
pub(crate) fn not_ready(handle: &Handle) -> Option<String> {
    let fleet = handle.fleet_stats().filter(|it| it.is_empty_handed);
    fleet.map(|_| "no documents yet: push_redis could not be read".to_owned())
}

fn changes(stats: &PushStats) -> Value {
    json!({
        "made": stats.changes,
        "unchanged": stats.same,
        "expired": stats.expired,
        "refused": stats.refused,
        "write_failures": stats.unwritten,
    })
}
