//! Settings and limits that follow from the configuration.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use microcache_engine::flight::FlightLimits;
use microcache_engine::{Clients, Settings};
use microcache_store::MemoryLimits;
use microcache_wire::h1::HeadLimits;

use crate::config::{Config, Watching};
use crate::tls::IssuedCertificates;
use crate::upstream::ServerAddress;

/// Part of the memory for bodies in transit, in addition to it.
const FILL_SHARE: u64 = 4;
/// Interval between two attempts to refresh a response, in milliseconds.
const REFRESH_PAUSE: u64 = 1000;
/// Time limit in milliseconds of a request for a coalesced fetch, before 504 (Gateway Timeout). Longer than
/// any fetch with default timeouts, so reaching it is a sign of a fault.
const WAIT_TIMEOUT: u64 = 90_000;

pub(super) fn watched_routes(config: &Config) -> Option<Box<[bool]>> {
    let routes = config.routes.iter();
    let watched: Box<[bool]> = routes.map(|it| it.watch != Watching::Off).collect();
    watched.contains(&true).then_some(watched)
}

pub(super) fn max_bodies(config: &Config) -> Box<[u64]> {
    let routes = config.routes.iter();
    routes
        .map(|route| route.max_body.unwrap_or(u64::MAX))
        .collect()
}

pub(super) fn head_limits(config: &Config) -> HeadLimits {
    HeadLimits {
        head: config.limits.head_bytes,
        target: config.limits.target_bytes,
        fields: config.limits.fields,
    }
}

pub(super) fn issued(config: &Config) -> Option<Arc<IssuedCertificates>> {
    config
        .acme
        .is_on()
        .then(IssuedCertificates::of_this_process)
}

pub(super) fn slow_reader_timeout(config: &Config) -> Duration {
    Duration::from_millis(config.limits.slow_reader_timeout)
}

/// Address of this server, as scripts see it: the first one that it listens on, if that is a certain one.
pub(super) fn own_address(config: &Config) -> IpAddr {
    let mut addresses = config.listen.iter().map(SocketAddr::ip);
    let known = addresses.find(|address| !address.is_unspecified());
    known.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Name of the first upstream server.
pub(super) fn default_host(config: &Config) -> String {
    let group = config.upstreams.first();
    let server = group.and_then(|group| group.servers.first());
    match server.map(|server| &server.address) {
        Some(address @ ServerAddress::Tcp { .. }) => address.to_string(),
        Some(ServerAddress::Unix(_)) => "localhost".to_owned(),
        None => String::new(),
    }
}

/// Memory for bodies in transit, in bytes. The limit applies twice: to bodies being received, and to stored
/// bodies being sent.
pub(super) fn fill_memory(config: &Config) -> u64 {
    let limit = config.limits.fill_memory;
    limit.unwrap_or(config.memory / FILL_SHARE)
}

/// Settings of the cache.
pub(crate) fn settings(config: &Config) -> Settings {
    Settings {
        clients: Clients::Visitors,
        memory: MemoryLimits {
            capacity: config.memory,
            object: config.largest_in_memory(),
            variants: config.limits.max_variants,
        },
        fill_memory: fill_memory(config),
        slow_reader_timeout: config.limits.slow_reader_timeout,
        fill_timeout: config.limits.fill_timeout,
        flights: FlightLimits::of_many(
            config.limits.max_fetches,
            config.limits.max_waiters_per_fetch,
        ),
        hit_for_miss: config.hit_for_miss,
        remember_too_large: config.remember_too_large,
        refresh_pause: REFRESH_PAUSE,
        stale_wait: config.stale_wait,
        wait_timeout: WAIT_TIMEOUT,
        compress_queue: config.limits.compress_queue,
    }
}
