//! Which servers, and every bound.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::pages::Pages;

/// What memcached listens on if nobody says otherwise. On the ring, a server with this port is
/// called by its host alone.
pub const DEFAULT_PORT: u16 = 11_211;

/// As many as a claim's token can tell apart.
pub const MAX_SERVERS: usize = 1024;

/// A server of the pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerAddress {
    /// A name or an address. Its spelling decides the place on the ring, as with libmemcached.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Its part of the keys, in proportion to the others' weights.
    pub weight: u32,
}

/// Why text is no address of a server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not host, host:port or host:port:weight")]
pub struct InvalidAddress(String);

/// `host`, `host:port` or `host:port:weight`; an IPv6 address stands in brackets.
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

/// `host:port`.
impl fmt::Display for ServerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Where the keys of a server go while it is out of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenLost {
    /// To the next server on the ring: they are kept again after one miss.
    #[default]
    NextServer,
    /// Nowhere: they are misses until it is back. Nodes that disagree about which servers are
    /// in service then never keep one key in two places.
    Miss,
}

/// A pool of memcached servers: one is a local cache, several share the keys.
#[derive(Clone, Debug)]
pub struct MemcachedSettings {
    /// The servers.
    pub servers: Vec<ServerAddress>,
    /// How long one item may take, connecting included. A body in many items may take as many
    /// times as long, each within its own time.
    pub deadline: Duration,
    /// Connections to each server, opened when they are needed.
    pub connections: usize,
    /// Requests to one server that wait for an answer; beyond this the tier fails at once.
    pub max_outstanding: usize,
    /// Failures in a row after which a server is out of service.
    pub failures: u32,
    /// The pause before a lost server is tried again; it doubles each time and is jittered.
    pub retry_after: Duration,
    /// The longest such pause.
    pub retry_after_max: Duration,
    /// How often a server in service is asked how it is.
    pub check_every: Duration,
    /// Where a lost server's keys go.
    pub when_lost: WhenLost,
    /// The largest item a server takes; larger records are cut into pieces.
    pub max_item: usize,
    /// The largest body that is kept.
    pub max_object: u64,
    /// Removals remembered for a server that cannot take them now. If there are more, it stays
    /// out of service until it has been restarted.
    pub max_missed_removals: usize,
    /// Pages that an application writes for nginx's memcached module. `None`: they are not looked
    /// for.
    pub pages: Option<Pages>,
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
            when_lost: WhenLost::default(),
            max_item: 1_000_000,
            max_object: 8 * 1024 * 1024,
            max_missed_removals: 100_000,
            pages: None,
        }
    }
}

/// Why a pool cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSettings {
    /// There is no server in it.
    #[error("a memcached pool needs at least one server")]
    NoServer,
    /// There are too many.
    #[error("a memcached pool has at most {MAX_SERVERS} servers, not {0}")]
    TooManyServers(usize),
    /// One stands there twice.
    #[error("the memcached server {0} is named twice")]
    Twice(ServerAddress),
    /// A bound is zero, and nothing would ever work.
    #[error("memcached: {0} must be more than 0")]
    Zero(&'static str),
    /// Bodies would be cut into too many pieces, or longer ones than any server takes.
    #[error("memcached: an item holds {MIN_ITEM} to {MAX_ITEM} bytes, not {0}")]
    ItemSize(usize),
}

const MIN_ITEM: usize = 64 * 1024;
const MAX_ITEM: usize = 1024 * 1024 * 1024;

impl MemcachedSettings {
    /// Whether a pool can be made of this.
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
                return Err(InvalidSettings::Zero("a weight"));
            }
        }
        let bounds = [
            (self.deadline.is_zero(), "the deadline"),
            (self.connections == 0, "the number of connections"),
            (
                self.max_outstanding == 0,
                "the number of outstanding requests",
            ),
            (self.failures == 0, "the number of failures"),
            (self.retry_after.is_zero(), "the pause before a retry"),
            (self.check_every.is_zero(), "the time between checks"),
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
            Err("the memcached server a:11211 is named twice".to_owned())
        );
        let many: Vec<String> = (0..=MAX_SERVERS).map(|n| format!("s{n}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(
            pool(&many).check(),
            Err(InvalidSettings::TooManyServers(MAX_SERVERS + 1))
        );
        let mut zero = pool(&["a"]);
        zero.deadline = Duration::ZERO;
        assert_eq!(zero.check(), Err(InvalidSettings::Zero("the deadline")));
        let mut small = pool(&["a"]);
        small.max_item = 10;
        assert_eq!(small.check(), Err(InvalidSettings::ItemSize(10)));
    }
}
