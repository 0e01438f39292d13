//! Taking stored responses away, such that nothing that began before brings them back.

use std::time::Duration;

use http::Method;
use microcache_policy::{Fields, Time, invalidate};
use microcache_store::Removal;
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
        let _goes_on_by_itself = self.take_away(key);
    }

    /// The same. Says whether it was in memory, and what leaves the tiers.
    fn take_away(&self, key: &[u8]) -> (bool, Option<Leaving>) {
        let was_there = self.memory.remove(key);
        let leaving = (!self.tiers.is_empty()).then(|| {
            let noted = self.clock.now();
            self.purges.note(key, noted);
            let removal = self.tiers.remove(key);
            Leaving {
                key: key.into(),
                noted,
                removal,
            }
        });
        (was_there, leaving)
    }

    /// Purges a key. Gives what leaves the tiers if nothing here knows of the key: once it is gone,
    /// that need not be remembered. Anybody can send requests for urls that do not exist.
    fn purge_unknown(&self, key: &[u8]) -> Option<Leaving> {
        let mut unknown = None;
        self.flights.purge(key, |is_fetched| {
            let (was_there, leaving) = self.take_away(key);
            unknown = leaving.filter(|_| !was_there && !is_fetched);
        });
        unknown
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
        let mut unknown = vec![self.purge_target(incoming, &incoming.target)];
        for target in
            invalidate::locations(response, incoming.scheme, &incoming.host, &incoming.target)
        {
            unknown.push(self.purge_target(incoming, &target));
        }
        let settled = async {
            self.tiers.settle().await;
            for leaving in unknown.into_iter().flatten() {
                if leaving.removal.is_complete().await {
                    self.purges.withdraw(&leaving.key, leaving.noted);
                }
            }
        };
        let _ = timeout(REMOVAL_WAIT, settled).await;
    }

    /// A GET of the target may take another route than the request that invalidates it, and
    /// routes decide what makes up a key.
    fn purge_target(&self, incoming: &Incoming, target: &[u8]) -> Option<Leaving> {
        let get = Request {
            method: &Method::GET,
            target,
            ..incoming.as_request()
        };
        let key = key_of(&get, &self.route(&get).rules);
        self.purge_unknown(&key)
    }
}

/// A key on its way out of the tiers.
struct Leaving {
    key: Box<[u8]>,
    noted: Time,
    removal: Removal,
}
