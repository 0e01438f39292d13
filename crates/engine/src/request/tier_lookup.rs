//! Tier lookup: the tiers are searched before the origin is asked.

use microcache_policy::vary::{self, Selection};
use microcache_policy::{Detail, OriginView, Reuse, Time, on_error, reuse};
use microcache_store::{ClaimGuard, FetchClaim, Hit, Stored};

use crate::cache::flight::Leader;
use crate::cache::{TierHit, TierScope, TierSearch};
use crate::message::{ForwardedRequest, Request, Response};
use crate::request::claim_wait::ClaimWait;
use crate::request::engine::Engine;
use crate::request::fetch::Fetch;
use crate::request::hit_response::answer_from;
use crate::request::lookup_context::LookupContext;
use crate::request::plan::{FetchSpec, Refresh};
use crate::request::request_facts::facts_of;
use crate::request::request_key::key_of;

/// The result of a tier lookup.
pub(crate) enum TierLookup {
    /// A usable response, and the tier it comes from.
    Found(Hit, Detail),
    /// The origin has to be asked, possibly under a claim that other processes respect.
    Ask(Option<ClaimGuard>),
}

impl Engine {
    /// Searches the tiers. While another process fetches the response, searches again until it is
    /// stored or the claim has expired. A response that can be revalidated is put into `fetch`.
    /// Without an entry, the page that the application itself stores is used, if there is one.
    pub(crate) async fn look_up_tiers(&self, leader: &Leader, fetch: &mut Fetch) -> TierLookup {
        if self.cache.has_no_tiers() {
            return TierLookup::Ask(None);
        }
        let claimed = match self.look_for_record(leader, fetch).await {
            TierLookup::Ask(claimed) => claimed,
            found @ TierLookup::Found(..) => return found,
        };
        let head = &fetch.incoming.head;
        let target = self.target_of(fetch.route, leader.key(), &head.target);
        let url = (&head.host[..], &target[..]);
        let page = self.application_page(leader.key(), fetch.route, &fetch.facts, url);
        match page.await {
            Some(hit) => {
                // It is not written to the tiers, where other processes find it just as this one
                // has, so the claim is released. It was read after these rules, so they do not
                // cover it.
                leader.since().note_checked(&hit);
                self.cache.promote(leader, &hit, &self.origin_view(fetch));
                TierLookup::Found(hit, Detail::MemcachedPage)
            }
            None => TierLookup::Ask(claimed),
        }
    }

    async fn look_for_record(&self, leader: &Leader, fetch: &mut Fetch) -> TierLookup {
        let mut wait = ClaimWait::new(self.cache.claim_time());
        let mut scope = TierScope::Everywhere;
        loop {
            let request = self.origin_view(fetch);
            let turn = match self.cache.search_tiers(leader, &request, scope).await {
                TierSearch::Missing(turn) => turn,
                TierSearch::Found(found) if self.is_usable(leader, fetch, &found) => {
                    return self.promote(leader, fetch, *found);
                }
                // A shared tier may have a newer one from another process.
                TierSearch::Found(found) if !found.is_shared() => {
                    self.keep_for_validation(leader, fetch, *found);
                    scope = TierScope::InSharedTiers;
                    continue;
                }
                TierSearch::Found(found) => match self.cache.claim_renewal(&found).await {
                    FetchClaim::Granted(claimed) => {
                        wait.note_granted();
                        return self.unless_renewed(leader, fetch, *found, claimed).await;
                    }
                    turn => {
                        self.keep_for_validation(leader, fetch, *found);
                        turn
                    }
                },
            };
            match turn {
                FetchClaim::NotNeeded => return TierLookup::Ask(None),
                FetchClaim::Granted(claimed) => {
                    wait.note_granted();
                    return TierLookup::Ask(Some(claimed));
                }
                // The process that holds the claim may still store a response.
                FetchClaim::HeldElsewhere(held) => {
                    if !wait.wait(held).await {
                        return TierLookup::Ask(None);
                    }
                }
            }
        }
    }

    /// Searches once more under the claim: the previous holder may have stored its response in
    /// between.
    async fn unless_renewed(
        &self,
        leader: &Leader,
        fetch: &mut Fetch,
        found: TierHit,
        claimed: ClaimGuard,
    ) -> TierLookup {
        self.keep_for_validation(leader, fetch, found);
        let request = self.origin_view(fetch);
        let scope = TierScope::InSharedTiers;
        if let TierSearch::Found(found) = self.cache.search_tiers(leader, &request, scope).await {
            if self.is_usable(leader, fetch, &found) {
                return self.promote(leader, fetch, *found);
            }
            self.keep_for_validation(leader, fetch, *found);
        }
        TierLookup::Ask(Some(claimed))
    }

    /// Searches once more if no usable copy is known: the origin has failed, and a tier that was
    /// unreachable may have recovered.
    pub(crate) async fn look_again(&self, leader: &Leader, fetch: &mut Fetch) {
        let request = self.origin_view(fetch);
        let (facts, now) = (fetch.facts, self.clock.now());
        let is_usable = |hit: &Hit| on_error(&hit.lifetime(), &facts, now);
        if self.cache.has_no_tiers() || fetch.stored.as_ref().is_some_and(is_usable) {
            return;
        }
        if let Some(found) = self.cache.copy_in_tiers(leader.key(), &request).await {
            self.keep_for_validation(leader, fetch, found);
        }
    }

    /// The response of the nearest tier, if it is fresh and available without waiting. Others are
    /// left to [`Engine::look_up_tiers`].
    pub(crate) fn answer_without_waiting(
        &self,
        look: &LookupContext<'_>,
        now: Time,
    ) -> Option<Response> {
        let is_fresh = |stored: &Stored| {
            matches!(reuse(&stored.lifetime(), look.facts, now), Reuse::Fresh)
                && self.is_for_url(
                    look.request,
                    (look.route, look.key),
                    (stored.fields(), stored.began()),
                )
        };
        let (hit, tier) = self.cache.try_promote(look.key, look.view, is_fresh)?;
        Some(answer_from(tier, hit, look.request, look.facts, now))
    }

    /// The response of a tier to a request with `only-if-cached`.
    pub async fn answer_from_tiers(&self, request: &Request<'_>) -> Option<Response> {
        if self.cache.has_no_tiers() {
            return None;
        }
        let rules = &self.route(request).rules;
        let (facts, key) = (facts_of(request, rules), key_of(request, rules));
        let view = request.origin_view(rules);
        let found = self.cache.copy_in_tiers(&key, &view).await?;
        let (tier, hit, now) = (found.tier(), found.into_hit(), self.clock.now());
        let mut selection = Selection::new();
        vary::select(hit.vary(), &view, &mut selection);
        let is_selected = vary::answers(hit.vary(), hit.selection(), &selection, hit.fields());
        let is_usable = matches!(
            reuse(&hit.lifetime(), &facts, now),
            Reuse::Fresh | Reuse::Stale
        );
        let is_answer = is_selected && is_usable && !self.cache.is_purged(&key, &hit);
        is_answer.then(|| answer_from(tier, hit, request, &facts, now))
    }

    /// Checks whether a tier's response can be served. A response that cannot may still be
    /// revalidated.
    fn is_usable(&self, leader: &Leader, fetch: &Fetch, found: &TierHit) -> bool {
        let usable = match reuse(&found.stored().lifetime(), &fetch.facts, self.clock.now()) {
            Reuse::Fresh => true,
            // A client gets it at once and it is refreshed meanwhile; a refresh goes on to the
            // origin.
            Reuse::Stale => fetch.urgency.has_clients(),
            _ => false,
        };
        let (stored, request) = (found.stored(), fetch.incoming.as_request());
        let of_key = (fetch.route, &leader.key()[..]);
        usable
            && !found.is_purged
            && self.is_for_url(&request, of_key, (stored.fields(), stored.began()))
    }

    /// Prepares the revalidation of a stale response from a tier, unless a refresh is under way.
    /// The next request may not find it in memory and start the refresh itself: tiers can hold far
    /// more than memory.
    pub(crate) fn renewal_of(
        &self,
        hit: &Hit,
        leader: &Leader,
        fetch: &Fetch,
    ) -> Option<(Box<Refresh>, ForwardedRequest)> {
        let now = self.clock.now();
        let is_stale = matches!(reuse(&hit.lifetime(), &fetch.facts, now), Reuse::Stale);
        if !is_stale || !self.claim_refresh(hit, now) {
            return None;
        }
        let refresh = Box::new(Refresh {
            route: fetch.route,
            facts: fetch.facts,
            spec: FetchSpec {
                key: leader.key().clone(),
                selection: hit.object().selection(&self.origin_view(fetch)),
                stored: Some(hit.clone()),
            },
        });
        Some((refresh, fetch.incoming.for_renewal()))
    }

    fn keep_for_validation(&self, leader: &Leader, fetch: &mut Fetch, found: TierHit) {
        let newer = |have: &Hit| have.began() < found.stored().began();
        if fetch.stored.as_ref().is_none_or(newer) && !found.is_purged {
            let hit = found.into_hit();
            let view = self.origin_view(fetch);
            self.cache.learn(leader, hit.key_update(view.rules), &view);
            // If the origin fails, it may be served after all.
            self.cache.promote(leader, &hit, &view);
            fetch.stored = Some(hit);
        }
    }

    fn promote(&self, leader: &Leader, fetch: &Fetch, found: TierHit) -> TierLookup {
        let tier = found.tier();
        let hit = found.into_hit();
        self.cache.promote(leader, &hit, &self.origin_view(fetch));
        TierLookup::Found(hit, tier)
    }

    fn origin_view<'a>(&'a self, fetch: &'a Fetch) -> OriginView<'a> {
        fetch.incoming.origin_view(&self.routes[fetch.route].rules)
    }
}
