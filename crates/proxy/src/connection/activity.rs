//! What a connection is doing, for those who look for one that can be closed.

use std::sync::atomic::{AtomicU64, Ordering};

use microcache_policy::Time;

use microcache_policy::Network;

/// A request is under way.
const BUSY: u64 = u64::MAX;
/// A tunnel or an event stream, which has no end of its own.
const ENDLESS: u64 = u64::MAX - 1;
/// It was told to go.
const LEAVING: u64 = u64::MAX - 2;
/// Set in the others, which are times, once a request was answered.
const ANSWERED: u64 = 1;

/// What a connection is doing. The connection itself and whoever wants its place both change it, so
/// that none is taken away from under a request.
#[derive(Debug)]
pub(crate) struct Activity {
    state: AtomicU64,
    /// Whom it is a connection of. Behind a proxy that is known only when that has said so.
    network: AtomicU64,
}

/// What others see of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It waits for a request.
    Idle {
        /// Since its last answer, or since it was accepted.
        since: Time,
        /// Whether there ever was one.
        answered: bool,
    },
    /// It has a request, or is on its way out.
    Busy,
    /// It is a tunnel or an event stream.
    Endless,
}

impl Activity {
    /// Of a connection that was accepted now, from there.
    pub(crate) fn new(now: Time, network: Network) -> Self {
        Self {
            state: AtomicU64::new(now.as_millis() << 1),
            network: AtomicU64::new(network.bits()),
        }
    }

    /// Of a connection that still waits for a place.
    pub(crate) const fn standing(network: Network) -> Self {
        Self {
            state: AtomicU64::new(BUSY),
            network: AtomicU64::new(network.bits()),
        }
    }

    /// Whom it is a connection of.
    pub(crate) fn network(&self) -> Network {
        Network::from_bits(self.network.load(Ordering::Relaxed))
    }

    /// It is somebody else's than it seemed.
    pub(crate) fn belongs_to(&self, network: Network) {
        self.network.store(network.bits(), Ordering::Relaxed);
    }

    pub(crate) fn doing(&self) -> Doing {
        match self.state.load(Ordering::SeqCst) {
            BUSY | LEAVING => Doing::Busy,
            ENDLESS => Doing::Endless,
            idle => Doing::Idle {
                since: Time::from_millis(idle >> 1),
                answered: idle & ANSWERED != 0,
            },
        }
    }

    /// Requests were answered at once. Says whether the connection may go on.
    pub(crate) fn answered(&self, now: Time) -> bool {
        self.change(now.as_millis() << 1 | ANSWERED)
    }

    /// A request takes longer. Says whether it may begin.
    pub(crate) fn begin(&self) -> bool {
        self.change(BUSY)
    }

    /// Another request has begun beside others.
    pub(crate) fn goes_on(&self) {
        self.state.store(BUSY, Ordering::SeqCst);
    }

    /// The request that began has no end of its own.
    pub(crate) fn has_no_end(&self) {
        self.state.store(ENDLESS, Ordering::SeqCst);
    }

    /// The time without a place, in which no request can begin, is over.
    pub(crate) fn seated(&self, now: Time) {
        self.state.store(now.as_millis() << 1, Ordering::SeqCst);
    }

    /// The request that began has been answered.
    pub(crate) fn end(&self, now: Time) {
        self.state
            .store(now.as_millis() << 1 | ANSWERED, Ordering::SeqCst);
    }

    /// Takes a connection that waits for a request out of use; `false` if it does not wait.
    pub(crate) fn dismiss(&self) -> bool {
        self.change(LEAVING)
    }

    /// Only from one of the idle states, which nobody else may have changed meanwhile.
    fn change(&self, to: u64) -> bool {
        let from = self.state.load(Ordering::SeqCst);
        from < LEAVING
            && self
                .state
                .compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_request_is_not_dismissed_and_who_is_dismissed_gets_none() {
        let network = |last| Network::of(std::net::IpAddr::from([10, 0, 0, last]));
        let activity = Activity::new(Time::from_millis(5), network(1));
        let idle = |since, answered| Doing::Idle {
            since: Time::from_millis(since),
            answered,
        };
        assert_eq!(activity.doing(), idle(5, false));
        assert!(activity.answered(Time::from_millis(6)));
        assert_eq!(activity.doing(), idle(6, true));
        assert!(activity.begin());
        assert!(!activity.dismiss());
        activity.has_no_end();
        assert_eq!(activity.doing(), Doing::Endless);
        assert!(!activity.dismiss());
        activity.end(Time::from_millis(7));
        assert_eq!(activity.doing(), idle(7, true));
        assert!(activity.dismiss());
        assert!(!activity.dismiss());
        assert!(!activity.begin());
        assert!(!activity.answered(Time::from_millis(8)));
        assert_eq!(activity.network(), network(1));
        activity.belongs_to(network(2));
        assert_eq!(activity.network(), network(2));
    }
}
