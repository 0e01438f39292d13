//! The bound on concurrent requests of a group, and the queue before it.
//!
//! A place that comes free is handed to the next in line; it is never up for grabs while somebody
//! waits for it. Whoever leaves the queue early passes on what was handed over in the same moment,
//! because the place travels as a [`Permit`], which gives itself back when it is dropped.
//!
//! A request whose body is still on its way keeps its place for as long as its client likes. So
//! only some of the places are for such uploads, and what they have of those is a [`Share`].

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use microcache_engine::origin::Urgency;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

/// A group's places and those who wait for one. Shared by all threads.
#[derive(Debug)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
}

/// How many may be with a group, and wait for that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct QueueBounds {
    pub(super) places: usize,
    /// The most places that uploads have.
    pub(super) uploads: usize,
    /// The most waiting clients; uploads and refreshes have as many of their own, so that no kind
    /// can keep the others out.
    pub(super) length: usize,
    /// How long they wait.
    pub(super) patience: Duration,
}

#[derive(Debug, Default)]
struct QueueState {
    bounds: QueueBounds,
    taken: usize,
    /// Those of the taken places that uploads have.
    uploads_taken: usize,
    tickets: u64,
    clients: BTreeMap<u64, oneshot::Sender<Permit>>,
    uploads: BTreeMap<u64, oneshot::Sender<(Share, Permit)>>,
    refreshes: BTreeMap<u64, Refresh>,
}

#[derive(Debug)]
struct Refresh {
    demand: Arc<AtomicU32>,
    /// From then on it goes before those that are only wanted more: the copy that it is to renew
    /// is in use, and soon could not be any more.
    due: Instant,
    sender: oneshot::Sender<Permit>,
}

impl Refresh {
    /// The greater goes first.
    fn rank(&self, now: Instant) -> (bool, u32) {
        (self.due <= now, self.demand.load(Ordering::Relaxed))
    }
}

/// There was no place in time, or no room to wait for one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// A place. Dropping it hands it on.
#[derive(Debug)]
pub(super) struct Permit {
    /// Empty once the place has been handed on.
    queue: Option<Arc<Queue>>,
}

/// One of the places that uploads may have. Dropping it, when the body is there, lets the next
/// upload have one; the place itself stays with its permit.
#[derive(Debug)]
pub(super) struct Share {
    queue: Option<Arc<Queue>>,
}

/// Who is next.
enum Next {
    Request(oneshot::Sender<Permit>),
    Upload(oneshot::Sender<(Share, Permit)>),
}

impl Queue {
    /// Nobody is with the group, and nobody waits.
    pub(super) fn new(bounds: QueueBounds) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(QueueState {
                bounds: bounds.usable(),
                ..QueueState::default()
            }),
        })
    }

    /// Other bounds from now on. Who has a place keeps it, and who waits gets what there is more.
    pub(super) fn rebound(self: &Arc<Self>, bounds: QueueBounds) {
        let waiting = {
            let mut state = self.state.lock();
            state.bounds = bounds.usable();
            state.waiting()
        };
        for _ in 0..waiting {
            self.release(|_| {});
        }
    }

    /// Waits for a place. Dropping the future leaves the queue.
    pub(super) async fn enter(self: &Arc<Self>, urgency: &Urgency) -> Result<Permit, Full> {
        let (ticket, receiver, patience) = {
            let mut state = self.state.lock();
            let QueueBounds {
                places, patience, ..
            } = state.bounds;
            if state.taken < places {
                state.taken += 1;
                return Ok(self.permit());
            }
            let (ticket, receiver) = state.join(urgency)?;
            (ticket, receiver, patience)
        };
        self.wait(ticket, receiver, patience).await
    }

    /// Waits for a place for a request whose body is not there yet.
    pub(super) async fn enter_upload(self: &Arc<Self>) -> Result<(Share, Permit), Full> {
        let (ticket, receiver, patience) = {
            let mut state = self.state.lock();
            let QueueBounds {
                places,
                uploads,
                patience,
                ..
            } = state.bounds;
            if state.taken < places && state.uploads_taken < uploads {
                state.taken += 1;
                state.uploads_taken += 1;
                return Ok((self.share(), self.permit()));
            }
            let (ticket, receiver) = state.join_uploads()?;
            (ticket, receiver, patience)
        };
        self.wait(ticket, receiver, patience).await
    }

    async fn wait<T>(
        &self,
        ticket: u64,
        receiver: oneshot::Receiver<T>,
        patience: Duration,
    ) -> Result<T, Full> {
        let waiting = Waiting {
            queue: self,
            ticket,
        };
        let granted = timeout(patience, receiver).await;
        drop(waiting);
        match granted {
            Ok(Ok(granted)) => Ok(granted),
            Ok(Err(_displaced)) => Err(Full),
            Err(_elapsed) => Err(Full),
        }
    }

    /// How many places are taken, and how many wait for one.
    pub(super) fn depth(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.taken, state.waiting())
    }

    fn permit(self: &Arc<Self>) -> Permit {
        Permit {
            queue: Some(Arc::clone(self)),
        }
    }

    fn share(self: &Arc<Self>) -> Share {
        Share {
            queue: Some(Arc::clone(self)),
        }
    }

    /// Gives something back, and hands what is free then to the next in line.
    fn release(self: &Arc<Self>, mut give_back: fn(&mut QueueState)) {
        loop {
            let next = {
                let mut state = self.state.lock();
                give_back(&mut state);
                state.next()
            };
            // Sending wakes a task, so it is done without the lock. Who has just left takes
            // nothing; what comes back must not come back here through its drop as well.
            match next {
                None => return,
                Some(Next::Request(sender)) => match sender.send(self.permit()) {
                    Ok(()) => return,
                    Err(mut refused) => {
                        refused.queue = None;
                        give_back = QueueState::free_place;
                    }
                },
                Some(Next::Upload(sender)) => match sender.send((self.share(), self.permit())) {
                    Ok(()) => return,
                    Err((mut share, mut refused)) => {
                        share.queue = None;
                        refused.queue = None;
                        give_back = |state| {
                            state.free_place();
                            state.free_share();
                        };
                    }
                },
            }
        }
    }
}

impl QueueBounds {
    /// With none of either, nothing would ever go on.
    fn usable(self) -> Self {
        Self {
            places: self.places.max(1),
            uploads: self.uploads.max(1),
            ..self
        }
    }
}

impl QueueState {
    fn waiting(&self) -> usize {
        self.clients.len() + self.uploads.len() + self.refreshes.len()
    }

    fn free_place(&mut self) {
        self.taken -= 1;
    }

    fn free_share(&mut self) {
        self.uploads_taken -= 1;
    }

    fn ticket(&mut self) -> u64 {
        self.tickets += 1;
        self.tickets
    }

    /// Takes a place in the queue; it is by then certain that no place is free.
    fn join(&mut self, urgency: &Urgency) -> Result<(u64, oneshot::Receiver<Permit>), Full> {
        let (sender, receiver) = oneshot::channel();
        let ticket = self.ticket();
        let QueueBounds {
            length, patience, ..
        } = self.bounds;
        match urgency {
            Urgency::Client if self.clients.len() >= length => return Err(Full),
            Urgency::Client => {
                self.clients.insert(ticket, sender);
            }
            Urgency::Refresh { demand, left } => {
                let refresh = Refresh {
                    demand: Arc::clone(demand),
                    // Whichever ends first: the copy, or this wait.
                    due: Instant::now() + (*left).min(patience) / 2,
                    sender,
                };
                if self.refreshes.len() >= length {
                    self.displace_for(&refresh)?;
                }
                self.refreshes.insert(ticket, refresh);
            }
        }
        Ok((ticket, receiver))
    }

    fn join_uploads(&mut self) -> Result<(u64, oneshot::Receiver<(Share, Permit)>), Full> {
        if self.uploads.len() >= self.bounds.length {
            return Err(Full);
        }
        let (sender, receiver) = oneshot::channel();
        let ticket = self.ticket();
        self.uploads.insert(ticket, sender);
        Ok((ticket, receiver))
    }

    /// Makes room for a refresh that is wanted more than one of those that wait.
    fn displace_for(&mut self, refresh: &Refresh) -> Result<(), Full> {
        let now = Instant::now();
        let lowest = self.refreshes.iter().rev().min_by_key(|(_, r)| r.rank(now));
        let (&ticket, lowest) = lowest.ok_or(Full)?;
        if lowest.rank(now) >= refresh.rank(now) {
            return Err(Full);
        }
        self.refreshes.remove(&ticket);
        Ok(())
    }

    /// Takes a place for whoever is next, if there is one: the first of clients and uploads, else
    /// the refresh that is due or wanted most, else nobody.
    fn next(&mut self) -> Option<Next> {
        if self.taken >= self.bounds.places {
            return None;
        }
        let client = self.clients.first_key_value().map(|(&ticket, _)| ticket);
        let upload = self.uploads.first_key_value().map(|(&ticket, _)| ticket);
        let upload = upload.filter(|_| self.uploads_taken < self.bounds.uploads);
        let next = match (client, upload) {
            (None, None) => Next::Request(self.next_refresh()?),
            (None, Some(upload)) => self.take_upload(upload)?,
            (Some(client), Some(upload)) if upload < client => self.take_upload(upload)?,
            (Some(_), _) => Next::Request(self.clients.pop_first()?.1),
        };
        self.taken += 1;
        Some(next)
    }

    fn take_upload(&mut self, ticket: u64) -> Option<Next> {
        let sender = self.uploads.remove(&ticket)?;
        self.uploads_taken += 1;
        Some(Next::Upload(sender))
    }

    fn next_refresh(&mut self) -> Option<oneshot::Sender<Permit>> {
        if self.refreshes.is_empty() {
            return None;
        }
        let now = Instant::now();
        // Of equals the last wins in `max_by_key`, and the first in line is to win.
        let first = self.refreshes.iter().rev().max_by_key(|(_, r)| r.rank(now));
        let ticket = *first?.0;
        self.refreshes.remove(&ticket).map(|refresh| refresh.sender)
    }

    fn leave(&mut self, ticket: u64) {
        if self.clients.remove(&ticket).is_none() && self.uploads.remove(&ticket).is_none() {
            self.refreshes.remove(&ticket);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.release(QueueState::free_place);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.release(QueueState::free_share);
        }
    }
}

/// Leaves the queue when the wait is over, one way or another.
struct Waiting<'a> {
    queue: &'a Queue,
    ticket: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.queue.state.lock().leave(self.ticket);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::Pin;
    use std::sync::atomic::AtomicUsize;
    use std::task::{Context, Poll, Waker};

    type Entering<T = Permit> = Pin<Box<dyn Future<Output = Result<T, Full>> + Send>>;

    const LONG: Duration = Duration::from_mins(1);

    fn bounds(places: usize, uploads: usize, length: usize, patience: Duration) -> QueueBounds {
        QueueBounds {
            places,
            uploads,
            length,
            patience,
        }
    }

    fn queue(places: usize, uploads: usize, length: usize, patience: Duration) -> Arc<Queue> {
        Queue::new(bounds(places, uploads, length, patience))
    }

    fn refresh(demand: &Arc<AtomicU32>) -> Urgency {
        refresh_within(demand, LONG)
    }

    /// A refresh of a copy that can be used for so long yet.
    fn refresh_within(demand: &Arc<AtomicU32>, left: Duration) -> Urgency {
        Urgency::Refresh {
            demand: Arc::clone(demand),
            left,
        }
    }

    fn demand(n: u32) -> Arc<AtomicU32> {
        Arc::new(AtomicU32::new(n))
    }

    /// Begins to wait: the queue knows of it when this returns.
    fn enter(queue: &Arc<Queue>, urgency: Urgency) -> Entering {
        let queue = Arc::clone(queue);
        let mut entering: Entering = Box::pin(async move { queue.enter(&urgency).await });
        assert!(poll(&mut entering).is_none(), "there should be no place");
        entering
    }

    /// The same for an upload.
    fn enter_upload(queue: &Arc<Queue>) -> Entering<(Share, Permit)> {
        let queue = Arc::clone(queue);
        let mut entering: Entering<_> = Box::pin(async move { queue.enter_upload().await });
        assert!(poll(&mut entering).is_none(), "there should be no place");
        entering
    }

    fn poll<T>(entering: &mut Entering<T>) -> Option<Result<T, Full>> {
        let mut cx = Context::from_waker(Waker::noop());
        match entering.as_mut().poll(&mut cx) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    fn granted<T>(entering: &mut Entering<T>) -> Option<T> {
        poll(entering).map(|result| result.expect("a place"))
    }

    async fn taken(queue: &Arc<Queue>) -> Permit {
        queue.enter(&Urgency::Client).await.expect("a place")
    }

    #[tokio::test]
    async fn places_are_bounded_and_handed_on_in_order() {
        let queue = queue(2, 2, 10, LONG);
        let (one, two) = (taken(&queue).await, taken(&queue).await);
        let mut first = enter(&queue, Urgency::Client);
        let mut second = enter(&queue, Urgency::Client);
        assert_eq!(queue.depth(), (2, 2));
        drop(one);
        assert!(poll(&mut second).is_none());
        let three = granted(&mut first).expect("first come, first served");
        drop(two);
        let four = granted(&mut second).expect("the next");
        assert_eq!(queue.depth(), (2, 0));
        drop((three, four));
        assert_eq!(queue.depth(), (0, 0));
    }

    #[tokio::test]
    async fn other_bounds_hold_at_once_and_take_no_place_away() {
        let queue = queue(2, 1, 1, LONG);
        let (one, two) = (taken(&queue).await, taken(&queue).await);
        let mut first = enter(&queue, Urgency::Client);
        queue.rebound(bounds(1, 1, 2, LONG));
        let mut second = enter(&queue, Urgency::Client);
        drop(one);
        assert!(poll(&mut first).is_none(), "there was one place too many");
        queue.rebound(bounds(3, 1, 2, LONG));
        let places = (granted(&mut first), granted(&mut second));
        assert!(places.0.is_some() && places.1.is_some());
        assert_eq!(queue.depth(), (3, 0));
        drop((two, places));
        assert_eq!(queue.depth(), (0, 0));
    }

    #[tokio::test]
    async fn clients_go_before_refreshes_and_hot_ones_before_cold() {
        let queue = queue(1, 1, 10, LONG);
        let place = taken(&queue).await;
        let (cold, hot) = (demand(5), demand(1));
        let mut cold_refresh = enter(&queue, refresh(&cold));
        let mut hot_refresh = enter(&queue, refresh(&hot));
        let mut equal_refresh = enter(&queue, refresh(&cold));
        let mut client = enter(&queue, Urgency::Client);
        // What counts is the demand when a place comes free.
        hot.store(9, Ordering::Relaxed);
        drop(place);
        let place = granted(&mut client).expect("the client is first");
        assert!(poll(&mut hot_refresh).is_none());
        drop(place);
        assert!(poll(&mut cold_refresh).is_none());
        drop(granted(&mut hot_refresh).expect("the hot refresh"));
        assert!(poll(&mut equal_refresh).is_none());
        drop(granted(&mut cold_refresh).expect("the one that came first"));
        drop(granted(&mut equal_refresh).expect("the last"));
        assert_eq!(queue.depth(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn what_would_expire_in_use_goes_before_what_is_merely_hot() {
        let second = Duration::from_secs(1);
        let queue = queue(1, 1, 10, 10 * second);
        let mut place = taken(&queue).await;
        let (cold, hot) = (demand(1), demand(1000));
        let mut waiting = vec![
            enter(&queue, refresh_within(&cold, 100 * second)),
            enter(&queue, refresh_within(&cold, 4 * second)),
        ];
        let mut renewed = Vec::new();
        // Hot pages keep coming, and each fetch takes a second.
        for seconds in 1..=6 {
            let mut next = enter(&queue, refresh(&hot));
            tokio::time::advance(second).await;
            drop(place);
            let due = waiting.iter_mut().enumerate();
            let due: Vec<_> = due
                .filter_map(|(n, cold)| Some((n, granted(cold)?)))
                .collect();
            place = match due.into_iter().next() {
                None => granted(&mut next).expect("the hot one: nothing is due"),
                Some((number, granted)) => {
                    drop(waiting.remove(number));
                    renewed.push((seconds, number));
                    granted
                }
            };
        }
        // Half of the copy's time, or of the time that a refresh waits.
        assert_eq!(renewed, [(2, 1), (5, 0)]);
    }

    #[tokio::test]
    async fn uploads_have_some_of_the_places_and_their_own_line() {
        let queue = queue(3, 2, 1, LONG);
        let (share, place) = queue.enter_upload().await.expect("a place");
        let (second_share, second) = queue.enter_upload().await.expect("another");
        let mut upload = enter_upload(&queue);
        assert_eq!(queue.enter_upload().await.err(), Some(Full));
        let third = taken(&queue).await;
        let mut client = enter(&queue, Urgency::Client);
        assert_eq!(queue.depth(), (3, 2));
        drop(third);
        drop(granted(&mut client).expect("the upload's turn, but not its places"));
        assert_eq!(queue.depth(), (2, 1));
        // The body of one is there, and a place is free.
        drop(share);
        let third = granted(&mut upload).expect("the next upload");
        assert_eq!(queue.depth(), (3, 0));
        let mut upload = enter_upload(&queue);
        drop((place, second));
        assert!(
            poll(&mut upload).is_none(),
            "two bodies are still on their way"
        );
        drop(second_share);
        drop(granted(&mut upload).expect("a share"));
        drop(third);
        assert_eq!(queue.depth(), (0, 0));
    }

    #[tokio::test]
    async fn an_upload_that_leaves_passes_place_and_share_on() {
        let queue = queue(1, 1, 10, LONG);
        let first = queue.enter_upload().await.expect("a place");
        let granted_but_gone = enter_upload(&queue);
        let mut next = enter_upload(&queue);
        let mut client = enter(&queue, Urgency::Client);
        drop(first);
        drop(granted_but_gone);
        assert!(poll(&mut client).is_none());
        drop(granted(&mut next).expect("both were passed on"));
        drop(granted(&mut client).expect("the place"));
        assert_eq!(queue.depth(), (0, 0));
    }

    #[tokio::test]
    async fn a_full_queue_refuses_each_kind_for_itself() {
        let queue = queue(1, 1, 1, LONG);
        let _place = taken(&queue).await;
        let (warm, hot) = (demand(2), demand(3));
        let mut displaced = enter(&queue, refresh(&warm));
        let _client = enter(&queue, Urgency::Client);
        assert_eq!(queue.enter(&Urgency::Client).await.err(), Some(Full));
        assert_eq!(queue.enter(&refresh(&warm)).await.err(), Some(Full));
        let _hot = enter(&queue, refresh(&hot));
        assert_eq!(poll(&mut displaced).map(Result::err), Some(Some(Full)));
        assert_eq!(queue.depth(), (1, 2));
        let closed = Queue::new(bounds(1, 1, 0, LONG));
        let _place = taken(&closed).await;
        assert_eq!(closed.enter(&Urgency::Client).await.err(), Some(Full));
        assert_eq!(closed.enter(&refresh(&hot)).await.err(), Some(Full));
    }

    #[tokio::test]
    async fn patience_ends() {
        let queue = queue(1, 1, 1, Duration::from_millis(1));
        let place = taken(&queue).await;
        assert_eq!(queue.enter(&Urgency::Client).await.err(), Some(Full));
        assert_eq!(queue.depth(), (1, 0));
        drop(place);
        assert_eq!(queue.depth(), (0, 0));
    }

    #[tokio::test]
    async fn who_leaves_is_forgotten_and_passes_a_place_on() {
        let queue = queue(1, 1, 10, LONG);
        let place = taken(&queue).await;
        let gone = enter(&queue, Urgency::Client);
        let granted_but_gone = enter(&queue, Urgency::Client);
        let mut patient = enter(&queue, refresh(&demand(0)));
        drop(gone);
        assert_eq!(queue.depth(), (1, 2));
        drop(place);
        assert!(poll(&mut patient).is_none());
        drop(granted_but_gone);
        let place = granted(&mut patient).expect("the place was passed on");
        assert_eq!(queue.depth(), (1, 0));
        drop(place);
        assert_eq!(queue.depth(), (0, 0));
    }

    #[test]
    fn threads_never_take_more_places_than_there_are_and_none_waits_for_ever() {
        const THREADS: usize = 8;
        const ROUNDS: usize = 500;
        const PLACES: usize = 3;
        let queue = queue(PLACES, PLACES, THREADS, LONG);
        let inside = AtomicUsize::new(0);
        let served = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (queue, inside, served) = (&queue, &inside, &served);
                scope.spawn(move || {
                    let runtime = tokio::runtime::Builder::new_current_thread()
                        .enable_time()
                        .build()
                        .expect("a runtime");
                    runtime.block_on(async {
                        for round in 0..ROUNDS {
                            let urgency = match (thread + round) % 3 {
                                0 => refresh(&demand(1)),
                                _ => Urgency::Client,
                            };
                            if round % 7 == thread % 7 {
                                // Leaves at once, wherever it stands by then.
                                tokio::select! {
                                    biased;
                                    permit = queue.enter(&urgency) => drop(permit),
                                    () = tokio::task::yield_now() => {}
                                }
                                continue;
                            }
                            let permit = queue.enter(&urgency).await.expect("a place");
                            assert!(inside.fetch_add(1, Ordering::SeqCst) < PLACES);
                            tokio::task::yield_now().await;
                            inside.fetch_sub(1, Ordering::SeqCst);
                            served.fetch_add(1, Ordering::SeqCst);
                            drop(permit);
                        }
                    });
                });
            }
        });
        assert_eq!(queue.depth(), (0, 0));
        let left: usize = (0..THREADS)
            .map(|thread| (0..ROUNDS).filter(|round| round % 7 == thread % 7).count())
            .sum();
        assert_eq!(served.load(Ordering::SeqCst), THREADS * ROUNDS - left);
    }
}
