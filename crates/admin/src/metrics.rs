//! Metrics in the Prometheus text format.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use microcache_engine::Outcome;
use microcache_policy::{Coding, SentCoding};
use microcache_proxy::MetricsSnapshot;
use microcache_proxy::upstream::ServerSnapshot;

use crate::certificates;
use crate::exposition::{Exposition, OF_HITS, OF_ORIGINS};
use crate::interface::Interface;
use crate::mercure;
use crate::push;

/// Media type of the Prometheus text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Status classes.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

pub(crate) async fn metrics(
    State(interface): State<Arc<Interface>>,
) -> ([(&'static str, &'static str); 1], String) {
    ([("content-type", TEXT)], exposition(&interface))
}

fn exposition(interface: &Interface) -> String {
    let mut out = Exposition::default();
    let handle = &interface.handle;
    let figures = handle.metrics();
    out.gauge("microcache_info", "Version of the server.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    out.gauge("microcache_uptime_seconds", "Seconds since the start.")
        .sample(&[], interface.started.elapsed().as_secs());
    out.counter(
        "microcache_requests_total",
        "Client requests by outcome; each counts once.",
    );
    for outcome in Outcome::ALL {
        out.sample(&[("outcome", outcome.as_str())], figures.of(outcome));
    }
    out.counter(
        "microcache_origin_requests_total",
        "Requests sent to the origin, refreshes included.",
    )
    .sample(&[], figures.origin().requests);
    fetches(&mut out, interface, &figures);
    routes(&mut out, &figures);
    memory(&mut out, interface);
    purges(&mut out, interface);
    compression(&mut out, interface);
    tiers(&mut out, interface);
    origins(&mut out, &figures);
    upstreams(&mut out, interface);
    connections(&mut out, interface);
    refused(&mut out, interface, &figures);
    certificates::expose(&mut out, handle);
    push::expose(&mut out, handle);
    mercure::expose(&mut out, handle);
    traces(&mut out, interface);
    out.into_text()
}

fn fetches(out: &mut Exposition, interface: &Interface, figures: &MetricsSnapshot) {
    let engine = interface.handle.engine();
    let cache = &engine.cache;
    out.gauge(
        "microcache_fetches",
        "Fetches in progress that other requests can join.",
    )
    .sample(&[], cache.fetches());
    let (_, waiting) = cache.most_wanted(0);
    out.gauge(
        "microcache_fetches_waiting",
        "Requests that wait for a fetch in progress.",
    )
    .sample(&[], waiting);
    out.gauge(
        "microcache_fetches_avoided",
        "Requests to the origin avoided by the cache.",
    )
    .sample(&[], figures.fetches_avoided());
    out.gauge(
        "microcache_origin_seconds_avoided",
        "Estimated origin time of the avoided requests.",
    )
    .sample(&[], figures.origin_time_avoided().as_secs_f64());
}

/// Metrics by route. The configuration bounds their number.
fn routes(out: &mut Exposition, figures: &MetricsSnapshot) {
    let routes = &figures.routes;
    out.counter(
        "microcache_route_requests_total",
        "Client requests by route and outcome.",
    );
    for route in routes {
        for outcome in Outcome::ALL {
            let labels = [("route", &*route.name), ("outcome", outcome.as_str())];
            out.sample(&labels, route.of(outcome));
        }
    }
    out.counter(
        "microcache_route_sent_bytes_total",
        "Bytes of content sent to clients.",
    );
    for route in routes {
        out.sample(&[("route", &route.name)], route.bytes);
    }
    out.counter(
        "microcache_route_origin_requests_total",
        "Requests sent to the origin, refreshes included.",
    );
    for route in routes {
        out.sample(&[("route", &route.name)], route.origin.requests);
    }
    out.counter(
        "microcache_route_refreshes_total",
        "Background refreshes of stored responses.",
    );
    for route in routes {
        out.sample(&[("route", &route.name)], route.origin.refreshes);
    }
    out.counter(
        "microcache_route_withheld_requests_total",
        "Shared fetches sent without some fields of the client.",
    );
    for route in routes {
        out.sample(&[("route", &route.name)], route.origin.withheld);
    }
    out.counter(
        "microcache_route_origin_failures_total",
        "Requests to the origin without a complete response.",
    );
    for route in routes {
        out.sample(&[("route", &route.name)], route.origin.failures);
    }
    out.histogram(
        "microcache_hit_duration_seconds",
        "Time from reading a hit's request to handing its response to the connection; one in sixteen is timed.",
    );
    for route in routes {
        out.times(("route", &route.name), &route.hits, OF_HITS);
    }
    out.histogram(
        "microcache_wait_duration_seconds",
        "Time from reading a request to the start of its response, for requests that had to wait.",
    );
    for route in routes {
        out.times(("route", &route.name), &route.waits, OF_ORIGINS);
    }
    out.histogram(
        "microcache_route_first_byte_seconds",
        "Time from sending a request to the origin to the start of its response.",
    );
    for route in routes {
        out.times(("route", &route.name), &route.origin.first_byte, OF_ORIGINS);
    }
    out.histogram(
        "microcache_route_origin_duration_seconds",
        "Time from sending the request to the end of the response.",
    );
    for route in routes {
        out.times(("route", &route.name), &route.origin.whole, OF_ORIGINS);
    }
}

/// Metrics of origin groups.
fn origins(out: &mut Exposition, figures: &MetricsSnapshot) {
    let groups = &figures.upstreams;
    out.counter(
        "microcache_upstream_responses_total",
        "Responses by status.",
    );
    for (name, origin) in groups {
        for (class, count) in CLASSES.iter().zip(origin.statuses) {
            out.sample(&[("upstream", name), ("class", class)], count);
        }
    }
    out.counter(
        "microcache_upstream_received_bytes_total",
        "Bytes of content received from a group.",
    );
    for (name, origin) in groups {
        out.sample(&[("upstream", name)], origin.bytes);
    }
    out.histogram(
        "microcache_upstream_first_byte_seconds",
        "Time from sending a request to a group to the start of its response.",
    );
    for (name, origin) in groups {
        out.times(("upstream", name), &origin.first_byte, OF_ORIGINS);
    }
    out.histogram(
        "microcache_upstream_duration_seconds",
        "Time from sending the request to the end of the response.",
    );
    for (name, origin) in groups {
        out.times(("upstream", name), &origin.whole, OF_ORIGINS);
    }
}

fn memory(out: &mut Exposition, interface: &Interface) {
    let memory = interface.handle.engine().cache.memory_stats();
    out.gauge("microcache_memory_keys", "Keys in memory.")
        .sample(&[], memory.keys);
    out.gauge(
        "microcache_memory_bytes",
        "Bytes in memory, including overhead.",
    )
    .sample(&[], memory.bytes);
    out.gauge(
        "microcache_memory_capacity_bytes",
        "Limit of the bytes in memory.",
    )
    .sample(&[], memory.capacity);
    out.counter(
        "microcache_memory_evicted_total",
        "Keys evicted from memory.",
    )
    .sample(&[], memory.evicted);
    out.counter(
        "microcache_memory_refused_total",
        "Responses not stored in memory.",
    )
    .sample(&[], memory.refused);
}

fn purges(out: &mut Exposition, interface: &Interface) {
    let engine = interface.handle.engine();
    let cache = &engine.cache;
    out.gauge("microcache_purge_rules", "Active purges.")
        .sample(&[], cache.live_rules());
    let Some(fleet) = cache.fleet() else {
        return;
    };
    out.gauge(
        "microcache_purges_unpublished",
        "Purges not yet written to the shared purge log.",
    )
    .sample(&[], fleet.queued);
    out.counter(
        "microcache_purge_log_losses_total",
        "Losses of the shared purge log, after which everything older counts as purged.",
    )
    .sample(&[], fleet.lost);
}

fn compression(out: &mut Exposition, interface: &Interface) {
    let stats = interface.handle.engine().cache.compression_stats();
    out.counter(
        "microcache_compressed_responses_total",
        "Responses sent compressed.",
    )
    .sample(&[], stats.answers);
    out.counter(
        "microcache_compressed_responses_by_coding_total",
        "Responses sent compressed, by coding.",
    );
    for (coding, sent) in SentCoding::ALL.into_iter().zip(stats.sent) {
        out.sample(&[("coding", coding.as_str())], sent);
    }
    out.counter(
        "microcache_compression_saved_bytes_total",
        "Bytes saved by sending compressed responses.",
    )
    .sample(&[], stats.saved);
    out.counter(
        "microcache_compressed_bodies_total",
        "Stored bodies compressed.",
    );
    let made = || Coding::ALL.into_iter().zip(stats.made);
    for (coding, made) in made() {
        out.sample(&[("coding", coding.as_str())], made.bodies);
    }
    out.counter(
        "microcache_compression_bytes_total",
        "Bytes before and after compression.",
    );
    for (coding, made) in made() {
        for (side, bytes) in [("in", made.bytes_in), ("out", made.bytes_out)] {
            out.sample(&[("coding", coding.as_str()), ("side", side)], bytes);
        }
    }
    out.counter(
        "microcache_compression_dropped_total",
        "Compressions without a result: `incompressible` (hardly smaller), `dropped` (purged or replaced meanwhile, or no \
         memory), `refused` (queue full).",
    );
    for (why, count) in [
        ("incompressible", stats.useless),
        ("dropped", stats.dropped),
        ("refused", stats.refused),
    ] {
        out.sample(&[("why", why)], count);
    }
    out.counter(
        "microcache_compression_deltas_total",
        "Deltas made to versions that clients have.",
    )
    .sample(&[], stats.deltas);
    out.gauge(
        "microcache_compression_waiting",
        "Bodies waiting for compression.",
    )
    .sample(&[], stats.waiting);
    out.counter(
        "microcache_compression_cpu_seconds_total",
        "CPU time of compression.",
    )
    .sample(&[], stats.cpu.as_secs_f64());
}

fn tiers(out: &mut Exposition, interface: &Interface) {
    let reports = interface.handle.engine().cache.tier_reports();
    if reports.is_empty() {
        return;
    }
    out.counter("microcache_tier_lookups_total", "Lookups in tiers.");
    for tier in &reports {
        out.sample(&[("tier", tier.name), ("result", "hit")], tier.hits)
            .sample(&[("tier", tier.name), ("result", "miss")], tier.misses);
    }
    out.counter(
        "microcache_tier_failures_total",
        "Failed operations of tiers.",
    );
    for tier in &reports {
        out.sample(&[("tier", tier.name), ("reason", "error")], tier.errors)
            .sample(&[("tier", tier.name), ("reason", "timeout")], tier.timeouts)
            .sample(&[("tier", tier.name), ("reason", "corrupt")], tier.corrupt)
            .sample(&[("tier", tier.name), ("reason", "dropped")], tier.dropped);
    }
    out.counter("microcache_tier_written_total", "Records written to tiers.");
    for tier in &reports {
        out.sample(&[("tier", tier.name)], tier.written);
    }
    out.gauge("microcache_tier_bytes", "Bytes stored in a tier, if known.");
    for tier in &reports {
        if let Some(bytes) = tier.stats.bytes {
            out.sample(&[("tier", tier.name)], bytes);
        }
    }
    out.gauge(
        "microcache_tier_degraded",
        "1 while a tier is wholly or partly out of service.",
    );
    for tier in &reports {
        let degraded = u8::from(!tier.stats.degraded.is_empty());
        out.sample(&[("tier", tier.name)], degraded);
    }
}

fn upstreams(out: &mut Exposition, interface: &Interface) {
    let groups = interface.handle.upstreams();
    out.gauge(
        "microcache_upstream_active",
        "Requests in progress at a group.",
    );
    for group in &groups {
        out.sample(&[("upstream", &group.name)], group.active);
    }
    out.gauge(
        "microcache_upstream_queued",
        "Requests waiting for a permit of a group.",
    );
    for group in &groups {
        out.sample(&[("upstream", &group.name)], group.queued);
    }
    servers(
        out,
        &groups
            .iter()
            .flat_map(|group| group.servers.iter().map(|server| (&*group.name, server)))
            .map(|(group, server)| {
                let address = format!("{}:{}", server.settings.host, server.settings.port);
                (group, address, server)
            })
            .collect::<Vec<_>>(),
    );
}

/// Iterates over all servers with the name of their group and their address.
fn servers(out: &mut Exposition, servers: &[(&str, String, &ServerSnapshot)]) {
    let each = |out: &mut Exposition, of: fn(&ServerSnapshot) -> f64| {
        for (group, address, server) in servers {
            out.sample(&[("upstream", group), ("server", address)], of(server));
        }
    };
    out.gauge(
        "microcache_server_up",
        "1 while a server receives requests.",
    );
    each(out, |server| f64::from(u8::from(server.health.up)));
    out.gauge(
        "microcache_server_active",
        "Requests in progress at a server.",
    );
    each(out, |server| server.health.outstanding as f64);
    out.counter(
        "microcache_server_requests_total",
        "Requests sent to a server.",
    );
    each(out, |server| server.health.requests as f64);
    out.counter(
        "microcache_server_failures_total",
        "Failed requests to a server.",
    );
    each(out, |server| server.health.failures as f64);
    out.counter("microcache_server_responses_total", "Responses by status.");
    for (group, address, server) in servers {
        for (class, count) in CLASSES.iter().zip(server.health.record.statuses) {
            let labels = [("upstream", *group), ("server", address), ("class", class)];
            out.sample(&labels, count);
        }
    }
    out.counter(
        "microcache_server_received_bytes_total",
        "Bytes of content received from a server.",
    );
    each(out, |server| server.health.record.received as f64);
    out.counter(
        "microcache_server_sent_bytes_total",
        "Bytes of content sent to a server.",
    );
    each(out, |server| server.health.record.sent as f64);
    out.counter(
        "microcache_server_first_byte_seconds_total",
        "Total time to the first byte of all responses of a server.",
    );
    each(out, |server| server.health.record.first_byte.as_secs_f64());
    out.counter("microcache_server_outages_total", "Outages of a server.");
    each(out, |server| server.health.record.outages as f64);
    out.counter(
        "microcache_server_downtime_seconds_total",
        "Total time that a server was down.",
    );
    each(out, |server| server.health.record.downtime.as_secs_f64());
    out.counter(
        "microcache_server_checks_total",
        "Health checks of a server.",
    );
    for (group, address, server) in servers {
        let record = &server.health.record;
        for (result, count) in [
            ("passed", record.checks - record.failed_checks),
            ("failed", record.failed_checks),
        ] {
            let labels = [
                ("upstream", *group),
                ("server", address),
                ("result", result),
            ];
            out.sample(&labels, count);
        }
    }
}

/// Metrics of trace spans.
fn traces(out: &mut Exposition, interface: &Interface) {
    let Some(traces) = interface.handle.traces() else {
        return;
    };
    let counts = traces.counts();
    out.counter(
        "microcache_trace_spans_total",
        "Trace spans by result: accepted by a collector, dropped because the queue was full, or failed.",
    );
    for (result, count) in [
        ("sent", &counts.sent),
        ("dropped", &counts.dropped),
        ("failed", &counts.failed),
    ] {
        out.sample(&[("result", result)], count.load(Ordering::Relaxed));
    }
}

/// Requests and connections refused by limits.
fn refused(out: &mut Exposition, interface: &Interface, figures: &MetricsSnapshot) {
    out.counter(
        "microcache_refused_total",
        "Connections and requests refused by a limit, by reason.",
    );
    for (why, count) in &figures.refused {
        out.sample(&[("reason", why.as_str())], *count);
    }
    out.counter(
        "microcache_rate_limit_evictions_total",
        "Rate-limited clients evicted while their counts still mattered (max_rate_keys).",
    )
    .sample(&[], interface.handle.rates_forgotten());
}

fn connections(out: &mut Exposition, interface: &Interface) {
    let taken = interface.handle.connections();
    out.gauge("microcache_connections", "Client connections.")
        .sample(&[("state", "idle")], taken.idle)
        .sample(
            &[("state", "busy")],
            taken.connections.saturating_sub(taken.idle),
        );
    out.gauge("microcache_connections_max", "Limit of client connections.")
        .sample(&[], taken.max_connections);
    out.counter(
        "microcache_connections_accepted_total",
        "Client connections accepted.",
    )
    .sample(&[], taken.accepted);
    out.counter(
        "microcache_connections_evicted_total",
        "Idle client connections closed to admit others.",
    )
    .sample(&[], taken.dismissed);
    out.gauge("microcache_tunnels", "Tunnels and event streams.")
        .sample(&[], taken.tunnels);
    out.counter(
        "microcache_admin_refused_total",
        "Unauthorized requests to the admin interface.",
    )
    .sample(&[], interface.refused.load(Ordering::Relaxed));
}
