//! Statistics and metrics of the Mercure hub.

use microcache_proxy::Handle;
use serde_json::{Value, json};

use crate::exposition::Exposition;

/// In numbers; `None` where there is none.
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

/// The same for Prometheus.
pub(crate) fn expose(out: &mut Exposition, handle: &Handle) {
    let Some(stats) = handle.mercure_stats() else {
        return;
    };
    for (name, help, value) in [
        (
            "microcache_mercure_history",
            "Updates of the Mercure hub that are remembered.",
            stats.history,
        ),
        (
            "microcache_mercure_history_bytes",
            "What they take.",
            stats.bytes,
        ),
        (
            "microcache_mercure_capacity_bytes",
            "What they may take.",
            stats.capacity,
        ),
        (
            "microcache_mercure_subscribers",
            "Who subscribes to updates.",
            stats.subscribers,
        ),
        (
            "microcache_mercure_topics",
            "Different things that they subscribe to.",
            stats.topics,
        ),
    ] {
        out.gauge(name, help).sample(&[], value);
    }
    for (name, help, value) in [
        (
            "microcache_mercure_updates_total",
            "Updates that were published.",
            stats.updates,
        ),
        (
            "microcache_mercure_refused_total",
            "Publications that were refused.",
            stats.refused,
        ),
        (
            "microcache_mercure_log_write_failures_total",
            "Those of them that could not be written to push_directory.",
            stats.unwritten,
        ),
        (
            "microcache_mercure_subscriptions_total",
            "Who has subscribed.",
            stats.subscribed,
        ),
        (
            "microcache_mercure_subscriptions_rejected_total",
            "Who was not let.",
            stats.turned_away,
        ),
        (
            "microcache_mercure_events_total",
            "Updates that were handed to connections of subscribers.",
            stats.events,
        ),
        (
            "microcache_mercure_slow_subscribers_dropped_total",
            "Subscribers who were let go because what came next was not remembered any more.",
            stats.cut_off,
        ),
    ] {
        out.counter(name, help).sample(&[], value);
    }
}
