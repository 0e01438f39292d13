//! The clients that wait for one response of the origin, by their addresses.
//!
//! A coalesced fetch has one or more, which come and go while it waits in the origin's queue. The
//! queue watches them: the fetch takes its turn with any of their addresses, and is not sent once
//! the last one has left.

use std::collections::{BTreeMap, HashSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use microcache_policy::Network;

use crate::holdings::Holdings;
use crate::sync::Mutex;

/// The clients that wait for one response.
#[derive(Debug, Default)]
pub struct Audience {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// A client without others beside it when it came, as most are: it needs no map.
    first: Option<Member>,
    others: BTreeMap<u64, Member>,
    by_address: Holdings,
    last: u64,
    /// Set while a watcher is registered.
    watch: Option<Watch>,
}

#[derive(Debug)]
struct Member {
    number: u64,
    network: Network,
    gives_way: bool,
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Watch {
    /// The addresses of clients that have joined or left.
    changed: HashSet<Network>,
    waker: Option<Waker>,
}

/// The clients of a request to the origin.
#[derive(Clone, Debug)]
pub enum RequestClients {
    /// One, which never leaves: its request is cancelled by dropping it. Needs no memory of its own.
    One(Network),
    /// Those that wait for a shared response.
    Audience(Arc<Audience>),
}

impl RequestClients {
    /// The address of one of them; `None` if all have left.
    pub fn network(&self) -> Option<Network> {
        match self {
            Self::One(network) => Some(*network),
            Self::Audience(audience) => audience.networks().pop(),
        }
    }

    /// The audience to watch while the request waits.
    pub fn audience(&self) -> Arc<Audience> {
        match self {
            Self::One(network) => Audience::of(*network),
            Self::Audience(audience) => Arc::clone(audience),
        }
    }
}

/// A client's membership in an [`Audience`]; it leaves on drop.
#[derive(Debug)]
pub struct Seat {
    /// `None` once the membership is permanent.
    audience: Option<Arc<Audience>>,
    number: u64,
}

impl Audience {
    /// An audience of one client, which never leaves: a request with a single client is cancelled
    /// by dropping it.
    pub fn of(network: Network) -> Arc<Self> {
        let mut state = State::default();
        state.add(network);
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Adds a client.
    pub fn join(self: &Arc<Self>, network: Network) -> Seat {
        let mut state = self.state.lock();
        let number = state.add(network);
        let waker = state.changed(network);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Seat {
            audience: Some(Arc::clone(self)),
            number,
        }
    }

    /// Returns true once all clients have left.
    pub fn is_empty(&self) -> bool {
        self.state.lock().is_empty()
    }

    /// The number of clients at an address.
    pub fn count(&self, network: Network) -> usize {
        self.state.lock().by_address.count(network)
    }

    /// Checks for a client at this address.
    pub fn includes(&self, network: Network) -> bool {
        self.count(network) > 0
    }

    /// All addresses.
    pub fn networks(&self) -> Vec<Network> {
        self.state.lock().by_address.networks().collect()
    }

    /// Checks for a client at another address than this one.
    pub(crate) fn has_others_than(&self, network: Network) -> bool {
        let state = self.state.lock();
        state.by_address.networks().any(|other| other != network)
    }

    /// Displaces the newest client of the address with most, in favour of `newcomer`. Returns false
    /// if no address has more.
    pub(crate) fn make_room(&self, newcomer: Network) -> bool {
        let mut state = self.state.lock();
        let Some((_, number)) = state.by_address.newest_beyond(newcomer) else {
            return false;
        };
        let waker = state.displace(number);
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    /// Displaces all clients.
    pub(crate) fn displace_all(&self) {
        let mut state = self.state.lock();
        let first = state.first.as_ref().map(|first| first.number);
        let numbers: Vec<_> = first
            .into_iter()
            .chain(state.others.keys().copied())
            .collect();
        let wakers: Vec<_> = numbers
            .into_iter()
            .filter_map(|number| state.displace(number))
            .collect();
        drop(state);
        crate::sync::wake(wakers);
    }

    /// Wakes all clients: there may be a copy that stands in for the response.
    pub(crate) fn wake_all(&self) {
        let mut state = self.state.lock();
        let State { first, others, .. } = &mut *state;
        let members = first.iter_mut().chain(others.values_mut());
        let wakers: Vec<_> = members.filter_map(|member| member.waker.take()).collect();
        drop(state);
        crate::sync::wake(wakers);
    }

    /// Starts watching the audience and returns the present addresses. There is at most one
    /// watcher.
    pub fn watch(self: &Arc<Self>) -> (Watching, Vec<Network>) {
        let mut state = self.state.lock();
        state.watch = Some(Watch::default());
        let networks = state.by_address.networks().collect();
        (Watching(Arc::clone(self)), networks)
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.first.is_none() && self.others.is_empty()
    }

    /// Adds a client, and returns its number.
    fn add(&mut self, network: Network) -> u64 {
        self.last += 1;
        let number = self.last;
        let member = Member {
            number,
            network,
            gives_way: false,
            waker: None,
        };
        if self.is_empty() {
            self.first = Some(member);
        } else {
            self.others.insert(number, member);
        }
        self.by_address.add(network, number);
        number
    }

    fn member(&mut self, number: u64) -> Option<&mut Member> {
        match &mut self.first {
            Some(first) if first.number == number => Some(first),
            _ => self.others.get_mut(&number),
        }
    }

    /// Displaces a client. It no longer counts, though it has not left yet.
    fn displace(&mut self, number: u64) -> Option<Waker> {
        let member = self.member(number)?;
        member.gives_way = true;
        let (network, waker) = (member.network, member.waker.take());
        self.by_address.remove(network, number);
        waker
    }

    fn leave(&mut self, number: u64) -> Option<Waker> {
        let first = self.first.take_if(|first| first.number == number);
        let member = first.or_else(|| self.others.remove(&number))?;
        self.by_address.remove(member.network, number);
        self.changed(member.network)
    }

    /// Records that a client of an address has joined or left.
    fn changed(&mut self, network: Network) -> Option<Waker> {
        let watch = self.watch.as_mut()?;
        watch.changed.insert(network);
        watch.waker.take()
    }
}

/// A watch on an [`Audience`]; ended on drop.
#[derive(Debug)]
pub struct Watching(Arc<Audience>);

impl Watching {
    /// Waits until clients join or leave, and returns their addresses.
    pub async fn changed(&self) -> HashSet<Network> {
        poll_fn(|cx| {
            let mut state = self.0.state.lock();
            let Some(watch) = &mut state.watch else {
                return Poll::Pending;
            };
            if watch.changed.is_empty() {
                watch.waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(std::mem::take(&mut watch.changed))
        })
        .await
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.state.lock().watch = None;
    }
}

impl Seat {
    /// Makes the membership permanent: the client has its response, and the fetch is to continue as
    /// if it still waited.
    pub fn keep(mut self) {
        self.audience = None;
    }

    /// Resolves if the client is displaced by others.
    pub(crate) fn poll_gives_way(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(audience) = &self.audience else {
            return Poll::Pending;
        };
        match audience.state.lock().member(self.number) {
            Some(member) if !member.gives_way => {
                match &mut member.waker {
                    Some(known) => known.clone_from(cx.waker()),
                    vacant => *vacant = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(audience) = self.audience.take() else {
            return;
        };
        let waker = audience.state.lock().leave(self.number);
        waker.into_iter().for_each(Waker::wake);
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    const A: Network = Network::from_bits(1);
    const B: Network = Network::from_bits(2);

    fn gives_way(seat: &Seat) -> bool {
        let mut cx = Context::from_waker(Waker::noop());
        seat.poll_gives_way(&mut cx).is_ready()
    }

    #[test]
    fn the_newest_of_the_address_with_most_gives_way() {
        let audience = Arc::new(Audience::default());
        let first = audience.join(A);
        let second = audience.join(A);
        assert!(!audience.make_room(A) && audience.make_room(B));
        assert!(!gives_way(&first) && gives_way(&second));
        assert_eq!(audience.count(A), 1, "it counts no more");
        assert!(!audience.make_room(B), "there is as much of each");
        assert!(!audience.has_others_than(A));
        audience.displace_all();
        assert!(gives_way(&first) && !audience.is_empty());
        drop((first, second));
        assert!(audience.is_empty());
    }

    #[tokio::test]
    async fn joining_and_leaving_are_counted() {
        let audience = Arc::new(Audience::default());
        let first = audience.join(A);
        let (watching, networks) = audience.watch();
        assert_eq!(networks, [A]);
        let second = audience.join(B);
        drop(first);
        assert_eq!(watching.changed().await, HashSet::from([A, B]));
        assert!(audience.includes(B) && !audience.includes(A));
        let left = tokio::spawn(async move { watching.changed().await });
        tokio::task::yield_now().await;
        drop(second);
        assert_eq!(left.await.expect("it was woken"), HashSet::from([B]));
        assert!(audience.is_empty());
        audience.join(A).keep();
        assert!(audience.includes(A), "it is kept after it was dropped");
    }
}
