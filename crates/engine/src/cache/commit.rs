//! Commit: stores a leader's response in memory and the tiers, and records what it reveals about
//! its key.

use std::time::Duration;

use microcache_policy::vary::VaryNames;
use microcache_policy::{Detail, Millis, Network, OriginView, Time, key};
use microcache_store::{BodySpool, ClaimGuard, Hit, Key, KeyUpdate, Memory, Stored, TagNumbers};

use super::Cache;
use super::changes::ChangeKind;
use super::flight::{Leader, Role, UnsharedFetch};

impl Cache {
    /// Leads the fetch of a key and a selection, or joins the one under way.
    pub(crate) fn enter(&self, key: &Key, selection: &[u8], by: Option<Network>) -> Role {
        self.flights.enter(key, selection, by)
    }

    /// Begins a fetch that no request can join.
    pub(crate) fn begin_unshared(&self, key: &Key) -> UnsharedFetch {
        self.flights.begin_unshared(key)
    }

    /// Stores a complete response and ends the fetch, unless the key was purged since the fetch
    /// began. A purge during the commit waits for it, and then removes the entry. Returns whether
    /// the response was stored.
    pub(crate) fn commit(
        &self,
        leader: &Leader,
        stored: Stored,
        request: &OriginView<'_>,
        claimed: Option<ClaimGuard>,
        kind: ChangeKind,
    ) -> bool {
        self.commit_known(leader, stored, request, claimed, kind, true)
    }

    /// As [`Self::commit`]. `may_state_query` is false for a response that is known to state nothing about the queries
    /// of its path.
    pub(crate) fn commit_known(
        &self,
        leader: &Leader,
        stored: Stored,
        request: &OriginView<'_>,
        claimed: Option<ClaimGuard>,
        kind: ChangeKind,
        may_state_query: bool,
    ) -> bool {
        let key = leader.key();
        let stored = stored.with_purges_known(leader.purges_known());
        leader.finish(|| {
            if !self.may_commit(leader, &stored) {
                return false;
            }
            if self.tiers.is_empty() {
                let hit = self.put(key, stored, request);
                if let Some(hit) = &hit {
                    if may_state_query {
                        self.learn_query(key, hit);
                    }
                    self.changes.notify(key, hit, kind);
                }
                return hit.is_some();
            }
            let held = Memory::detached_hit(stored);
            let _ = self.put(key, held.with_lifetime(held.lifetime()), request);
            if may_state_query {
                self.learn_query(key, &held);
            }
            self.tiers.store(key, &held, claimed, self.clock.now());
            self.changes.notify(key, &held, kind);
            true
        })
    }

    /// Commits a response whose body a tier has stored while it arrived.
    pub(crate) fn commit_spooled(&self, leader: &Leader, stored: Stored, request: &OriginView<'_>) {
        let is_kept = leader.finish(|| {
            let is_current = self.may_commit(leader, &stored);
            if is_current && let Some(hit) = self.put(leader.key(), stored, request) {
                self.learn_query(leader.key(), &hit);
                self.changes.notify(leader.key(), &hit, ChangeKind::Stored);
            }
            is_current
        });
        if !is_kept {
            let _goes_on_by_itself = self.tiers.remove(leader.key());
        }
    }

    /// Opens a tier's spool for a body that is too large for memory, if a tier takes it.
    pub(crate) fn spool(&self, claimed: &mut Option<ClaimGuard>) -> Option<BodySpool> {
        self.tiers.spool(claimed)
    }

    /// Records, before the body is complete, which request fields a leader's answer varies on, so
    /// that waiters for other variants are separated.
    pub(crate) fn learn(&self, leader: &Leader, answer: KeyUpdate<'_>, request: &OriginView<'_>) {
        if answer.vary.is_empty() || leader.is_purged() {
            return;
        }
        let (key, now) = (leader.key(), self.clock.now());
        self.memory.learn(key, answer, request, now, |selection| {
            // Before any other request can know it.
            leader.select(selection);
        });
    }

    /// Marks such requests as not storable for now (hit-for-miss): until `until` they are not
    /// coalesced. `answer` holds the fields that this response varies on, and the reason it was not
    /// storable.
    pub(crate) fn mark_uncacheable(
        &self,
        leader: &Leader,
        answer: (VaryNames, Detail),
        request: &OriginView<'_>,
        until: Time,
    ) {
        let now = self.clock.now();
        self.memory
            .mark_uncacheable(leader.key(), answer, request, until, now);
    }

    /// Marks a claimed entry as unstorable for the processes that share a tier, for this time.
    pub(crate) fn note_unstorable_in_tiers(
        &self,
        key: &[u8],
        claimed: ClaimGuard,
        lasts: Duration,
    ) {
        self.tiers.mark_unstorable(key, claimed, lasts);
    }

    /// Marks the response to such a request as too large to be stored, until this time.
    pub(crate) fn note_too_large(&self, key: &[u8], request: &OriginView<'_>, until: Time) {
        self.oversized
            .note(key, &self.selection(key, request), until);
    }

    /// Clears that mark.
    pub(crate) fn forget_too_large(&self, key: &[u8], request: &OriginView<'_>) {
        if self.oversized.has_any() {
            self.oversized.forget(key, &self.selection(key, request));
        }
    }

    /// Returns false once a purge forbids storing the leader's response.
    pub(crate) fn may_keep(&self, leader: &Leader, tags: &TagNumbers) -> bool {
        !leader.is_purged() && !self.is_purged_since(leader, tags)
    }

    /// Records that the response was not shareable although these fields were withheld from the
    /// request. Requests with other values of them are not affected.
    pub(crate) fn note_whole(&self, key: &[u8], withheld: &[u8], now: Time) {
        const FOR: Millis = 60_000;
        self.whole.note(key, withheld, now.plus(FOR));
    }

    /// Records that the responses of a key to requests with credentials are shareable.
    pub(crate) fn note_open(&self, key: &[u8], now: Time) {
        const FOR: Millis = 600_000;
        self.open.note(key, &[], now.plus(FOR));
    }

    /// Records that a response to QUERY is stored under this key.
    pub(crate) fn note_queried(&self, key: &[u8], now: Time) {
        const FOR: Millis = 86_400_000;
        if let Some((_, host, path, query)) = key::url_of(key) {
            self.queried
                .note(host, &key::join_query(path, query), now.plus(FOR));
        }
    }

    /// Records that a response varies on these fields.
    pub(crate) fn note_vary(&self, key: &[u8], named: &VaryNames, now: Time) {
        self.urls.note_vary(key, named, now);
    }

    /// Returns false if a purge rule issued since the fetch began covers the leader's response.
    fn may_commit(&self, leader: &Leader, stored: &Stored) -> bool {
        let newest = self.rules.newest();
        let is_current = !self.is_purged_since(leader, stored.tags());
        if is_current {
            newest.note_checked(stored);
        }
        is_current
    }

    /// Records what a response that has just been stored states about the queries of its path.
    fn learn_query(&self, key: &[u8], stored: &Stored) {
        let (began, now) = (Some(stored.began()), self.clock.now());
        self.queries.learn(key, stored.fields(), began, now);
    }

    /// Stores a response in memory, which counts refusals.
    pub(super) fn put(&self, key: &[u8], stored: Stored, request: &OriginView<'_>) -> Option<Hit> {
        let now = self.clock.now();
        self.memory.put(key, stored, request, now).ok()
    }
}
