//! Promotion: moves a tier's entry into memory.

use std::time::Duration;

use microcache_policy::{Detail, Millis, OriginView, Rules, Time};
use microcache_store::encoding::RecordHead;
use microcache_store::{
    ApplicationPage, FetchClaim, Hit, LogPositions, Memory, Stored, TierEntry, TierReply,
    VaryRecord,
};

use super::Cache;
use super::flight::Leader;
use super::rule::{EntryNames, RuleSubject};
use super::rules::{Covered, Since};
use crate::request::divide::divided;

/// The time, in milliseconds, that a tier's record of other variants is trusted after it was
/// written.
const OTHERS_COUNT: Millis = 86_400_000;

/// The largest difference of the clocks of machines that share a tier, in milliseconds: an entry of a
/// machine that is ahead stays fresh for longer by that on the others.
const AHEAD: Millis = 2000;

/// The tiers to search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TierScope {
    /// Every tier, the nearest first.
    Everywhere,
    /// Only the tiers that other processes write to.
    InSharedTiers,
}

/// The result of a leader's search of the tiers.
pub(crate) enum TierSearch {
    Found(Box<TierHit>),
    /// No entry that the request selects, and the right to ask the origin, or the process that has
    /// it.
    Missing(FetchClaim),
}

/// An entry found in a tier.
pub(crate) struct TierHit {
    found: TierEntry,
    /// It was purged after it was stored: it may only serve for a revalidation in that tier.
    pub(crate) is_purged: bool,
}

impl TierHit {
    pub(crate) fn stored(&self) -> &Stored {
        &self.found.stored
    }

    /// The tier it comes from.
    pub(crate) fn tier(&self) -> Detail {
        Detail::Tier(self.found.tier())
    }

    /// Returns true if other processes use that tier too.
    pub(crate) fn is_shared(&self) -> bool {
        self.found.is_shared()
    }

    pub(crate) fn into_hit(self) -> Hit {
        Memory::detached_hit(self.found.stored)
    }
}

impl Cache {
    /// Returns true if there is only memory.
    pub fn has_no_tiers(&self) -> bool {
        self.tiers.is_empty()
    }

    /// The longest time that a process sharing a tier may keep the others from asking the origin.
    pub fn claim_time(&self) -> Duration {
        self.tiers.limits().claim
    }

    /// Returns a usable response that the nearest tier has without waiting, and promotes it into
    /// memory for the next hit.
    pub(crate) fn try_promote(
        &self,
        key: &[u8],
        request: &OriginView<'_>,
        is_usable: impl FnOnce(&Stored) -> bool,
    ) -> Option<(Hit, Detail)> {
        if self.tiers.is_empty() {
            return None;
        }
        let _search = self.purges.begin_search(key);
        let purges = self.flights.purges(key);
        let found = self.tiers.try_find(key, request)?;
        let tier = Detail::Tier(found.tier());
        let mut stored = found.stored;
        if self.is_tier_entry_purged(key, &mut stored) || !is_usable(&stored) {
            return None;
        }
        let hit = Memory::detached_hit(divided(stored, request.rules));
        // An open file is as near as memory.
        if hit.body().is_some() && !self.is_purged(key, &hit) {
            self.flights.unless_purged(key, purges, || {
                self.queries
                    .learn(key, hit.fields(), None, self.clock.now());
                self.put(key, hit.with_lifetime(hit.lifetime()), request);
            });
        }
        Some((hit, tier))
    }

    /// Searches the tiers for the entry that a leader's request selects.
    pub(crate) async fn search_tiers(
        &self,
        leader: &Leader,
        request: &OriginView<'_>,
        scope: TierScope,
    ) -> TierSearch {
        let _search = self.purges.begin_search(leader.key());
        let lookup = match scope {
            TierScope::Everywhere => self.tiers.find(leader.key(), request).await,
            TierScope::InSharedTiers => self.tiers.find_shared(leader.key(), request).await,
        };
        match lookup {
            TierReply::Found(found) => {
                TierSearch::Found(Box::new(self.found(leader.key(), found, request.rules)))
            }
            TierReply::Missing(turn, others) => {
                self.learn_from_others(leader, others);
                TierSearch::Missing(turn)
            }
        }
    }

    /// Searches the tiers without claiming the fetch.
    pub(crate) async fn copy_in_tiers(
        &self,
        key: &[u8],
        request: &OriginView<'_>,
    ) -> Option<TierHit> {
        let _search = self.purges.begin_search(key);
        let found = self.tiers.look(key, request).await?;
        Some(self.found(key, found, request.rules)).filter(|found| !found.is_purged)
    }

    /// Searches the shared tiers without claiming the fetch.
    pub(crate) async fn copy_in_shared_tiers(
        &self,
        key: &[u8],
        request: &OriginView<'_>,
    ) -> Option<TierHit> {
        let _search = self.purges.begin_search(key);
        let found = self.tiers.look_shared(key, request).await?;
        Some(self.found(key, found, request.rules)).filter(|found| !found.is_purged)
    }

    /// Claims the revalidation of a response found in a shared tier.
    pub(crate) async fn claim_renewal(&self, found: &TierHit) -> FetchClaim {
        self.tiers.claim_renewal(&found.found).await
    }

    /// The page that an application itself stores in a tier for this request.
    pub(crate) async fn application_page(
        &self,
        host: &[u8],
        target: &[u8],
    ) -> Option<ApplicationPage> {
        self.tiers.page(host, target).await
    }

    /// Promotes the entry that a leader has found, unless its key was purged meanwhile. If memory
    /// refuses it, it is still served.
    pub(crate) fn promote(&self, leader: &Leader, hit: &Hit, request: &OriginView<'_>) {
        leader.unless_purged(|| {
            if self.is_purged(leader.key(), hit) {
                return;
            }
            self.queries
                .learn(leader.key(), hit.fields(), None, self.clock.now());
            self.put(leader.key(), hit.with_lifetime(hit.lifetime()), request);
        });
    }

    fn found(&self, key: &[u8], mut found: TierEntry, rules: &Rules) -> TierHit {
        let is_purged = self.is_tier_entry_purged(key, &mut found.stored);
        found.stored = divided(found.stored, rules);
        TierHit { found, is_purged }
    }

    /// Checks a tier's response against all purges, by its age, and expires it if it was purged
    /// softly. It is also expired if it was fetched in the future: the clock was set back, and its
    /// age is unknown.
    fn is_tier_entry_purged(&self, key: &[u8], stored: &mut Stored) -> bool {
        let newest = self.rules.newest();
        let (at, purges_known) = (stored.began(), stored.purges_known());
        let covered = self.covered_in_tier(RuleSubject::stored(key, stored), key, at, purges_known);
        newest.note_checked(stored);
        if let Some(Covered::Soft(at)) = covered {
            stored.expire(at);
        }
        let now = self.clock.now();
        if at.since(now) > AHEAD {
            stored.expire(now);
        }
        covered == Some(Covered::Hard)
    }

    /// Checks whether an entry of a tier is purged, though not removed yet.
    pub(super) fn is_purged_in_tier(&self, head: &RecordHead) -> bool {
        let (at, purges_known) = (head.began, head.purges_known());
        self.covered_in_tier(RuleSubject::head(head), &head.key, at, purges_known)
            == Some(Covered::Hard)
    }

    /// The purge that covers an entry with this key, fetched at `at` by a process that had read the
    /// purge log up to `purges_known`.
    fn covered_in_tier(
        &self,
        held: RuleSubject<'_>,
        key: &[u8],
        at: Time,
        purges_known: LogPositions,
    ) -> Option<Covered> {
        let entry = EntryNames::new(held);
        // By a clock that is ahead: it may be older than any purge whose place in the log is not known yet.
        let is_from_future = at > self.clock.now();
        let at = if is_from_future { Time::default() } else { at };
        let by_rule = self.rules.covers(&entry, Since::Fetch { at, purges_known });
        if self.purges.covers(key, at) {
            Some(Covered::Hard)
        } else {
            by_rule
        }
    }

    /// Records the fields that other variants of the key vary on: a response that does not name
    /// them must not be served for all of them.
    fn learn_from_others(&self, leader: &Leader, others: Option<VaryRecord>) {
        let Some(others) = others else { return };
        if !leader.is_purged() && !self.purges.covers(leader.key(), others.began) {
            let until = others.began.plus(OTHERS_COUNT);
            let now = self.clock.now();
            self.memory
                .learn_vary(leader.key(), &others.names, until, now);
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use microcache_policy::Scheme;
    use microcache_store::{Clock, Tiers};

    use super::super::rule::{Scope, Strength};
    use super::super::testing::{cache, key_of, stored};

    #[test]
    fn an_entry_by_a_clock_that_is_ahead_is_covered_by_a_purge_of_now() {
        let cache = cache(Tiers::default(), Clock::start());
        let key = key_of(Scheme::Https, "a.example", "/");
        let now = cache.clock.now();
        let mut ahead = stored(&key, "Cache-Control: max-age=100", now.plus(1000));
        assert!(!cache.is_tier_entry_purged(&key, &mut ahead));
        cache.issue(Scope::Everything, Strength::Hard);
        assert!(cache.is_tier_entry_purged(&key, &mut ahead));
    }
}
