//! Statistics and metrics of the Mercure hub.

use microcache_proxy::Handle;
use serde_json::{Value, json};

use crate::exposition::Exposition;

/// Builds the statistics; `None` without a hub.
pub(crate) fn told(handle: &Handle) -> Option<Value> {
    let stats = handle.mercure_stats()?;
    Some(json!({
        "history": stats.history,
        "bytes": stats.bytes,
        "capacity_bytes": stats.capacity,
        "updates": stats.updates,
        "refused": stats.refused,
        "write_failures": stats.unwritten,
        "subscribers": stats.subscribers,
        "topics": stats.topics,
        "subscriptions": stats.subscribed,
        "subscriptions_rejected": stats.turned_away,
        "events": stats.events,
        "slow_subscribers_dropped": stats.cut_off,
    }))
}

/// Writes the metrics.
pub(crate) fn expose(out: &mut Exposition, handle: &Handle) {
    let Some(stats) = handle.mercure_stats() else {
        return;
    };
    for (name, help, value) in [
        (
            "microcache_mercure_history",
            "Updates in the history of the Mercure hub.",
            stats.history,
        ),
        (
            "microcache_mercure_history_bytes",
            "Memory used by the history.",
            stats.bytes,
        ),
        (
            "microcache_mercure_capacity_bytes",
            "Limit of the memory for the history.",
            stats.capacity,
        ),
        (
            "microcache_mercure_subscribers",
            "Current subscribers.",
            stats.subscribers,
        ),
        (
            "microcache_mercure_topics",
            "Distinct topics with subscribers.",
            stats.topics,
        ),
    ] {
        out.gauge(name, help).sample(&[], value);
    }
    for (name, help, value) in [
        (
            "microcache_mercure_updates_total",
            "Updates published.",
            stats.updates,
        ),
        (
            "microcache_mercure_refused_total",
            "Publications refused.",
            stats.refused,
        ),
        (
            "microcache_mercure_log_write_failures_total",
            "Publications refused because push_directory could not be written.",
            stats.unwritten,
        ),
        (
            "microcache_mercure_subscriptions_total",
            "Subscriptions accepted.",
            stats.subscribed,
        ),
        (
            "microcache_mercure_subscriptions_rejected_total",
            "Subscriptions rejected.",
            stats.turned_away,
        ),
        (
            "microcache_mercure_events_total",
            "Updates delivered to connections of subscribers.",
            stats.events,
        ),
        (
            "microcache_mercure_slow_subscribers_dropped_total",
            "Subscribers disconnected because their next update had left the history.",
            stats.cut_off,
        ),
    ] {
        out.counter(name, help).sample(&[], value);
    }
}
