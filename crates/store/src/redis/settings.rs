//! Settings of the Redis tier, with defaults.

use std::fmt;
use std::time::Duration;

use tokio::sync::Semaphore;

use super::deadline::Deadline;
use super::record::ENVELOPE;
use crate::random;
use crate::reconnection::Reconnection;

/// Settings of the Redis tier.
#[derive(Clone)]
pub struct RedisSettings {
    /// URLs: `redis://user:password@host:port/database`, `rediss://…` for TLS, `unix:///path`, or
    /// `redis-sentinel://user:password@host:port,host:port/master/database`. One, or any servers of a cluster.
    pub urls: Vec<String>,
    /// `true` if the servers form a cluster.
    pub cluster: bool,
    /// CA certificates for the servers, in PEM; those of the system by default.
    pub authorities: Option<Vec<u8>>,
    /// Client certificate for mutual TLS.
    pub certificate: Option<ClientCertificate>,
    /// Timeout of reads and claims, for which a request waits.
    pub deadline: Duration,
    /// Timeout of writes and removals, which run in the background.
    pub write_deadline: Duration,
    /// Timeout of connecting.
    pub connect_deadline: Duration,
    /// Connections per server; several prevent large records from blocking small ones.
    pub connections: usize,
    /// Maximum of concurrent operations; above it, operations fail at once.
    pub max_in_flight: usize,
    /// Maximum size of a record, head and body, in bytes.
    pub max_object: u64,
    /// Consecutive failures after which a server is taken out of service.
    pub max_failures: u32,
    /// Longest pause between connection attempts, with a jitter of 50 %; after a refused connection it is shorter.
    pub retry_after: Duration,
    /// Interval of health checks while in service.
    pub ping_every: Duration,
    /// Maximum of pending removals. If exceeded, all records are removed once the server is back.
    pub max_removals: usize,
}

/// Certificate chain and private key, in PEM.
#[derive(Clone)]
pub struct ClientCertificate {
    /// Certificate chain.
    pub chain: Vec<u8>,
    /// Private key.
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
    /// Maximum size of a string in Redis, in bytes.
    const LARGEST_STRING: u64 = 512 * 1024 * 1024;
    const MAX_CONNECTIONS: usize = 64;

    /// Returns a random delay between half and one and a half times [`Self::retry_after`], so that processes do
    /// not reconnect in lockstep.
    pub(super) fn retry_delay(&self) -> Duration {
        random::jittered(self.retry_after, 0.5)
    }

    /// Returns the pace of attempts to connect.
    pub(super) fn reconnection(&self) -> Reconnection {
        Reconnection::new(self.retry_after, self.connect_deadline)
    }

    /// Returns the time within which a reply is prompt: a miss takes two of them within its deadline.
    pub(super) fn prompt(&self) -> Duration {
        self.deadline / 2
    }

    /// Deadline of reads and claims that begin now.
    pub(super) fn request_deadline(&self) -> Deadline {
        Deadline::of_request(self.deadline)
    }

    /// Deadline of writes, removals and the purge log.
    pub(super) fn background_deadline(&self) -> Deadline {
        Deadline::in_background(self.write_deadline)
    }

    /// Clamps the settings to valid ranges.
    pub(super) fn clamped(mut self) -> Self {
        self.connections = self.connections.clamp(1, Self::MAX_CONNECTIONS);
        self.max_in_flight = self.max_in_flight.clamp(1, Semaphore::MAX_PERMITS);
        self.max_object = self.max_object.min(Self::LARGEST_STRING - ENVELOPE);
        self
    }
}

/// Omits the URLs, which may contain passwords.
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
