//! Options of the server as a whole.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use microcache_policy::patterns::FieldPatterns;
use microcache_policy::{FieldName, is_believed, only_from_trusted_peers};

use super::super::Config;
use super::super::cidr::Cidr;
use super::super::error_pages::ErrorPage;
use super::super::mistake::{Mistake, Mistakes};
use super::super::option::Form::{Duration, List, Number, Size, Switch, Text};
use super::super::option::{Opt, opt, optional};
use super::super::raw::Value;
use super::names::field_pattern;
use super::{DRAIN, LIFETIME, WAIT};

const MEMORY: RangeInclusive<u64> = 1 << 20..=1 << 44;
const FILL_MEMORY: RangeInclusive<u64> = 1 << 16..=1 << 44;

/// Options of the server as a whole.
pub(in crate::config) const SERVER: &[Opt<Config>] = &[
    optional(
        "listen",
        List("ADDRESS"),
        r#"["127.0.0.1:8080", "[::1]:8080"]"#,
    )
    .unset("127.0.0.1:8080, or with `acme` port 80 of all addresses")
    .help("Address and port to listen on (HTTP)")
    .more(
        "Several are a list, and the flag may be repeated. `0.0.0.0:80` accepts connections \
             on all addresses.",
    )
    .sets(set_listen),
    optional("threads", Number, "4")
        .unset("one per core")
        .help("Worker threads")
        .sets(|c, v, m| m.put(&mut c.threads, v.count(1..=1024))),
    opt("reload_on_change", Switch, "false")
        .example("true")
        .help("Automatic reload when the configuration file or certificates change")
        .more(
            "They are checked once per second and reloaded when all have been unchanged for a \
             second. SIGHUP and `microcache reload` reload at once. A file with errors changes \
             nothing.",
        )
        .sets(|c, v, m| m.put(&mut c.reload_on_change, v.switch())),
    opt("memory", Size, "256MiB")
        .help("Memory for stored responses (bodies, heads, keys and index)")
        .more(
            "When it is full, entries that were requested once are evicted first, then those that save the application \
             the least time for their size: rarely requested, fast to make, large.",
        )
        .sets(|c, v, m| m.put(&mut c.memory, v.size(&MEMORY))),
    opt("hit_for_miss", Duration, "2s")
        .help("Time an uncacheable URL is fetched without coalescing (hit-for-miss)")
        .more(
            "Requests for one URL wait for one fetch. If its response cannot be shared, these and \
             further requests go to the origin in parallel for this long.",
        )
        .sets(|c, v, m| m.put(&mut c.hit_for_miss, v.millis(&LIFETIME))),
    opt("remember_too_large", Duration, "10m")
        .help("Time a URL with a body too large to store is passed through")
        .more("Meanwhile every request for it goes to the origin unchanged, including ranges.")
        .sets(|c, v, m| m.put(&mut c.remember_too_large, v.millis(&LIFETIME))),
    opt("stale_wait", Duration, "2s")
        .help("Maximum wait for the origin when a stale response is available")
        .more(
            "Applies within the stale window of `stale_if_error`. After that the stale response \
             is served; the fetch continues in the background.",
        )
        .sets(|c, v, m| m.put(&mut c.stale_wait, v.millis(&WAIT))),
    opt("trusted_proxies", List("CIDR"), "[]")
        .example(r#"["10.0.0.5", "::1"]"#)
        .help("Proxies whose X-Forwarded-For, -Host and -Proto are trusted")
        .more(
            "Addresses or CIDR blocks. From every other peer these fields are overwritten. Others \
             by which a proxy speaks to an application count only if `trusted_headers` lists them.",
        )
        .sets(set_trusted_proxies),
    opt("trusted_headers", List("FIELD"), "[]")
        .example(r#"["X-Real-IP", "X-Auth-Request-*"]"#)
        .help("Further header fields that trusted proxies set or remove themselves")
        .more(
            "Most proxies pass on `Forwarded`, `X-Real-IP`, `X-Original-URL` and their like as a \
             visitor wrote them, so list what yours sets in every request. All others of \
             [these](security.md#the-safe-rules) are removed. A `*` at the end \
             matches any suffix.",
        )
        .sets(|c, v, m| {
            let names = v.each(m, |item| item.parse(trusted_field));
            c.trusted_headers = names.into_iter().collect();
        }),
    opt("proxy_protocol", List("CIDR"), "[]")
        .example(r#"["10.0.0.5"]"#)
        .help("Peers that must use the PROXY protocol, version 1 or 2")
        .more(
            "Addresses or CIDR blocks of load balancers that forward TCP connections. The address \
             they announce is the client from then on, in logs, limits and everywhere else. \
             Connections from these peers without the PROXY protocol are closed, and so are \
             connections from other peers that use it.",
        )
        .sets(set_proxy_protocol),
    opt("purge_from", List("CIDR"), "[]")
        .example(r#"["127.0.0.1", "10.0.0.7"]"#)
        .help("Addresses that may send PURGE and BAN requests")
        .more(
            "Addresses or CIDR blocks, such as those of application plugins. Requests from all \
             others are refused; with an empty list they are forwarded to the origin. Every proxy \
             that the request came through must be listed too.",
        )
        .sets(set_purge_from),
    optional("purge_path", Text("PATH"), "/purge")
        .help("Path under which GET is a purge, as for nginx-helper of WordPress")
        .more(
            "`GET /purge/news/` purges `/news/` of the same host: this URL alone, and only for the \
             addresses in `purge_from`; others get 403. Such requests never reach the origin.",
        )
        .sets(|c, v, m| m.put(&mut c.purge_path, v.parse(parse_purge_path))),
    opt("maintenance_allow", List("CIDR"), "[]")
        .example(r#"["192.0.2.0/24"]"#)
        .help("Addresses that are served as usual in maintenance mode")
        .more(
            "`microcache maintenance on` switches it on: all other clients get 503. Behind a proxy in \
             `trusted_proxies`, the client that it names counts. See \
             [operations](operations.md#maintenance-mode).",
        )
        .sets(|c, v, m| c.maintenance_allow = v.each(m, |item| item.parse(Cidr::from_str))),
    optional("maintenance_page", Text("FILE"), "/srv/maintenance.html")
        .unset("one line of text, or the page of `error_pages`")
        .help("File with the page of maintenance mode")
        .more("Read at the start and by a reload, at most 1 MiB.")
        .sets(set_maintenance_page),
    optional("warm_start_file", Text("FILE"), "/var/lib/microcache/hottest")
        .unset("none: nothing is fetched after a start")
        .help("File to remember the most requested pages in, to fetch after a start")
        .more(
            "At most 1,000 URLs, written every five minutes and when the server stops. Each server needs a file of its \
             own, in a directory that only its user can change. See [warming](warming.md#after-a-start).",
        )
        .sets(|c, v, m| m.put(&mut c.warm_start_file, v.path().map(Some))),
    opt("max_waiters", Number, "10000")
        .help("Maximum requests waiting for one fetch")
        .more(
            "One client address has at most a tenth of them; at the limit the newest of the \
             address with the most gets the stale response or 503. It never goes to the origin by \
             itself. All clients of a proxy or CDN that is not in `trusted_proxies` are one address.",
        )
        .sets(|c, v, m| m.put(&mut c.limits.max_waiters_per_fetch, v.count(0..=10_000_000))),
    opt("max_fetches", Number, "10000")
        .help("Maximum concurrent fetches that other requests can wait for")
        .more(
            "At the limit the newest fetch of the address with the most gives way, or the new one \
             itself: stale response or 503.",
        )
        .sets(|c, v, m| m.put(&mut c.limits.max_fetches, v.count(1..=10_000_000))),
    opt("max_variants", Number, "8")
        .help("Maximum variants (`Vary`) stored per URL")
        .more(
            "Above the limit, variants requested once are evicted first, then the least recently \
             used.",
        )
        .sets(|c, v, m| m.put(&mut c.limits.max_variants, v.count(1..=1000))),
    opt("compress_queue", Number, "256")
        .help("Maximum bodies waiting for compression")
        .more(
            "Above the limit the least requested bodies are sent uncompressed until they are \
             requested again.",
        )
        .sets(|c, v, m| m.put(&mut c.limits.compress_queue, v.count(1..=100_000))),
    opt("fill_timeout", Duration, "5m")
        .help("Maximum time to receive a response that is shared and stored")
        .more(
            "After that it continues for the clients that already receive it, and the next \
             request starts a new fetch: a body that trickles in neither occupies memory nor \
             blocks other requests.",
        )
        .sets(|c, v, m| m.put(&mut c.limits.fill_timeout, v.millis(&WAIT))),
    optional("fill_memory", Size, "64MiB")
        .unset("a quarter of `memory`")
        .help("Memory for bodies still being received, in addition to `memory`")
        .more(
            "Each may use another 32 KiB. When it is used up, larger bodies are streamed with \
             little buffering and not stored. Slow readers pin at most half of it; above that the \
             connections idle for longest are closed.",
        )
        .sets(|c, v, m| m.put(&mut c.limits.fill_memory, v.size(&FILL_MEMORY).map(Some))),
    opt("slow_reader_timeout", Duration, "2s")
        .help("Time one slow client may delay others that share a streamed body")
        .more(
            "For bodies too large to store, whose slowest reader sets the pace (back-pressure). \
             When the others have waited this long in total, and it took less than 128 KiB \
             meanwhile, its connection is closed.",
        )
        .sets(|c, v, m| m.put(&mut c.limits.slow_reader_timeout, v.millis(&WAIT))),
    opt("drain_delay", Duration, "0s")
        .example("10s")
        .help("Drain: time new connections are still accepted after SIGTERM")
        .more(
            "`/v1/ready` answers 503 at once while requests are still served, so that a load \
             balancer removes this server before its port closes: set it longer than the load \
             balancer's check interval. Responses carry `Connection: close`, and HTTP/2 \
             connections get GOAWAY with their next request. SIGINT or a second SIGTERM ends the \
             delay. An upgrade has none: the port stays open.",
        )
        .sets(|c, v, m| m.put(&mut c.timeouts.drain_delay, v.duration(&DRAIN))),
    opt("drain_timeout", Duration, "30s")
        .help("Drain: maximum time for requests in progress after SIGTERM")
        .more("It starts when `drain_delay` is over. Another signal ends the process at once.")
        .sets(|c, v, m| m.put(&mut c.timeouts.drain, v.duration(&DRAIN))),
    opt("drain_stream_timeout", Duration, "5s")
        .help("Drain: maximum time for WebSockets, tunnels and event streams")
        .more(
            "They have no end of their own, and clients reconnect. Never longer than \
             `drain_timeout`.",
        )
        .sets(|c, v, m| m.put(&mut c.timeouts.drain_streams, v.duration(&DRAIN))),
];

fn set_trusted_proxies(config: &mut Config, value: &Value, mistakes: &mut Mistakes) {
    let what = "`trusted_proxies` contains addresses of strangers: any client can forge its address, scheme and host";
    let remedy = "list the addresses of your own proxies";
    config.trusted_proxies = read_own_blocks(value, mistakes, what, remedy);
}

fn trusted_field(text: &str) -> Result<String, String> {
    let name = field_pattern(text)?;
    let field = FieldName::of(name.as_bytes());
    if name == "*" {
        Err("list the fields that your proxy sets: clients could forge all others".to_owned())
    } else if is_believed(field, &FieldPatterns::default()) {
        Err("trusted proxies are believed in this anyway".to_owned())
    } else if name.ends_with('*') || only_from_trusted_peers(field) {
        Ok(name)
    } else {
        Err("every client's own is forwarded".to_owned())
    }
}

fn set_proxy_protocol(config: &mut Config, value: &Value, mistakes: &mut Mistakes) {
    let what = "`proxy_protocol` contains addresses of strangers: any client can impersonate a trusted proxy or a purger";
    let remedy = "list the addresses of your own load balancers";
    config.proxy_protocol = read_own_blocks(value, mistakes, what, remedy);
}

fn set_purge_from(config: &mut Config, value: &Value, mistakes: &mut Mistakes) {
    let what = "`purge_from` contains addresses of strangers: any visitor can purge, and cause a fetch of every page";
    let remedy = "list the addresses of your application";
    config.purge_from = read_own_blocks(value, mistakes, what, remedy);
}

fn parse_purge_path(text: &str) -> Result<Option<String>, String> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"*?#\\%".contains(&byte);
    if text.len() > 1 && text.starts_with('/') && !text.ends_with('/') && text.bytes().all(is_plain)
    {
        Ok(Some(text.to_owned()))
    } else {
        Err("write a path without a slash at its end, such as \"/purge\"".to_owned())
    }
}

fn set_maintenance_page(config: &mut Config, value: &Value, mistakes: &mut Mistakes) {
    if let Some(file) = mistakes.ok(value.file()) {
        config.maintenance_page = Some(ErrorPage::for_statuses(503..=503, file));
    }
}

/// Parses blocks of addresses that have rights, and warns of each that is larger than a private network.
fn read_own_blocks(value: &Value, mistakes: &mut Mistakes, what: &str, remedy: &str) -> Vec<Cidr> {
    let blocks: Vec<Cidr> = value.each(mistakes, |item| item.parse(Cidr::from_str));
    for (item, block) in value.items().iter().zip(&blocks) {
        if block.is_wide() {
            mistakes.warn(Mistake::new(&item.place, what).remedy(remedy));
        }
    }
    blocks
}

fn set_listen(config: &mut Config, value: &Value, mistakes: &mut Mistakes) {
    config.listen = read_addresses(value, mistakes);
}

/// Parses addresses to listen on.
pub(super) fn read_addresses(value: &Value, mistakes: &mut Mistakes) -> Vec<SocketAddr> {
    let mut addresses = Vec::new();
    for item in value.items() {
        let Some(address) = mistakes.ok(item.parse(parse_address)) else {
            continue;
        };
        if address.port() != 0 && addresses.contains(&address) {
            mistakes.note(Mistake::new(
                &item.place,
                format!("{address} is listed twice"),
            ));
        }
        addresses.push(address);
    }
    if value.items().is_empty() {
        mistakes.note(Mistake::new(&value.place, "no address to listen on"));
    }
    addresses
}

/// Parses an address and a port.
pub(super) fn parse_address(text: &str) -> Result<SocketAddr, String> {
    text.parse().map_err(|_| {
        let port = text.rsplit(':').next().unwrap_or_default();
        match port.parse::<u16>() {
            Ok(port) if text.starts_with("localhost:") => format!("write 127.0.0.1:{port}"),
            Ok(port) => format!(
                "write an IP address and a port: 127.0.0.1:{port} for this machine only, 0.0.0.0:{port} for all"
            ),
            Err(_) => "write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080".to_owned(),
        }
    })
}
