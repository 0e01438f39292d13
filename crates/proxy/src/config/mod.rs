//! What the operator wants, read from flags and a file.
//!
//! Reading goes in two steps. [`raw`] holds what was written, with the place of every value;
//! [`convert`] turns it into a [`Config`] in one go and reports every mistake it meets. Each option
//! is one entry in one of the tables under [`options`]: its name, form, default, help and the
//! function that sets it. Help, sample and reference are printed from these tables.

mod acme;
mod admin;
mod cidr;
mod convert;
mod document;
mod itself;
mod logs;
mod mercure;
mod mistake;
mod option;
mod options;
mod origin_url;
mod pattern;
mod push;
mod rate;
mod raw;
mod route;
mod secrets;
mod settings;
mod source;
mod suggest;
#[cfg(test)]
mod tests;
mod tls;
pub mod units;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Method;
use microcache_policy::Millis;
use microcache_store::memcached::{PageKey, ServerAddress};

use crate::upstream::settings::GroupSettings;

pub use acme::{AcmeConfig, Binding};
pub use admin::Admin;
pub use cidr::Cidr;
pub use convert::Input;
pub use document::{reference, sample};
pub use logs::{LogConfig, LogForm, LogLevel, LogPlace};
pub use mercure::MercureConfig;
pub use microcache_push::Prefix;
pub use mistake::{Report, Told};
pub use option::{Flag, Takes, flags};
pub use push::PushConfig;
pub use rate::{Quota, Rate, RateBy, RateOf};
pub use raw::Plain;
pub use route::{Condition, GoesTo, Matcher, Route, Watching};
pub use settings::{Said, Setting, Settings};
pub use source::{Source, SourceError};
pub use suggest::nearest;
pub use tls::TlsConfig;

/// A configuration without mistakes.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect without TLS; never empty.
    pub listen: Vec<SocketAddr>,
    /// TLS with clients.
    pub tls: TlsConfig,
    /// Certificates from an authority.
    pub acme: AcmeConfig,
    /// Where operators connect.
    pub admin: Admin,
    /// How many threads serve, each with a runtime of its own.
    pub threads: usize,
    /// What stored responses may take, in bytes.
    pub memory: u64,
    /// The origins; never empty.
    pub upstreams: Vec<GroupSettings>,
    /// The routes. The first that matches wins, and the last takes everything.
    pub routes: Vec<Route>,
    /// How long a response that turned out not to be storable keeps others from queuing for it.
    pub hit_for_miss: Millis,
    /// How long a url that is too large to be kept is remembered.
    pub remember_too_large: Millis,
    /// How long visitors wait for the origin where a stale response may be used if that fails.
    pub stale_wait: Millis,
    /// Bounds on what clients and fetches may take.
    pub limits: Limits,
    /// How long slow clients are waited for.
    pub timeouts: ClientTimeouts,
    /// Peers whose `X-Forwarded-*` and `Forwarded` are believed.
    pub trusted_proxies: Vec<Cidr>,
    /// Peers whose connections begin with the PROXY protocol; nobody else's may.
    pub proxy_protocol: Vec<Cidr>,
    /// Who may purge by `PURGE` and `BAN` where visitors connect; nobody if it is empty.
    pub purge_from: Vec<Cidr>,
    /// What lies behind memory.
    pub tiers: TierConfig,
    /// Documents that are put here.
    pub push: PushConfig,
    /// What is written down.
    pub logs: LogConfig,
    /// What was written on purpose, perhaps, and is dangerous.
    pub warnings: Report,
    /// The file is read again when it changes.
    pub reload_on_change: bool,
    /// What every option is, and who said so.
    pub settings: Settings,
    /// The file it was read from, by its name, and its text.
    written: (String, String),
}

/// What lies behind memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierConfig {
    /// A directory, and what may be in it, in bytes.
    pub disk: Option<(PathBuf, u64)>,
    /// The largest body on disk; without it, the disk says.
    pub disk_max_object: Option<u64>,
    /// The most files on disk.
    pub disk_max_files: u64,
    /// The largest body that is lifted from disk into memory.
    pub disk_lift: u64,
    /// The memcached servers; none if there is no such tier.
    pub memcached: Vec<ServerAddress>,
    /// How long a request waits for one of them.
    pub memcached_timeout: Duration,
    /// The largest body there.
    pub memcached_max_object: u64,
    /// The keys of pages that an application keeps there for nginx; `None`: they are not looked for.
    pub memcached_pages: Option<PageKey>,
    /// The `Content-Type` of those whose names do not tell.
    pub memcached_pages_type: String,
    /// The addresses of Redis; none if there is no such tier.
    pub redis: Vec<String>,
    /// Whether they are a cluster.
    pub redis_cluster: bool,
    /// The file with the certificates that vouch for them.
    pub redis_ca: Option<PathBuf>,
    /// How long a request waits for Redis.
    pub redis_timeout: Duration,
    /// The largest response there.
    pub redis_max_object: u64,
    /// How long a process may keep others from asking the origin.
    pub claim_timeout: Duration,
    /// What may wait to be written to one tier, in bytes.
    pub queue: u64,
    /// What may wait to be written to disk of bodies too large for memory, in bytes; without it, a
    /// multiple of the largest that memory takes.
    pub disk_queue: Option<u64>,
}

/// Bounds, each with a default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// The longest request head, in bytes.
    pub head_bytes: usize,
    /// The longest request target, in bytes.
    pub target_bytes: usize,
    /// The most fields in a request.
    pub fields: usize,
    /// The most client connections at a time; without it, what file descriptors allow.
    pub max_connections: Option<usize>,
    /// The most of them of one address; without it, nearly all.
    pub max_connections_per_address: Option<usize>,
    /// The most requests on one connection; without it, any number.
    pub requests_per_connection: Option<u64>,
    /// Bounds on what one connection may take by HTTP/2.
    pub http2: Http2Limits,
    /// The most tunnels and event streams at a time; without it, a share of the descriptors.
    pub max_tunnels: Option<usize>,
    /// The most requests that wait for one fetch; the next one goes to the origin by itself.
    pub max_waiters_per_fetch: usize,
    /// The most fetches that others can wait for at a time; the next one is not shared.
    pub max_fetches: usize,
    /// The most variants of one url that are kept.
    pub max_variants: usize,
    /// How many clients, or whatever else `rate` counts by, are remembered.
    pub max_rate_keys: usize,
    /// The most bodies that wait to be compressed.
    pub compress_queue: usize,
    /// How long a body may take to arrive and still be shared and stored.
    pub fill_timeout: Millis,
    /// What bodies on their way may take; without it, a share of the memory.
    pub fill_memory: Option<u64>,
    /// How long one client may keep others waiting for a body that they share.
    pub slow_reader_timeout: Millis,
}

/// Bounds on what one connection may take by HTTP/2.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http2Limits {
    /// The most requests at a time.
    pub streams: usize,
    /// How many of them may be given up at once; a tenth of it again in each second.
    pub resets: usize,
}

/// How long slow clients are waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientTimeouts {
    /// From the first byte of a request head to its last.
    pub head: Duration,
    /// Between two requests of one connection.
    pub idle: Duration,
    /// Between two pieces of a request body.
    pub body: Duration,
    /// The slowest that a request body may come on average, in bytes per second; 0 for any.
    pub body_rate: u64,
    /// Until the client takes more of a response.
    pub write: Duration,
    /// Until either side of a tunnel says something.
    pub tunnel: Duration,
    /// Until an answer comes to a client that will send nothing more.
    pub half_closed: Duration,
    /// Between the signal to stop and the end of accepting.
    pub drain_delay: Duration,
    /// For requests under way when the server stops accepting.
    pub drain: Duration,
    /// For tunnels and event streams then.
    pub drain_streams: Duration,
}

impl Config {
    /// The number of the route that a request takes; there always is one. Allocates nothing, and with one route for everything costs next to
    /// nothing.
    pub fn route(&self, method: &Method, host: &[u8], path_and_query: &[u8]) -> Option<usize> {
        self.routes
            .iter()
            .position(|route| route.matcher.matches(method, host, path_and_query))
    }
}
