//! What can be set, with every bound and its default.

use std::fmt;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::record::ENVELOPE;

/// Where the servers are, and what may be asked of them.
#[derive(Clone)]
pub struct RedisSettings {
    /// `redis://user:password@host:port/database`, `rediss://…` for TLS, `unix:///path`. One, or
    /// for a cluster any of its servers.
    pub urls: Vec<String>,
    /// Whether they are a cluster.
    pub cluster: bool,
    /// The certificates (PEM) that vouch for the servers; the system's if there are none here.
    pub authorities: Option<Vec<u8>>,
    /// What this process shows to servers that want a certificate.
    pub certificate: Option<ClientCertificate>,
    /// How long a read or a claim may take: a request waits for it.
    pub deadline: Duration,
    /// How long a write or a removal may take: nobody waits for it.
    pub write_deadline: Duration,
    /// How long it may take to connect.
    pub connect_deadline: Duration,
    /// The connections to each server. More than one, so that a large record is not in the way
    /// of all small ones.
    pub connections: usize,
    /// The operations under way at once. One more fails at once.
    pub max_in_flight: usize,
    /// The largest record, head and body, that is stored or read.
    pub max_object: u64,
    /// So many failures in a row put a server out of service.
    pub max_failures: u32,
    /// After about this time, between a half and one and a half of it, it is tried again.
    pub retry_after: Duration,
    /// How often a server in service is asked whether it is still there.
    pub ping_every: Duration,
    /// The removals that are remembered while they cannot be delivered. One more, and everything
    /// is removed when the server is back.
    pub max_removals: usize,
}

/// A certificate and its private key, both PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    /// The chain.
    pub chain: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
}

impl Default for RedisSettings {
    fn default() -> Self {
        Self {
            urls: Vec::new(),
            cluster: false,
            authorities: None,
            certificate: None,
            deadline: Duration::from_millis(50),
            write_deadline: Duration::from_secs(1),
            connect_deadline: Duration::from_secs(1),
            connections: 2,
            max_in_flight: 1024,
            max_object: 8 * 1024 * 1024,
            max_failures: 3,
            retry_after: Duration::from_secs(1),
            ping_every: Duration::from_secs(5),
            max_removals: 10_000,
        }
    }
}

impl RedisSettings {
    /// The server takes no longer string.
    const LARGEST_STRING: u64 = 512 * 1024 * 1024;
    const MAX_CONNECTIONS: usize = 64;

    /// The same with what cannot be made something that can.
    pub(super) fn within_reason(mut self) -> Self {
        self.connections = self.connections.clamp(1, Self::MAX_CONNECTIONS);
        self.max_in_flight = self.max_in_flight.clamp(1, Semaphore::MAX_PERMITS);
        self.max_object = self.max_object.min(Self::LARGEST_STRING - ENVELOPE);
        self
    }
}

/// Without the urls, which hold passwords.
impl fmt::Debug for RedisSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSettings").finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientCertificate").finish_non_exhaustive()
    }
}
