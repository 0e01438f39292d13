//! What an operator says of an upstream group: plain values, every bound with its default.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::tls::OriginTls;

/// One upstream group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupSettings {
    /// Its name, for logs and the dashboard.
    pub name: String,
    /// Its servers.
    pub servers: Vec<ServerSettings>,
    /// The most requests that are with the group at a time.
    pub max_concurrent: usize,
    /// How many of them may be requests whose body is not there yet; `None` for half of all.
    pub max_uploads: Option<usize>,
    /// As much of a body is read before its request takes a place.
    pub upload_buffer: usize,
    /// What all bodies that are read so may take together.
    pub upload_memory: u64,
    /// How long a body without a length is read so.
    pub upload_wait: Duration,
    /// The most clients that wait for a place, and apart from them the most uploads and the most
    /// refreshes.
    pub max_queue: usize,
    /// How long they wait.
    pub queue_timeout: Duration,
    /// How long resolving a name and connecting to one of its addresses may take.
    pub connect_timeout: Duration,
    /// How long a server may neither take more of the request nor begin its answer.
    pub first_byte_timeout: Duration,
    /// How long a server may be silent within its answer.
    pub between_bytes_timeout: Duration,
    /// How long an event stream may be silent: it has nothing to say until something happens.
    pub event_stream_timeout: Duration,
    /// How long an unused connection is kept. Many application servers close theirs after 5 s,
    /// and a request that meets a closing connection may be lost, so this stays below.
    pub idle_timeout: Duration,
    /// The most unused connections kept per server.
    pub max_idle: usize,
    /// The most connections that are kept each for the one client who signed in on it.
    pub max_signed_in: usize,
    /// So many failures in a row take a server out.
    pub fail_limit: u32,
    /// How long it stays out before one request tries it.
    pub fail_pause: Duration,
    /// Active checks, if any.
    pub health: Option<HealthCheck>,
    /// How often names are looked up again.
    pub resolve_every: Duration,
    /// How TLS is spoken where it is.
    pub tls: OriginTls,
    /// Whether HTTP/2 is spoken with servers that can.
    pub http2: bool,
    /// The `Host` that the servers are sent; without it, the one that the client has sent.
    pub host: Option<String>,
}

impl GroupSettings {
    /// A group with the default bounds.
    pub fn new(name: impl Into<String>, servers: Vec<ServerSettings>) -> Self {
        Self {
            name: name.into(),
            servers,
            max_concurrent: 64,
            max_uploads: None,
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
            fail_pause: Duration::from_secs(5),
            health: None,
            resolve_every: Duration::from_secs(30),
            tls: OriginTls::default(),
            http2: false,
            host: None,
        }
    }
}

/// One server of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerSettings {
    /// A name, an IPv4 address, or an IPv6 address without brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether TLS is spoken there.
    pub tls: bool,
    /// How many requests it takes for each one of a server with weight 1.
    pub weight: u32,
    /// Whether it is used only while all others are down.
    pub backup: bool,
}

impl ServerSettings {
    /// The scheme of its url.
    pub const fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// The port that a url of this scheme has without saying so.
    pub const fn default_port(&self) -> u16 {
        if self.tls { 443 } else { 80 }
    }

    /// A server of weight 1.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self {
            host: host.into(),
            port,
            tls: false,
            weight: 1,
            backup: false,
        }
    }
}

/// How servers are asked whether they are well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for, with GET.
    pub path: String,
    /// How often.
    pub interval: Duration,
    /// How long connecting and answering may take.
    pub timeout: Duration,
    /// The status codes of a server that is well.
    pub expect: RangeInclusive<u16>,
    /// So many good answers in a row bring a server back.
    pub rise: u32,
    /// So many bad ones take it out.
    pub fall: u32,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self {
            path: "/".to_owned(),
            interval: Duration::from_secs(5),
            timeout: Duration::from_secs(2),
            expect: 200..=399,
            rise: 2,
            fall: 3,
        }
    }
}
