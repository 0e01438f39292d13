//! Limits and timeouts of client connections.

use std::ops::RangeInclusive;

use super::super::Config;
use super::super::option::Form::{Duration, Number, Size};
use super::super::option::{Opt, opt, optional};
use super::WAIT;

const HEAD: RangeInclusive<u64> = 1 << 10..=1 << 20;

/// Limits and timeouts of client connections.
pub(in crate::config) const LIMITS: &[Opt<Config>] = &[
    optional("max_connections", Number, "20000")
        .unset("as many as file descriptors allow")
        .help("Maximum client connections at a time")
        .more(
            "At the limit, or when file descriptors run out, idle keep-alive connections are \
             closed: those of the address with the most connections, longest idle first.",
        )
        .sets(|c, v, m| {
            m.put(
                &mut c.limits.max_connections,
                v.count(1..=10_000_000).map(Some),
            );
        }),
    optional("max_connections_per_address", Number, "200")
        .unset("nine tenths of `max_connections`, at least 1024")
        .help("Maximum connections of one client address")
        .more(
            "In IPv6, of one /64. At the limit an idle connection of the same address is closed; \
             if there is none, the new connection is refused. An address may stand for many \
             visitors: a company, a mobile network. `trusted_proxies` are exempt.",
        )
        .sets(|c, v, m| {
            m.put(
                &mut c.limits.max_connections_per_address,
                v.count(1..=10_000_000).map(Some),
            );
        }),
    optional("max_requests_per_connection", Number, "10000")
        .unset("no limit")
        .help("Maximum requests on one keep-alive connection")
        .more(
            "The last response asks the client to reconnect; no request is lost. This spreads \
             clients over several servers behind one address.",
        )
        .sets(|c, v, m| {
            let count = v.count(1..=1_000_000_000).map(|count| Some(count as u64));
            m.put(&mut c.limits.requests_per_connection, count);
        }),
    optional("max_tunnels", Number, "5000")
        .unset("a quarter of what file descriptors allow")
        .help("Maximum WebSockets, other tunnels and event streams at a time")
        .more("Each uses two file descriptors (push subscribers use one). One address has at most nine in ten. Above the limit: 503.")
        .sets(|c, v, m| m.put(&mut c.limits.max_tunnels, v.count(0..=10_000_000).map(Some))),
    opt("max_head_size", Size, "32KiB")
        .help("Maximum size of a request head; larger ones get 431")
        .sets(|c, v, m| m.put(&mut c.limits.head_bytes, v.size(&HEAD).map(|n| n as usize))),
    opt("max_target_size", Size, "8KiB")
        .help("Maximum length of a URL; longer ones get 414")
        .more("Must not exceed `max_head_size`.")
        .sets(|c, v, m| {
            m.put(
                &mut c.limits.target_bytes,
                v.size(&HEAD).map(|n| n as usize),
            );
        }),
    opt("max_fields", Number, "100")
        .help("Maximum header fields of a request; more get 431")
        .sets(|c, v, m| m.put(&mut c.limits.fields, v.count(10..=10_000))),
    opt("max_rate_keys", Number, "65536")
        .help("Maximum clients (or other keys) tracked by `rate`")
        .more(
            "Each takes 17 bytes, if any route has a `rate`. Above the limit the least active \
             clients are evicted.",
        )
        .sets(|c, v, m| m.put(&mut c.limits.max_rate_keys, v.count(64..=100_000_000))),
    opt("http2_max_streams", Number, "128")
        .help("HTTP/2: maximum concurrent streams of a client connection")
        .more("The next one is refused (REFUSED_STREAM), and the client may retry it.")
        .sets(|c, v, m| m.put(&mut c.limits.http2.streams, v.count(1..=128))),
    opt("http2_max_resets", Number, "200")
        .help("HTTP/2: cancelled requests (RST_STREAM) allowed per connection")
        .more(
            "This many at once, and a tenth of it per second. Above it the connection is closed \
             (rapid reset, CVE-2023-44487). Other limits of this kind have no option, see \
             [operations](operations.md#http2).",
        )
        .sets(|c, v, m| m.put(&mut c.limits.http2.resets, v.count(10..=1_000_000))),
    opt("client_head_timeout", Duration, "10s")
        .help("Read timeout for a complete request head")
        .sets(|c, v, m| m.put(&mut c.timeouts.head, v.duration(&WAIT))),
    opt("client_idle_timeout", Duration, "75s")
        .help("Keep-alive (idle) timeout of a client connection")
        .sets(|c, v, m| m.put(&mut c.timeouts.idle, v.duration(&WAIT))),
    opt("client_body_timeout", Duration, "30s")
        .help("Read timeout within a request body")
        .sets(|c, v, m| m.put(&mut c.timeouts.body, v.duration(&WAIT))),
    opt("client_body_rate", Size, "1KiB")
        .help("Minimum upload speed of a request body, per second")
        .more(
            "On average: a client may fall behind by `client_body_timeout`. Time spent waiting \
             for the origin does not count. `\"0B\"` allows arbitrarily slow uploads.",
        )
        .sets(|c, v, m| m.put(&mut c.timeouts.body_rate, v.size(&(0..=1 << 30)))),
    opt("client_write_timeout", Duration, "30s")
        .help("Write timeout: a client that accepts no data for this long is dropped")
        .sets(|c, v, m| m.put(&mut c.timeouts.write, v.duration(&WAIT))),
    opt("client_half_closed_timeout", Duration, "30s")
        .help("Timeout of a client that has closed its sending side (half-closed)")
        .more(
            "Such a client may be gone, which shows only when something is sent to it. The \
             timeout applies to half-closed tunnels too. Event streams end at once.",
        )
        .sets(|c, v, m| m.put(&mut c.timeouts.half_closed, v.duration(&WAIT))),
    opt("tunnel_timeout", Duration, "1h")
        .help("Idle timeout of tunnels (WebSocket, CONNECT)")
        .more("Idle in both directions. Push subscribers over WebSocket are pinged instead.")
        .sets(|c, v, m| m.put(&mut c.timeouts.tunnel, v.duration(&WAIT))),
];
