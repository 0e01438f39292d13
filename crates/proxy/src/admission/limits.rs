//! Admission of connections by file descriptors: one for each connection, and another one towards the origin
//! for the duration of a tunnel, an event stream or a long body.
//!
//! At the limit idle connections are closed: of the address that has most of them, those that have been idle
//! longest. One address with many connections thus harms only itself, and a connection with a partial request
//! head counts as idle. Tunnels and event streams are never closed for others, so an address may have nine in
//! ten of them at most.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use microcache_engine::{Body, Clock, Response};
use microcache_policy::{Millis, Network, Time};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::connections::{IdleClient, ThreadConnections};
use super::descriptors;
use super::per_address::{AddressLimits, AddressPermit};
use crate::config::Config;
use crate::observe::{Kind, Notices};

/// One in this many connections of an address is closed at a time, to amortise the search.
const SHARE: usize = 64;
/// Time in milliseconds before a connection without a first request may be closed: the request may be in
/// flight.
const FIRST_REQUEST_GRACE: Millis = 200;
/// Interval at which a connection that waits for a permit searches for an idle one.
const SEARCH_INTERVAL: Duration = Duration::from_millis(50);
/// Time that a tunnel waits for the descriptor of a closed connection.
const DESCRIPTOR_WAIT: Duration = Duration::from_secs(1);
/// Size in bytes up to which an unfinished body keeps its slot in the origin's queue.
const LARGEST_QUEUED_BODY: u64 = 1024 * 1024;
/// Share of all descriptors that tunnels and event streams may be (one in this many); they take twice that.
const TUNNELS_SHARE: usize = 4;
/// Share of all connections for one address, so that others can connect; at least [`ADDRESS_LEAST`], as a whole
/// country may be behind one address. The same share of tunnels and event streams.
const ADDRESS_SHARE: (usize, usize) = (9, 10);
const ADDRESS_LEAST: usize = 1024;

/// Limits of connections and tunnels, by the file descriptors that they take.
pub(crate) struct ConnectionLimits {
    connections: Slots,
    descriptors: Slots,
    tunnels: Slots,
    addresses: Arc<AddressLimits>,
    /// Tunnels and event streams of each address: one HTTP/2 connection can have many.
    address_tunnels: Arc<AddressLimits>,
    threads: Mutex<Vec<Arc<ThreadConnections>>>,
    accepted: AtomicU64,
    dismissed: AtomicU64,
    notices: Notices,
}

/// Numbers of the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LimitSettings {
    descriptors: usize,
    connections: usize,
    tunnels: usize,
    per_address: usize,
}

impl LimitSettings {
    /// Limits that a configuration allows.
    pub(crate) fn of(config: &Config) -> Self {
        let limits = &config.limits;
        let descriptors = descriptors::for_clients(config);
        let bounds = Self::new(descriptors, limits.max_connections, limits.max_tunnels);
        match limits.max_connections_per_address {
            Some(per_address) => Self {
                per_address,
                ..bounds
            },
            None => bounds,
        }
    }

    /// Limits within this number of descriptors.
    fn new(descriptors: usize, max_connections: Option<usize>, max_tunnels: Option<usize>) -> Self {
        let connections = max_connections.unwrap_or(descriptors).min(descriptors);
        let tunnels = max_tunnels.unwrap_or((descriptors / TUNNELS_SHARE).max(1));
        let (part, of) = ADDRESS_SHARE;
        Self {
            descriptors,
            connections,
            tunnels: tunnels.min(descriptors),
            per_address: (connections / of).saturating_mul(part).max(ADDRESS_LEAST),
        }
    }

    /// Returns the limit of tunnels and event streams per address.
    const fn tunnels_per_address(&self) -> usize {
        let (part, of) = ADDRESS_SHARE;
        self.tunnels - self.tunnels / of * (of - part)
    }
}

/// A semaphore whose size can change.
struct Slots {
    free: Arc<Semaphore>,
    all: AtomicUsize,
}

impl Slots {
    fn new(all: usize) -> Self {
        Self {
            free: Arc::new(Semaphore::new(all)),
            all: AtomicUsize::new(all),
        }
    }

    fn all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    fn taken(&self) -> usize {
        self.all().saturating_sub(self.free.available_permits())
    }

    fn try_take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).try_acquire_owned().ok()
    }

    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.free).acquire_owned().await.ok()
    }

    /// Changes the size. Surplus permits that are in use are not issued again.
    fn resize(&self, all: usize) {
        let before = self.all.swap(all, Ordering::Relaxed);
        self.free.add_permits(all.saturating_sub(before));
        let surplus = before.saturating_sub(all);
        let taken = surplus - self.free.forget_permits(surplus);
        if taken > 0 {
            let free = Arc::clone(&self.free);
            tokio::spawn(async move {
                for _ in 0..taken {
                    if let Ok(given_back) = free.acquire().await {
                        given_back.forget();
                    }
                }
            });
        }
    }
}

/// Connections and tunnels in use, and their limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionUsage {
    /// Open client connections.
    pub connections: usize,
    /// Idle client connections, included in `connections`.
    pub idle: usize,
    /// Limit of connections.
    pub max_connections: usize,
    /// Connections accepted since the start.
    pub accepted: u64,
    /// Idle connections closed to admit others, since the start.
    pub dismissed: u64,
    /// Open tunnels and event streams.
    pub tunnels: usize,
    /// Limit of tunnels and event streams.
    pub max_tunnels: usize,
}

/// Admission of one connection; released on drop.
pub(crate) struct ConnectionPermit {
    _connection: OwnedSemaphorePermit,
    _descriptor: OwnedSemaphorePermit,
    /// Count of the client's address, unless its connections are not limited.
    _address: Option<AddressPermit>,
}

impl ConnectionPermit {
    /// Adds the count of the client's address.
    #[must_use]
    pub(crate) fn of(self, address: Option<AddressPermit>) -> Self {
        Self {
            _address: address,
            ..self
        }
    }
}

/// Permits of a response in addition to its connection's; released on drop.
#[derive(Default)]
pub(crate) struct ResponsePermits {
    _descriptor: Option<OwnedSemaphorePermit>,
    _tunnel: Option<OwnedSemaphorePermit>,
    /// Count of the client's address.
    _address: Option<AddressPermit>,
}

/// Permits that a response needs in addition to its connection's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PermitKind {
    /// None: it is local, or keeps its slot in the origin's queue.
    Nothing,
    /// A descriptor: it may be long, and then gives up its slot in the origin's queue.
    Descriptor,
    /// A tunnel or an event stream. Subscriptions to documents are local and need no descriptor.
    Tunnel { has_descriptor: bool },
}

/// Error: the limit of tunnels and event streams is reached.
#[derive(Debug)]
pub(crate) struct TunnelLimitReached;

impl ConnectionLimits {
    pub(crate) fn new(bounds: LimitSettings, notices: Notices) -> Self {
        Self {
            connections: Slots::new(bounds.connections),
            descriptors: Slots::new(bounds.descriptors),
            tunnels: Slots::new(bounds.tunnels),
            addresses: Arc::new(AddressLimits::new(bounds.per_address)),
            address_tunnels: Arc::new(AddressLimits::new(bounds.tunnels_per_address())),
            threads: Mutex::default(),
            accepted: AtomicU64::new(0),
            dismissed: AtomicU64::new(0),
            notices,
        }
    }

    /// Changes the limits. Permits in use stay.
    pub(crate) fn resize(&self, bounds: LimitSettings) {
        self.connections.resize(bounds.connections);
        self.descriptors.resize(bounds.descriptors);
        self.tunnels.resize(bounds.tunnels);
        self.addresses.resize(bounds.per_address);
        self.address_tunnels.resize(bounds.tunnels_per_address());
    }

    /// Returns connections and tunnels in use.
    pub(crate) fn usage(&self) -> ConnectionUsage {
        let mut idle = 0;
        for connections in self.threads.lock().iter() {
            connections.for_each(|_, waits| idle += usize::from(waits.is_some()));
        }
        ConnectionUsage {
            connections: self.connections.taken(),
            idle,
            max_connections: self.connections.all(),
            accepted: self.accepted.load(Ordering::Relaxed),
            dismissed: self.dismissed.load(Ordering::Relaxed),
            tunnels: self.tunnels.taken(),
            max_tunnels: self.tunnels.all(),
        }
    }

    /// Registers the connections of one more thread.
    pub(crate) fn add(&self, connections: &Arc<ThreadConnections>) {
        self.threads.lock().push(Arc::clone(connections));
    }

    /// Waits for a permit of an accepted connection. At the limit an idle connection is closed for it; without
    /// any, it waits for the first one.
    pub(crate) async fn admit(&self, clock: &Clock) -> Option<ConnectionPermit> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        if let Some(permit) = self.try_admit() {
            return Some(permit);
        }
        let line = "connection limit reached: idle connections are closed (max_connections, file descriptors)";
        self.notices.say(Kind::NoRoom, "connections", line);
        let mut permit = pin!(async {
            Some(ConnectionPermit {
                _connection: self.connections.take().await?,
                _descriptor: self.descriptors.take().await?,
                _address: None,
            })
        });
        loop {
            self.close_idle(clock.now());
            if let Ok(permit) = timeout(SEARCH_INTERVAL, &mut permit).await {
                return permit;
            }
        }
    }

    fn try_admit(&self) -> Option<ConnectionPermit> {
        Some(ConnectionPermit {
            _connection: self.connections.try_take()?,
            _descriptor: self.descriptors.try_take()?,
            _address: None,
        })
    }

    /// Counts one connection of a client; `None` at its limit, if none of its connections is idle.
    pub(crate) fn admit_address(&self, network: Network, now: Time) -> Option<AddressPermit> {
        let close_idle = || {
            let mut idle: Vec<IdleClient> = Vec::new();
            let mut count: usize = 0;
            for connections in self.threads.lock().iter() {
                connections.for_each(|one, waits| {
                    if one == network {
                        count += 1;
                        idle.extend(waits);
                    }
                });
            }
            self.dismiss(idle, count.div_ceil(SHARE), now)
        };
        self.addresses.admit(network, now, close_idle)
    }

    /// Returns the limit of connections per address.
    pub(crate) fn per_address(&self) -> usize {
        self.addresses.most()
    }

    /// Acquires the permits that a response to a client in this network needs. `None` is not limited per address.
    pub(crate) async fn acquire(
        &self,
        need: PermitKind,
        network: Option<Network>,
        now: Time,
    ) -> Result<ResponsePermits, TunnelLimitReached> {
        match need {
            PermitKind::Nothing => Ok(ResponsePermits::default()),
            // Counted if available, to keep other connections out; not refused otherwise, because most are
            // short.
            PermitKind::Descriptor => Ok(ResponsePermits {
                _descriptor: self.descriptors.try_take(),
                ..ResponsePermits::default()
            }),
            // Boxed: few responses need one.
            PermitKind::Tunnel { has_descriptor } => {
                Box::pin(self.acquire_tunnel_for(network, has_descriptor, now)).await
            }
        }
    }

    async fn acquire_tunnel_for(
        &self,
        network: Option<Network>,
        has_descriptor: bool,
        now: Time,
    ) -> Result<ResponsePermits, TunnelLimitReached> {
        let mut address = None;
        if let Some(network) = network {
            let admitted = self.address_tunnels.admit(network, now, || 0);
            address = Some(admitted.ok_or_else(|| {
                let line = format!(
                    "a tunnel or event stream was refused: its address already has {} of them, nine tenths of \
                     `max_tunnels`; if it is your proxy or CDN, add it to `trusted_proxies`, so that its clients \
                     are distinguished",
                    self.address_tunnels.most()
                );
                self.notices.say(Kind::NoRoom, "tunnels of one address", line);
                TunnelLimitReached
            })?);
        }
        let permits = self.acquire_tunnel(has_descriptor, now).await.ok_or_else(|| {
            let line = format!(
                "a tunnel or event stream was refused: limit reached (max_tunnels = {}), or no file descriptors left",
                self.tunnels.all()
            );
            self.notices.say(Kind::NoRoom, "tunnels", line);
            TunnelLimitReached
        })?;
        Ok(ResponsePermits {
            _address: address,
            ..permits
        })
    }

    async fn acquire_tunnel(&self, has_descriptor: bool, now: Time) -> Option<ResponsePermits> {
        let tunnel = Some(self.tunnels.try_take()?);
        if !has_descriptor {
            return Some(ResponsePermits {
                _tunnel: tunnel,
                ..ResponsePermits::default()
            });
        }
        let descriptor = match self.descriptors.try_take() {
            Some(descriptor) => descriptor,
            None if self.close_idle(now) == 0 => return None,
            None => timeout(DESCRIPTOR_WAIT, self.descriptors.take())
                .await
                .ok()??,
        };
        Some(ResponsePermits {
            _descriptor: Some(descriptor),
            _tunnel: tunnel,
            ..ResponsePermits::default()
        })
    }

    /// Closes idle connections. Returns their number.
    pub(crate) fn close_idle(&self, now: Time) -> usize {
        let mut counts: HashMap<Network, usize> = HashMap::new();
        let mut idle: Vec<IdleClient> = Vec::new();
        for connections in self.threads.lock().iter() {
            connections.for_each(|network, waits| {
                *counts.entry(network).or_default() += 1;
                idle.extend(waits);
            });
        }
        let count = |idle: &IdleClient| counts.get(&idle.network).copied().unwrap_or(0);
        let busiest = idle
            .iter()
            .max_by_key(|idle| (count(idle), Reverse(idle.since)));
        let Some(busiest) = busiest else {
            return 0;
        };
        let (from, share) = (busiest.network, count(busiest).div_ceil(SHARE));
        // If all of its connections are too new, they will not be for long; other addresses are left alone.
        idle.retain(|idle| idle.network == from);
        self.dismiss(idle, share, now)
    }

    /// Closes as many of these as allowed, longest idle first. Returns their number.
    fn dismiss(&self, mut idle: Vec<IdleClient>, share: usize, now: Time) -> usize {
        idle.retain(|idle| idle.answered || now.since(idle.since) >= FIRST_REQUEST_GRACE);
        idle.sort_unstable_by_key(|idle| idle.since);
        let closed = idle.iter().filter(|idle| idle.close()).take(share).count();
        self.dismissed.fetch_add(closed as u64, Ordering::Relaxed);
        closed
    }
}

impl PermitKind {
    /// Returns the permits that this response needs.
    pub(crate) fn of(response: &Response) -> Self {
        let is_event_stream = |value| microcache_policy::request::is_event_stream(value);
        let length = response.length;
        if let Some(tunnel) = &response.tunnel {
            let has_descriptor = tunnel.has_descriptor;
            return Self::Tunnel { has_descriptor };
        }
        let Body::Stream(source) = &response.body else {
            return Self::Nothing;
        };
        let media_type = response.fields().get("content-type");
        if media_type.is_some_and(is_event_stream) {
            let has_descriptor = source.has_descriptor();
            Self::Tunnel { has_descriptor }
        } else if length.is_none_or(|length| length > LARGEST_QUEUED_BODY) {
            Self::Descriptor
        } else {
            Self::Nothing
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::yield_now;

    use super::*;
    use crate::admission::activity::Activity;

    const NOW: Time = Time::from_millis(10_000);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum State {
        New,
        Answered,
        Busy,
    }
    use State::{Answered, Busy, New};

    fn limits(bounds: LimitSettings) -> ConnectionLimits {
        ConnectionLimits::new(bounds, Notices::default())
    }

    fn network(address: &str) -> Network {
        Network::of(address.parse().expect("an address"))
    }

    /// Connections of one thread: address, time, and state.
    async fn check(all: &[(&str, u64, State)], dismissed: Option<usize>) {
        let limits = limits(LimitSettings::new(all.len(), None, None));
        let connections = Arc::new(ThreadConnections::default());
        limits.add(&connections);
        let mut activities = Vec::new();
        for &(address, since, state) in all {
            let network = network(address);
            let activity = Arc::new(Activity::new(Time::from_millis(since), network));
            assert!(state == New || activity.begin());
            if state == Answered {
                activity.end(Time::from_millis(since));
            }
            let permit = limits.try_admit();
            assert!(permit.is_some());
            let work = async move {
                let _permit = permit;
                pending::<()>().await;
            };
            connections.spawn(Arc::clone(&activity), work);
            activities.push(activity);
        }
        assert_eq!(limits.close_idle(NOW), usize::from(dismissed.is_some()));
        for (index, activity) in activities.iter().enumerate() {
            let can_begin = Some(index) != dismissed && all[index].2 != Busy;
            assert_eq!(activity.begin(), can_begin, "{index} of {all:?}");
        }
        if dismissed.is_some() {
            assert!(limits.admit(&Clock::start()).await.is_some());
        }
    }

    #[tokio::test]
    async fn the_idlest_of_the_busiest_address_gives_way() {
        let (one, many) = ("10.0.0.1", "10.0.0.2");
        let both = [(one, 1, New), (many, 3, Answered), (many, 2, New)];
        check(&both, Some(2)).await;
        // Busy connections count for their address, and stay open.
        let busy = [(one, 1, New), (many, 1, Busy), (many, 9, New)];
        check(&busy, Some(2)).await;
        let all_busy = [(one, 1, New), (many, 1, Busy), (many, 9, Busy)];
        check(&all_busy, Some(0)).await;
        check(&[(one, 2, New), (many, 1, New)], Some(1)).await;
    }

    #[tokio::test]
    async fn busy_and_new_connections_stay_open() {
        let (one, many) = ("10.0.0.1", "10.0.0.2");
        check(&[], None).await;
        check(&[(one, 1, Busy), (many, 2, Busy)], None).await;
        check(&[(one, 9_999, New)], None).await;
        check(&[(one, 9_999, Answered)], Some(0)).await;
        // Nor is one of another address closed instead.
        let new = [(one, 1, Answered), (many, 9_998, New), (many, 9_999, New)];
        check(&new, None).await;
        let known = [(one, 1, New), (many, 9_998, New), (many, 9_999, Answered)];
        check(&known, Some(2)).await;
    }

    #[tokio::test]
    async fn an_address_is_a_network_in_version_6() {
        let (v4, one, two) = ("::ffff:10.0.0.1", "2001:db8::1", "2001:db8::2");
        let all = [(v4, 1, New), (one, 3, New), (two, 2, New)];
        check(&all, Some(2)).await;
    }

    #[tokio::test]
    async fn permits_in_use_survive_a_smaller_limit() {
        let limits = limits(LimitSettings::new(4, None, None));
        let mut permits: Vec<_> = (0..4).map_while(|_| limits.try_admit()).collect();
        limits.resize(LimitSettings::new(4, Some(2), None));
        assert_eq!(permits.len(), 4);
        for left in [3, 2, 1] {
            permits.pop();
            yield_now().await;
            assert_eq!(limits.try_admit().is_some(), left < 2, "{left} are left");
        }
        limits.resize(LimitSettings::new(4, Some(3), None));
        permits.extend((0..4).map_while(|_| limits.try_admit()));
        assert_eq!(permits.len(), 3);
        assert_eq!(limits.usage().max_connections, 3);
    }

    #[tokio::test]
    async fn tunnels_are_bounded_and_take_two_descriptors() {
        let limits = limits(LimitSettings::new(4, Some(3), Some(2)));
        let one = limits.try_admit().unwrap();
        let first = limits.acquire_tunnel(true, NOW).await.unwrap();
        let other = limits.try_admit().unwrap();
        let _second = limits.acquire_tunnel(true, NOW).await.unwrap();
        assert!(limits.try_admit().is_none(), "no descriptor is left");
        assert!(
            limits.acquire_tunnel(true, NOW).await.is_none(),
            "nor a tunnel"
        );
        drop(first);
        assert!(limits.try_admit().is_some());
        drop((one, other));
        let permits: Vec<_> = (0..4).map_while(|_| limits.try_admit()).collect();
        assert_eq!(permits.len(), 3, "as many as may be connected");
    }

    #[tokio::test]
    async fn an_address_leaves_a_tenth_of_the_tunnels_to_others() {
        let limits = limits(LimitSettings::new(100, None, Some(20)));
        let need = PermitKind::Tunnel {
            has_descriptor: false,
        };
        let acquire = async |address| limits.acquire(need, Some(network(address)), NOW).await;
        let mut streams = Vec::new();
        while let Ok(permits) = acquire("10.0.0.1").await {
            streams.push(permits);
        }
        assert_eq!(streams.len(), 18);
        let other = acquire("10.0.0.2").await;
        assert!(other.is_ok());
        assert!(acquire("10.0.0.1").await.is_err());
        streams.pop();
        assert!(acquire("10.0.0.1").await.is_ok(), "one has ended");
        limits.resize(LimitSettings::new(100, None, Some(9)));
        drop((streams, other));
        yield_now().await;
        let mut streams = Vec::new();
        while let Ok(permits) = acquire("10.0.0.3").await {
            streams.push(permits);
        }
        assert_eq!(streams.len(), 9, "of so few, one address may have all");
    }

    #[tokio::test]
    async fn a_document_subscription_takes_one_descriptor() {
        let limits = limits(LimitSettings::new(4, None, Some(4)));
        let _permits: Vec<_> = (0..3).map_while(|_| limits.try_admit()).collect();
        let mut streams = Vec::new();
        for _ in 0..4 {
            streams.push(limits.acquire_tunnel(false, NOW).await.expect("a place"));
        }
        assert!(limits.try_admit().is_some(), "descriptors are left");
        assert!(
            limits.acquire_tunnel(false, NOW).await.is_none(),
            "as many as may be"
        );
    }

    #[tokio::test]
    async fn an_address_at_its_limit_loses_idle_connections() {
        let limits = limits(LimitSettings {
            per_address: 2,
            ..LimitSettings::new(8, None, None)
        });
        let connections = Arc::new(ThreadConnections::default());
        limits.add(&connections);
        let mut activities = Vec::new();
        for (address, state) in [
            ("10.0.0.1", Busy),
            ("10.0.0.1", Answered),
            ("10.0.0.2", New),
        ] {
            let network = network(address);
            let permit = limits.try_admit().expect("a place");
            let address = limits.admit_address(network, NOW).expect("one of two");
            let activity = Arc::new(Activity::new(Time::from_millis(1), network));
            assert!(state == New || activity.begin());
            if state == Answered {
                activity.end(Time::from_millis(1));
            }
            connections.spawn(Arc::clone(&activity), async move {
                let _permit = permit.of(Some(address));
                pending::<()>().await;
            });
            activities.push(activity);
        }
        let third = limits.admit_address(network("10.0.0.1"), NOW);
        assert!(
            third.is_some() && !activities[1].begin(),
            "the idle one leaves"
        );
        assert!(activities[2].begin(), "the others stay");
        yield_now().await;
        assert!(
            limits.admit_address(network("10.0.0.1"), NOW).is_none(),
            "none is idle"
        );
        assert!(limits.admit_address(network("10.0.0.2"), NOW).is_some());
        drop(third);
        assert!(limits.admit_address(network("10.0.0.1"), NOW).is_some());
    }

    #[test]
    fn an_address_leaves_room_for_others() {
        let bounds = LimitSettings::new(20_000, None, None);
        assert_eq!((bounds.connections, bounds.per_address), (20_000, 18_000));
        assert_eq!(
            LimitSettings::new(100, None, None).per_address,
            ADDRESS_LEAST
        );
    }
}
