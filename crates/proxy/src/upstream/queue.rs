//! The bound on concurrent requests of a group, and the queue before it.
//!
//! A place that comes free is handed to the next in line; it is never up for grabs while somebody
//! waits. Whoever leaves the queue early passes on what was handed over in the same moment,
//! because the place travels as a [`Permit`], which gives itself back when it is dropped.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use microcache_engine::origin::Urgency;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A group's places and those who wait for one. Shared by all threads.
#[derive(Debug)]
pub(super) struct Queue {
    places: usize,
    /// The most waiting clients; refreshes have as many of their own, so that neither kind can
    /// keep the other out.
    length: usize,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    taken: usize,
    tickets: u64,
    clients: BTreeMap<u64, Sender>,
    refreshes: BTreeMap<u64, Refresh>,
}

type Sender = oneshot::Sender<Permit>;

#[derive(Debug)]
struct Refresh {
    demand: Arc<AtomicU32>,
    sender: Sender,
}

impl Refresh {
    fn demand(&self) -> u32 {
        self.demand.load(Ordering::Relaxed)
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

impl Queue {
    /// With so many places, room for so many waiters of each kind, who wait so long.
    pub(super) fn new(places: usize, length: usize, patience: Duration) -> Arc<Self> {
        Arc::new(Self {
            places: places.max(1),
            length,
            patience,
            state: Mutex::default(),
        })
    }

    /// Waits for a place. Dropping the future leaves the queue.
    pub(super) async fn enter(self: &Arc<Self>, urgency: &Urgency) -> Result<Permit, Full> {
        let (ticket, receiver) = {
            let mut state = self.state.lock();
            if state.taken < self.places {
                state.taken += 1;
                return Ok(self.permit());
            }
            state.join(urgency, self.length)?
        };
        let waiting = Waiting {
            queue: self,
            ticket,
        };
        let permit = timeout(self.patience, receiver).await;
        drop(waiting);
        match permit {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_displaced)) => Err(Full),
            Err(_elapsed) => Err(Full),
        }
    }

    /// How many places are taken, and how many wait for one.
    pub(super) fn depth(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.taken, state.clients.len() + state.refreshes.len())
    }

    fn permit(self: &Arc<Self>) -> Permit {
        Permit {
            queue: Some(Arc::clone(self)),
        }
    }
}

impl State {
    /// Takes a place in the queue; it is by then certain that no place is free.
    fn join(
        &mut self,
        urgency: &Urgency,
        length: usize,
    ) -> Result<(u64, oneshot::Receiver<Permit>), Full> {
        let (sender, receiver) = oneshot::channel();
        self.tickets += 1;
        let ticket = self.tickets;
        match urgency {
            Urgency::Client if self.clients.len() >= length => return Err(Full),
            Urgency::Client => {
                self.clients.insert(ticket, sender);
            }
            Urgency::Refresh(demand) => {
                let demand = Arc::clone(demand);
                let refresh = Refresh { demand, sender };
                if self.refreshes.len() >= length {
                    self.displace_colder_than(&refresh)?;
                }
                self.refreshes.insert(ticket, refresh);
            }
        }
        Ok((ticket, receiver))
    }

    /// Makes room for a refresh that is wanted more than one of those that wait.
    fn displace_colder_than(&mut self, refresh: &Refresh) -> Result<(), Full> {
        let coldest = self.refreshes.iter().rev().min_by_key(|(_, r)| r.demand());
        let (&ticket, coldest) = coldest.ok_or(Full)?;
        if coldest.demand() >= refresh.demand() {
            return Err(Full);
        }
        self.refreshes.remove(&ticket);
        Ok(())
    }

    /// Who is next: the first client, else the refresh that is wanted most, else nobody.
    fn next(&mut self) -> Option<Sender> {
        if let Some((_, sender)) = self.clients.pop_first() {
            return Some(sender);
        }
        // Of equals the last wins in `max_by_key`, and the first in line is to win.
        let hottest = self.refreshes.iter().rev().max_by_key(|(_, r)| r.demand());
        let ticket = *hottest?.0;
        self.refreshes.remove(&ticket).map(|refresh| refresh.sender)
    }

    fn leave(&mut self, ticket: u64) {
        if self.clients.remove(&ticket).is_none() {
            self.refreshes.remove(&ticket);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let Some(queue) = self.queue.take() else {
            return;
        };
        loop {
            let next = {
                let mut state = queue.state.lock();
                let next = state.next();
                if next.is_none() {
                    state.taken -= 1;
                }
                next
            };
            // Sending wakes a task, so it is done without the lock.
            match next.map(|sender| sender.send(queue.permit())) {
                None | Some(Ok(())) => return,
                // That one has just left; its permit must not come back here through its drop.
                Some(Err(mut refused)) => refused.queue = None,
            }
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

    type Entering = Pin<Box<dyn Future<Output = Result<Permit, Full>> + Send>>;

    const LONG: Duration = Duration::from_mins(1);

    fn refresh(demand: &Arc<AtomicU32>) -> Urgency {
        Urgency::Refresh(Arc::clone(demand))
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

    fn poll(entering: &mut Entering) -> Option<Result<Permit, Full>> {
        let mut cx = Context::from_waker(Waker::noop());
        match entering.as_mut().poll(&mut cx) {
            Poll::Ready(result) => Some(result),
            Poll::Pending => None,
        }
    }

    fn granted(entering: &mut Entering) -> Option<Permit> {
        poll(entering).map(|result| result.expect("a place"))
    }

    async fn taken(queue: &Arc<Queue>) -> Permit {
        queue.enter(&Urgency::Client).await.expect("a place")
    }

    #[tokio::test]
    async fn places_are_bounded_and_handed_on_in_order() {
        let queue = Queue::new(2, 10, LONG);
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
    async fn clients_go_before_refreshes_and_hot_ones_before_cold() {
        let queue = Queue::new(1, 10, LONG);
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

    #[tokio::test]
    async fn a_full_queue_refuses_each_kind_for_itself() {
        let queue = Queue::new(1, 1, LONG);
        let _place = taken(&queue).await;
        let (warm, hot) = (demand(2), demand(3));
        let mut displaced = enter(&queue, refresh(&warm));
        let _client = enter(&queue, Urgency::Client);
        assert_eq!(queue.enter(&Urgency::Client).await.err(), Some(Full));
        assert_eq!(queue.enter(&refresh(&warm)).await.err(), Some(Full));
        let _hot = enter(&queue, refresh(&hot));
        assert_eq!(poll(&mut displaced).map(Result::err), Some(Some(Full)));
        assert_eq!(queue.depth(), (1, 2));
        let closed = Queue::new(1, 0, LONG);
        let _place = taken(&closed).await;
        assert_eq!(closed.enter(&Urgency::Client).await.err(), Some(Full));
        assert_eq!(closed.enter(&refresh(&hot)).await.err(), Some(Full));
    }

    #[tokio::test]
    async fn patience_ends() {
        let queue = Queue::new(1, 1, Duration::from_millis(1));
        let place = taken(&queue).await;
        assert_eq!(queue.enter(&Urgency::Client).await.err(), Some(Full));
        assert_eq!(queue.depth(), (1, 0));
        drop(place);
        assert_eq!(queue.depth(), (0, 0));
    }

    #[tokio::test]
    async fn who_leaves_is_forgotten_and_passes_a_place_on() {
        let queue = Queue::new(1, 10, LONG);
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
        let queue = Queue::new(PLACES, THREADS, LONG);
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
