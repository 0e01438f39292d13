//! The same numbers for Prometheus, in its text format.

use std::fmt::{Display, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use microcache_engine::Outcome;

use crate::interface::Interface;

/// The type of Prometheus's text format.
const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

pub(crate) async fn metrics(
    State(interface): State<Arc<Interface>>,
) -> ([(&'static str, &'static str); 1], String) {
    ([("content-type", TEXT)], exposition(&interface))
}

/// Families, one after the other, each with its samples.
#[derive(Default)]
struct Exposition {
    text: String,
    name: &'static str,
}

impl Exposition {
    fn counter(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.family(name, "counter", help)
    }

    fn gauge(&mut self, name: &'static str, help: &str) -> &mut Self {
        self.family(name, "gauge", help)
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) -> &mut Self {
        self.name = name;
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// A sample of the family that was begun last.
    fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) -> &mut Self {
        self.text.push_str(self.name);
        for (number, (label, of)) in labels.iter().enumerate() {
            self.text.push(if number == 0 { '{' } else { ',' });
            let _ = write!(self.text, "{label}=\"{}\"", escaped(of));
        }
        if !labels.is_empty() {
            self.text.push('}');
        }
        let _ = writeln!(self.text, " {value}");
        self
    }
}

fn escaped(label: &str) -> String {
    label
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

fn exposition(interface: &Interface) -> String {
    let mut out = Exposition::default();
    let handle = &interface.handle;
    let figures = handle.figures();
    out.gauge("microcache_info", "Which version runs.")
        .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    out.gauge("microcache_uptime_seconds", "Seconds since the start.")
        .sample(&[], interface.started.elapsed().as_secs());
    out.counter(
        "microcache_requests_total",
        "Client requests by what became of them; each counts once.",
    );
    for outcome in Outcome::ALL {
        out.sample(&[("outcome", outcome.as_str())], figures.of(outcome));
    }
    out.counter(
        "microcache_origin_requests_total",
        "Requests sent to the origin, refreshes included.",
    )
    .sample(&[], figures.origin().requests);
    out.gauge(
        "microcache_fetches",
        "Fetches under way that other requests can wait for.",
    )
    .sample(&[], handle.engine().cache.fetches());
    memory(&mut out, interface);
    tiers(&mut out, interface);
    upstreams(&mut out, interface);
    connections(&mut out, interface);
    out.text
}

fn memory(out: &mut Exposition, interface: &Interface) {
    let memory = interface.handle.engine().cache.memory_stats();
    out.gauge("microcache_memory_keys", "Keys in memory.")
        .sample(&[], memory.keys);
    out.gauge(
        "microcache_memory_bytes",
        "Bytes in memory, everything counted.",
    )
    .sample(&[], memory.bytes);
    out.gauge("microcache_memory_capacity_bytes", "The bound on that.")
        .sample(&[], memory.capacity);
    out.counter(
        "microcache_memory_evicted_total",
        "Keys that left for others.",
    )
    .sample(&[], memory.evicted);
    out.counter("microcache_memory_refused_total", "Responses not taken.")
        .sample(&[], memory.refused);
    out.gauge(
        "microcache_purges",
        "Purges that may still have something to do.",
    )
    .sample(&[], interface.handle.engine().cache.live_rules());
}

fn tiers(out: &mut Exposition, interface: &Interface) {
    let reports = interface.handle.engine().cache.tier_reports();
    if reports.is_empty() {
        return;
    }
    out.counter("microcache_tier_lookups_total", "Look-ups behind memory.");
    for tier in &reports {
        out.sample(&[("tier", tier.name), ("result", "hit")], tier.hits)
            .sample(&[("tier", tier.name), ("result", "miss")], tier.misses);
    }
    out.counter("microcache_tier_failures_total", "Operations that failed.");
    for tier in &reports {
        out.sample(&[("tier", tier.name), ("reason", "error")], tier.errors)
            .sample(&[("tier", tier.name), ("reason", "timeout")], tier.timeouts)
            .sample(&[("tier", tier.name), ("reason", "corrupt")], tier.corrupt)
            .sample(&[("tier", tier.name), ("reason", "dropped")], tier.dropped);
    }
    out.counter("microcache_tier_written_total", "Records written.");
    for tier in &reports {
        out.sample(&[("tier", tier.name)], tier.written);
    }
    out.gauge("microcache_tier_bytes", "Bytes held, where the tier knows.");
    for tier in &reports {
        if let Some(bytes) = tier.stats.bytes {
            out.sample(&[("tier", tier.name)], bytes);
        }
    }
    out.gauge(
        "microcache_tier_degraded",
        "1 while a tier is out of service, wholly or in part.",
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
        "Requests that have a place in a group.",
    );
    for group in &groups {
        out.sample(&[("upstream", &group.name)], group.active);
    }
    out.gauge(
        "microcache_upstream_queued",
        "Requests that wait for a place in a group.",
    );
    for group in &groups {
        out.sample(&[("upstream", &group.name)], group.queued);
    }
    let servers: Vec<_> = groups
        .iter()
        .flat_map(|group| group.servers.iter().map(|server| (&group.name, server)))
        .map(|(group, server)| {
            let address = format!("{}:{}", server.settings.host, server.settings.port);
            (group, address, server)
        })
        .collect();
    out.gauge(
        "microcache_server_up",
        "1 while requests are sent to a server.",
    );
    for (group, address, server) in &servers {
        out.sample(
            &[("upstream", group), ("server", address)],
            u8::from(server.standing.up),
        );
    }
    out.counter(
        "microcache_server_requests_total",
        "Requests sent to a server.",
    );
    for (group, address, server) in &servers {
        out.sample(
            &[("upstream", group), ("server", address)],
            server.standing.requests,
        );
    }
    out.counter(
        "microcache_server_failures_total",
        "How many of them failed.",
    );
    for (group, address, server) in &servers {
        out.sample(
            &[("upstream", group), ("server", address)],
            server.standing.failures,
        );
    }
}

fn connections(out: &mut Exposition, interface: &Interface) {
    let taken = interface.handle.connections();
    out.gauge("microcache_connections", "Client connections.")
        .sample(&[("state", "idle")], taken.idle)
        .sample(
            &[("state", "busy")],
            taken.connections.saturating_sub(taken.idle),
        );
    out.gauge("microcache_connections_max", "The most at a time.")
        .sample(&[], taken.max_connections);
    out.gauge("microcache_tunnels", "Tunnels and event streams.")
        .sample(&[], taken.tunnels);
    out.counter(
        "microcache_admin_refused_total",
        "Requests to this interface that nobody was allowed to make.",
    )
    .sample(&[], interface.refused.load(Ordering::Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut out = Exposition::default();
        out.gauge("x", "An x.")
            .sample(&[("a", "\"\\\n"), ("b", "")], 1)
            .sample(&[], 2);
        let expected = "# HELP x An x.\n# TYPE x gauge\nx{a=\"\\\"\\\\\\n\",b=\"\"} 1\nx 2\n";
        assert_eq!(out.text, expected);
    }
}
