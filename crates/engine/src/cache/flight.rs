//! The table of fetches under way: one leader per key and selection, the waiters, and the outcome
//! they wait for.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::future::Future;
use std::hash::BuildHasher;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use foldhash::fast::RandomState;
use microcache_policy::Network;
use microcache_store::{Key, LogPositions, TagNumbers, poll_clock};
use smallvec::SmallVec;
use tokio::time::Instant;

use super::fetch_outcome::{Failure, FetchOutcome};
use super::rule::RuleSubject;
use super::rules::{PurgeRules, PurgesKnown, RuleNumber};
use crate::audience::{Audience, Seat};
use crate::holdings::Holdings;
use crate::sync::{AtomicBool, Mutex, MutexGuard, WakerSlot, Wakers, wake};

/// All fetches under way.
#[derive(Debug)]
pub struct Flights {
    shards: Box<[Mutex<FlightShard>]>,
    hasher: RandomState,
    /// The limits, as in [`FlightLimits`].
    fetches: AtomicUsize,
    waiters: AtomicUsize,
    waiters_of_one: AtomicUsize,
    rules: Arc<PurgeRules>,
    /// Number of purges of keys, by shard.
    purges: Box<[AtomicU64]>,
}

/// The limits of [`Flights`].
#[derive(Clone, Copy, Debug)]
pub struct FlightLimits {
    /// The most fetches that can be joined. Above it the newest of the address that leads most is
    /// displaced.
    pub fetches: usize,
    /// The most waiters per fetch. Above it the newest of the address with most is displaced.
    pub waiters: usize,
    /// Most waiters per fetch from one address.
    pub waiters_of_one: usize,
}

impl FlightLimits {
    /// Limits for clients at many addresses; one address may have a tenth of the waiters.
    pub const fn of_many(fetches: usize, waiters: usize) -> Self {
        Self {
            fetches,
            waiters,
            waiters_of_one: waiters.div_ceil(10),
        }
    }

    /// Limits for a single program that sends all requests.
    pub const fn of_one(fetches: usize, waiters: usize) -> Self {
        Self {
            fetches,
            waiters,
            waiters_of_one: waiters,
        }
    }
}

#[derive(Debug, Default)]
struct FlightShard {
    /// The fetches of a key: one per selection, and those that cannot be joined.
    keys: HashMap<Key, FlightList, RandomState>,
    /// The fetches that can be joined, by number.
    joinable: HashMap<u64, Arc<Flight>, RandomState>,
    /// The numbers of joinable fetches by the leading client's address, without refreshes and
    /// fetches that other addresses wait for too.
    led: Holdings,
    last: u64,
    /// The keys of fetches that cannot be joined and have nothing to store yet.
    unshared: HashMap<Key, UnsharedFetches, RandomState>,
}

#[derive(Debug, Default)]
struct UnsharedFetches {
    fetches: usize,
    /// Purges of the key since the first of them began.
    purges: u64,
}

/// The fetches of a key, of which there is nearly always one.
type FlightList = SmallVec<[Arc<Flight>; 1]>;

#[derive(Debug)]
struct Flight {
    /// The number in its shard; zero for fetches that cannot be joined.
    number: u64,
    /// The address of the leading client; `None` for a refresh.
    by: Option<Network>,
    /// The waiting clients, the leading one among them.
    audience: Arc<Audience>,
    /// The selecting field values when it began; `None` for a fetch that cannot be joined.
    selection: Option<Bytes>,
    began: Instant,
    /// The purge rules known when it began.
    known: PurgesKnown,
    state: Mutex<FlightState>,
}

#[derive(Debug, Default)]
struct FlightState {
    outcome: Option<FetchOutcome>,
    waiters: Wakers,
    /// The key was purged after this fetch began: its response must not be stored.
    purged: bool,
    /// Closed: it can no longer be joined.
    closed: bool,
    /// The values of the fields that its answer varies on, if they differ from the expected ones.
    answers: Option<Bytes>,
}

/// A fetch that is under way.
#[derive(Clone, Debug)]
pub struct ActiveFetch {
    /// The key being fetched.
    pub key: Key,
    /// The time since it began.
    pub age: Duration,
    /// Number of waiters.
    pub waiting: usize,
    /// A refresh: a stale copy is served meanwhile.
    pub is_refresh: bool,
}

/// The role of a request that enters the table.
pub enum Role {
    /// Fetch; the others wait.
    Lead(Leader),
    /// Join the fetch under way.
    Join(WaitTicket),
    /// A limit is reached, and no address holds more than this one: neither wait nor fetch.
    Full,
}

impl Flights {
    const SHARDS: usize = 64;

    /// An empty table.
    pub(super) fn new(limits: FlightLimits, rules: Arc<PurgeRules>) -> Arc<Self> {
        Arc::new(Self {
            shards: (0..Self::SHARDS)
                .map(|_| Mutex::new(FlightShard::default()))
                .collect(),
            hasher: RandomState::default(),
            fetches: AtomicUsize::new(limits.fetches),
            waiters: AtomicUsize::new(limits.waiters),
            waiters_of_one: AtomicUsize::new(limits.waiters_of_one),
            rules,
            purges: (0..Self::SHARDS).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// Replaces the limits.
    pub(super) fn set_limits(&self, limits: FlightLimits) {
        self.fetches.store(limits.fetches, Ordering::Relaxed);
        self.waiters.store(limits.waiters, Ordering::Relaxed);
        let of_one = limits.waiters_of_one;
        self.waiters_of_one.store(of_one, Ordering::Relaxed);
    }

    /// Leads the fetch of `key` and `selection`, or joins the one under way. `by` is the client's
    /// address; `None` for a refresh.
    pub fn enter(self: &Arc<Self>, key: &Key, selection: &[u8], by: Option<Network>) -> Role {
        let mut shard = self.shard(key);
        if let Some(flight) = self.joinable(&mut shard, key, selection) {
            return match by {
                Some(network) if self.has_room(&flight, network) => {
                    Role::Join(WaitTicket::new(&flight, network))
                }
                // A refresh does not wait either.
                _ => Role::Full,
            };
        }
        let fetches = self.fetches.load(Ordering::Relaxed);
        if shard.joinable.len() >= fetches.div_ceil(Self::SHARDS)
            && !by.is_some_and(|network| shard.make_room(network))
        {
            return Role::Full;
        }
        let selection = Some(match selection {
            [] => Bytes::new(),
            selection => Bytes::copy_from_slice(selection),
        });
        let number = shard.number();
        let flight = Flight::new(number, selection, by, self.rules.known());
        shard.list(&flight);
        Role::Lead(self.start(&mut shard, key, flight))
    }

    /// Checks whether a client at this address may wait for a fetch, displacing another waiter if
    /// necessary.
    fn has_room(&self, flight: &Flight, network: Network) -> bool {
        let leads = usize::from(flight.by == Some(network));
        let waiting = flight.audience.count(network).saturating_sub(leads);
        if waiting >= self.waiters_of_one.load(Ordering::Relaxed) {
            return false;
        }
        let all = flight.state.lock().waiters.taken();
        all < self.waiters.load(Ordering::Relaxed) || flight.audience.make_room(network)
    }

    /// Returns true while a refresh of `key` and `selection` is under way.
    pub fn is_refreshing(&self, key: &[u8], selection: &[u8]) -> bool {
        let mut shard = self.shard(key);
        let flight = self.joinable(&mut shard, key, selection);
        flight.is_some_and(|flight| flight.by.is_none())
    }

    /// The number of purges in the shard of `key`, for readers of an entry that a purge may remove
    /// meanwhile. See [`Flights::unless_purged`].
    pub fn purges(&self, key: &[u8]) -> u64 {
        self.purges[self.shard_of(key)].load(Ordering::SeqCst)
    }

    /// Begins a fetch that cannot be joined. Most such fetches store nothing, so a purge only
    /// counts against the key.
    pub fn begin_unshared(self: &Arc<Self>, key: &Key) -> UnsharedFetch {
        let mut shard = self.shard(key);
        let unshared = shard.unshared.entry(Arc::clone(key)).or_default();
        unshared.fetches += 1;
        UnsharedFetch {
            known: self.rules.known(),
            purges: unshared.purges,
            flights: Arc::clone(self),
            key: Arc::clone(key),
        }
    }

    /// Runs `remove` such that no earlier fetch of `key` can be stored after it; later requests
    /// start a new fetch. The argument says whether there was an earlier one.
    pub fn purge(&self, key: &[u8], remove: impl FnOnce(bool)) {
        let mut shard = self.shard(key);
        self.purges[self.shard_of(key)].fetch_add(1, Ordering::SeqCst);
        if let Some(unshared) = shard.unshared.get_mut(key) {
            unshared.purges += 1;
        }
        // They stay in the table: what a later fetch stores may stand in for their responses.
        let flights = shard.keys.get(key).into_iter().flatten();
        let is_new = |flight: &&Arc<Flight>| !mem::replace(&mut flight.state.lock().purged, true);
        let newly_purged: FlightList = flights.filter(is_new).cloned().collect();
        for flight in &newly_purged {
            shard.close(flight);
        }
        remove(!newly_purged.is_empty());
    }

    /// Runs `act` while no purge of `key` runs, unless there was one since `purges` were counted.
    pub fn unless_purged(&self, key: &[u8], purges: u64, act: impl FnOnce()) {
        let _they_wait = self.shard(key);
        if self.purges(key) == purges {
            act();
        }
    }

    /// Number of fetches that can be joined.
    pub fn under_way(&self) -> usize {
        self.shards.iter().map(|it| it.lock().joinable.len()).sum()
    }

    /// The fetches with most waiters, the oldest first among equals, and the number of waiters of
    /// all fetches.
    pub fn most_wanted(&self, limit: usize) -> (Vec<ActiveFetch>, usize) {
        let now = Instant::now();
        let mut all = Vec::new();
        let mut waiting = 0;
        for shard in &self.shards {
            let shard = shard.lock();
            for (key, flight) in shard.each() {
                let fetch = flight.under_way(key, now);
                waiting += fetch.waiting;
                all.push(fetch);
            }
        }
        all.sort_by_key(|fetch| Reverse((fetch.waiting, fetch.age)));
        all.truncate(limit);
        (all, waiting)
    }

    /// The fetch that a new request would join, if there is one.
    pub fn to_join(&self, key: &Key, selection: &[u8]) -> Option<ActiveFetch> {
        let shard = self.shard(key);
        let flight = shard.joinable(key, selection)?;
        let is_over = flight.is_covered(key, &self.rules);
        (!is_over).then(|| flight.under_way(key, Instant::now()))
    }

    /// The fetch to join. One that is covered by a purge issued since it began is closed, so that
    /// later requests cannot join it.
    fn joinable(
        &self,
        shard: &mut FlightShard,
        key: &[u8],
        selection: &[u8],
    ) -> Option<Arc<Flight>> {
        let flight = Arc::clone(shard.joinable(key, selection)?);
        if flight.known.number == self.rules.newest() || !flight.is_covered(key, &self.rules) {
            return Some(flight);
        }
        shard.close(&flight);
        None
    }

    fn start(self: &Arc<Self>, shard: &mut FlightShard, key: &Key, flight: Arc<Flight>) -> Leader {
        shard
            .keys
            .entry(Arc::clone(key))
            .or_default()
            .push(Arc::clone(&flight));
        Leader {
            flights: Arc::clone(self),
            flight,
            key: Arc::clone(key),
            has_left: AtomicBool::new(false),
        }
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, FlightShard> {
        self.shards[self.shard_of(key)].lock()
    }

    fn shard_of(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % Self::SHARDS
    }
}

/// A fetch that cannot be joined, before it has something to store.
#[derive(Debug)]
pub struct UnsharedFetch {
    flights: Arc<Flights>,
    key: Key,
    purges: u64,
    /// The purge rules known when it began.
    known: PurgesKnown,
}

impl UnsharedFetch {
    /// The key being fetched.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Registers the fetch, so that a purge finds it from now on. `None` if its key was purged
    /// since it began.
    pub fn lead(self) -> Option<Leader> {
        let mut shard = self.flights.shard(&self.key);
        let unshared = shard.unshared.get(&self.key);
        let is_purged = unshared.is_none_or(|unshared| unshared.purges != self.purges);
        (!is_purged).then(|| {
            let flight = Flight::new(0, None, None, self.known);
            self.flights.start(&mut shard, &self.key, flight)
        })
    }
}

impl Drop for UnsharedFetch {
    fn drop(&mut self) {
        let mut shard = self.flights.shard(&self.key);
        if let Some(unshared) = shard.unshared.get_mut(&self.key) {
            unshared.fetches -= 1;
            if unshared.fetches == 0 {
                shard.unshared.remove(&self.key);
            }
        }
    }
}

impl Flight {
    fn can_be_joined(&self) -> bool {
        self.selection.is_some() && !self.state.lock().closed
    }

    /// Checks whether a request with these selecting values joins it: they match the leader's, or
    /// those that the answer varies on.
    fn is_for(&self, selection: &[u8]) -> bool {
        let state = self.state.lock();
        let answers = state.answers.as_deref();
        let selections = [self.selection.as_deref(), answers];
        self.selection.is_some() && !state.closed && selections.contains(&Some(selection))
    }

    fn under_way(&self, key: &Key, now: Instant) -> ActiveFetch {
        ActiveFetch {
            key: Arc::clone(key),
            age: now.saturating_duration_since(self.began),
            waiting: self.state.lock().waiters.taken(),
            is_refresh: self.by.is_none(),
        }
    }

    /// Checks whether a purge rule issued since it began covers its response, as far as the
    /// response is known.
    fn is_covered(&self, key: &[u8], rules: &PurgeRules) -> bool {
        let state = self.state.lock();
        let none = TagNumbers::default();
        let tags = match &state.outcome {
            Some(FetchOutcome::Answer(answer, _)) => answer.tags(),
            _ => &none,
        };
        let held = RuleSubject::fetch(key, tags);
        rules.covers_since(held, self.known.number).is_some()
    }

    fn new(
        number: u64,
        selection: Option<Bytes>,
        by: Option<Network>,
        known: PurgesKnown,
    ) -> Arc<Self> {
        Arc::new(Self {
            number,
            by,
            audience: Arc::default(),
            selection,
            began: poll_clock::now(),
            known,
            state: Mutex::new(FlightState::default()),
        })
    }
}

/// The right to fetch, and the duty to publish the result. Dropped early, it publishes a failure.
#[derive(Debug)]
pub struct Leader {
    flights: Arc<Flights>,
    flight: Arc<Flight>,
    key: Key,
    /// It is no longer in the table.
    has_left: AtomicBool,
}

impl Leader {
    /// The key being fetched.
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// The clients that wait for it.
    pub(crate) fn audience(&self) -> &Arc<Audience> {
        &self.flight.audience
    }

    /// Returns true if other requests wait for it.
    pub(crate) fn has_waiters(&self) -> bool {
        self.flight.state.lock().waiters.taken() > 0
    }

    /// The number of the newest purge rule when the fetch began.
    pub(crate) fn since(&self) -> RuleNumber {
        self.flight.known.number
    }

    /// The positions up to which the shared purge log had been read when the fetch began.
    pub(crate) fn purges_known(&self) -> LogPositions {
        self.flight.known.positions
    }

    /// Publishes the outcome to all waiters. Later requests join only if there is an answer, until
    /// the leader is done; otherwise the next one leads a new fetch.
    pub fn publish(&self, outcome: FetchOutcome) {
        if !matches!(outcome, FetchOutcome::Answer(..)) {
            self.leave_table();
        }
        let mut state = self.flight.state.lock();
        state.outcome = Some(outcome);
        let wakers = state.waiters.take_all();
        drop(state);
        wake(wakers);
    }

    /// Records the selecting values of the answer, so that requests with the same ones join.
    pub fn select(&self, selection: &[u8]) {
        self.flight.state.lock().answers = Some(Bytes::copy_from_slice(selection));
    }

    /// Closes the fetch: no further request joins it. A purge still finds it.
    pub fn close(&self) {
        let mut shard = self.flights.shard(&self.key);
        let listed = shard
            .keys
            .get(&self.key)
            .is_some_and(|all| all.iter().any(|one| Arc::ptr_eq(one, &self.flight)));
        if listed {
            shard.close(&self.flight);
        }
    }

    /// Runs `act` while no purge of the key runs, unless it was purged meanwhile. The fetch goes
    /// on.
    pub fn unless_purged(&self, act: impl FnOnce()) {
        let _they_wait = self.flights.shard(&self.key);
        if !self.is_purged() {
            act();
        }
    }

    /// Ends the fetch. Runs `store` unless the key was purged meanwhile; a purge during `store`
    /// waits for it, and then removes the entry. Returns whether `store` has stored the response.
    pub fn finish(&self, store: impl FnOnce() -> bool) -> bool {
        let mut shard = self.flights.shard(&self.key);
        let purged = self.flight.state.lock().purged;
        let is_stored = !purged && store();
        let others = shard.forget(&self.key, &self.flight);
        // The response may stand in for theirs, if the origin is slow. If many were purged, each
        // that ends must not wake all others for nothing.
        let others = if is_stored {
            FlightList::from(others)
        } else {
            FlightList::new()
        };
        self.has_left.store(true, Ordering::Relaxed);
        drop(shard);
        for other in others {
            other.audience.wake_all();
        }
        is_stored
    }

    /// Returns true if the key was purged after this fetch began.
    pub fn is_purged(&self) -> bool {
        self.flight.state.lock().purged
    }

    fn leave_table(&self) {
        if !self.has_left.swap(true, Ordering::Relaxed) {
            let mut shard = self.flights.shard(&self.key);
            shard.forget(&self.key, &self.flight);
        }
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.leave_table();
        if self.flight.state.lock().outcome.is_none() {
            self.publish(FetchOutcome::Failed(Failure::Abandoned, None));
        }
    }
}

impl FlightShard {
    /// The fetches that can be joined.
    fn each(&self) -> impl Iterator<Item = (&Key, &Arc<Flight>)> {
        let all = self.keys.iter();
        all.flat_map(|(key, flights)| flights.iter().map(move |flight| (key, flight)))
            .filter(|(_, flight)| flight.can_be_joined())
    }

    fn joinable(&self, key: &[u8], selection: &[u8]) -> Option<&Arc<Flight>> {
        self.keys
            .get(key)?
            .iter()
            .find(|flight| flight.is_for(selection))
    }

    /// Removes a fetch. Returns the others of its key, of which there are seldom any.
    fn forget(&mut self, key: &Key, flight: &Arc<Flight>) -> &[Arc<Flight>] {
        self.unlist(flight);
        let Entry::Occupied(mut entry) = self.keys.entry(Arc::clone(key)) else {
            return &[];
        };
        let all = entry.get_mut();
        if let Some(at) = all.iter().position(|one| Arc::ptr_eq(one, flight)) {
            all.swap_remove(at);
        }
        if all.is_empty() {
            entry.remove();
            return &[];
        }
        entry.into_mut()
    }

    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    /// Adds a fetch to those that can be joined.
    fn list(&mut self, flight: &Arc<Flight>) {
        self.joinable.insert(flight.number, Arc::clone(flight));
        if let Some(network) = flight.by {
            self.led.add(network, flight.number);
        }
    }

    /// Removes a fetch from those that can be joined.
    fn unlist(&mut self, flight: &Flight) {
        self.joinable.remove(&flight.number);
        if let Some(network) = flight.by {
            self.led.remove(network, flight.number);
        }
    }

    /// Closes a fetch to further requests.
    fn close(&mut self, flight: &Flight) {
        flight.state.lock().closed = true;
        self.unlist(flight);
    }

    /// Displaces the newest fetch of the address that leads most, with its waiters, in favour of
    /// `newcomer`. A fetch that clients of other addresses also wait for is not displaced.
    fn make_room(&mut self, newcomer: Network) -> bool {
        while let Some((network, number)) = self.led.newest_beyond(newcomer) {
            self.led.remove(network, number);
            let Some(flight) = self.joinable.get(&number).map(Arc::clone) else {
                continue;
            };
            if !flight.audience.has_others_than(network) {
                self.close(&flight);
                flight.audience.displace_all();
                return true;
            }
        }
        false
    }
}

/// A waiter's place in a fetch. Resolves to the fetch's outcome; to `None` once the waiter is
/// displaced, as too many requests of its address wait.
#[derive(Debug)]
pub struct WaitTicket {
    flight: Arc<Flight>,
    place: WakerSlot,
    seat: Seat,
}

impl WaitTicket {
    /// The time at which the fetch began.
    pub fn began(&self) -> Instant {
        self.flight.began
    }

    fn new(flight: &Arc<Flight>, network: Network) -> Self {
        Self {
            flight: Arc::clone(flight),
            place: flight.state.lock().waiters.take_slot(),
            seat: flight.audience.join(network),
        }
    }
}

impl Future for WaitTicket {
    type Output = Option<FetchOutcome>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<FetchOutcome>> {
        let mut state = self.flight.state.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(Some(outcome.clone()));
        }
        state.waiters.wait(self.place, cx.waker());
        drop(state);
        self.seat.poll_gives_way(cx).map(|()| None)
    }
}

impl Drop for WaitTicket {
    fn drop(&mut self) {
        self.flight.state.lock().waiters.leave(self.place);
    }
}
