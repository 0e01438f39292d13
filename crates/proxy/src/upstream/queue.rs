//! The limit of concurrent requests of a group, and the queue before it.
//!
//! A freed place is handed to the next request in line and is never contended. It travels as a [`Permit`],
//! which returns it on drop, so that a request that leaves the queue at the moment of the handover passes it
//! on.
//!
//! The queue is fair by client address: addresses take turns, and when the queue is full, the longest line
//! loses its last request. A request that clients of several addresses wait for is queued in the line of
//! each, and is sent at the first turn.
//!
//! A request whose body is still being received can hold its place for as long as its client likes. So only
//! some places are for such uploads, and of those an address takes fewer than it leaves free ([`shares`]). An
//! upload's part of that limit is a [`UploadPermit`].
//!
//! Background refreshes take no more places than the application answers faster for ([`refresh_limit`]), unless
//! their stale copies can soon no longer be served.

mod lines;
mod refresh_limit;
mod shares;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use microcache_engine::Audience;
use microcache_engine::origin::Urgency;
use microcache_policy::Network;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};

use self::lines::AddressLines;
use self::refresh_limit::RefreshLimit;
use self::shares::{UploadPermits, UploadSlot};

/// Longer than any request is queued.
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// Permits and waiting requests of a group. Shared by all threads.
#[derive(Debug)]
pub(super) struct RequestQueue {
    state: Mutex<QueueState>,
}

/// Limits of a queue.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueBounds {
    pub(super) places: usize,
    /// Limit of uploads.
    pub(super) uploads: usize,
    /// Queue limit of clients' requests; uploads and refreshes have the same limit each, so that no kind
    /// excludes the others.
    pub(super) length: usize,
    /// Queue timeout.
    pub(super) time_limit: Duration,
}

#[derive(Debug)]
struct QueueState {
    bounds: QueueBounds,
    taken: usize,
    /// Background refreshes among them.
    refreshing: RefreshLimit,
    /// Places held by uploads.
    shares: UploadPermits,
    tickets: u64,
    turns: u64,
    /// Waiting requests by ticket.
    waiting: HashMap<u64, QueuedRequest>,
    /// Lines of the requests that clients wait for and whose bodies are complete.
    clients: AddressLines,
    uploads: AddressLines,
    uploads_waiting: usize,
    refreshes: BTreeMap<u64, QueuedRefresh>,
}

#[derive(Debug)]
struct QueuedRequest {
    sender: PermitSender,
    /// Addresses in whose lines it is queued.
    networks: BTreeSet<Network>,
}

/// Channel that grants a waiting request its place.
#[derive(Debug)]
enum PermitSender {
    Place(oneshot::Sender<Permit>),
    Upload(oneshot::Sender<(UploadPermit, Permit)>),
}

#[derive(Debug)]
struct QueuedRefresh {
    demand: Arc<AtomicU32>,
    /// From then on it has priority over refreshes in higher demand: its stale copy is in use, and soon
    /// unusable. `None` without a stale copy: all refreshes come first.
    due: Option<Instant>,
    /// From then on it needs no room in the limit of refreshes.
    urgent: Option<Instant>,
}

impl QueuedRefresh {
    /// Priority; the greater is first.
    fn rank(&self, now: Instant) -> (bool, bool, u32) {
        let is_due = self.due.is_some_and(|due| due <= now);
        let demand = self.demand.load(Ordering::Relaxed);
        (is_due, self.due.is_some(), demand)
    }

    /// Returns true if it needs no room in the limit of refreshes.
    fn is_exempt(&self, now: Instant) -> bool {
        self.due.is_none() || self.urgent.is_some_and(|urgent| urgent <= now)
    }
}

/// Reason for which a request got no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueError {
    /// The queue is full, or its timeout has passed.
    Full,
    /// Every client that waited for the response has left.
    Left,
}

/// A place among the concurrent requests. Dropping it hands it to the next in line.
#[derive(Debug)]
pub(super) struct Permit {
    /// Empty once the place has been handed on.
    queue: Option<Arc<RequestQueue>>,
    use_of: PlaceUse,
}

/// Use of a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlaceUse {
    /// A request that clients wait for, an upload, or a fetch before any client asks: those have limits of their own.
    /// Also a refresh whose stale copy can soon no longer be served.
    Other,
    /// A background refresh, since this time.
    Refresh(Instant),
}

/// One of the places of uploads. Dropping it when the body is complete admits the next upload; the permit
/// itself stays valid.
#[derive(Debug)]
pub(super) struct UploadPermit {
    queue: Option<Arc<RequestQueue>>,
    taken: UploadSlot,
}

/// Resources that are returned to the queue.
#[derive(Clone, Copy)]
enum Freed {
    Nothing,
    Place(PlaceUse),
    /// By number of the upload.
    UploadPermit(u64),
    Both(u64),
}

/// The next request in line.
enum NextRequest {
    Request(oneshot::Sender<Permit>, PlaceUse),
    Upload(oneshot::Sender<(UploadPermit, Permit)>, UploadSlot),
}

impl RequestQueue {
    /// An empty queue.
    pub(super) fn new(bounds: QueueBounds) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(QueueState::new(bounds.usable())),
        })
    }

    /// Changes the limits. Permits stay valid, and waiting requests get the added places.
    pub(super) fn set_bounds(self: &Arc<Self>, bounds: QueueBounds) {
        {
            let mut state = self.state.lock();
            state.bounds = bounds.usable();
            let places = state.bounds.places;
            state.refreshing.set_places(places);
        }
        self.release(Freed::Nothing);
    }

    /// Takes a permit if a place is free. Without waiting, a request is sent even if its client has left.
    pub(super) fn try_enter(self: &Arc<Self>, urgency: &Urgency) -> Option<Permit> {
        let is_refresh = matches!(urgency, Urgency::Refresh { .. });
        let use_of = self.state.lock().take_at_once(is_refresh)?;
        Some(self.permit(use_of))
    }

    /// Waits for a permit while a client wants the response, or if it is a refresh. Dropping the future
    /// leaves the queue.
    pub(super) async fn enter(
        self: &Arc<Self>,
        urgency: &Urgency,
        audience: &Arc<Audience>,
    ) -> Result<Permit, QueueError> {
        let is_refresh = !urgency.has_clients();
        let (clients, networks) = audience.watch();
        let urgent = match urgency {
            // A quarter of its time is left for the refresh itself.
            Urgency::Refresh { left, .. } => {
                Some(Instant::now() + (*left / 4 * 3).min(LONGEST_WAIT))
            }
            Urgency::Client | Urgency::Ahead => None,
        };
        let (ticket, mut receiver, time_limit) = {
            let mut state = self.state.lock();
            let bounds = state.bounds;
            let needs_room = urgent.is_some() && networks.is_empty();
            if let Some(use_of) = state.take_at_once(needs_room) {
                return Ok(self.permit(use_of));
            }
            if networks.is_empty() && !is_refresh {
                return Err(QueueError::Left);
            }
            let (ticket, receiver) = state.join(urgency, urgent, networks)?;
            (ticket, receiver, bounds.time_limit)
        };
        let waiting = QueueTicket {
            queue: self,
            number: ticket,
        };
        // A refresh may be urgent already, and takes a free place only in its turn.
        if urgent.is_some() {
            self.release(Freed::Nothing);
        }
        let end = Instant::now() + time_limit;
        let mut alarm = std::pin::pin!(sleep_until(self.next_alarm(urgent, end)));
        loop {
            tokio::select! {
                biased;
                granted = &mut receiver => {
                    drop(waiting);
                    // The sender was dropped: the request was displaced from the lines of all its addresses.
                    let permit = granted.map_err(|_displaced| QueueError::Full)?;
                    let is_wanted = is_refresh || !audience.is_empty();
                    return if is_wanted { Ok(permit) } else { Err(QueueError::Left) };
                }
                changed = clients.changed() => {
                    if audience.is_empty() && !is_refresh {
                        return Err(QueueError::Left);
                    }
                    let (came, left): (Vec<_>, Vec<_>) =
                        changed.into_iter().partition(|it| audience.includes(*it));
                    {
                        let mut state = self.state.lock();
                        for network in came {
                            state.join_line(ticket, network);
                        }
                        for network in left {
                            state.leave_line(ticket, network);
                        }
                    }
                    // A place may be free that the limit of refreshes has kept from it; now clients wait.
                    if is_refresh {
                        self.release(Freed::Nothing);
                    }
                }
                () = &mut alarm => {
                    if alarm.deadline() == end {
                        return Err(QueueError::Full);
                    }
                    // A place may be free that the limit of refreshes has kept from it.
                    self.release(Freed::Nothing);
                    alarm.as_mut().reset(self.next_alarm(urgent, end));
                }
            }
        }
    }

    /// Waits for a permit for a request of this address whose body is still being received. After half of the
    /// timeout, an upload of another address is ended for it, if one has to give way.
    pub(super) async fn enter_upload(
        self: &Arc<Self>,
        network: Network,
    ) -> Result<(UploadPermit, Permit), QueueError> {
        let (ticket, mut receiver, time_limit) = {
            let mut state = self.state.lock();
            let bounds = state.bounds;
            if state.taken < bounds.places && state.has_share(network) {
                state.taken += 1;
                let permit = self.permit(PlaceUse::Other);
                return Ok((self.share(state.shares.take(network)), permit));
            }
            let (ticket, receiver) = state.join_uploads(network)?;
            (ticket, receiver, bounds.time_limit)
        };
        let _waiting = QueueTicket {
            queue: self,
            number: ticket,
        };
        let half = time_limit / 2;
        let granted = match timeout(half, &mut receiver).await {
            Ok(granted) => granted.ok(),
            Err(_elapsed) => {
                self.state.lock().end_upload_for(network);
                let granted = timeout(time_limit.saturating_sub(half), receiver).await;
                granted.ok().and_then(Result::ok)
            }
        };
        granted.ok_or(QueueError::Full)
    }

    /// Numbers of taken places and of waiting requests.
    pub(super) fn depth(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.taken, state.waiting.len())
    }

    /// The limit of background refreshes under way, and the number of those that wait.
    pub(super) fn refreshes(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.refreshing.limit(), state.waiting_refreshes().count())
    }

    /// Returns the next time at which a waiting request has to look, no later than `end`: a refresh looks when it becomes
    /// urgent, and when another one no longer counts.
    fn next_alarm(&self, urgent: Option<Instant>, end: Instant) -> Instant {
        let Some(urgent) = urgent else { return end };
        let now = Instant::now();
        let room = self.state.lock().refreshing.next_room(now);
        let urgent = Some(urgent).filter(|urgent| now < *urgent);
        [room, urgent].into_iter().flatten().fold(end, Instant::min)
    }

    fn permit(self: &Arc<Self>, use_of: PlaceUse) -> Permit {
        Permit {
            queue: Some(Arc::clone(self)),
            use_of,
        }
    }

    fn share(self: &Arc<Self>, taken: UploadSlot) -> UploadPermit {
        UploadPermit {
            queue: Some(Arc::clone(self)),
            taken,
        }
    }

    /// Takes resources back, and grants free places to the next in line: to more than one if the limit of refreshes has
    /// just been raised.
    fn release(self: &Arc<Self>, mut freed: Freed) {
        loop {
            let next = {
                let mut state = self.state.lock();
                state.take_back(freed);
                state.next()
            };
            // Sending wakes a task, so it is done without the lock. A request that has just left takes
            // nothing; the permit that comes back must not be released a second time by its drop.
            match next {
                None => return,
                Some(NextRequest::Request(sender, use_of)) => {
                    match sender.send(self.permit(use_of)) {
                        Ok(()) => freed = Freed::Nothing,
                        Err(mut refused) => {
                            refused.queue = None;
                            freed = Freed::Place(use_of);
                        }
                    }
                }
                Some(NextRequest::Upload(sender, taken)) => {
                    let number = taken.number;
                    match sender.send((self.share(taken), self.permit(PlaceUse::Other))) {
                        Ok(()) => freed = Freed::Nothing,
                        Err((mut share, mut refused)) => {
                            share.queue = None;
                            refused.queue = None;
                            freed = Freed::Both(number);
                        }
                    }
                }
            }
        }
    }
}

impl QueueBounds {
    /// Raises limits of zero to one, without which nothing could be sent.
    fn usable(self) -> Self {
        Self {
            places: self.places.max(1),
            uploads: self.uploads.max(1),
            ..self
        }
    }
}

impl QueueState {
    fn new(bounds: QueueBounds) -> Self {
        Self {
            bounds,
            taken: 0,
            refreshing: RefreshLimit::new(bounds.places),
            shares: UploadPermits::default(),
            tickets: 0,
            turns: 0,
            waiting: HashMap::new(),
            clients: AddressLines::default(),
            uploads: AddressLines::default(),
            uploads_waiting: 0,
            refreshes: BTreeMap::new(),
        }
    }

    /// Takes a place without waiting, if one is free for this and no other refresh waits for the same room.
    fn take_at_once(&mut self, needs_room: bool) -> Option<PlaceUse> {
        if self.taken >= self.bounds.places {
            return None;
        }
        if !needs_room {
            return Some(self.take(false));
        }
        let has_room = self.refreshes.is_empty() && self.refreshing.has_room(Instant::now());
        has_room.then(|| self.take(true))
    }

    /// Takes a place, and room in the limit of refreshes if needed.
    fn take(&mut self, needs_room: bool) -> PlaceUse {
        self.taken += 1;
        if needs_room {
            let now = Instant::now();
            self.refreshing.begin(now);
            PlaceUse::Refresh(now)
        } else {
            PlaceUse::Other
        }
    }

    fn take_back(&mut self, freed: Freed) {
        if let Freed::Place(_) | Freed::Both(_) = freed {
            self.taken -= 1;
        }
        if let Freed::Place(PlaceUse::Refresh(began)) = freed {
            let others_wait = self.waiting_refreshes().next().is_some();
            self.refreshing.end(began, Instant::now(), others_wait);
        }
        if let Freed::UploadPermit(number) | Freed::Both(number) = freed {
            self.shares.give_back(number);
        }
    }

    /// Returns the waiting refreshes that need room in their limit: no client waits for them.
    fn waiting_refreshes(&self) -> impl Iterator<Item = &QueuedRefresh> {
        let background = self.refreshes.iter().filter(|(ticket, refresh)| {
            let waiting = self.waiting.get(ticket);
            refresh.due.is_some() && waiting.is_some_and(|it| it.networks.is_empty())
        });
        background.map(|(_, refresh)| refresh)
    }

    /// Returns true if one more upload of this address may have a place.
    fn has_share(&self, network: Network) -> bool {
        self.shares.may_take(network, self.bounds.uploads)
    }

    /// Ends an upload for the first one of this address, if necessary. That counts as a turn of the address
    /// whose upload was ended.
    fn end_upload_for(&mut self, newcomer: Network) {
        if let Some(network) = self.shares.end_one_for(newcomer) {
            let turn = self.turn();
            self.uploads.go_behind(network, turn);
        }
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    /// Joins the queue. The caller has checked that no place is free for it.
    fn join(
        &mut self,
        urgency: &Urgency,
        urgent: Option<Instant>,
        networks: Vec<Network>,
    ) -> Result<(u64, oneshot::Receiver<Permit>), QueueError> {
        let (sender, receiver) = oneshot::channel();
        let QueueBounds {
            length, time_limit, ..
        } = self.bounds;
        let refresh = match urgency {
            Urgency::Client => None,
            Urgency::Refresh { demand, left } => Some(QueuedRefresh {
                demand: Arc::clone(demand),
                // Half of the remaining stale lifetime or of the queue timeout, whichever is shorter.
                due: Some(Instant::now() + (*left).min(time_limit) / 2),
                urgent,
            }),
            Urgency::Ahead => Some(QueuedRefresh {
                demand: Arc::default(),
                due: None,
                urgent: None,
            }),
        };
        match &refresh {
            None => self.make_room(&networks)?,
            Some(joining) if self.refreshes.len() >= length => self.displace_for(joining)?,
            Some(_) => {}
        }
        let ticket = self.ticket();
        self.add(ticket, PermitSender::Place(sender));
        if let Some(refresh) = refresh {
            self.refreshes.insert(ticket, refresh);
        }
        for network in networks {
            self.join_line(ticket, network);
        }
        Ok((ticket, receiver))
    }

    fn join_uploads(
        &mut self,
        network: Network,
    ) -> Result<(u64, oneshot::Receiver<(UploadPermit, Permit)>), QueueError> {
        if self.uploads_waiting >= self.bounds.length {
            let longest = self.uploads.cut_longest(network).ok_or(QueueError::Full)?;
            self.remove(longest.1);
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = self.ticket();
        self.add(ticket, PermitSender::Upload(sender));
        self.join_line(ticket, network);
        Ok((ticket, receiver))
    }

    /// Makes room for a client's request, if necessary at the cost of the longest line. A request that other
    /// addresses wait for too only leaves that line.
    fn make_room(&mut self, networks: &[Network]) -> Result<(), QueueError> {
        let shortest = networks.iter().min_by_key(|it| self.clients.length(**it));
        let newcomer = *shortest.ok_or(QueueError::Left)?;
        while self.clients_waiting() >= self.bounds.length {
            let (network, ticket) = self.clients.cut_longest(newcomer).ok_or(QueueError::Full)?;
            self.leave_line(ticket, network);
        }
        Ok(())
    }

    fn clients_waiting(&self) -> usize {
        self.waiting.len() - self.uploads_waiting - self.refreshes.len()
    }

    fn add(&mut self, ticket: u64, sender: PermitSender) {
        self.uploads_waiting += usize::from(matches!(sender, PermitSender::Upload(_)));
        let networks = BTreeSet::new();
        self.waiting
            .insert(ticket, QueuedRequest { sender, networks });
    }

    /// Adds a ticket to the line of an address.
    fn join_line(&mut self, ticket: u64, network: Network) {
        let turn = self.turn();
        let Some(waiting) = self.waiting.get_mut(&ticket) else {
            return;
        };
        waiting.networks.insert(network);
        match waiting.sender {
            PermitSender::Place(_) => self.clients.join(network, ticket, turn),
            PermitSender::Upload(_) => self.uploads.join(network, ticket, turn),
        }
    }

    /// Removes a ticket from the line of an address, and from the queue if it is in no other line and is
    /// no refresh.
    fn leave_line(&mut self, ticket: u64, network: Network) {
        self.clients.leave(network, ticket);
        let Some(waiting) = self.waiting.get_mut(&ticket) else {
            return;
        };
        waiting.networks.remove(&network);
        if waiting.networks.is_empty() && !self.refreshes.contains_key(&ticket) {
            self.remove(ticket);
        }
    }

    /// Removes a ticket from the queue.
    fn remove(&mut self, ticket: u64) -> Option<PermitSender> {
        let QueuedRequest { sender, networks } = self.waiting.remove(&ticket)?;
        self.refreshes.remove(&ticket);
        let lines = match sender {
            PermitSender::Place(_) => &mut self.clients,
            PermitSender::Upload(_) => {
                self.uploads_waiting -= 1;
                &mut self.uploads
            }
        };
        for network in networks {
            lines.leave(network, ticket);
        }
        Some(sender)
    }

    /// Displaces a waiting refresh in lower demand, unless clients wait for it.
    fn displace_for(&mut self, refresh: &QueuedRefresh) -> Result<(), QueueError> {
        let now = Instant::now();
        let has_no_clients = |ticket| {
            let waiting = self.waiting.get(ticket);
            waiting.is_none_or(|it| it.networks.is_empty())
        };
        let candidates = self
            .refreshes
            .iter()
            .rev()
            .filter(|(t, _)| has_no_clients(t));
        let lowest = candidates.min_by_key(|(_, refresh)| refresh.rank(now));
        let (&ticket, lowest) = lowest.ok_or(QueueError::Full)?;
        if lowest.rank(now) >= refresh.rank(now) {
            return Err(QueueError::Full);
        }
        self.remove(ticket);
        Ok(())
    }

    /// Takes a place for the next request, if there is one: the address whose turn it is among clients and
    /// uploads, else the refresh that is due or in most demand.
    fn next(&mut self) -> Option<NextRequest> {
        if self.taken >= self.bounds.places {
            return None;
        }
        let client = self.clients.next(|_| true);
        let upload = self.uploads.next(|network| self.has_share(network));
        let (next, needs_room) = match (client, upload) {
            (None, None) => self.next_refresh()?,
            (Some(client), Some(upload)) => (client.min(upload).2, false),
            (Some((_, _, ticket)), None) | (None, Some((_, _, ticket))) => (ticket, false),
        };
        let turn = self.turn();
        let sender = self.remove(next)?;
        let use_of = self.take(needs_room);
        Some(match sender {
            PermitSender::Place(sender) => {
                if let Some((_, network, _)) = client {
                    self.clients.go_behind(network, turn);
                }
                NextRequest::Request(sender, use_of)
            }
            PermitSender::Upload(sender) => {
                let (_, network, _) = upload?;
                self.uploads.go_behind(network, turn);
                NextRequest::Upload(sender, self.shares.take(network))
            }
        })
    }

    /// Returns the refresh or fetch ahead that is next, and whether it takes room in the limit of refreshes.
    fn next_refresh(&self) -> Option<(u64, bool)> {
        if self.refreshes.is_empty() {
            return None;
        }
        let now = Instant::now();
        let has_room = self.refreshing.has_room(now);
        // `max_by_key` returns the last of equals, but the first in line is needed.
        let waiting = self.refreshes.iter().rev();
        let may_go = waiting.filter(|(_, it)| has_room || it.is_exempt(now));
        let (ticket, first) = may_go.max_by_key(|(_, refresh)| refresh.rank(now))?;
        Some((*ticket, !first.is_exempt(now)))
    }
}

impl UploadPermit {
    /// Counts received bytes of the body.
    pub(super) fn count(&self, bytes: usize) {
        self.taken.count(bytes);
    }

    /// Resolves if the upload has to end, because another address has none.
    pub(super) fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.taken.poll_ended(cx)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.release(Freed::Place(self.use_of));
        }
    }
}

impl Drop for UploadPermit {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.release(Freed::UploadPermit(self.taken.number));
        }
    }
}

/// Leaves the queue on drop.
struct QueueTicket<'a> {
    queue: &'a RequestQueue,
    number: u64,
}

impl Drop for QueueTicket<'_> {
    fn drop(&mut self) {
        self.queue.state.lock().remove(self.number);
    }
}
