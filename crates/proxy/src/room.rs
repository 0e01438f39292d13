//! How many descriptors clients may take: one for each connection, and another one towards the
//! origin for as long as a tunnel, an event stream or a long body goes on.
//!
//! When there are no more, connections that wait for a request give way: of the address that has
//! most of them, those that have waited longest. One address with many connections shuts nobody
//! out but itself, and a connection on which only parts of a head have come waits like any other.
//! Tunnels and event streams are not ended for others, so an address leaves a tenth of them from the beginning.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use microcache_engine::{Body, Clock, Response};
use microcache_policy::{Millis, Time};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::addresses::{Addresses, Guest};
use crate::config::Config;
use crate::connections::{Connections, Idle};
use crate::descriptors;
use crate::notices::{Kind, Notices};
use microcache_policy::Network;

/// An address gives one of so many of its connections at a time, so that looking for them is not
/// done for each.
const SHARE: usize = 64;
/// A connection that never had a request gives way after so many milliseconds: its first one may be
/// on its way.
const GIVES_WAY_AFTER: Millis = 200;
/// Who waits for a place looks so often for somebody who can give way.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// How long a tunnel waits for the descriptor of a connection that was told to go.
const DESCRIPTOR_WAIT: Duration = Duration::from_secs(1);
/// An unfinished body up to this size has the place with the origin that it began with.
const LARGEST_PAGE: u64 = 1024 * 1024;
/// Tunnels and event streams may be one in so many of all descriptors, and take twice that.
const TUNNELS_SHARE: usize = 4;
/// An address may have nine in ten of all connections, so that something is left for others, and as many as these in
/// any case: behind one address there may be a whole country. Of tunnels and event streams it may have the same part.
const ADDRESS_SHARE: (usize, usize) = (9, 10);
const ADDRESS_LEAST: usize = 1024;

/// The descriptors that clients may take.
pub(crate) struct Room {
    connections: Seats,
    descriptors: Seats,
    tunnels: Seats,
    addresses: Arc<Addresses>,
    /// The tunnels and event streams of each address: one connection with HTTP/2 can have many.
    tunnels_of: Arc<Addresses>,
    threads: Mutex<Vec<Arc<Connections>>>,
    accepted: AtomicU64,
    dismissed: AtomicU64,
    notices: Notices,
}

/// What there is room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    descriptors: usize,
    connections: usize,
    tunnels: usize,
    per_address: usize,
}

impl Bounds {
    /// What a configuration leaves room for.
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

    /// So many descriptors, within bounds on what they are for.
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

    /// The most tunnels and event streams of one address.
    const fn tunnels_of_one(&self) -> usize {
        let (part, of) = ADDRESS_SHARE;
        self.tunnels - self.tunnels / of * (of - part)
    }
}

/// So many of something, of which there may come to be more or fewer.
struct Seats {
    free: Arc<Semaphore>,
    all: AtomicUsize,
}

impl Seats {
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

    /// So many from now on. Those that are too many and taken are not given out again.
    fn rebound(&self, all: usize) {
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

/// What clients have taken, of what there is for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Client connections.
    pub connections: usize,
    /// Those of them that wait for a request.
    pub idle: usize,
    /// The most connections at a time.
    pub max_connections: usize,
    /// Connections that were accepted, since the start.
    pub accepted: u64,
    /// Connections that were closed while they waited for a request, to make room.
    pub dismissed: u64,
    /// Tunnels and event streams.
    pub tunnels: usize,
    /// The most of those at a time.
    pub max_tunnels: usize,
}

/// What a connection holds.
pub(crate) struct Place {
    _connection: OwnedSemaphorePermit,
    _descriptor: OwnedSemaphorePermit,
    /// Once it is known whose it is, unless his connections are not counted.
    _guest: Option<Guest>,
}

impl Place {
    /// It counts as one of this client's connections.
    #[must_use]
    pub(crate) fn of(self, guest: Option<Guest>) -> Self {
        Self {
            _guest: guest,
            ..self
        }
    }
}

/// What a response holds beside its client's place, as long as it goes on.
#[derive(Default)]
pub(crate) struct Held {
    _descriptor: Option<OwnedSemaphorePermit>,
    _tunnel: Option<OwnedSemaphorePermit>,
    /// One of those that its address may have.
    _guest: Option<Guest>,
}

/// What a response needs beside its client's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// It is here, or has one of the origin's places as long as it goes on.
    Nothing,
    /// It may be long, and gives that place back when it is.
    Descriptor,
    /// It is a tunnel or an event stream, and goes on until somebody has enough. What documents are told of comes
    /// from here, and has no descriptor.
    Tunnel { has_descriptor: bool },
}

/// There are as many tunnels and event streams as there may be.
#[derive(Debug)]
pub(crate) struct TooMany;

impl Room {
    pub(crate) fn new(bounds: Bounds, notices: Notices) -> Self {
        Self {
            connections: Seats::new(bounds.connections),
            descriptors: Seats::new(bounds.descriptors),
            tunnels: Seats::new(bounds.tunnels),
            addresses: Arc::new(Addresses::new(bounds.per_address)),
            tunnels_of: Arc::new(Addresses::new(bounds.tunnels_of_one())),
            threads: Mutex::default(),
            accepted: AtomicU64::new(0),
            dismissed: AtomicU64::new(0),
            notices,
        }
    }

    /// Other bounds from now on. Nobody who has a place loses it.
    pub(crate) fn rebound(&self, bounds: Bounds) {
        self.connections.rebound(bounds.connections);
        self.descriptors.rebound(bounds.descriptors);
        self.tunnels.rebound(bounds.tunnels);
        self.addresses.rebound(bounds.per_address);
        self.tunnels_of.rebound(bounds.tunnels_of_one());
    }

    /// What clients have taken.
    pub(crate) fn taken(&self) -> Taken {
        let mut idle = 0;
        for connections in self.threads.lock().iter() {
            connections.each(|_, waits| idle += usize::from(waits.is_some()));
        }
        Taken {
            connections: self.connections.taken(),
            idle,
            max_connections: self.connections.all(),
            accepted: self.accepted.load(Ordering::Relaxed),
            dismissed: self.dismissed.load(Ordering::Relaxed),
            tunnels: self.tunnels.taken(),
            max_tunnels: self.tunnels.all(),
        }
    }

    /// Takes the connections of one more thread into account.
    pub(crate) fn add(&self, connections: &Arc<Connections>) {
        self.threads.lock().push(Arc::clone(connections));
    }

    /// A place for a connection that was accepted. Without one, somebody else's is taken; if all
    /// have requests, it waits for the first of them that has not.
    pub(crate) async fn place(&self, clock: &Clock) -> Option<Place> {
        self.accepted.fetch_add(1, Ordering::Relaxed);
        if let Some(place) = self.free_place() {
            return Some(place);
        }
        let line = "no room for another connection: idle ones are closed (max_connections, file descriptors)";
        self.notices.say(Kind::NoRoom, "connections", line);
        let mut place = pin!(async {
            Some(Place {
                _connection: self.connections.take().await?,
                _descriptor: self.descriptors.take().await?,
                _guest: None,
            })
        });
        loop {
            self.make_room(clock.now());
            if let Ok(place) = timeout(LOOK_AGAIN, &mut place).await {
                return place;
            }
        }
    }

    fn free_place(&self) -> Option<Place> {
        Some(Place {
            _connection: self.connections.try_take()?,
            _descriptor: self.descriptors.try_take()?,
            _guest: None,
        })
    }

    /// One of the connections that a client may have. If he has as many, those of his that wait for a request give way.
    pub(crate) fn guest(&self, network: Network, now: Time) -> Option<Guest> {
        let make_room = || {
            let mut idle: Vec<Idle> = Vec::new();
            let mut count: usize = 0;
            for connections in self.threads.lock().iter() {
                connections.each(|one, waits| {
                    if one == network {
                        count += 1;
                        idle.extend(waits);
                    }
                });
            }
            self.dismiss(idle, count.div_ceil(SHARE), now)
        };
        self.addresses.admit(network, now, make_room)
    }

    /// How many connections a client may have.
    pub(crate) fn per_address(&self) -> usize {
        self.addresses.most()
    }

    /// Takes what a response to this address needs beside its client's place.
    pub(crate) async fn hold(
        &self,
        need: Need,
        network: Option<Network>,
        now: Time,
    ) -> Result<Held, TooMany> {
        match need {
            Need::Nothing => Ok(Held::default()),
            // Counted if there is one, so that others do not come; not refused if there is none,
            // because most are over soon.
            Need::Descriptor => Ok(Held {
                _descriptor: self.descriptors.try_take(),
                ..Held::default()
            }),
            Need::Tunnel { has_descriptor } => {
                self.hold_tunnel_of(network, has_descriptor, now).await
            }
        }
    }

    async fn hold_tunnel_of(
        &self,
        network: Option<Network>,
        has_descriptor: bool,
        now: Time,
    ) -> Result<Held, TooMany> {
        let mut guest = None;
        if let Some(network) = network {
            let admitted = self.tunnels_of.admit(network, now, || 0);
            guest = Some(admitted.ok_or_else(|| {
                let line = format!(
                    "a tunnel or an event stream was refused: its address has {} of them already, nine in ten of `max_tunnels`; \
                     a proxy or CDN of yours belongs into `trusted_proxies`, so that its clients are told apart",
                    self.tunnels_of.most()
                );
                self.notices.say(Kind::NoRoom, "tunnels of one address", line);
                TooMany
            })?);
        }
        let held = self.hold_tunnel(has_descriptor, now).await.ok_or_else(|| {
            let line = format!(
                "a tunnel or an event stream was refused: there are too many, or no descriptors (max_tunnels is {})",
                self.tunnels.all()
            );
            self.notices.say(Kind::NoRoom, "tunnels", line);
            TooMany
        })?;
        Ok(Held {
            _guest: guest,
            ..held
        })
    }

    async fn hold_tunnel(&self, has_descriptor: bool, now: Time) -> Option<Held> {
        let tunnel = Some(self.tunnels.try_take()?);
        if !has_descriptor {
            return Some(Held {
                _tunnel: tunnel,
                ..Held::default()
            });
        }
        let descriptor = match self.descriptors.try_take() {
            Some(descriptor) => descriptor,
            None if self.make_room(now) == 0 => return None,
            None => timeout(DESCRIPTOR_WAIT, self.descriptors.take())
                .await
                .ok()??,
        };
        Some(Held {
            _descriptor: Some(descriptor),
            _tunnel: tunnel,
            ..Held::default()
        })
    }

    /// Closes connections that wait for a request. Says how many.
    pub(crate) fn make_room(&self, now: Time) -> usize {
        let mut counts: HashMap<Network, usize> = HashMap::new();
        let mut idle: Vec<Idle> = Vec::new();
        for connections in self.threads.lock().iter() {
            connections.each(|network, waits| {
                *counts.entry(network).or_default() += 1;
                idle.extend(waits);
            });
        }
        let count = |idle: &Idle| counts.get(&idle.network).copied().unwrap_or(0);
        let busiest = idle
            .iter()
            .max_by_key(|idle| (count(idle), Reverse(idle.since)));
        let Some(busiest) = busiest else {
            return 0;
        };
        let (from, share) = (busiest.network, count(busiest).div_ceil(SHARE));
        // If its connections are all too new, they will not be for long; nobody else pays for them.
        idle.retain(|idle| idle.network == from);
        self.dismiss(idle, share, now)
    }

    /// Closes as many of these as may go, those first that have waited longest. Says how many.
    fn dismiss(&self, mut idle: Vec<Idle>, share: usize, now: Time) -> usize {
        idle.retain(|idle| idle.answered || now.since(idle.since) >= GIVES_WAY_AFTER);
        idle.sort_unstable_by_key(|idle| idle.since);
        let closed = idle.iter().filter(|idle| idle.close()).take(share).count();
        self.dismissed.fetch_add(closed as u64, Ordering::Relaxed);
        closed
    }
}

impl Need {
    /// What this response needs.
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
        } else if length.is_none_or(|length| length > LARGEST_PAGE) {
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
    use crate::connection::Activity;

    const NOW: Time = Time::from_millis(10_000);

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum State {
        New,
        Answered,
        Busy,
    }
    use State::{Answered, Busy, New};

    fn room(bounds: Bounds) -> Room {
        Room::new(bounds, Notices::default())
    }

    fn network(address: &str) -> Network {
        Network::of(address.parse().expect("an address"))
    }

    /// Connections of one thread: address, since when, and what they do.
    async fn check(all: &[(&str, u64, State)], dismissed: Option<usize>) {
        let room = room(Bounds::new(all.len(), None, None));
        let connections = Arc::new(Connections::default());
        room.add(&connections);
        let mut activities = Vec::new();
        for &(address, since, state) in all {
            let network = network(address);
            let activity = Arc::new(Activity::new(Time::from_millis(since), network));
            assert!(state == New || activity.begin());
            if state == Answered {
                activity.end(Time::from_millis(since));
            }
            let place = room.free_place();
            assert!(place.is_some());
            let work = async move {
                let _place = place;
                pending::<()>().await;
            };
            connections.spawn(Arc::clone(&activity), work);
            activities.push(activity);
        }
        assert_eq!(room.make_room(NOW), usize::from(dismissed.is_some()));
        for (index, activity) in activities.iter().enumerate() {
            let can_begin = Some(index) != dismissed && all[index].2 != Busy;
            assert_eq!(activity.begin(), can_begin, "{index} of {all:?}");
        }
        if dismissed.is_some() {
            assert!(room.place(&Clock::start()).await.is_some());
        }
    }

    #[tokio::test]
    async fn the_idlest_of_the_busiest_address_gives_way() {
        let (one, many) = ("10.0.0.1", "10.0.0.2");
        let both = [(one, 1, New), (many, 3, Answered), (many, 2, New)];
        check(&both, Some(2)).await;
        // Those that are busy count for their address, and are left alone.
        let busy = [(one, 1, New), (many, 1, Busy), (many, 9, New)];
        check(&busy, Some(2)).await;
        let all_busy = [(one, 1, New), (many, 1, Busy), (many, 9, Busy)];
        check(&all_busy, Some(0)).await;
        check(&[(one, 2, New), (many, 1, New)], Some(1)).await;
    }

    #[tokio::test]
    async fn who_has_a_request_or_may_just_be_sending_the_first_does_not() {
        let (one, many) = ("10.0.0.1", "10.0.0.2");
        check(&[], None).await;
        check(&[(one, 1, Busy), (many, 2, Busy)], None).await;
        check(&[(one, 9_999, New)], None).await;
        check(&[(one, 9_999, Answered)], Some(0)).await;
        // Nor does anybody else instead of it.
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
    async fn who_has_a_place_keeps_it_when_there_come_to_be_fewer() {
        let room = room(Bounds::new(4, None, None));
        let mut places: Vec<_> = (0..4).map_while(|_| room.free_place()).collect();
        room.rebound(Bounds::new(4, Some(2), None));
        assert_eq!(places.len(), 4);
        for left in [3, 2, 1] {
            places.pop();
            yield_now().await;
            assert_eq!(room.free_place().is_some(), left < 2, "{left} are left");
        }
        room.rebound(Bounds::new(4, Some(3), None));
        places.extend((0..4).map_while(|_| room.free_place()));
        assert_eq!(places.len(), 3);
        assert_eq!(room.taken().max_connections, 3);
    }

    #[tokio::test]
    async fn tunnels_are_bounded_and_take_two_descriptors() {
        let room = room(Bounds::new(4, Some(3), Some(2)));
        let one = room.free_place().unwrap();
        let first = room.hold_tunnel(true, NOW).await.unwrap();
        let other = room.free_place().unwrap();
        let _second = room.hold_tunnel(true, NOW).await.unwrap();
        assert!(room.free_place().is_none(), "no descriptor is left");
        assert!(room.hold_tunnel(true, NOW).await.is_none(), "nor a tunnel");
        drop(first);
        assert!(room.free_place().is_some());
        drop((one, other));
        let places: Vec<_> = (0..4).map_while(|_| room.free_place()).collect();
        assert_eq!(places.len(), 3, "as many as may be connected");
    }

    #[tokio::test]
    async fn an_address_leaves_a_tenth_of_the_tunnels_to_others() {
        let room = room(Bounds::new(100, None, Some(20)));
        let need = Need::Tunnel {
            has_descriptor: false,
        };
        let hold = async |address| room.hold(need, Some(network(address)), NOW).await;
        let mut streams = Vec::new();
        while let Ok(held) = hold("10.0.0.1").await {
            streams.push(held);
        }
        assert_eq!(streams.len(), 18);
        let other = hold("10.0.0.2").await;
        assert!(other.is_ok());
        assert!(hold("10.0.0.1").await.is_err());
        streams.pop();
        assert!(hold("10.0.0.1").await.is_ok(), "one has ended");
        room.rebound(Bounds::new(100, None, Some(9)));
        drop((streams, other));
        yield_now().await;
        let mut streams = Vec::new();
        while let Ok(held) = hold("10.0.0.3").await {
            streams.push(held);
        }
        assert_eq!(streams.len(), 9, "of so few, one address may have all");
    }

    #[tokio::test]
    async fn who_subscribes_to_documents_takes_one_descriptor() {
        let room = room(Bounds::new(4, None, Some(4)));
        let _places: Vec<_> = (0..3).map_while(|_| room.free_place()).collect();
        let mut streams = Vec::new();
        for _ in 0..4 {
            streams.push(room.hold_tunnel(false, NOW).await.expect("a place"));
        }
        assert!(room.free_place().is_some(), "descriptors are left");
        assert!(
            room.hold_tunnel(false, NOW).await.is_none(),
            "as many as may be"
        );
    }

    #[tokio::test]
    async fn who_has_as_many_as_he_may_gives_up_those_that_wait() {
        let room = room(Bounds {
            per_address: 2,
            ..Bounds::new(8, None, None)
        });
        let connections = Arc::new(Connections::default());
        room.add(&connections);
        let mut activities = Vec::new();
        for (address, state) in [
            ("10.0.0.1", Busy),
            ("10.0.0.1", Answered),
            ("10.0.0.2", New),
        ] {
            let network = network(address);
            let place = room.free_place().expect("a place");
            let guest = room.guest(network, NOW).expect("one of two");
            let activity = Arc::new(Activity::new(Time::from_millis(1), network));
            assert!(state == New || activity.begin());
            if state == Answered {
                activity.end(Time::from_millis(1));
            }
            connections.spawn(Arc::clone(&activity), async move {
                let _place = place.of(Some(guest));
                pending::<()>().await;
            });
            activities.push(activity);
        }
        let third = room.guest(network("10.0.0.1"), NOW);
        assert!(
            third.is_some() && !activities[1].begin(),
            "the idle one leaves"
        );
        assert!(activities[2].begin(), "nobody else does");
        yield_now().await;
        assert!(
            room.guest(network("10.0.0.1"), NOW).is_none(),
            "none is idle"
        );
        assert!(room.guest(network("10.0.0.2"), NOW).is_some());
        drop(third);
        assert!(room.guest(network("10.0.0.1"), NOW).is_some());
    }

    #[test]
    fn an_address_leaves_room_for_others() {
        let bounds = Bounds::new(20_000, None, None);
        assert_eq!((bounds.connections, bounds.per_address), (20_000, 18_000));
        assert_eq!(Bounds::new(100, None, None).per_address, ADDRESS_LEAST);
    }
}
