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
pub(crate) fn shared(fleet: &FleetStats) -> Value {
    json!({
        "connected": fleet.is_connected,
        "last_contact_ms": fleet.silent_for,
        "outages": fleet.outages,
        "full_syncs": fleet.loads,
        "last_change": fleet.newest,
        "ignored": fleet.ignored,
        "warnings": fleet.warnings,
    })
}

/// Warnings for `GET /v1/health`.
pub(crate) fn warnings(handle: &Handle) -> Vec<String> {
    fleets(handle).flat_map(|it| it.warnings).collect()
}

/// Statistics of the nodes that share documents, and of those that share the Mercure hub.
fn fleets(handle: &Handle) -> impl Iterator<Item = FleetStats> {
    [handle.fleet_stats(), handle.hub_fleet_stats()]
        .into_iter()
        .flatten()
}

/// Reasons against readiness.
pub(crate) fn not_ready(handle: &Handle) -> Option<String> {
    let why = |what| format!("no {what} yet: push_redis could not be read");
    let is_empty = |it: Option<FleetStats>| it.is_some_and(|it| it.is_empty_handed);
    if is_empty(handle.fleet_stats()) {
        return Some(why("documents"));
    }
    is_empty(handle.hub_fleet_stats()).then(|| why("history of the Mercure hub"))
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
