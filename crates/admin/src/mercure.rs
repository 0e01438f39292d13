//! How the Mercure hub does, for those who operate the server.

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
        "unwritten": stats.unwritten,
        "subscribers": stats.subscribers,
        "topics": stats.topics,
        "subscribed": stats.subscribed,
        "turned_away": stats.turned_away,
        "events": stats.events,
        "cut_off": stats.cut_off,
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
            "microcache_mercure_unwritten_total",
            "Those of them that could not be written to push_directory.",
            stats.unwritten,
        ),
        (
            "microcache_mercure_subscribed_total",
            "Who has subscribed.",
            stats.subscribed,
        ),
        (
            "microcache_mercure_turned_away_total",
            "Who was not let.",
            stats.turned_away,
        ),
        (
            "microcache_mercure_events_total",
            "Updates that were handed to connections of subscribers.",
            stats.events,
        ),
        (
            "microcache_mercure_cut_off_total",
            "Subscribers who were let go because what came next was not remembered any more.",
            stats.cut_off,
        ),
    ] {
        out.counter(name, help).sample(&[], value);
    }
}
