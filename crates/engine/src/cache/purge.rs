//! Purge: out of memory and the tiers, such that nothing that began before brings it back.

use std::time::Duration;

use microcache_policy::{OriginView, Time};
use microcache_store::{Hit, Key, Removal};
use tokio::time::timeout;

use super::Cache;

/// How long an unsafe request waits for what it made invalid to leave the tiers: once its answer is
/// out, neither another process nor a restart brings that back, and what is fetched next is not
/// removed with it. A tier that hangs is not waited for longer.
const REMOVAL_WAIT: Duration = Duration::from_millis(500);

impl Cache {
    /// Forgets every response of a key. A fetch under way is still given to those who wait for
    /// it, but not stored.
    pub fn purge_key(&self, key: &[u8]) {
        self.flights.purge(key, |_| {
            let _goes_on_by_itself = self.take_away(key);
        });
    }

    /// Purges these keys, and waits until the tiers have done so too, or for too long.
    pub(crate) async fn invalidate(&self, keys: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let unknown: Vec<_> = keys
            .into_iter()
            .filter_map(|key| self.purge_unknown(key.as_ref()))
            .collect();
        let settled = async {
            self.tiers.settle().await;
            for leaving in unknown {
                if leaving.removal.is_complete().await {
                    self.purges.withdraw(&leaving.key, leaving.noted);
                }
            }
        };
        let _ = timeout(REMOVAL_WAIT, settled).await;
    }

    /// What is stored for a request must not be used any more, wherever it lies. The fetch that has
    /// brought the news goes on.
    pub(crate) fn forget_selected(&self, key: &Key, stored: &Hit, request: &OriginView<'_>) {
        if stored.vary.is_empty() {
            let _goes_on_by_itself = self.take_away(key);
            return;
        }
        self.memory.remove_selected(key, request);
        self.tiers
            .remove_variant(key, &stored.vary, &stored.selection);
    }

    /// What the tiers have of a key is out of date in a way that writing it anew does not mend.
    pub(crate) fn forget_in_tiers(&self, key: &[u8]) {
        let _goes_on_by_itself = self.tiers.remove(key);
    }

    /// Takes a key away wherever it lies. Says whether it was in memory, and what leaves the tiers.
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
}

/// A key on its way out of the tiers.
struct Leaving {
    key: Box<[u8]>,
    noted: Time,
    removal: Removal,
}
