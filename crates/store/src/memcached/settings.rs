//! Settings of a memcached pool.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use super::link::ServerLink;
use super::pages::ApplicationPages;
use crate::tier_clock::TierClock;

/// Default port of memcached. On the ring, servers with this port are identified by host alone.
pub const DEFAULT_PORT: u16 = 11_211;

/// Maximum number of servers, limited by the token of a claim.
pub const MAX_SERVERS: usize = 1024;

/// Address and weight of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// Host name or address. Its spelling determines the position on the ring, as in libmemcached.
    pub host: String,
    /// Port number.
    pub port: u16,
    /// Weight, which determines the share of keys.
    pub weight: u32,
}

/// Error: not the address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a valid address; expected host, host:port or host:port:weight")]
pub struct InvalidAddress(String);

/// Parses `host`, `host:port` or `host:port:weight`; IPv6 addresses are enclosed in brackets.
impl FromStr for ServerAddress {
    type Err = InvalidAddress;

    fn from_str(text: &str) -> Result<Self, InvalidAddress> {
        split_address(text).ok_or_else(|| InvalidAddress(text.to_owned()))
    }
}

fn split_address(text: &str) -> Option<ServerAddress> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(bracketed) => bracketed.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let is_plain = |b: u8| b.is_ascii_graphic() && !b"[],/@".contains(&b);
    if host.is_empty() || !host.bytes().all(is_plain) {
        return None;
    }
    let mut numbers = match rest.strip_prefix(':') {
        Some(numbers) => numbers.split(':'),
        None if rest.is_empty() => "11211".split(':'),
        None => return None,
    };
    let address = ServerAddress {
        host: host.to_owned(),
        port: numbers.next()?.parse().ok().filter(|&port| port > 0)?,
        weight: numbers
            .next()
            .map_or(Some(1), |weight| weight.parse().ok())?,
    };
    (address.weight > 0 && numbers.next().is_none()).then_some(address)
}

/// Formats as `host:port`.
impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Handling of the keys of a server that is out of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LostServerPolicy {
    /// Use the next server on the ring.
    #[default]
    NextServer,
    /// Treat them as misses, so that nodes with different views of the pool never store a key in two places.
    Miss,
}

/// Settings of a memcached pool.
#[derive(Clone, Debug)]
pub struct MemcachedSettings {
    /// Servers; one is a local cache, several share the keys.
    pub servers: Vec<ServerAddress>,
    /// Timeout of one item, including connect. A body in several items may take a multiple.
    pub deadline: Duration,
    /// Connections per server, opened on demand.
    pub connections: usize,
    /// Maximum of outstanding requests per server; above it, requests fail at once.
    pub max_outstanding: usize,
    /// Consecutive failures after which a server is taken out of service.
    pub failures: u32,
    /// Initial retry interval of a lost server, doubled after each attempt, with jitter. A server with a copy of
    /// the purge log is retried at an eighth of it.
    pub retry_after: Duration,
    /// Maximum retry interval.
    pub retry_after_max: Duration,
    /// Interval of health checks while in service.
    pub check_every: Duration,
    /// Handling of the keys of a lost server.
    pub when_lost: LostServerPolicy,
    /// Maximum size of an item, in bytes; larger records are split into pieces.
    pub max_item: usize,
    /// Maximum size of a body, in bytes.
    pub max_object: u64,
    /// Maximum of queued removals per server. If exceeded, the server stays out of service until it is
    /// restarted.
    pub max_missed_removals: usize,
    /// Pages written for nginx's memcached module; `None` to ignore them.
    pub pages: Option<ApplicationPages>,
    /// Network to the servers.
    pub link: ServerLink,
    /// Clock of the server with the first copy of the purge log.
    pub clock: Arc<TierClock>,
}

impl Default for MemcachedSettings {
    fn default() -> Self {
        Self {
            servers: Vec::new(),
            deadline: Duration::from_millis(50),
            connections: 2,
            max_outstanding: 1024,
            failures: 2,
            retry_after: Duration::from_secs(2),
            retry_after_max: Duration::from_secs(30),
            check_every: Duration::from_secs(10),
            when_lost: LostServerPolicy::default(),
            max_item: 1_000_000,
            max_object: 8 * 1024 * 1024,
            max_missed_removals: 100_000,
            pages: None,
            link: ServerLink::default(),
            clock: Arc::default(),
        }
    }
}

/// Reasons why settings are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// No servers.
    #[error("a memcached pool needs at least one server")]
    NoServer,
    /// Too many servers.
    #[error("a memcached pool is limited to {MAX_SERVERS} servers, found {0}")]
    TooManyServers(usize),
    /// Duplicate server.
    #[error("duplicate memcached server {0}")]
    Twice(ServerAddress),
    /// A value is zero that must be positive.
    #[error("memcached: {0} must be greater than 0")]
    Zero(&'static str),
    /// The item size is out of range.
    #[error("memcached: the item size must be {MIN_ITEM} to {MAX_ITEM} bytes, found {0}")]
    ItemSize(usize),
}

const MIN_ITEM: usize = 64 * 1024;
const MAX_ITEM: usize = 1024 * 1024 * 1024;

impl MemcachedSettings {
    /// Validates the settings.
    ///
    /// # Errors
    ///
    /// [`InvalidSettings`] for the first invalid value.
    pub fn check(&self) -> Result<(), InvalidSettings> {
        if self.servers.is_empty() {
            return Err(InvalidSettings::NoServer);
        }
        if self.servers.len() > MAX_SERVERS {
            return Err(InvalidSettings::TooManyServers(self.servers.len()));
        }
        for (index, one) in self.servers.iter().enumerate() {
            let is_same = |other: &ServerAddress| other.host == one.host && other.port == one.port;
            if self.servers[..index].iter().any(is_same) {
                return Err(InvalidSettings::Twice(one.clone()));
            }
            if one.weight == 0 {
                return Err(InvalidSettings::Zero("weight"));
            }
        }
        let bounds = [
            (self.deadline.is_zero(), "deadline"),
            (self.connections == 0, "connections"),
            (self.max_outstanding == 0, "max_outstanding"),
            (self.failures == 0, "failures"),
            (self.retry_after.is_zero(), "retry_after"),
            (self.check_every.is_zero(), "check_every"),
        ];
        if let Some((_, what)) = bounds.iter().find(|(is_zero, _)| *is_zero) {
            return Err(InvalidSettings::Zero(what));
        }
        if !(MIN_ITEM..=MAX_ITEM).contains(&self.max_item) {
            return Err(InvalidSettings::ItemSize(self.max_item));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let read = |text: &str| {
            text.parse::<ServerAddress>()
                .map(|a| (a.host, a.port, a.weight))
        };
        let some = |host: &str, port, weight| Ok((host.to_owned(), port, weight));
        assert_eq!(read("cache1"), some("cache1", 11_211, 1));
        assert_eq!(read("10.0.0.1:22122"), some("10.0.0.1", 22_122, 1));
        assert_eq!(read("cache1:11211:600"), some("cache1", 11_211, 600));
        assert_eq!(read("[::1]"), some("::1", 11_211, 1));
        assert_eq!(read("[::1]:7:2"), some("::1", 7, 2));
        for wrong in [
            "", ":1", "a:", "a:0", "a:65536", "a:1:0", "a:1:x", "a:1:2:3", "[::1", "[::1]7", "[]",
            "a b", "u@h", "a/b:1", "a,b",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn impossible_pools_are_refused() {
        let pool = |servers: &[&str]| MemcachedSettings {
            servers: servers.iter().map(|text| text.parse().unwrap()).collect(),
            ..MemcachedSettings::default()
        };
        assert_eq!(pool(&[]).check(), Err(InvalidSettings::NoServer));
        assert_eq!(pool(&["a", "b", "a:1"]).check(), Ok(()));
        assert_eq!(
            pool(&["a", "a:11211:5"]).check().map_err(|e| e.to_string()),
            Err("duplicate memcached server a:11211".to_owned())
        );
        let many: Vec<String> = (0..=MAX_SERVERS).map(|n| format!("s{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(
            pool(&many).check(),
            Err(InvalidSettings::TooManyServers(MAX_SERVERS + 1))
        );
        let mut zero = pool(&["a"]);
        zero.deadline = Duration::ZERO;
        assert_eq!(zero.check(), Err(InvalidSettings::Zero("deadline")));
        let mut small = pool(&["a"]);
        small.max_item = 10;
        assert_eq!(small.check(), Err(InvalidSettings::ItemSize(10)));
    }
}
