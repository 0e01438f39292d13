//! Answers of a running server, as text.

use std::fmt::Write;
use std::time::Duration;

use microcache_engine::Outcome;
use microcache_policy::{Time, date};
use serde_json::Value;

use crate::count::count;

/// Lists the purges, one per line, each with the number of entries it matched if that is known.
pub(super) fn purges(answer: &Value, hits: &[Option<u64>]) -> String {
    let mut out = String::new();
    let hits = hits.iter().copied().chain(std::iter::repeat(None));
    for (purge, hits) in list(&answer["purges"]).iter().zip(hits) {
        let soft = if purge["soft"] == true { " (soft)" } else { "" };
        let _ = write!(out, "purged{soft}: {}", scope(purge));
        match hits {
            Some(hits) => {
                let _ = writeln!(out, ", {} in memory", count(hits, "entry"));
            }
            None => out.push('\n'),
        }
        if hits == Some(0) && names_host(purge) {
            out.push_str(NO_ENTRY);
        }
        if let Some(why) = purge["persist_error"].as_str() {
            let _ = writeln!(out, "  in force on this server, but {why}");
        }
    }
    let refresh = &answer["refresh"];
    if let Some(why) = refresh["error"].as_str() {
        let _ = writeln!(out, "nothing is fetched again: {why}");
    } else if refresh.is_object() {
        let _ = writeln!(
            out,
            "fetched again, as requested lately: {}",
            count(number(&refresh["urls"]), "page")
        );
    }
    out
}

/// The hint below a purge without effect on memory.
const NO_ENTRY: &str = "  \
    the host is part of the key: name the one that visitors request (see `microcache entries`)\n";

/// Returns `true` if the scope of a purge has a host.
fn names_host(purge: &Value) -> bool {
    let scopes = ["url", "prefix", "glob", "host"];
    scopes.iter().any(|scope| purge[scope].is_string())
}

fn scope(purge: &Value) -> String {
    for (name, words) in [
        ("url", "URL"),
        ("prefix", "all URLs that begin with"),
        ("glob", "all URLs that match"),
        ("host", "host"),
        ("tag", "tag"),
        ("group", "group"),
    ] {
        if let Some(value) = purge[name].as_str() {
            return match purge["variant"].as_str() {
                Some(variant) => format!("variant {variant} of {words} {value}"),
                None => format!("{words} {value}"),
            };
        }
    }
    "everything".to_owned()
}

/// Formats the statistics of a server.
pub(super) fn stats(answer: &Value) -> String {
    let mut out = format!(
        "microcache {}, up {}{}\n",
        answer["version"].as_str().unwrap_or_default(),
        duration(number(&answer["uptime_seconds"])),
        if answer["draining"] == true {
            ", draining"
        } else {
            ""
        }
    );
    if answer["maintenance"]["on"] == true {
        let words = in_maintenance(&answer["maintenance"]);
        row(&mut out, "mode", &[format!("maintenance: {words}")]);
    }
    row(&mut out, "requests", &of_requests(&answer["requests"]));
    row(&mut out, "origin", &of_origin(answer));
    row(&mut out, "latency", &of_latency(answer));
    for route in list(&answer["routes"]) {
        row(&mut out, "route", &of_route(route));
    }
    row(&mut out, "memory", &of_memory(&answer["memory"]));
    if number(&answer["compression"]["responses"]) > 0 {
        let parts = of_compression(&answer["compression"]);
        row(&mut out, "compressed", &parts);
    }
    for tier in list(&answer["tiers"]) {
        row(
            &mut out,
            tier["name"].as_str().unwrap_or_default(),
            &of_tier(tier),
        );
    }
    if answer["push"].is_object() {
        row(&mut out, "push", &of_push(&answer["push"]));
    }
    for group in list(&answer["upstreams"]) {
        row(&mut out, "upstream", &of_group(group));
        for server in list(&group["servers"]) {
            row(&mut out, "server", &of_server(group, server));
        }
    }
    row(&mut out, "clients", &of_clients(&answer["connections"]));
    for certificate in list(&answer["certificates"]) {
        row(&mut out, "tls", &of_certificate(certificate));
    }
    out
}

/// Describes maintenance mode.
pub(super) fn maintenance(answer: &Value) -> String {
    if answer["on"] == true {
        let words = in_maintenance(answer);
        return format!("maintenance mode is on: {words}; a restart of the server ends it\n");
    }
    "maintenance mode is off\n".to_owned()
}

fn in_maintenance(mode: &Value) -> String {
    let mut words = if mode["keep_cached"] == true {
        "503 for requests that need an origin".to_owned()
    } else {
        "503 for all requests".to_owned()
    };
    let allowed: Vec<_> = list(&mode["allow"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    if !allowed.is_empty() {
        let _ = write!(words, ", except from {}", allowed.join(", "));
    }
    let since = date::format(Time::from_secs(number(&mode["since"])));
    let _ = write!(words, ", since {}", String::from_utf8_lossy(&since));
    words
}

/// The latency of hits, other requests and the origin in the last minute. One hit in sixteen is timed.
fn of_latency(answer: &Value) -> Vec<String> {
    let minute = &answer["windows"][0];
    let untimed_hits = match number(&answer["requests"]["hit"]) {
        0 => "none",
        _ => "not yet timed",
    };
    [
        ("hits", "hit_microseconds", untimed_hits),
        ("others", "wait_microseconds", "none"),
        ("origin", "first_byte_microseconds", "none"),
    ]
    .map(|(name, times, untimed)| format!("{name} {}", times_of(&minute[times], untimed)))
    .into()
}

/// The p50 and p99 of a latency, or the words for none.
fn times_of(times: &Value, untimed: &str) -> String {
    match (times["p50"].as_f64(), times["p99"].as_f64()) {
        (Some(p50), Some(p99)) => format!("p50 {} p99 {}", time(p50), time(p99)),
        _ => untimed.to_owned(),
    }
}

fn of_route(route: &Value) -> Vec<String> {
    let of = |outcome: &str| number(&route["requests"][outcome]);
    let total = of("total");
    let hits = (of("hit") + of("stale")) * 100 / total.max(1);
    let mut parts = vec![
        route["name"].as_str().unwrap_or_default().to_owned(),
        count(total, "request"),
        format!("{hits} % hits"),
        format!("{} to the origin", number(&route["origin"]["requests"])),
        count(of("error"), "error"),
    ];
    if route["hit_microseconds"]["p50"].is_number() {
        parts.push(format!(
            "hits {}",
            times_of(&route["hit_microseconds"], "none")
        ));
    }
    parts
}

fn of_group(group: &Value) -> Vec<String> {
    let origin = &group["origin"];
    vec![
        group["name"].as_str().unwrap_or_default().to_owned(),
        format!("{} active", number(&group["active"])),
        format!("{} waiting", number(&group["queued"])),
        count(number(&origin["responses"]["5xx"]), "5xx response"),
        format!(
            "first byte {}",
            times_of(&origin["first_byte_microseconds"], "none")
        ),
    ]
}

/// Lists the recent errors, one per line, the latest first.
pub(super) fn errors(answer: &Value) -> String {
    let mut out = String::new();
    for error in list(&answer["errors"]) {
        let word = |name: &str| error[name].as_str();
        let place = word("upstream").or(word("route")).unwrap_or("-");
        let times = match number(&error["count"]) {
            0 | 1 => String::new(),
            count => format!(" ({count} times)"),
        };
        let _ = writeln!(
            out,
            "  {:<11}{place}: {}{times}  {}",
            "error",
            word("reason").unwrap_or_default(),
            word("url").unwrap_or_default(),
        );
    }
    out
}

fn of_requests(requests: &Value) -> Vec<String> {
    let outcomes: Vec<_> = Outcome::ALL
        .map(Outcome::as_str)
        .iter()
        .map(|name| (name, number(&requests[name])))
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{count} {name}"))
        .collect();
    vec![number(&requests["total"]).to_string(), outcomes.join(", ")]
}

fn of_origin(answer: &Value) -> Vec<String> {
    let total = number(&answer["requests"]["total"]);
    let requests = number(&answer["origin"]["requests"]);
    let share = number(&answer["saved"]["fetches"]) * 100 / total.max(1);
    let fetches = number(&answer["fetches"]["in_progress"]);
    vec![
        count(requests, "request"),
        format!("{share} % saved"),
        format!("{} in progress", count(fetches, "fetch")),
    ]
}

fn of_memory(memory: &Value) -> Vec<String> {
    vec![
        filled(memory),
        count(number(&memory["keys"]), "key"),
        format!("{} evicted", number(&memory["evicted"])),
        format!("{} refused", number(&memory["refused"])),
    ]
}

/// The push cache: subscribers, events, changes and documents.
fn of_push(push: &Value) -> Vec<String> {
    let changes = &push["changes"];
    let mut parts = vec![
        count(number(&push["subscribers"]), "subscriber"),
        count(number(&push["events"]), "event"),
        count(number(&changes["made"]), "change"),
        count(number(&push["documents"]), "document"),
        format!(
            "{} of {}",
            size(number(&push["bytes"])),
            size(number(&push["capacity_bytes"]))
        ),
    ];
    let troubles = [
        (&push["resets"], "reset", ""),
        (&push["gaps"], "gap", ""),
        (&push["subscriptions_rejected"], "subscription", " rejected"),
        (&changes["refused"], "change", " refused"),
        (&changes["write_failures"], "change", " not persisted"),
    ];
    let troubles = troubles.map(|(times, noun, fault)| (number(times), noun, fault));
    let troubles = troubles.iter().filter(|(times, ..)| *times > 0);
    parts.extend(troubles.map(|(times, noun, fault)| count(*times, noun) + fault));
    let warnings = push["redis"]["warnings"].as_array().into_iter().flatten();
    parts.extend(warnings.filter_map(Value::as_str).map(str::to_owned));
    parts
}

fn of_compression(compression: &Value) -> Vec<String> {
    let sent = compression["sent"].as_object().into_iter().flatten();
    let sent = sent.filter(|(_, count)| number(count) > 0);
    let sent: Vec<_> = sent
        .map(|(coding, count)| format!("{} {coding}", number(count)))
        .collect();
    vec![
        count(number(&compression["responses"]), "response"),
        sent.join(", "),
        format!("{} saved", size(number(&compression["bytes_saved"]))),
        format!("{} waiting", number(&compression["waiting"])),
        format!("{} skipped", number(&compression["refused"])),
    ]
}

fn of_clients(connections: &Value) -> Vec<String> {
    vec![
        count(number(&connections["open"]), "connection"),
        format!("{} of them idle", number(&connections["idle"])),
        format!("tunnels and streams: {}", number(&connections["tunnels"])),
    ]
}

/// A certificate: its names, its state, and its expiry.
fn of_certificate(certificate: &Value) -> Vec<String> {
    let names = list(&certificate["names"]).iter();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    let mut parts = vec![
        names.join(" "),
        certificate["state"].as_str().unwrap_or_default().to_owned(),
    ];
    for (name, words) in [("expires", "expires"), ("next", "next order")] {
        if let Some(at) = certificate[name].as_u64() {
            let at = date::format(Time::from_secs(at));
            parts.push(format!("{words} {}", String::from_utf8_lossy(&at)));
        }
    }
    parts.extend(certificate["last_error"].as_str().map(str::to_owned));
    parts
}

fn of_tier(tier: &Value) -> Vec<String> {
    let mut parts = vec![
        count(number(&tier["hits"]), "hit"),
        count(number(&tier["misses"]), "miss"),
        format!("{} written", number(&tier["written"])),
        format!(
            "{} failed",
            number(&tier["errors"]) + number(&tier["timeouts"]) + number(&tier["corrupt"])
        ),
    ];
    if tier["bytes"].is_number() {
        parts.insert(0, filled(tier));
    }
    let degraded = list(&tier["degraded"]);
    parts.extend(
        degraded
            .iter()
            .filter_map(|line| line.as_str().map(str::to_owned)),
    );
    parts
}

/// Returns the address of a server: `host:port`, or the Unix socket.
pub(crate) fn server_address(server: &Value) -> String {
    let host = server["host"].as_str().unwrap_or_default();
    match server["port"].as_u64() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

fn of_server(group: &Value, server: &Value) -> Vec<String> {
    vec![
        format!(
            "{} {}",
            group["name"].as_str().unwrap_or_default(),
            server_address(server)
        ),
        if server["up"] == true { "up" } else { "DOWN" }.to_owned(),
        format!("{} active", number(&server["active"])),
        count(number(&server["requests"]), "request"),
        format!("{} failed", number(&server["failures"])),
    ]
}

/// Lists the stored entries, one per line.
pub(super) fn entries(answer: &Value) -> String {
    let mut out = String::new();
    for entry in list(&answer["entries"]) {
        let ttl = entry["ttl_seconds"].as_f64().unwrap_or_default();
        let state = if ttl > 0.0 { "fresh" } else { "stale" };
        let _ = writeln!(
            out,
            "{:>9}  {} {state:>6} {:>8.1} s  age {:>8.1} s  {:>7} hits  {}",
            size(number(&entry["size"])),
            number(&entry["status"]),
            ttl.abs(),
            entry["age_seconds"].as_f64().unwrap_or_default(),
            number(&entry["hits"]),
            entry["url"].as_str().unwrap_or("(no url)"),
        );
        let varies_on = list(&entry["varies_on"]);
        if !varies_on.is_empty() {
            let variant = entry["variant"].as_str().unwrap_or_default();
            let _ = writeln!(
                out,
                "           variant {variant}{}",
                selecting_fields(varies_on)
            );
        }
    }
    if out.is_empty() {
        out.push_str("no matching entries\n");
    }
    if let Some(next) = answer["next"].as_str() {
        let _ = writeln!(out, "more entries: --after {next}");
    }
    out
}

/// The request fields that select a variant, each with its value.
pub(super) fn selecting_fields(varies_on: &[Value]) -> String {
    let each = varies_on.iter().map(|field| {
        let name = field["name"].as_str().unwrap_or_default();
        let value = field["value"].as_str().unwrap_or("(not shown)");
        format!("  {name}: {value}")
    });
    each.collect()
}

fn row(out: &mut String, name: &str, parts: &[String]) {
    let _ = writeln!(out, "  {name:<11}{}", parts.join(", "));
}

pub(crate) fn filled(of: &Value) -> String {
    let bytes = size(number(&of["bytes"]));
    match of["capacity"].as_u64() {
        Some(capacity) => format!("{bytes} of {}", size(capacity)),
        None => bytes,
    }
}

pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

/// The two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match () {
        () if days > 0 => format!("{days} d {} h", hours % 24),
        () if hours > 0 => format!("{hours} h {} min", minutes % 60),
        () if minutes > 0 => format!("{minutes} min {} s", seconds % 60),
        () => format!("{seconds} s"),
    }
}

/// A time from microseconds.
pub(crate) fn time(micros: f64) -> String {
    match micros {
        micros if micros < 1e3 => format!("{micros:.0} µs"),
        micros if micros < 1e5 => format!("{:.1} ms", micros / 1e3),
        micros if micros < 1e6 => format!("{:.0} ms", micros / 1e3),
        micros if micros < 6e7 => format!("{:.1} s", micros / 1e6),
        micros => {
            duration(Duration::try_from_secs_f64(micros / 1e6).map_or(0, |long| long.as_secs()))
        }
    }
}

pub(crate) fn number(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

/// The options changed by a reload.
pub(super) fn reloaded(answer: &Value) -> String {
    let changed: Vec<_> = list(&answer["changed"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let mut out = match changed.as_slice() {
        [] => "reloaded; nothing changed\n".to_owned(),
        changed => format!("reloaded; changed: {}\n", changed.join(", ")),
    };
    for warning in list(&answer["warnings"]) {
        let word = |name: &str| warning[name].as_str().unwrap_or_default();
        // Writing to a string does not fail.
        let _ = writeln!(out, "{}: warning: {}", word("location"), word("message"));
    }
    out
}

pub(crate) fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_are_short() {
        let sizes = [0, 1023, 1024, 57_098, 268_435_456, u64::MAX].map(size);
        let expected = [
            "0 B",
            "1023 B",
            "1.0 KiB",
            "55.8 KiB",
            "256.0 MiB",
            "16777216.0 TiB",
        ];
        assert_eq!(sizes, expected);
        let durations = [0, 59, 60, 3_725, 90_061].map(duration);
        assert_eq!(
            durations,
            ["0 s", "59 s", "1 min 0 s", "1 h 2 min", "1 d 1 h"]
        );
    }

    #[test]
    fn a_purge_that_matches_nothing_has_a_hint_about_the_host() {
        let answer = serde_json::json!({"purges": [
            {"url": "http://localhost/a"}, {"tag": "a"}, {"host": "a", "soft": true},
        ]});
        assert_eq!(
            purges(&answer, &[Some(0), Some(0), Some(1)]),
            "purged: URL http://localhost/a, 0 entries in memory\n  \
             the host is part of the key: name the one that visitors request (see `microcache entries`)\n\
             purged: tag a, 0 entries in memory\n\
             purged (soft): host a, 1 entry in memory\n"
        );
    }

    #[test]
    fn documents_and_subscribers_have_a_row_where_there_are_any() {
        let mut answer = serde_json::json!({"push": {
            "subscribers": 3, "events": 12, "changes": {"made": 5, "refused": 0}, "documents": 4,
            "bytes": 2048, "capacity_bytes": 67_108_864, "resets": 1, "gaps": 0, "subscriptions_rejected": 2,
        }});
        let row = "\n  push       3 subscribers, 12 events, 5 changes, 4 documents, 2.0 KiB of 64.0 MiB, \
                   1 reset, 2 subscriptions rejected\n";
        let shown = stats(&answer);
        assert!(shown.contains(row), "{shown}");
        answer["push"]["redis"] = serde_json::json!({"warnings": ["push_redis: gone"]});
        assert!(stats(&answer).contains("2 subscriptions rejected, push_redis: gone\n"));
        answer["push"] = Value::Null;
        assert!(!stats(&answer).contains("push"));
    }
}
