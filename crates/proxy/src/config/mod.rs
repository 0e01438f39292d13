//! The configuration, read from flags and a file.
//!
//! Reading goes in three steps. [`raw`] holds the values as written, each with its place;
//! [`include`] joins those of all files and replaces variables of the environment; [`convert`]
//! turns them into a [`Config`] in one go and reports every mistake. Each option
//! is one entry in one of the tables under [`options`]: its name, form, default, help and the
//! function that sets it. Help, sample and reference are printed from these tables.

mod access;
mod acme;
mod admin;
mod admin_files;
mod basic_auth;
mod cidr;
mod client_certificate;
mod condition;
mod content_files;
mod convert;
mod document;
mod edge;
mod environment;
mod error_pages;
mod fixed_response;
mod flag;
mod forward_auth;
mod forwarded_client;
mod include;
mod itself;
mod key_files;
mod log_field;
mod logs;
mod matcher;
mod mercure;
mod mistake;
mod option;
mod options;
mod origin_url;
pub(crate) mod page_edits;
mod pattern;
mod place;
mod push;
mod rate;
mod raw;
mod redirect;
mod redirect_list;
mod redirect_loops;
mod rewrite;
mod route;
mod route_index;
mod route_order;
mod scripts;
mod secrets;
mod settings;
mod source;
mod suggest;
#[cfg(test)]
mod tests;
mod texts;
mod tls;
pub mod units;
mod unknown;
mod user_context;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use microcache_policy::Millis;
use microcache_policy::field_edits::FieldEdits;
use microcache_policy::patterns::FieldPatterns;
use microcache_store::memcached::{PageKey, ServerAddress};

use crate::upstream::settings::GroupSettings;
use texts::Texts;

pub use access::AddressRules;
pub use acme::{AcmeConfig, Binding};
pub use admin::Admin;
pub use basic_auth::BasicAuth;
pub use cidr::Cidr;
pub use client_certificate::CertificateRule;
pub use condition::Condition;
pub use convert::Input;
pub use document::{reference, sample};
pub use edge::EdgeSettings;
pub use error_pages::{ErrorPage, ErrorPages};
pub use fixed_response::FixedResponse;
pub use flag::{Flag, Takes};
pub use forward_auth::ForwardAuth;
pub(crate) use forwarded_client::forwarded_client;
pub use log_field::LogField;
pub use logs::{LogConfig, LogForm, LogLevel, LogPlace};
pub(crate) use matcher::MatchInput;
pub use matcher::Matcher;
pub use mercure::{MercureConfig, UpdateStore};
pub use microcache_push::Prefix;
pub use mistake::{MistakeView, Report};
pub use options::flags;
pub use push::PushConfig;
pub use rate::{Quota, Rate, RateBy, RateOf};
pub use raw::Plain;
pub use redirect::Redirect;
pub use redirect_list::RedirectList;
pub use rewrite::Rewrite;
pub use route::{EarlyHints, GoesTo, Route, Watching};
pub(crate) use route_index::RouteIndex;
pub use settings::{OptionSource, Setting, Settings};
pub use source::{Source, SourceError};
pub use suggest::nearest;
pub use tls::TlsConfig;
pub use user_context::UserContext;

/// Divisor of `memory` that gives the limit of a stored body where its route sets none.
const LARGEST_SHARE: u64 = 16;

/// A configuration without mistakes.
#[derive(Clone, Debug)]
pub struct Config {
    /// The client addresses without TLS; never empty.
    pub listen: Vec<SocketAddr>,
    /// TLS with clients.
    pub tls: TlsConfig,
    /// ACME certificates.
    pub acme: AcmeConfig,
    /// The admin interface.
    pub admin: Admin,
    /// The number of worker threads, each with a runtime of its own.
    pub threads: usize,
    /// Memory for stored responses, in bytes.
    pub memory: u64,
    /// The origins; never empty.
    pub upstreams: Vec<GroupSettings>,
    /// The routes. The first that matches wins, and the last matches everything.
    pub routes: Vec<Route>,
    /// The time that an uncacheable URL is fetched without coalescing.
    pub hit_for_miss: Millis,
    /// The time that a URL with too large a body is passed through.
    pub remember_too_large: Millis,
    /// The maximum wait for the origin when a stale response is available.
    pub stale_wait: Millis,
    /// Limits of clients and fetches.
    pub limits: Limits,
    /// Timeouts of clients and of the drain.
    pub timeouts: ClientTimeouts,
    /// Peers whose `X-Forwarded-*` and `Forwarded` are trusted.
    pub trusted_proxies: Vec<Cidr>,
    /// Fields that these set themselves, beside the usual ones.
    pub trusted_headers: FieldPatterns,
    /// Peers that must use the PROXY protocol; no other may.
    pub proxy_protocol: Vec<Cidr>,
    /// Addresses that may send `PURGE` and `BAN`; none if it is empty.
    pub purge_from: Vec<Cidr>,
    /// Prefix of the URLs whose GET is a purge; the rest of the path is that of the page.
    pub purge_path: Option<String>,
    /// Clients that are served as usual in maintenance mode.
    pub maintenance_allow: Vec<Cidr>,
    /// The page of maintenance mode.
    pub maintenance_page: Option<ErrorPage>,
    /// The file with the most requested pages, which are warmed after a start.
    pub warm_start_file: Option<PathBuf>,
    /// The tiers below memory.
    pub tiers: TierConfig,
    /// The push cache.
    pub push: PushConfig,
    /// Logs and traces.
    pub logs: LogConfig,
    /// Warnings about valid but dangerous options.
    pub warnings: Report,
    /// Automatic reload when the file changes.
    pub reload_on_change: bool,
    /// The effective value of every option, and its source.
    pub settings: Settings,
    /// The patterns of included files.
    include: Vec<PathBuf>,
    /// The texts of its files, for reports.
    texts: Texts,
}

impl TierConfig {
    /// Returns whether a change needs a restart: any but that of users and passwords in Redis.
    fn needs_restart_for(&self, new: &Self) -> bool {
        let servers = |urls: &[String]| -> Vec<_> {
            urls.iter()
                .map(|url| secrets::without_secrets(url))
                .collect()
        };
        let same_login = Self {
            redis: self.redis.clone(),
            ..new.clone()
        };
        *self != same_login || servers(&self.redis) != servers(&new.redis)
    }
}

/// The configuration of the tiers below memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TierConfig {
    /// The directory of the disk tier, and its maximum size in bytes.
    pub disk: Option<(PathBuf, u64)>,
    /// The maximum size of a body on disk; by default a share of the disk.
    pub disk_max_object: Option<u64>,
    /// The maximum number of files on disk.
    pub disk_max_files: u64,
    /// The maximum size of a body promoted from disk to memory.
    pub disk_lift: u64,
    /// The memcached servers; none if that tier is off.
    pub memcached: Vec<ServerAddress>,
    /// The timeout of a memcached request.
    pub memcached_timeout: Duration,
    /// The maximum size of a body in memcached.
    pub memcached_max_object: u64,
    /// The key of pages that the backend stores in memcached; `None` if that is off.
    pub memcached_pages: Option<PageKey>,
    /// The `Content-Type` of such pages without a known extension.
    pub memcached_pages_type: String,
    /// The URLs of Redis; none if that tier is off.
    pub redis: Vec<String>,
    /// Redis is a cluster.
    pub redis_cluster: bool,
    /// The file with CA certificates for Redis.
    pub redis_ca: Option<PathBuf>,
    /// The timeout of a Redis request.
    pub redis_timeout: Duration,
    /// The maximum size of a response in Redis.
    pub redis_max_object: u64,
    /// The lifetime of a claim: the time other processes wait for one's fetch.
    pub claim_timeout: Duration,
    /// Memory for responses waiting to be written to one tier, in bytes.
    pub queue: u64,
    /// Memory for large bodies waiting to be written to disk, in bytes; by default a multiple of the
    /// largest that memory takes.
    pub disk_queue: Option<u64>,
}

/// Limits, each with a default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// The maximum size of a request head, in bytes.
    pub head_bytes: usize,
    /// The maximum length of a request target, in bytes.
    pub target_bytes: usize,
    /// The maximum number of header fields of a request.
    pub fields: usize,
    /// The maximum number of client connections; by default as many as file descriptors allow.
    pub max_connections: Option<usize>,
    /// The maximum number of connections of one address; by default nearly all.
    pub max_connections_per_address: Option<usize>,
    /// The maximum number of requests on one connection; no limit by default.
    pub requests_per_connection: Option<u64>,
    /// Limits of an HTTP/2 connection.
    pub http2: Http2Limits,
    /// The maximum number of tunnels and event streams; by default a share of the file descriptors.
    pub max_tunnels: Option<usize>,
    /// The maximum number of requests waiting for one fetch.
    pub max_waiters_per_fetch: usize,
    /// The maximum number of concurrent fetches that others can wait for.
    pub max_fetches: usize,
    /// The maximum number of variants per URL.
    pub max_variants: usize,
    /// The maximum number of clients (or other keys) tracked by `rate`.
    pub max_rate_keys: usize,
    /// The maximum number of bodies waiting for compression.
    pub compress_queue: usize,
    /// The maximum time to receive a body that is shared and stored.
    pub fill_timeout: Millis,
    /// Memory for bodies being received; by default a share of `memory`.
    pub fill_memory: Option<u64>,
    /// The time one slow client may delay others that share a body.
    pub slow_reader_timeout: Millis,
}

/// Limits of an HTTP/2 connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Http2Limits {
    /// The maximum number of concurrent streams.
    pub streams: usize,
    /// The number of cancelled requests allowed at once, and a tenth of it per second.
    pub resets: usize,
}

/// Timeouts of clients and of the drain.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientTimeouts {
    /// Read timeout of a request head, from its first byte to its last.
    pub head: Duration,
    /// Keep-alive timeout between two requests of a connection.
    pub idle: Duration,
    /// Read timeout within a request body.
    pub body: Duration,
    /// The minimum average speed of a request body, in bytes per second; 0 for any.
    pub body_rate: u64,
    /// Write timeout of a response.
    pub write: Duration,
    /// Idle timeout of a tunnel.
    pub tunnel: Duration,
    /// Timeout of a client that has closed its sending side.
    pub half_closed: Duration,
    /// The time between SIGTERM and the end of accepting connections.
    pub drain_delay: Duration,
    /// The maximum time for requests in progress during a drain.
    pub drain: Duration,
    /// The maximum time for tunnels and event streams during a drain.
    pub drain_streams: Duration,
}

impl Config {
    /// Returns the files that `include` names, as they are now.
    pub(crate) fn included_files(&self) -> Vec<PathBuf> {
        let patterns = self.include.iter();
        // A directory that cannot be read is reported by the next reload.
        let files = patterns.filter_map(|pattern| include::matching(pattern).ok());
        files.flatten().collect()
    }

    /// Returns whether the log or a field that a route sets has the identifier of the request.
    pub(crate) fn needs_request_ids(&self) -> bool {
        let in_field = |route: &Route| {
            let mut edits = route.rules.request.set_fields.iter();
            edits.any(|edit| edit.value.has_request_id())
                || route
                    .response_headers
                    .iter()
                    .any(FieldEdits::has_request_id)
        };
        self.logs.access_fields.contains(&LogField::RequestId) || self.routes.iter().any(in_field)
    }

    /// Returns the limit of a stored body where a route sets none, in bytes.
    pub(crate) const fn usual_largest(&self) -> u64 {
        self.memory / LARGEST_SHARE
    }

    /// Returns the limit of an object in memory, in bytes.
    pub(crate) fn largest_in_memory(&self) -> u64 {
        let of_routes = self.routes.iter().filter_map(|route| route.max_object);
        let largest = of_routes.fold(self.usual_largest(), u64::max);
        largest.min(self.memory / 4)
    }
}
