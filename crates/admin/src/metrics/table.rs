//! The table of metrics. A new metric is a row here, and a line in `docs/api.md`, which a test compares.

use std::sync::atomic::Ordering;

use microcache_engine::Outcome;
use microcache_policy::SentCoding;
use microcache_proxy::{FragmentOutcome, WarmResult};

use super::metric::Subject::{
    Coding, Group, Mercure, Origin, Process, PurgeLog, Push, Redis, Renewal, Route, Server, Tier,
    Traces,
};
use super::metric::{Metric, counter, gauge, histogram};
use super::samples::{OF_HITS, OF_ORIGINS};

/// Status classes.
const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// All metrics, in the order of the output.
#[rustfmt::skip]
pub(super) const METRICS: &[Metric] = &[
    gauge("microcache_info", "Version of the server.",
        Process(|_, to| to.by("version", [(env!("CARGO_PKG_VERSION"), 1)]))),
    gauge("microcache_uptime_seconds", "Seconds since the start.",
        Process(|it, to| to.value(it.interface.started.elapsed().as_secs()))),
    gauge("microcache_maintenance", "1 in maintenance mode.",
        Process(|it, to| to.value(u64::from(it.interface.handle.maintenance().is_some())))),
    gauge("microcache_warming_jobs", "Lists of URLs being warmed.",
        Process(|it, to| to.value(it.interface.handle.warm_totals().0))),
    counter("microcache_warmed_urls_total", "URLs of warming by result.",
        Process(|it, to| {
            let (_, counts) = it.interface.handle.warm_totals();
            to.by("result", WarmResult::NAMES.into_iter().zip(counts));
        })),

    // Requests.
    counter("microcache_requests_total", "Client requests by outcome; each counts once.",
        Process(|it, to| to.by("outcome", Outcome::ALL.map(|one| (one.as_str(), it.requests.of(one)))))),
    counter("microcache_origin_requests_total", "Requests sent to the origin, refreshes included.",
        Process(|it, to| to.value(it.requests.origin().requests))),
    gauge("microcache_fetches", "Fetches in progress that other requests can join.",
        Process(|it, to| to.value(it.engine.cache.fetches()))),
    gauge("microcache_fetches_waiting", "Requests that wait for a fetch in progress.",
        Process(|it, to| to.value(it.engine.cache.most_wanted(0).1))),
    gauge("microcache_fetches_avoided", "Requests to the origin avoided by the cache.",
        Process(|it, to| to.value(it.requests.fetches_avoided()))),
    gauge("microcache_origin_seconds_avoided", "Estimated origin time of the avoided requests.",
        Process(|it, to| to.value(it.requests.origin_time_avoided().as_secs_f64()))),

    // Routes. The configuration bounds their number.
    counter("microcache_route_requests_total", "Client requests by route and outcome.",
        Route(|it, to| to.by("outcome", Outcome::ALL.map(|one| (one.as_str(), it.of(one)))))),
    counter("microcache_responses_total", "Responses to clients by route and status class.",
        Route(|it, to| to.by("code", CLASSES.into_iter().zip(it.responses())))),
    counter("microcache_route_sent_bytes_total", "Bytes of content sent to clients.",
        Route(|it, to| to.value(it.bytes))),
    counter("microcache_route_origin_requests_total", "Requests sent to the origin, refreshes included.",
        Route(|it, to| to.value(it.origin.requests))),
    counter("microcache_route_refreshes_total", "Background refreshes of stored responses.",
        Route(|it, to| to.value(it.origin.refreshes))),
    counter("microcache_route_withheld_requests_total", "Shared fetches sent without some fields of the client.",
        Route(|it, to| to.value(it.origin.withheld))),
    counter("microcache_route_unchanged_pages_total", "Pages that holes and tokens could not be replaced in.",
        Route(|it, to| to.value(it.origin.unchanged_pages))),
    counter("microcache_route_origin_failures_total", "Requests to the origin without a complete response.",
        Route(|it, to| to.value(it.origin.failures))),
    histogram("microcache_hit_duration_seconds",
        "Time from reading a hit's request to handing its response to the connection; one in sixteen is timed.",
        Route(|it, to| to.times(&it.hits, OF_HITS))),
    histogram("microcache_wait_duration_seconds",
        "Time from reading a request to the start of its response, for requests that had to wait.",
        Route(|it, to| to.times(&it.waits, OF_ORIGINS))),
    histogram("microcache_route_first_byte_seconds",
        "Time from sending a request to the origin to the start of its response.",
        Route(|it, to| to.times(&it.origin.first_byte, OF_ORIGINS))),
    histogram("microcache_route_origin_duration_seconds",
        "Time from sending the request to the end of the response.",
        Route(|it, to| to.times(&it.origin.whole, OF_ORIGINS))),

    // Memory.
    gauge("microcache_memory_keys", "Keys in memory.", Process(|it, to| to.value(it.memory.keys))),
    gauge("microcache_memory_bytes", "Bytes in memory, including overhead.",
        Process(|it, to| to.value(it.memory.bytes))),
    gauge("microcache_memory_capacity_bytes", "Limit of the bytes in memory.",
        Process(|it, to| to.value(it.memory.capacity))),
    counter("microcache_memory_evicted_total", "Keys evicted from memory.",
        Process(|it, to| to.value(it.memory.evicted))),
    counter("microcache_memory_refused_total", "Responses not stored in memory.",
        Process(|it, to| to.value(it.memory.refused))),

    // Purges.
    counter("microcache_too_many_tags_total",
        "Responses stored with more tags than are kept: every purge by tag removes them.",
        Process(|it, to| to.value(it.engine.cache.too_many_tags()))),
    gauge("microcache_purge_rules", "Active purges.", Process(|it, to| to.value(it.engine.cache.live_rules()))),
    gauge("microcache_purges_unpublished", "Purges not yet written to the shared purge log.",
        PurgeLog(|it, to| to.value(it.queued))),
    counter("microcache_purge_log_losses_total",
        "Losses of the shared purge log, after which everything older counts as purged.",
        PurgeLog(|it, to| to.value(it.lost))),

    // Compression.
    counter("microcache_compressed_responses_total", "Responses sent compressed.",
        Process(|it, to| to.value(it.compression.answers))),
    counter("microcache_compressed_responses_by_coding_total", "Responses sent compressed, by coding.",
        Process(|it, to| {
            to.by("coding", SentCoding::ALL.map(SentCoding::as_str).into_iter().zip(it.compression.sent));
        })),
    counter("microcache_compression_saved_bytes_total", "Bytes saved by sending compressed responses.",
        Process(|it, to| to.value(it.compression.saved))),
    counter("microcache_compressed_bodies_total", "Stored bodies compressed.", Coding(|it, to| to.value(it.bodies))),
    counter("microcache_compression_bytes_total", "Bytes before and after compression.",
        Coding(|it, to| to.by("side", [("in", it.bytes_in), ("out", it.bytes_out)]))),
    counter("microcache_compression_dropped_total",
        "Compressions without a result: `incompressible` (hardly smaller), `dropped` (purged or replaced meanwhile, or no \
         memory), `refused` (queue full).",
        Process(|it, to| to.by("why", [
            ("incompressible", it.compression.useless),
            ("dropped", it.compression.dropped),
            ("refused", it.compression.refused),
        ]))),
    counter("microcache_compression_deltas_total", "Deltas made to versions that clients have.",
        Process(|it, to| to.value(it.compression.deltas))),
    gauge("microcache_compression_waiting", "Bodies waiting for compression.",
        Process(|it, to| to.value(it.compression.waiting))),
    counter("microcache_compression_cpu_seconds_total", "CPU time of compression.",
        Process(|it, to| to.value(it.compression.cpu.as_secs_f64()))),

    // Tiers.
    counter("microcache_tier_lookups_total", "Lookups in tiers.",
        Tier(|it, to| to.by("result", [("hit", it.hits), ("miss", it.misses)]))),
    counter("microcache_tier_failures_total", "Failed operations of tiers.",
        Tier(|it, to| to.by("reason", [
            ("error", it.errors),
            ("timeout", it.timeouts),
            ("corrupt", it.corrupt),
            ("dropped", it.dropped),
        ]))),
    counter("microcache_tier_written_total", "Records written to tiers.", Tier(|it, to| to.value(it.written))),
    counter("microcache_tier_claims_expired_total", "Claims of other processes that expired while requests waited for them.",
        Tier(|it, to| to.value(it.expired_claims))),
    gauge("microcache_tier_bytes", "Bytes stored in a tier, if known.",
        Tier(|it, to| if let Some(bytes) = it.stats.bytes { to.value(bytes); })),
    gauge("microcache_tier_degraded", "1 while a tier is wholly or partly out of service.",
        Tier(|it, to| to.value(u8::from(!it.stats.degraded.is_empty())))),

    // Origin groups.
    counter("microcache_upstream_responses_total", "Responses by status.",
        Origin(|it, to| to.by("class", CLASSES.into_iter().zip(it.statuses)))),
    counter("microcache_upstream_received_bytes_total", "Bytes of content received from a group.",
        Origin(|it, to| to.value(it.bytes))),
    histogram("microcache_upstream_first_byte_seconds",
        "Time from sending a request to a group to the start of its response.",
        Origin(|it, to| to.times(&it.first_byte, OF_ORIGINS))),
    histogram("microcache_upstream_duration_seconds", "Time from sending the request to the end of the response.",
        Origin(|it, to| to.times(&it.whole, OF_ORIGINS))),
    gauge("microcache_upstream_active", "Requests in progress at a group.", Group(|it, to| to.value(it.active))),
    gauge("microcache_upstream_queued", "Requests waiting for a permit of a group.",
        Group(|it, to| to.value(it.queued))),

    // Servers of the groups.
    gauge("microcache_server_up", "1 while a server receives requests.",
        Server(|it, to| to.value(u8::from(it.health.up)))),
    gauge("microcache_server_active", "Requests in progress at a server.",
        Server(|it, to| to.value(it.health.outstanding))),
    counter("microcache_server_requests_total", "Requests sent to a server.",
        Server(|it, to| to.value(it.health.requests))),
    counter("microcache_server_failures_total", "Failed requests to a server.",
        Server(|it, to| to.value(it.health.failures))),
    counter("microcache_server_responses_total", "Responses by status.",
        Server(|it, to| to.by("class", CLASSES.into_iter().zip(it.health.record.statuses)))),
    counter("microcache_server_received_bytes_total", "Bytes of content received from a server.",
        Server(|it, to| to.value(it.health.record.received))),
    counter("microcache_server_sent_bytes_total", "Bytes of content sent to a server.",
        Server(|it, to| to.value(it.health.record.sent))),
    counter("microcache_server_first_byte_seconds_total", "Total time to the first byte of all responses of a server.",
        Server(|it, to| to.value(it.health.record.first_byte.as_secs_f64()))),
    counter("microcache_server_outages_total", "Outages of a server.",
        Server(|it, to| to.value(it.health.record.outages))),
    counter("microcache_server_downtime_seconds_total", "Total time that a server was down.",
        Server(|it, to| to.value(it.health.record.downtime.as_secs_f64()))),
    counter("microcache_server_checks_total", "Health checks of a server.",
        Server(|it, to| to.by("result", [
            ("passed", it.health.record.checks - it.health.record.failed_checks),
            ("failed", it.health.record.failed_checks),
        ]))),

    // Connections and limits.
    gauge("microcache_connections", "Client connections.",
        Process(|it, to| to.by("state", [
            ("idle", it.connections.idle),
            ("busy", it.connections.connections.saturating_sub(it.connections.idle)),
        ]))),
    gauge("microcache_connections_max", "Limit of client connections.",
        Process(|it, to| to.value(it.connections.max_connections))),
    counter("microcache_connections_accepted_total", "Client connections accepted.",
        Process(|it, to| to.value(it.connections.accepted))),
    counter("microcache_connections_evicted_total", "Idle client connections closed to admit others.",
        Process(|it, to| to.value(it.connections.dismissed))),
    gauge("microcache_tunnels", "Tunnels and event streams.", Process(|it, to| to.value(it.connections.tunnels))),
    counter("microcache_admin_refused_total", "Unauthorized requests to the admin interface.",
        Process(|it, to| to.value(it.interface.refused.load(Ordering::Relaxed)))),
    counter("microcache_fragments_total",
        "Fragments of composed pages: `memory`, `fetched`, `alternative` (`alt`), `failed`; tags \
         `left-out`, and fragments whose cookie was dropped (`cookie-dropped`).",
        Process(|it, to| to.by("outcome", FragmentOutcome::ALL.iter().map(|it| it.as_str()).zip(it.requests.fragments)))),
    counter("microcache_early_hints_total", "Early hints (103) sent from stored pages.",
        Process(|it, to| to.value(it.requests.early_hints))),
    counter("microcache_refused_total", "Connections and requests refused by a limit, by reason.",
        Process(|it, to| to.by("reason", it.requests.refused.iter().map(|(why, count)| (why.as_str(), count))))),
    counter("microcache_rate_limit_evictions_total",
        "Rate-limited clients evicted while their counts still mattered (max_rate_keys).",
        Process(|it, to| to.value(it.interface.handle.rates_forgotten()))),

    // Certificates.
    gauge("microcache_certificate_expiry_timestamp_seconds",
        "Expiry of the certificate by name; 0 without a certificate.",
        Process(|it, to| to.by("name", it.of_certificates(|one| one.expires.unwrap_or_default())))),
    gauge("microcache_certificate_lifetime_seconds",
        "Length of the validity of the certificate by name; 0 without a certificate.",
        Process(|it, to| to.by("name", it.of_certificates(|one| one.lifetime)))),
    counter("microcache_acme_orders_total", "Certificate orders by result.",
        Renewal(|it, to| to.by("result", [("ok", it.ordered), ("failed", it.failed)]))),

    // Documents.
    gauge("microcache_push_documents", "Documents.", Push(|it, to| to.value(it.documents))),
    gauge("microcache_push_bytes", "Memory used by documents.", Push(|it, to| to.value(it.bytes))),
    gauge("microcache_push_capacity_bytes", "Limit of the memory for documents.", Push(|it, to| to.value(it.capacity))),
    counter("microcache_push_changes_total",
        "Changes of documents by result: `made` (includes `expired`), `unchanged` (content unchanged), `expired`, \
         `refused`, `failed`.",
        Push(|it, to| to.by("result", [
            ("made", it.changes),
            ("unchanged", it.same),
            ("expired", it.expired),
            ("refused", it.refused),
            ("failed", it.unwritten),
        ]))),
    counter("microcache_push_syncs_total", "Writes of changes to disk; concurrent changes share one write.",
        Push(|it, to| to.value(it.syncs))),
    gauge("microcache_push_subscribers", "Current subscribers.", Push(|it, to| to.value(it.subscribers))),
    gauge("microcache_push_sockets", "Current subscribers by WebSocket.", Push(|it, to| to.value(it.sockets))),
    gauge("microcache_push_topics", "Distinct topics with subscribers.", Push(|it, to| to.value(it.topics))),
    counter("microcache_push_subscriptions_total", "Subscriptions accepted.", Push(|it, to| to.value(it.subscribed))),
    counter("microcache_push_subscriptions_rejected_total", "Subscriptions rejected by a limit.",
        Push(|it, to| to.value(it.turned_away))),
    counter("microcache_push_events_total", "Changes delivered to connections of subscribers.",
        Push(|it, to| to.value(it.events))),
    counter("microcache_push_deltas_total", "Changes delivered as deltas.", Push(|it, to| to.value(it.deltas))),
    counter("microcache_push_resets_total", "Resets sent to subscribers.", Push(|it, to| to.value(it.resets))),
    counter("microcache_push_gaps_total", "Gaps sent to subscribers.", Push(|it, to| to.value(it.gaps))),
    gauge("microcache_push_redis_connected", "1 while push_redis is reachable, otherwise 0.",
        Redis(|it, to| to.value(u8::from(it.is_connected)))),
    gauge("microcache_push_redis_last_contact_seconds",
        "Time since the last response of push_redis; up to a second without changes is normal.",
        Redis(|it, to| to.value(it.silent_for as f64 / 1000.0))),
    gauge("microcache_push_redis_last_change",
        "Number of the last change that this node has read: microseconds since 1970.",
        Redis(|it, to| to.value(it.newest))),
    counter("microcache_push_redis_outages_total", "Losses of the connection to push_redis.",
        Redis(|it, to| to.value(it.outages))),
    counter("microcache_push_redis_full_syncs_total",
        "Full loads of all documents from push_redis: at the start, and after missed changes.",
        Redis(|it, to| to.value(it.loads))),
    counter("microcache_push_redis_ignored_total",
        "Entries in push_redis that were ignored because they are damaged or of another program.",
        Redis(|it, to| to.value(it.ignored))),

    // The Mercure hub.
    gauge("microcache_mercure_history", "Updates in the history of the Mercure hub.",
        Mercure(|it, to| to.value(it.history))),
    gauge("microcache_mercure_history_bytes", "Memory used by the history.", Mercure(|it, to| to.value(it.bytes))),
    gauge("microcache_mercure_capacity_bytes", "Limit of the memory for the history.",
        Mercure(|it, to| to.value(it.capacity))),
    gauge("microcache_mercure_subscribers", "Current subscribers.", Mercure(|it, to| to.value(it.subscribers))),
    gauge("microcache_mercure_topics", "Distinct topics with subscribers.", Mercure(|it, to| to.value(it.topics))),
    counter("microcache_mercure_updates_total", "Updates published.", Mercure(|it, to| to.value(it.updates))),
    counter("microcache_mercure_refused_total", "Publications refused.", Mercure(|it, to| to.value(it.refused))),
    counter("microcache_mercure_log_write_failures_total",
        "Publications refused because push_directory could not be written.",
        Mercure(|it, to| to.value(it.unwritten))),
    counter("microcache_mercure_subscriptions_total", "Subscriptions accepted.",
        Mercure(|it, to| to.value(it.subscribed))),
    counter("microcache_mercure_subscriptions_rejected_total", "Subscriptions rejected.",
        Mercure(|it, to| to.value(it.turned_away))),
    counter("microcache_mercure_events_total", "Updates delivered to connections of subscribers.",
        Mercure(|it, to| to.value(it.events))),
    counter("microcache_mercure_slow_subscribers_dropped_total",
        "Subscribers disconnected because their next update had left the history.",
        Mercure(|it, to| to.value(it.cut_off))),

    counter("microcache_trace_spans_total",
        "Trace spans by result: accepted by a collector, dropped because the queue was full, or failed.",
        Traces(|it, to| to.by("result",
            [("sent", &it.sent), ("dropped", &it.dropped), ("failed", &it.failed)]
                .map(|(result, count)| (result, count.load(Ordering::Relaxed)))))),
];
