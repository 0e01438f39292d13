//! Statistics and metrics of pushed documents.

use microcache_proxy::{FleetStats, Handle, PushStats};
use serde_json::{Value, json};

use crate::exposition::Exposition;

/// Builds the statistics; `None` without documents and watched pages.
pub(crate) fn told(handle: &Handle) -> Option<Value> {
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

/// Writes the metrics.
pub(crate) fn expose(out: &mut Exposition, handle: &Handle) {
    let Some(stats) = handle.push_stats() else {
        return;
    };
    out.gauge("microcache_push_documents", "Documents.")
        .sample(&[], stats.documents);
    out.gauge("microcache_push_bytes", "Memory used by documents.")
        .sample(&[], stats.bytes);
    out.gauge(
        "microcache_push_capacity_bytes",
        "Limit of the memory for documents.",
    )
    .sample(&[], stats.capacity);
    out.counter(
        "microcache_push_changes_total",
        "Changes of documents by result: `made` (includes `expired`), `unchanged` (content unchanged), `expired`, \
         `refused`, `failed`.",
    );
    for (result, count) in [
        ("made", stats.changes),
        ("unchanged", stats.same),
        ("expired", stats.expired),
        ("refused", stats.refused),
        ("failed", stats.unwritten),
    ] {
        out.sample(&[("result", result)], count);
    }
    out.counter(
        "microcache_push_syncs_total",
        "Writes of changes to disk; concurrent changes share one write.",
    )
    .sample(&[], stats.syncs);
    out.gauge("microcache_push_subscribers", "Current subscribers.")
        .sample(&[], stats.subscribers);
    out.gauge(
        "microcache_push_sockets",
        "Current subscribers by WebSocket.",
    )
    .sample(&[], stats.sockets);
    out.gauge(
        "microcache_push_topics",
        "Distinct topics with subscribers.",
    )
    .sample(&[], stats.topics);
    out.counter(
        "microcache_push_subscriptions_total",
        "Subscriptions accepted.",
    )
    .sample(&[], stats.subscribed);
    out.counter(
        "microcache_push_subscriptions_rejected_total",
        "Subscriptions rejected by a limit.",
    )
    .sample(&[], stats.turned_away);
    out.counter(
        "microcache_push_events_total",
        "Changes delivered to connections of subscribers.",
    )
    .sample(&[], stats.events);
    out.counter(
        "microcache_push_deltas_total",
        "Changes delivered as deltas.",
    )
    .sample(&[], stats.deltas);
    out.counter(
        "microcache_push_resets_total",
        "Resets sent to subscribers.",
    )
    .sample(&[], stats.resets);
    out.counter("microcache_push_gaps_total", "Gaps sent to subscribers.")
        .sample(&[], stats.gaps);
    if let Some(fleet) = handle.fleet_stats() {
        expose_shared(out, &fleet);
    }
}

fn expose_shared(out: &mut Exposition, fleet: &FleetStats) {
    out.gauge(
        "microcache_push_redis_connected",
        "1 while push_redis is reachable, otherwise 0.",
    )
    .sample(&[], u64::from(fleet.is_connected));
    out.gauge(
        "microcache_push_redis_last_contact_seconds",
        "Time since the last response of push_redis; up to a second without changes is normal.",
    )
    .sample(&[], fleet.silent_for as f64 / 1000.0);
    out.gauge(
        "microcache_push_redis_last_change",
        "Number of the last change that this node has read: microseconds since 1970.",
    )
    .sample(&[], fleet.newest);
    out.counter(
        "microcache_push_redis_outages_total",
        "Losses of the connection to push_redis.",
    )
    .sample(&[], fleet.outages);
    out.counter(
        "microcache_push_redis_full_syncs_total",
        "Full loads of all documents from push_redis: at the start, and after missed changes.",
    )
    .sample(&[], fleet.loads);
}
