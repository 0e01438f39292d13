//! Activity of a connection: idle, busy or endless, for closing idle connections.

use std::sync::atomic::{AtomicU64, Ordering};

use microcache_policy::{Network, Time};

/// A request is under way.
const BUSY: u64 = u64::MAX;
/// A tunnel or an event stream is under way; neither ends by itself.
const ENDLESS: u64 = u64::MAX - 1;
/// The connection was dismissed and is about to close.
const LEAVING: u64 = u64::MAX - 2;
/// Flag of the idle states, which are times: set once a request was answered.
const ANSWERED: u64 = 1;

/// Activity of a connection in one atomic word. The connection and the connection limits both change it by
/// compare-and-swap, so that no connection is closed during a request.
#[derive(Debug)]
pub(crate) struct Activity {
    state: AtomicU64,
    /// Network of the client. Behind a proxy it is known only after the PROXY header.
    network: AtomicU64,
}

/// Activity of a connection as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionState {
    /// Waiting for a request.
    Idle {
        /// Time of the last response, or of the accept.
        since: Time,
        /// Set after the first response.
        answered: bool,
    },
    /// A request is under way, or the connection is closing.
    Busy,
    /// A tunnel or an event stream is under way.
    Endless,
}

impl Activity {
    /// Activity of a connection accepted now, from this network.
    pub(crate) fn new(now: Time, network: Network) -> Self {
        Self {
            state: AtomicU64::new(now.as_millis() << 1),
            network: AtomicU64::new(network.bits()),
        }
    }

    /// Activity of a connection that still waits for its permit.
    pub(crate) const fn awaiting_permit(network: Network) -> Self {
        Self {
            state: AtomicU64::new(BUSY),
            network: AtomicU64::new(network.bits()),
        }
    }

    /// Returns the network of the client.
    pub(crate) fn network(&self) -> Network {
        Network::from_bits(self.network.load(Ordering::Relaxed))
    }

    /// Replaces the peer's network by the client's, once the PROXY header is known.
    pub(crate) fn set_network(&self, network: Network) {
        self.network.store(network.bits(), Ordering::Relaxed);
    }

    pub(crate) fn state(&self) -> ConnectionState {
        match self.state.load(Ordering::SeqCst) {
            BUSY | LEAVING => ConnectionState::Busy,
            ENDLESS => ConnectionState::Endless,
            idle => ConnectionState::Idle {
                since: Time::from_millis(idle >> 1),
                answered: idle & ANSWERED != 0,
            },
        }
    }

    /// Records requests that were answered at once. Returns `false` if the connection was dismissed.
    pub(crate) fn answered(&self, now: Time) -> bool {
        self.change(now.as_millis() << 1 | ANSWERED)
    }

    /// Records the start of a request. Returns `false` if the connection was dismissed.
    pub(crate) fn begin(&self) -> bool {
        self.change(BUSY)
    }

    /// Records another concurrent request.
    pub(crate) fn begin_another(&self) {
        self.state.store(BUSY, Ordering::SeqCst);
    }

    /// Marks the request as a tunnel or an event stream.
    pub(crate) fn mark_endless(&self) {
        self.state.store(ENDLESS, Ordering::SeqCst);
    }

    /// Makes the connection idle once it has its permit; before, no request can begin.
    pub(crate) fn admitted(&self, now: Time) {
        self.state.store(now.as_millis() << 1, Ordering::SeqCst);
    }

    /// Records the end of the request.
    pub(crate) fn end(&self, now: Time) {
        self.state
            .store(now.as_millis() << 1 | ANSWERED, Ordering::SeqCst);
    }

    /// Dismisses an idle connection; `false` if it is not idle.
    pub(crate) fn dismiss(&self) -> bool {
        self.change(LEAVING)
    }

    /// Replaces an idle state only, by compare-and-swap.
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
    fn a_busy_connection_is_not_dismissed_and_a_dismissed_one_gets_no_request() {
        let network = |last| Network::of(std::net::IpAddr::from([10, 0, 0, last]));
        let activity = Activity::new(Time::from_millis(5), network(1));
        let idle = |since, answered| ConnectionState::Idle {
            since: Time::from_millis(since),
            answered,
        };
        assert_eq!(activity.state(), idle(5, false));
        assert!(activity.answered(Time::from_millis(6)));
        assert_eq!(activity.state(), idle(6, true));
        assert!(activity.begin());
        assert!(!activity.dismiss());
        activity.mark_endless();
        assert_eq!(activity.state(), ConnectionState::Endless);
        assert!(!activity.dismiss());
        activity.end(Time::from_millis(7));
        assert_eq!(activity.state(), idle(7, true));
        assert!(activity.dismiss());
        assert!(!activity.dismiss());
        assert!(!activity.begin());
        assert!(!activity.answered(Time::from_millis(8)));
        assert_eq!(activity.network(), network(1));
        activity.set_network(network(2));
        assert_eq!(activity.network(), network(2));
    }
}
