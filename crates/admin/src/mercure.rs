//! Statistics of the Mercure hub.

use microcache_proxy::Handle;
use serde_json::{Value, json};

use crate::push;

/// Builds the statistics; `None` without a hub.
pub(crate) fn view(handle: &Handle) -> Option<Value> {
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
        "redis": handle.hub_fleet_stats().map(|fleet| push::shared(&fleet)),
    }))
}
