//! Taking stored responses away, such that nothing that began before brings them back.

use std::time::Duration;

use http::Method;
use microcache_policy::Fields;
use microcache_policy::invalidate;
use tokio::time::timeout;

use crate::message::{Incoming, Request};
use crate::serve::{Engine, key_of};

/// How long an unsafe request waits for what it made invalid to leave the tiers: once its answer is
/// out, neither another process nor a restart brings that back, and what is fetched next is not
/// removed with it. A tier that hangs is not waited for longer.
const REMOVAL_WAIT: Duration = Duration::from_millis(500);

impl Engine {
    /// Forgets every response of a key. A fetch under way is still given to those who wait for
    /// it, but not stored.
    pub fn purge_key(&self, key: &[u8]) {
        self.flights.purge(key, |_| self.forget(key));
    }

    /// Takes a key away wherever it lies.
    pub(crate) fn forget(&self, key: &[u8]) {
        self.memory.remove(key);
        if !self.tiers.is_empty() {
            self.purges.note(key, self.clock.now());
            self.tiers.remove(key);
        }
    }

    /// RFC 9111 §4.4: a successful unsafe request makes what is stored for its target, and for
    /// the `Location` and `Content-Location` of the same origin, invalid.
    pub(crate) async fn invalidate_after(
        &self,
        incoming: &Incoming,
        status: u16,
        response: Fields<'_>,
    ) {
        if !invalidate::invalidates(&incoming.method, status) {
            return;
        }
        self.purge_target(incoming, &incoming.target);
        for target in
            invalidate::locations(response, incoming.scheme, &incoming.host, &incoming.target)
        {
            self.purge_target(incoming, &target);
        }
        let _ = timeout(REMOVAL_WAIT, self.tiers.settle()).await;
    }

    /// A GET of the target may take another route than the request that invalidates it, and
    /// routes decide what makes up a key.
    fn purge_target(&self, incoming: &Incoming, target: &[u8]) {
        let get = Request {
            method: &Method::GET,
            target,
            ..incoming.as_request()
        };
        let key = key_of(&get, &self.route(&get).rules);
        self.purge_key(&key);
    }
}
