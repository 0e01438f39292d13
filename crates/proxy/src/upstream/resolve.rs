//! The addresses of one server: a literal, or whatever its name resolves to at the moment.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::observe::{Kind, Notices};

/// Minimum interval between look-ups after failed connections.
const MIN_LOOKUP_PAUSE: Duration = Duration::from_secs(1);

/// Addresses of `localhost`, whatever a resolver returns.
const LOOPBACK: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::LOCALHOST),
    IpAddr::V6(Ipv6Addr::LOCALHOST),
];

/// Returns true for names that are never sent to a resolver (RFC 6761 §6.3).
fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).as_bytes();
    let name = host.rsplit(|&byte| byte == b'.').next();
    name.is_some_and(|name| name.eq_ignore_ascii_case(b"localhost"))
}

/// Resolved addresses of a server.
#[derive(Debug)]
pub(super) struct OriginAddresses {
    host: String,
    port: u16,
    known: Mutex<Arc<[OriginAddress]>>,
    next: AtomicUsize,
    doubted: Notify,
}

#[derive(Debug)]
struct OriginAddress {
    address: SocketAddr,
    /// The last attempt to connect failed: it is tried after the others until the next look-up.
    failed: AtomicBool,
}

impl OriginAddresses {
    pub(super) fn new(host: &str, port: u16) -> Self {
        let literal = host.parse::<IpAddr>().ok();
        let known = literal.map(|ip| OriginAddress::new(SocketAddr::new(ip, port)));
        Self {
            host: host.to_owned(),
            port,
            known: Mutex::new(known.into_iter().collect()),
            next: AtomicUsize::new(0),
            doubted: Notify::new(),
        }
    }

    /// Returns true for a name, whose addresses can change.
    pub(super) fn is_name(&self) -> bool {
        self.host.parse::<IpAddr>().is_err()
    }

    /// Resolves the name periodically, and sooner after a failed connection. Failures are logged, the first
    /// one before any request.
    pub(super) async fn keep_resolving(&self, every: Duration, notices: &Notices) {
        let mut trouble = None;
        loop {
            // Known addresses stay in use while the name does not resolve.
            let found = match timeout(every, self.look_up()).await {
                Ok(found) => found.map_err(|error| error.to_string()),
                Err(_) => Err(format!("no answer from the resolver within {every:?}")),
            };
            let is_new = trouble != found.as_ref().err().cloned();
            trouble = found.err();
            if is_new {
                self.report(trouble.as_deref(), notices);
            }
            sleep(MIN_LOOKUP_PAUSE.min(every)).await;
            let _ = timeout(every, self.doubted.notified()).await;
        }
    }

    fn report(&self, trouble: Option<&str>, notices: &Notices) {
        let origin = format!("origin {}:{}", self.host, self.port);
        let (kind, line) = match trouble {
            None => (Kind::Resolved, format!("{origin}: the name resolves again")),
            Some(why) if self.known.lock().is_empty() => (
                Kind::Unresolved,
                format!("{origin}: the name does not resolve: {why}; unreachable until it does"),
            ),
            Some(why) => (
                Kind::Unresolved,
                format!(
                    "{origin}: the name no longer resolves: {why}; its last addresses stay in use"
                ),
            ),
        };
        notices.say(kind, &origin, line);
    }

    async fn look_up(&self) -> io::Result<Arc<[OriginAddress]>> {
        let mut addresses: Vec<SocketAddr> = Vec::new();
        if is_localhost(&self.host) {
            addresses.extend(LOOPBACK.map(|ip| SocketAddr::new(ip, self.port)));
        } else {
            for address in lookup_host((self.host.as_str(), self.port)).await? {
                if !addresses.contains(&address) {
                    addresses.push(address);
                }
            }
        }
        if addresses.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the name has no address",
            ));
        }
        let found: Arc<[OriginAddress]> = addresses.into_iter().map(OriginAddress::new).collect();
        *self.known.lock() = Arc::clone(&found);
        Ok(found)
    }

    /// Connects to one of the addresses, within `limit` for all together. Each attempt gets an equal
    /// share of the remaining time, so that an address that drops packets does not use it up.
    pub(super) async fn connect(&self, limit: Duration) -> io::Result<TcpStream> {
        let deadline = Instant::now() + limit;
        let mut known = Arc::clone(&*self.known.lock());
        if known.is_empty() {
            known = timeout_at(deadline, self.look_up()).await??;
        }
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for (tried, endpoint) in self.in_order(&known).into_iter().enumerate() {
            let left = (known.len() - tried) as u32;
            let share = deadline.saturating_duration_since(Instant::now()) / left;
            let connected = timeout(share, TcpStream::connect(endpoint.address)).await;
            match connected.unwrap_or_else(|elapsed| Err(elapsed.into())) {
                Ok(stream) => {
                    endpoint.failed.store(false, Ordering::Relaxed);
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(failed) => {
                    endpoint.failed.store(true, Ordering::Relaxed);
                    error = failed;
                }
            }
        }
        self.doubted.notify_one();
        Err(error)
    }

    /// Returns the addresses in the order of the attempts: round robin, failed ones last. Those of `localhost` do not
    /// rotate: they are one machine, where another program may listen on the second.
    fn in_order<'a>(&self, known: &'a [OriginAddress]) -> Vec<&'a OriginAddress> {
        let first = if is_localhost(&self.host) {
            0
        } else {
            self.next.fetch_add(1, Ordering::Relaxed) % known.len().max(1)
        };
        let (before, after) = known.split_at(first);
        let mut order: Vec<_> = after.iter().chain(before).collect();
        order.sort_by_key(|endpoint| endpoint.failed.load(Ordering::Relaxed));
        order
    }
}

impl OriginAddress {
    const fn new(address: SocketAddr) -> Self {
        Self {
            address,
            failed: AtomicBool::new(false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::collected;
    use tokio::net::TcpListener;

    fn endpoints(addresses: &[SocketAddr]) -> OriginAddresses {
        let endpoints = OriginAddresses::new("several.invalid", 1);
        *endpoints.known.lock() = addresses.iter().copied().map(OriginAddress::new).collect();
        endpoints
    }

    async fn listener() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }

    #[tokio::test]
    async fn localhost_needs_no_resolver() {
        for name in ["localhost", "LOCALHOST.", "shop.localhost"] {
            let found = OriginAddresses::new(name, 80).look_up().await.unwrap();
            let addresses: Vec<_> = found.iter().map(|it| it.address.to_string()).collect();
            assert_eq!(addresses, ["127.0.0.1:80", "[::1]:80"], "{name}");
        }
        let localhost = OriginAddresses::new("localhost", 80);
        let known = localhost.look_up().await.unwrap();
        for _ in 0..3 {
            assert!(localhost.in_order(&known)[0].address.is_ipv4());
        }
        assert!(!is_localhost("localhost.example.org"));
        assert!(!is_localhost("notlocalhost"));
    }

    #[tokio::test]
    async fn names_and_literals_connect() {
        let (_listener, address) = listener().await;
        for host in ["localhost", "127.0.0.1"] {
            let endpoints = OriginAddresses::new(host, address.port());
            assert_eq!(endpoints.is_name(), host == "localhost");
            let stream = endpoints.connect(Duration::from_secs(30)).await.unwrap();
            assert_eq!(stream.peer_addr().unwrap(), address);
        }
    }

    #[tokio::test]
    async fn addresses_take_turns_and_a_dead_one_is_passed_over() {
        let (dead, dead_address) = listener().await;
        drop(dead);
        let ((_one, first), (_two, second)) = (listener().await, listener().await);
        let endpoints = endpoints(&[dead_address, first, second]);
        let mut peers = Vec::new();
        for _ in 0..6 {
            let stream = endpoints.connect(Duration::from_secs(30)).await.unwrap();
            peers.push(stream.peer_addr().unwrap());
        }
        assert!(peers.contains(&first) && peers.contains(&second));
        let known = Arc::clone(&*endpoints.known.lock());
        assert!(known[0].failed.load(Ordering::Relaxed));
        let order = endpoints.in_order(&known);
        assert_eq!(order.last().unwrap().address, dead_address);
    }

    #[tokio::test]
    async fn a_name_that_moved_is_looked_up_again() {
        let (dead, dead_address) = listener().await;
        drop(dead);
        let (_alive, alive) = listener().await;
        let endpoints = Arc::new(OriginAddresses::new("localhost", alive.port()));
        *endpoints.known.lock() = [OriginAddress::new(dead_address)].into_iter().collect();
        assert!(endpoints.connect(Duration::from_secs(30)).await.is_err());
        let resolving = Arc::clone(&endpoints);
        let resolver = tokio::spawn(async move {
            resolving
                .keep_resolving(Duration::from_mins(1), &Notices::default())
                .await;
        });
        while endpoints.connect(Duration::from_secs(30)).await.is_err() {
            tokio::task::yield_now().await;
        }
        resolver.abort();
    }

    #[tokio::test]
    async fn a_name_without_an_address_is_an_error() {
        let endpoints = OriginAddresses::new("none.invalid", 80);
        assert!(endpoints.connect(Duration::from_secs(30)).await.is_err());
    }

    #[tokio::test]
    async fn an_unresolvable_name_and_its_recovery_are_logged_once() {
        let (notices, logged) = collected();
        let endpoints = OriginAddresses::new("none.invalid", 80);
        let every = Duration::from_millis(1);
        let resolving = endpoints.keep_resolving(every * 1000, &notices);
        tokio::select! {
            () = resolving => {}
            () = async {
                while logged.lock().is_empty() {
                    sleep(every).await;
                }
            } => {}
        }
        let first = logged.lock()[0].clone();
        let expected = "origin none.invalid:80: the name does not resolve: ";
        assert!(first.starts_with(expected), "{first}");
        assert!(first.ends_with("unreachable until it does"), "{first}");
        endpoints.report(None, &notices);
        *endpoints.known.lock() = [OriginAddress::new(([127, 0, 0, 1], 80).into())].into();
        endpoints.report(Some("why"), &notices);
        // The third within a second, and the second of its kind.
        notices.settle();
        let expected = [
            "origin none.invalid:80: the name resolves again",
            "origin none.invalid:80: the name no longer resolves: why; its last addresses stay in use",
        ];
        assert_eq!(logged.lock()[1..], expected);
    }
}
