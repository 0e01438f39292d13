//! Settings of an upstream group: plain values, every limit with its default.

use std::ops::RangeInclusive;
use std::time::Duration;

use http::Method;

pub use super::php::settings::PhpSettings;
pub use super::server_address::ServerAddress;
use crate::tls::OriginTls;

/// One upstream group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Its name, for logs and the dashboard.
    pub name: String,
    /// Its servers.
    pub servers: Vec<ServerSettings>,
    /// The choice among its servers.
    pub balancing: Balancing,
    /// Limit of concurrent requests to the group.
    pub max_concurrent: usize,
    /// Limit of concurrent requests whose body is still being received; `None` is half of `max_concurrent`.
    pub max_uploads: Option<usize>,
    /// Limit of concurrent requests of warming; `None` is a quarter of `max_concurrent`.
    pub max_warming: Option<usize>,
    /// Bytes of a request body that are read before the request takes a permit.
    pub upload_buffer: usize,
    /// Memory for all bodies read ahead, in bytes.
    pub upload_memory: u64,
    /// Read-ahead time of a body without a length.
    pub upload_wait: Duration,
    /// Queue limit, separately for requests of clients, uploads and refreshes.
    pub max_queue: usize,
    /// Queue timeout.
    pub queue_timeout: Duration,
    /// Timeout for resolving a name and connecting to one of its addresses, TLS included.
    pub connect_timeout: Duration,
    /// Timeout in which a server must accept more of the request or begin its response.
    pub first_byte_timeout: Duration,
    /// Timeout between two reads of a response body.
    pub between_bytes_timeout: Duration,
    /// Idle timeout of event streams.
    pub event_stream_timeout: Duration,
    /// Keep-alive (idle) timeout of pooled connections. Many application servers close theirs after 5 s, and
    /// a request on a connection that is being closed may be lost, so this is lower.
    pub idle_timeout: Duration,
    /// Limit of idle connections per server.
    pub max_idle: usize,
    /// Limit of connections reserved for a client that signed in on them (NTLM, Negotiate).
    pub max_signed_in: usize,
    /// Consecutive failures after which a server is ejected.
    pub fail_limit: u32,
    /// Status codes that are failures.
    pub fail_status: Option<RangeInclusive<u16>>,
    /// Time before an ejected server gets a trial request.
    pub fail_pause: Duration,
    /// Active health checks.
    pub health: Option<HealthCheck>,
    /// Interval of name resolution.
    pub resolve_every: Duration,
    /// TLS settings for servers with TLS.
    pub tls: OriginTls,
    /// Offers HTTP/2 to servers.
    pub http2: bool,
    /// `Host` sent to the servers; `None` forwards the client's.
    pub host: Option<String>,
    /// Scripts of FastCGI servers.
    pub php: PhpSettings,
}

impl GroupSettings {
    /// A group with the default bounds.
    pub fn new(name: impl Into<String>, servers: Vec<ServerSettings>) -> Self {
        Self {
            name: name.into(),
            servers,
            balancing: Balancing::default(),
            max_concurrent: 64,
            max_uploads: None,
            max_warming: None,
            upload_buffer: 64 * 1024,
            upload_memory: 16 * 1024 * 1024,
            upload_wait: Duration::from_secs(1),
            max_queue: 1024,
            queue_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(3),
            first_byte_timeout: Duration::from_mins(1),
            between_bytes_timeout: Duration::from_secs(30),
            event_stream_timeout: Duration::from_hours(1),
            idle_timeout: Duration::from_secs(4),
            max_idle: 64,
            max_signed_in: 256,
            fail_limit: 3,
            fail_status: None,
            fail_pause: Duration::from_secs(5),
            health: None,
            resolve_every: Duration::from_secs(30),
            tls: OriginTls::default(),
            http2: false,
            host: None,
            php: PhpSettings::default(),
        }
    }

    /// Limit of concurrent requests of warming.
    pub fn warming_places(&self) -> usize {
        let usual = self.max_concurrent.div_ceil(4);
        self.max_warming.unwrap_or(usual)
    }

    /// Returns `true` if its servers speak FastCGI. All of them do, or none.
    pub fn runs_scripts(&self) -> bool {
        let mut servers = self.servers.iter();
        servers.any(|server| server.protocol == OriginProtocol::FastCgi)
    }
}

/// Protocol of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OriginProtocol {
    /// HTTP without TLS.
    Http,
    /// HTTP with TLS.
    Https,
    /// FastCGI, as php-fpm speaks it.
    FastCgi,
}

impl OriginProtocol {
    /// Port where a URL has none.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
            Self::FastCgi => 9000,
        }
    }
}

/// The choice among the servers of a group that are up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balancing {
    /// The server with the fewest requests in flight for its weight; among equals, in turn.
    #[default]
    LeastConnections,
    /// In turn, by weight.
    RoundRobin,
}

/// One server of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// Its address.
    pub address: ServerAddress,
    /// The path of its URL without a slash at its end, which all targets of requests begin with.
    pub path: String,
    /// The protocol that it speaks.
    pub protocol: OriginProtocol,
    /// Weight in load balancing, relative to the other servers.
    pub weight: u32,
    /// Used only while all other servers are down.
    pub backup: bool,
}

impl ServerSettings {
    /// The scheme of its url.
    pub const fn scheme(&self) -> &'static str {
        match self.protocol {
            OriginProtocol::Http => "http",
            OriginProtocol::Https => "https",
            OriginProtocol::FastCgi => "fastcgi",
        }
    }

    /// Its address as a URL has it.
    pub fn authority(&self) -> String {
        self.address.authority(self.protocol.default_port())
    }

    /// A server of weight 1 at a host and port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self::at(ServerAddress::Tcp {
            host: host.into(),
            port,
        })
    }

    /// A server of weight 1.
    pub const fn at(address: ServerAddress) -> Self {
        Self {
            address,
            path: String::new(),
            protocol: OriginProtocol::Http,
            weight: 1,
            backup: false,
        }
    }
}

/// Active health check of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Target of the request.
    pub path: String,
    /// Method of the request.
    pub method: Method,
    /// `Host` of the request; `None` sends that of the group, or the server's name.
    pub host: Option<String>,
    /// Interval between checks.
    pub interval: Duration,
    /// Timeout of a check, connecting included.
    pub timeout: Duration,
    /// Status codes of a healthy server.
    pub expect: RangeInclusive<u16>,
    /// Consecutive successes that return a server to rotation.
    pub rise: u32,
    /// Consecutive failures that eject a server.
    pub fall: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            method: Method::GET,
            host: None,
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            expect: 200..=399,
            rise: 2,
            fall: 3,
        }
    }
}
