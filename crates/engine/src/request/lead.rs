//! The leader of a coalesced fetch: searches the tiers, asks the origin, judges the response, and
//! publishes the verdict.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use microcache_policy::{
    Detail, Fields, Handling, NotStorable, SharedRequest, Storable, Time, VaryNames,
    add_validators, is_origin_failure, is_refusal, on_error, refreshed, same_representation, vary,
    withheld_names,
};
use microcache_store::{ClaimGuard, Hit, Memory};

use crate::body::Body;
use crate::cache::ChangeKind;
use crate::cache::flight::{Failure, Leader};
use crate::fill::FillPump;
use crate::origin::{ExchangeTimes, OriginError, OriginRequest, OriginResponse};
use crate::request::fetch::Fetch;
use crate::request::serve::{Engine, Route};
use crate::request::store_response::{complete, judge};
use crate::request::tier_lookup::TierLookup;
use crate::request::verdict::{Confirmation, ErrorPage, FetchFailure, Verdict};

/// The origin's answer to a fetch.
enum OriginAnswer {
    /// The stored response, confirmed by a 304.
    Confirmed(Hit, OriginResponse),
    /// A complete response.
    Whole(OriginResponse),
}

impl Engine {
    /// Fetches for all waiters: searches the tiers, asks the origin, judges the response, and
    /// publishes the verdict.
    pub(crate) async fn lead(self: Arc<Self>, leader: Leader, mut fetch: Fetch) {
        let claimed = match self.look_up_tiers(&leader, &mut fetch).await {
            TierLookup::Ask(claimed) => claimed,
            TierLookup::Found(hit, tier) => {
                let renewal = self.renewal_of(&hit, &leader, &fetch);
                fetch.conclude(&self, &leader, Verdict::Found(hit, tier));
                drop(leader);
                if let Some((refresh, incoming)) = renewal {
                    self.refresh(refresh, incoming);
                }
                return;
            }
        };
        let route = &self.routes[fetch.route];
        let began = self.clock.now();
        match self.fetch_once(route, &leader, &mut fetch, began).await {
            Ok((OriginAnswer::Confirmed(stored, update), times)) => {
                self.conclude_confirmed(&leader, fetch, &stored, update, &times, claimed);
            }
            Ok((OriginAnswer::Whole(response), times)) => {
                self.conclude_whole(leader, fetch, response, &times, claimed)
                    .await;
            }
            Err(OriginError::Left) => fetch.conclude(&self, &leader, Verdict::Left),
            Err(error) => {
                let failure = Failure::Origin(error);
                Box::pin(self.conclude_failed(&leader, fetch, failure, ErrorPage::Absent)).await;
            }
        }
    }

    /// Judges a complete response, and concludes the fetch.
    async fn conclude_whole(
        &self,
        leader: Leader,
        fetch: Fetch,
        mut response: OriginResponse,
        times: &ExchangeTimes,
        claimed: Option<ClaimGuard>,
    ) {
        let (route, now) = (&self.routes[fetch.route], times.response);
        complete(&mut response.fields, &route.rules, now);
        let facts = fetch.facts;
        let key = leader.key();
        let judged = judge(self, route, key, &facts, &response, times);
        let keeps_stale = |hit: &Hit| on_error(&hit.lifetime(), &facts, now);
        if is_origin_failure(response.status)
            && (judged.is_err() || fetch.stored.as_ref().is_some_and(keeps_stale))
        {
            let failure = Failure::Status(response.status);
            let page = ErrorPage::Private(response, judged.err().unwrap_or(Detail::OriginError));
            // Boxed: a rare branch must not enlarge the future of every fetch.
            return Box::pin(self.conclude_failed(&leader, fetch, failure, page)).await;
        }
        if is_refusal(response.status) && (fetch.stored.is_some() || judged.is_err()) {
            // This client's own fields may be the reason: the stored response stays, and the
            // waiters fetch.
            let why = judged.err().unwrap_or(Detail::Refused);
            return fetch.conclude(self, &leader, Verdict::Refused(response, why));
        }
        match judged {
            Ok(keepable) => {
                let incoming = &fetch.incoming;
                let (copy, body) =
                    self.begin_fill(&leader, route, response, keepable, incoming, times.began);
                let filling = Arc::clone(&copy.filling);
                let view = filling.leader_request.origin_view(&route.rules);
                self.cache
                    .learn(&leader, filling.key_update(&route.rules), &view);
                fetch.conclude(self, &leader, Verdict::Storable(copy));
                let pump = FillPump::new(self, route, leader, &filling, claimed);
                pump.run(body).await;
            }
            Err(why) => {
                self.give_claim_up(&leader, &fetch, claimed);
                self.conclude_private(&leader, fetch, response, why, now);
            }
        }
    }

    /// Releases a claim in a shared tier after the response turned out not storable. The other
    /// processes learn of it for as long as requests here are not coalesced (hit-for-miss), instead
    /// of each claiming in turn. An entry that was to be revalidated stays, and a response to
    /// credentials says nothing about other requests.
    fn give_claim_up(&self, leader: &Leader, fetch: &Fetch, claimed: Option<ClaimGuard>) {
        let lasts = Duration::from_millis(self.settings.hit_for_miss);
        if let Some(claimed) = claimed
            && fetch.stored.is_none()
            && fetch.facts.handling() != Handling::Credentialed
            && !lasts.is_zero()
        {
            let key = leader.key();
            self.cache.note_unstorable_in_tiers(key, claimed, lasts);
        }
    }

    /// Concludes with a response for the leading client only, or with the order to fetch a range of
    /// an oversized response directly.
    fn conclude_private(
        &self,
        leader: &Leader,
        fetch: Fetch,
        response: OriginResponse,
        why: Detail,
        now: Time,
    ) {
        let route = &self.routes[fetch.route];
        self.not_for_sharing(leader, &fetch, response.fields.fields(), why, now);
        if why == Detail::TooLarge {
            let view = fetch.incoming.origin_view(&route.rules);
            let until = now.plus(self.settings.remember_too_large);
            self.cache.note_too_large(leader.key(), &view, until);
        }
        let wants_part = fetch.facts.range().is_some() && fetch.incoming.head.method == Method::GET;
        let verdict = if why == Detail::TooLarge && wants_part && response.status == 200 {
            Verdict::FetchDirectly(why)
        } else {
            Verdict::Private(response, why)
        };
        fetch.conclude(self, leader, verdict);
    }

    /// Concludes a failed fetch, with a stale copy if there is one.
    async fn conclude_failed(
        &self,
        leader: &Leader,
        mut fetch: Fetch,
        failure: Failure,
        page: ErrorPage,
    ) {
        self.look_again(leader, &mut fetch).await;
        let stale = fetch.stored.take().filter(|_| !leader.is_purged());
        let failed = FetchFailure {
            failure,
            stale,
            page,
        };
        fetch.conclude(self, leader, Verdict::Failed(failed));
    }

    /// Sends the coalesced request to the origin; once more if the response turns out to vary on a
    /// field that was withheld.
    async fn fetch_once(
        &self,
        route: &Route,
        leader: &Leader,
        fetch: &mut Fetch,
        began: Time,
    ) -> Result<(OriginAnswer, ExchangeTimes), OriginError> {
        let mut stored = fetch.stored.clone().filter(|_| !fetch.incoming.anew);
        let mut known = self.known_vary(leader.key(), stored.as_ref());
        let mut has_learnt = false;
        loop {
            let outgoing = fetch.incoming.outgoing.fields();
            let shared = SharedRequest::of(outgoing, &route.rules, &known);
            fetch.withheld = !shared.withheld.is_empty();
            let mut fields = shared.fields.clone();
            let conditional = stored
                .as_ref()
                .is_some_and(|hit| add_validators(hit.fields(), &mut fields));
            let request = OriginRequest {
                method: Method::GET,
                scheme: fetch.incoming.head.scheme,
                authority: fetch.incoming.head.host.clone(),
                target: fetch.incoming.head.target.clone(),
                fields,
                withheld: shared.withheld.clone(),
                body: Body::Empty,
                length: None,
                upgrade: false,
                takes_trailers: false,
                interim: fetch.incoming.interim.clone(),
                urgency: fetch.urgency.clone(),
                audience: Arc::clone(leader.audience()),
                client: None,
                route: route.id,
                span: fetch.incoming.span,
                extensions: fetch.incoming.extensions.clone(),
            };
            let sent = self.clock.now();
            let response = route.origin.fetch(request).await?;
            let times = ExchangeTimes::of(&response, began, sent, self.clock.now());
            fetch.withheld = shared.explains(response.status);
            let named = self.learn_vary(route, leader.key(), response.fields.fields());
            if shared.lacks(&named) && !std::mem::replace(&mut has_learnt, true) {
                known = known.union(&named);
                continue;
            }
            if response.status != 304 {
                return Ok((OriginAnswer::Whole(response), times));
            }
            // A 304 to an unconditional request is invalid. One that confirms another
            // representation (RFC 9111 §4.3.4) means that the whole response has to be fetched.
            match stored.take().filter(|_| conditional) {
                None => return Err(OriginError::Malformed("304 without a condition")),
                Some(hit) if same_representation(hit.fields(), response.fields.fields()) => {
                    return Ok((OriginAnswer::Confirmed(hit, response), times));
                }
                Some(_) => {}
            }
        }
    }

    /// Concludes with the stored response that the origin has confirmed. If the confirmation
    /// forbids storing it, it answers only the leader, and the waiters fetch for themselves.
    fn conclude_confirmed(
        &self,
        leader: &Leader,
        fetch: Fetch,
        stored: &Hit,
        mut update: OriginResponse,
        times: &ExchangeTimes,
        claimed: Option<ClaimGuard>,
    ) {
        let (route, key) = (&self.routes[fetch.route], leader.key());
        complete(&mut update.fields, &route.rules, times.response);
        let view = fetch.incoming.origin_view(&route.rules);
        let merged = refreshed(
            &fetch.facts,
            stored.status(),
            stored.fields(),
            update.fields.fields(),
            times.judged(),
            &route.rules,
        );
        let renewed = |fields, lifetime| {
            let renewed = self.renewed(key, stored, fields, lifetime, &view, times.began);
            Memory::detached_hit(renewed)
        };
        let verdict = match merged.storable {
            Storable::Yes(lifetime) => {
                let confirmed = renewed(&merged.fields, lifetime);
                let for_one = if merged.for_one == merged.fields {
                    confirmed.clone()
                } else {
                    renewed(&merged.for_one, lifetime)
                };
                if confirmed.vary() != stored.vary() && confirmed.file().is_some() {
                    // A file would stay under the old selection.
                    self.cache.forget_in_tiers(key);
                }
                let copy = confirmed.with_lifetime(lifetime);
                let kind = ChangeKind::Renewed;
                let is_kept = self.cache.commit(leader, copy, &view, claimed, kind);
                Verdict::Confirmed(Confirmation {
                    stored: confirmed,
                    for_one,
                    is_kept,
                })
            }
            Storable::No(why) => {
                // A cookie concerns one client. Any other reason applies to the stored response.
                if why != NotStorable::SetCookie {
                    self.cache.forget_selected(key, stored, &view);
                }
                let (fields, why) = (merged.fields.fields(), why.detail());
                self.not_for_sharing(leader, &fetch, fields, why, times.response);
                Verdict::ConfirmedForOne(renewed(&merged.for_one, stored.lifetime()), why)
            }
        };
        fetch.conclude(self, leader, verdict);
    }

    /// Records that the response was not shareable: for the hit-for-miss time such requests are not
    /// coalesced. The stored response is removed only if the origin explicitly forbids sharing it
    /// (`private`, `no-store`); otherwise it remains usable for the other clients.
    fn not_for_sharing(
        &self,
        leader: &Leader,
        fetch: &Fetch,
        response: Fields<'_>,
        why: Detail,
        now: Time,
    ) {
        let route = &self.routes[fetch.route];
        let view = fetch.incoming.origin_view(&route.rules);
        // Credentials may be the reason, which says nothing about other clients' responses.
        if !matches!(fetch.facts.handling(), Handling::Credentialed) {
            if let Some(stored) = &fetch.stored
                && matches!(why, Detail::Private | Detail::NoStore)
            {
                self.cache.forget_selected(leader.key(), stored, &view);
            }
            let named = vary::of_response(response, &route.rules.vary_ignored).names();
            let until = now.plus(self.settings.hit_for_miss);
            self.cache
                .mark_uncacheable(leader, (named, why), &view, until);
            if fetch.withheld {
                let withheld = withheld_names(&view, &self.cache.known_vary(leader.key()));
                self.cache.note_whole(leader.key(), &withheld);
            }
        }
    }

    /// The request fields that are known to select the responses of a key.
    pub(crate) fn known_vary(&self, key: &[u8], stored: Option<&Hit>) -> VaryNames {
        let known = self.cache.known_vary(key);
        stored.map_or(known.clone(), |hit| known.union(hit.vary()))
    }

    /// Records the fields that a response varies on, and returns them.
    pub(crate) fn learn_vary(&self, route: &Route, key: &[u8], response: Fields<'_>) -> VaryNames {
        let named = vary::of_response(response, &route.rules.vary_ignored).names();
        self.cache.note_vary(key, &named);
        named
    }
}
