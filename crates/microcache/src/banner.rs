//! The texts printed at start and stop.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use microcache_bench::origin::{COUNTERS, OriginTotals};
use microcache_policy::Scheme;
use microcache_proxy::config::{Config, Prefix, PushConfig, Route, TierConfig, UpdateStore, units};
use microcache_proxy::upstream::settings::{GroupSettings, ServerSettings};
use microcache_proxy::{Summary, TierReport};

use crate::acme;
use crate::count::count;

/// The banner at start: listeners, origins, memory, tiers, rules, admin interface, and a command to try.
pub(crate) fn started(
    config: &Config,
    addresses: &[(Scheme, SocketAddr)],
    operators: &str,
) -> String {
    let mut out = String::new();
    let version = env!("CARGO_PKG_VERSION");
    for (i, (scheme, address)) in addresses.iter().enumerate() {
        let subject = if i == 0 {
            format!("microcache {version}")
        } else {
            "and".to_owned()
        };
        let _ = writeln!(
            out,
            "{subject} listening on {}://{address}",
            scheme.as_str()
        );
    }
    for group in &config.upstreams {
        let _ = writeln!(out, "  origin  {}", origin(group));
    }
    let _ = writeln!(
        out,
        "  memory  {} for stored responses; {}",
        units::show_size(config.memory),
        count(config.threads as u64, "thread")
    );
    let tiers = tiers(&config.tiers);
    if !tiers.is_empty() {
        let _ = writeln!(out, "  tiers   {}", tiers.join(", then "));
    }
    if config.push.is_on() {
        let _ = writeln!(out, "  push    {}", documents(&config.push));
    }
    if config.push.mercure.is_on() {
        let anonymous = if config.push.mercure.anonymous {
            "; anonymous subscribers receive public updates only"
        } else {
            ""
        };
        let kept = match &config.push.mercure.kept {
            Some(UpdateStore::Directory(directory, _)) => {
                format!("; history in {}", directory.display())
            }
            Some(UpdateStore::Redis(_)) => "; shared with other nodes by push_redis".to_owned(),
            None => String::new(),
        };
        let _ = writeln!(
            out,
            "  mercure hub at /.well-known/mercure{anonymous}{kept}"
        );
    }
    if let Some((last, others)) = config.routes.split_last() {
        if !others.is_empty() {
            let _ = writeln!(
                out,
                "  routes  {}; for all other requests:",
                count(others.len() as u64, "route")
            );
        }
        let _ = writeln!(out, "  rule    {}", rule(last));
    }
    if config.acme.is_on() {
        let _ = writeln!(out, "  acme    {}", acme::summary(&config.acme));
    }
    let _ = writeln!(out, "  admin   {operators}");
    if let Some(&(_, address)) = addresses.first() {
        let _ = writeln!(
            out,
            "  try     curl -s -o /dev/null -D - http://{}/\n          (run it twice: Cache-Status shows a miss, then a hit)",
            reachable(address)
        );
    }
    out
}

/// The push cache: its paths, its storage, and whether publishing is enabled.
fn documents(push: &PushConfig) -> String {
    let prefixes: Vec<&str> = push.prefixes.iter().map(Prefix::as_str).collect();
    let kept = match &push.settings.directory {
        _ if push.settings.fleet.is_some() => "shared by Redis".to_owned(),
        Some(directory) => format!("stored in {}", directory.display()),
        None => "in memory only".to_owned(),
    };
    let publishers = match push.keys.publisher_secret {
        Some(_) => "",
        None => "; publishing is disabled without push_token_file",
    };
    format!(
        "documents under {}, {kept}{publishers}",
        prefixes.join(", ")
    )
}

/// The summary at stop.
pub(crate) fn stopped(summary: &Summary) -> String {
    let outcomes: Vec<String> = summary
        .outcomes
        .iter()
        .filter(|(_, times)| *times > 0)
        .map(|(outcome, times)| format!("{times} {outcome}"))
        .collect();
    let requests: u64 = summary.outcomes.iter().map(|(_, times)| times).sum();
    let mut out = format!("microcache stopped after {}", count(requests, "request"));
    if !outcomes.is_empty() {
        let _ = write!(out, ": {}", outcomes.join(", "));
    }
    let _ = writeln!(
        out,
        "; {} to the origin, {} evicted from memory, {} not stored for lack of memory",
        summary.origin_requests, summary.evicted, summary.refused
    );
    for report in &summary.tiers {
        let _ = writeln!(out, "  {}", tier(report));
    }
    out
}

/// The banner of the simulated application.
pub(crate) fn origin_started(address: SocketAddr, what: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let url = format!("http://{}", reachable(address));
    format!(
        "microcache {version} origin listening on http://{address}\n  \
         pages   {what}\n  \
         counts  curl -s {url}{COUNTERS}\n  \
         try     microcache {url}\n"
    )
}

/// The summary of the simulated application.
pub(crate) fn origin_stopped(totals: OriginTotals) -> String {
    format!(
        "microcache origin stopped after {}: {}, {} not modified, {} busy, {} made to fail\n",
        count(totals.requests, "request"),
        count(totals.renders, "render"),
        totals.not_modified,
        totals.busy,
        totals.errors
    )
}

/// The number of listeners, upstream groups and routes of a configuration.
pub(crate) fn contents(config: &Config) -> String {
    format!(
        "{}, {}, {}",
        count(
            (config.listen.len() + config.tls.listen.len()) as u64,
            "listener"
        ),
        count(config.upstreams.len() as u64, "upstream group"),
        count(config.routes.len() as u64, "route"),
    )
}

fn origin(group: &GroupSettings) -> String {
    let servers: Vec<String> = group.servers.iter().map(url).collect();
    let name = match group.name.as_str() {
        "origin" => String::new(),
        name => format!("{name}: "),
    };
    let most = count(group.max_concurrent as u64, "request");
    format!("{name}{}, at most {most} at a time", servers.join(" "))
}

/// The tiers below memory, nearest first. Addresses of Redis are left out, since they contain passwords.
fn tiers(config: &TierConfig) -> Vec<String> {
    let mut tiers = Vec::new();
    if let Some((directory, size)) = &config.disk {
        let size = units::show_size(*size);
        tiers.push(format!("disk, {size} in {}", directory.display()));
    }
    for (name, servers) in [
        ("memcached", config.memcached.len()),
        ("redis", config.redis.len()),
    ] {
        if servers > 0 {
            tiers.push(format!("{name}, {}", count(servers as u64, "server")));
        }
    }
    tiers
}

/// The summary of a tier.
fn tier(report: &TierReport) -> String {
    let stats = &report.stats;
    let mut out = format!(
        "{}: {}, {}; {} written, {} dropped, {} refused; {}, {}, {} corrupt",
        report.name,
        count(report.hits, "hit"),
        count(report.misses, "miss"),
        report.written,
        report.dropped,
        stats.refused,
        count(report.errors, "error"),
        count(report.timeouts, "timeout"),
        report.corrupt,
    );
    if report.not_removed > 0 {
        let _ = write!(out, "; {} failed", count(report.not_removed, "removal"));
    }
    if let Some(micros) = report.latency_percentile(99) {
        let _ = write!(out, "; look-ups p99 {micros} us");
    }
    if let (Some(entries), Some(bytes)) = (stats.entries, stats.bytes) {
        let _ = write!(
            out,
            "; {} in {bytes} bytes, {} evicted",
            count(entries, "record"),
            stats.evicted
        );
    }
    for reason in &stats.degraded {
        let _ = write!(out, "; {reason}");
    }
    out
}

fn url(server: &ServerSettings) -> String {
    format!("{}://{}", server.scheme(), server.authority())
}

fn rule(route: &Route) -> String {
    let show = |millis| units::show_duration(Duration::from_millis(millis));
    let rules = &route.rules;
    if route.pass {
        return "all requests go to the origin, nothing is stored".to_owned();
    }
    let fresh = match rules.forced_ttl {
        Some(ttl) => format!(
            "responses are fresh for {}, whatever the origin says",
            show(ttl)
        ),
        None if rules.ttl == 0 => "responses are stored only as the origin says".to_owned(),
        None => format!(
            "responses are fresh for {} unless the origin says otherwise",
            show(rules.ttl)
        ),
    };
    let mut after = Vec::new();
    if rules.stale_while_revalidate > 0 {
        let window = show(rules.stale_while_revalidate);
        after.push(format!(
            "then served stale for up to {window} while one request revalidates"
        ));
    }
    if rules.stale_if_error > 0 {
        after.push(format!(
            "for {} if the origin fails",
            show(rules.stale_if_error)
        ));
    }
    let indent = format!(
        ",\n          {}",
        if after.len() > 1 {
            after.join(", and ")
        } else {
            after.concat()
        }
    );
    let after = if after.is_empty() {
        String::new()
    } else {
        indent
    };
    format!(
        "{fresh}{after};\n          requests with cookies or Authorization are not cached unless it says `public`"
    )
}

/// An address that a client on this machine can connect to.
fn reachable(address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), address.port())
    } else {
        address
    }
}
