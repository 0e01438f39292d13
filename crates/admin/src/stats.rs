//! Statistics as JSON: `GET /v1/stats`.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use microcache_engine::cache::Cache;
use microcache_engine::flight::ActiveFetch;
use microcache_engine::{MadeStats, Outcome};
use microcache_policy::{Coding, SentCoding};
use microcache_proxy::config::{Config, GoesTo};
use microcache_proxy::upstream::{GroupSnapshot, ServerAddress, ServerSnapshot};
use microcache_proxy::{
    Handle, MetricsSnapshot, OriginSnapshot, RouteSnapshot, TierReport, TraceCounts,
};
use serde_json::{Map, Value, json};

use crate::certificates;
use crate::entries::location;
use crate::interface::Interface;
use crate::latency::latency;
use crate::maintenance;
use crate::mercure;
use crate::push;
use crate::warming;

/// Maximum number of fetches listed by URL.
const FETCHES: usize = 20;

/// Handles `GET /v1/stats`. Counts are since the start.
pub(crate) async fn stats(State(interface): State<Arc<Interface>>) -> Json<Value> {
    Json(view(&interface))
}

/// Statistics for live subscribers.
pub(crate) fn view(interface: &Interface) -> Value {
    let handle = &interface.handle;
    let figures = handle.metrics();
    let engine = handle.engine();
    let origin = figures.origin();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "uptime_seconds": interface.started.elapsed().as_secs(),
        "draining": handle.is_leaving(),
        "maintenance": maintenance::view(handle),
        "requests": requests(|outcome| figures.of(outcome), figures.requests()),
        "bytes_sent": figures.bytes(),
        "responses": statuses(figures.responses()),
        "hit_microseconds": latency(&figures.hits()),
        "wait_microseconds": latency(&figures.waits()),
        "windows": interface.windows().view(&figures),
        "origin": origin_of(&origin),
        "saved": saved(figures.fetches_avoided(), figures.origin_time_avoided()),
        "fetches": fetches(handle),
        "routes": figures.routes.iter().map(route).collect::<Vec<_>>(),
        "memory": memory(handle),
        "compression": compression(handle),
        "tiers": engine.cache.tier_reports().iter().map(tier).collect::<Vec<_>>(),
        "upstreams": upstreams(handle, &figures),
        "connections": connections(handle),
        "certificates": certificates::view(handle),
        "push": push::view(handle),
        "mercure": mercure::view(handle),
        "purges": purges(&engine.cache),
        "warming": warming::totals(handle),
        "admin": { "refused": interface.refused.load(Ordering::Relaxed) },
        "traces": handle.traces().map(|traces| spans(traces.counts())),
    })
}

fn requests(of: impl Fn(Outcome) -> u64, total: u64) -> Value {
    let counts = Outcome::ALL.iter();
    let mut requests: Map<_, _> = counts
        .map(|&outcome| (outcome.as_str().to_owned(), json!(of(outcome))))
        .collect();
    requests.insert("total".to_owned(), json!(total));
    requests.into()
}

fn route(route: &RouteSnapshot) -> Value {
    json!({
        "name": route.name,
        "requests": requests(|outcome| route.of(outcome), route.requests()),
        "bytes_sent": route.bytes,
        "responses": statuses(route.responses()),
        "hit_microseconds": latency(&route.hits),
        "wait_microseconds": latency(&route.waits),
        "origin": origin_of(&route.origin),
        "saved": saved(route.fetches_avoided(), route.origin_time_avoided()),
    })
}

fn origin_of(origin: &OriginSnapshot) -> Value {
    json!({
        "requests": origin.requests,
        "refreshes": origin.refreshes,
        "withheld": origin.withheld,
        "failures": origin.failures,
        "responses": statuses(origin.statuses),
        "bytes_received": origin.bytes,
        "first_byte_microseconds": latency(&origin.first_byte),
        "total_microseconds": latency(&origin.whole),
    })
}

fn statuses(counts: [u64; 5]) -> Value {
    let [informed, good, redirected, refused, failed] = counts;
    json!({"1xx": informed, "2xx": good, "3xx": redirected, "4xx": refused, "5xx": failed})
}

fn saved(fetches: u64, time: Duration) -> Value {
    json!({ "fetches": fetches, "origin_seconds": time.as_secs_f64() })
}

fn fetches(handle: &Handle) -> Value {
    let engine = handle.engine();
    let cache = &engine.cache;
    let (most_wanted, waiting) = cache.most_wanted(FETCHES);
    json!({
        "in_progress": cache.fetches(),
        "waiting": waiting,
        "most_awaited": most_wanted.iter().map(fetch).collect::<Vec<_>>(),
    })
}

fn fetch(fetch: &ActiveFetch) -> Value {
    json!({
        "url": location(&fetch.key),
        "age_seconds": fetch.age.as_secs_f64(),
        "waiting": fetch.waiting,
        "refresh": fetch.is_refresh,
    })
}

fn memory(handle: &Handle) -> Value {
    let memory = handle.engine().cache.memory_stats();
    json!({
        "keys": memory.keys,
        "bytes": memory.bytes,
        "capacity": memory.capacity,
        "evicted": memory.evicted,
        "refused": memory.refused,
    })
}

fn compression(handle: &Handle) -> Value {
    let stats = handle.engine().cache.compression_stats();
    let made = |(coding, made): (Coding, MadeStats)| {
        let counts = json!({
            "bodies": made.bodies,
            "bytes_in": made.bytes_in,
            "bytes_out": made.bytes_out,
        });
        (coding.as_str().to_owned(), counts)
    };
    let made: Map<_, _> = Coding::ALL.into_iter().zip(stats.made).map(made).collect();
    let sent = |(coding, sent): (SentCoding, u64)| (coding.as_str().to_owned(), json!(sent));
    let sent: Map<_, _> = SentCoding::ALL
        .into_iter()
        .zip(stats.sent)
        .map(sent)
        .collect();
    json!({
        "responses": stats.answers,
        "sent": sent,
        "bytes_saved": stats.saved,
        "made": made,
        "incompressible": stats.useless,
        "dropped": stats.dropped,
        "refused": stats.refused,
        "deltas": stats.deltas,
        "waiting": stats.waiting,
        "cpu_seconds": stats.cpu.as_secs_f64(),
    })
}

fn connections(handle: &Handle) -> Value {
    let taken = handle.connections();
    json!({
        "open": taken.connections,
        "idle": taken.idle,
        "max": taken.max_connections,
        "accepted": taken.accepted,
        "evicted": taken.dismissed,
        "tunnels": taken.tunnels,
        "max_tunnels": taken.max_tunnels,
    })
}

fn purges(cache: &Cache) -> Value {
    let mut purges = json!({ "active_rules": cache.live_rules() });
    if let Some(fleet) = cache.fleet() {
        purges["unpublished"] = json!(fleet.queued);
        purges["position"] = json!(fleet.position);
        purges["lost"] = json!(fleet.lost);
        purges["last_error"] = json!(fleet.trouble.map(|trouble| trouble.to_string()));
    }
    purges
}

/// Trace span counters.
fn spans(counts: &TraceCounts) -> Value {
    json!({
        "sent": counts.sent.load(Ordering::Relaxed),
        "dropped": counts.dropped.load(Ordering::Relaxed),
        "failed": counts.failed.load(Ordering::Relaxed),
    })
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
        "removals_dropped": report.not_removed,
        "latency_microseconds": {
            "p50": report.latency_percentile(50),
            "p99": report.latency_percentile(99),
        },
        "entries": report.stats.entries,
        "bytes": report.stats.bytes,
        "capacity": report.stats.capacity,
        "evicted": report.stats.evicted,
        "refused": report.stats.refused,
        "degraded": report.stats.degraded,
    })
}

fn upstreams(handle: &Handle, figures: &MetricsSnapshot) -> Vec<Value> {
    let none = OriginSnapshot::default();
    let config = handle.config();
    let group_view = |group: &GroupSnapshot| {
        let known = figures.upstreams.iter();
        let origin = known
            .into_iter()
            .find(|(name, _)| *name == group.name)
            .map_or(&none, |(_, origin)| origin);
        json!({
            "name": group.name,
            "active": group.active,
            "max_active": group.max_active,
            "queued": group.queued,
            "max_queued": group.max_queued,
            "stale_if_error_seconds": stale_if_error(&config, &group.name),
            "origin": origin_of(origin),
            "servers": group.servers.iter().map(server).collect::<Vec<_>>(),
        })
    };
    handle.upstreams().iter().map(group_view).collect()
}

/// Returns the longest time for which a route serves stale responses while this group is down.
fn stale_if_error(config: &Config, group: &str) -> f64 {
    let uses = |goes_to: &GoesTo| match goes_to {
        GoesTo::Upstream(at) => config.upstreams[*at].name == group,
        _ => false,
    };
    let routes = config.routes.iter().filter(|route| uses(&route.goes_to));
    let longest = routes.map(|route| route.rules.stale_if_error).max();
    longest.unwrap_or_default() as f64 / 1000.0
}

fn server(server: &ServerSnapshot) -> Value {
    let record = &server.health.record;
    let mean = |sum: Duration, count: u64| {
        let count = u32::try_from(count).ok().filter(|&count| count > 0)?;
        Some((sum / count).as_secs_f64() * 1e6)
    };
    let (host, port) = match &server.settings.address {
        ServerAddress::Tcp { host, port } => (host.clone(), Some(port)),
        socket @ ServerAddress::Unix(_) => (socket.to_string(), None),
    };
    let mut shown = json!({
        "host": host,
        "weight": server.settings.weight,
        "backup": server.settings.backup,
        "up": server.health.up,
        "active": server.health.outstanding,
        "idle_connections": server.idle,
        "requests": server.health.requests,
        "failures": server.health.failures,
        "responses": statuses(record.statuses),
        "bytes_sent": record.sent,
        "bytes_received": record.received,
        "first_byte_microseconds": mean(record.first_byte, record.answers()),
        "total_microseconds": mean(record.whole, record.timed),
        "outages": record.outages,
        "downtime_seconds": record.downtime.as_secs_f64(),
        "down_for_seconds": server.health.down_for.map(|time| time.as_secs_f64()),
        "health": {
            "checks": record.checks,
            "failed": record.failed_checks,
            "last_passed": record.last_check,
        },
    });
    if let Some(port) = port {
        shown["port"] = json!(port);
    }
    shown
}
