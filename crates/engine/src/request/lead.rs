//! The leader of a coalesced fetch: searches the tiers, asks the origin, judges the response, and
//! publishes the verdict.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use microcache_policy::{
    Detail, Fields, Handling, NotStorable, RequestFacts, SharedRequest, Storable, Time, VaryNames,
    add_validators, has_form_token, is_origin_failure, is_refusal, on_error, refreshed,
    same_representation, vary, withheld_names,
};
use microcache_store::{ClaimGuard, Hit, Memory};

use crate::audience::RequestClients;
use crate::body::Body;
use crate::cache::ChangeKind;
use crate::cache::fetch_outcome::{Failure, Filling};
use crate::cache::flight::Leader;
use crate::fill::FillPump;
use crate::origin::{ExchangeTimes, OriginError, OriginRequest, OriginResponse};
use crate::request::engine::Engine;
use crate::request::fetch::Fetch;
use crate::request::route::Route;
use crate::request::store_response::{complete, judge};
use crate::request::tags::hash_long_tags;
use crate::request::tier_lookup::TierLookup;
use crate::request::verdict::{Confirmation, ErrorPage, FetchFailure, Verdict};

/// The origin's answer to a fetch.
enum OriginAnswer {
    /// The stored response, confirmed by a 304.
    Confirmed(Hit, OriginResponse),
    /// A complete response.
    Whole(OriginResponse),
}

/// The part of a fetch that remains after its answer was judged.
enum Remainder {
    /// None.
    Nothing,
    /// The body, which has not been received yet.
    Body(Arc<Filling>, Body),
    /// The search for a stale copy, and the verdict.
    Failure(Box<(Fetch, FetchFailure)>),
}

impl Engine {
    /// Fetches for all waiters: searches the tiers, asks the origin, judges the response, and
    /// publishes the verdict.
    #[expect(
        clippy::manual_async_fn,
        reason = "an `async fn` stores its arguments twice"
    )]
    pub(crate) fn lead(
        self: Arc<Self>,
        leader: Leader,
        mut fetch: Fetch,
    ) -> impl Future<Output = ()> + Send {
        async move {
            // Boxed, as all that few fetches need, or none while it waits for the origin.
            let mut claimed = None;
            if !self.cache.has_no_tiers() {
                match Box::pin(self.look_up_tiers(&leader, &mut fetch)).await {
                    TierLookup::Ask(claim) => claimed = claim,
                    TierLookup::Found(hit, tier) => {
                        return self.conclude_found(leader, fetch, hit, tier);
                    }
                }
            }
            let route = &self.routes[fetch.route];
            let answer = self.fetch_once(route, &leader, &mut fetch).await;
            match self.conclude(&leader, fetch, answer, &mut claimed) {
                Remainder::Nothing => {}
                Remainder::Body(filling, body) => {
                    let pump = FillPump::new(&self, route, leader, &filling, claimed);
                    Box::pin(pump.run(body)).await;
                }
                Remainder::Failure(failed) => {
                    Box::pin(self.conclude_failed(&leader, failed)).await;
                }
            }
        }
    }

    /// Concludes with a tier's response, which is refreshed if it is stale.
    fn conclude_found(self: &Arc<Self>, leader: Leader, fetch: Fetch, hit: Hit, tier: Detail) {
        let renewal = self.renewal_of(&hit, &leader, &fetch);
        let now = self.clock.now();
        fetch.conclude(self, &leader, Verdict::Found(hit, tier), now);
        drop(leader);
        if let Some((refresh, incoming)) = renewal {
            self.refresh(refresh, incoming);
        }
    }

    /// Judges the answer, and concludes the fetch as far as that needs no waiting.
    fn conclude(
        &self,
        leader: &Leader,
        fetch: Fetch,
        answer: Result<(OriginAnswer, ExchangeTimes), OriginError>,
        claimed: &mut Option<ClaimGuard>,
    ) -> Remainder {
        match answer {
            Ok((OriginAnswer::Whole(response), times)) => {
                self.conclude_whole(leader, fetch, response, &times, claimed)
            }
            Ok((OriginAnswer::Confirmed(stored, update), times)) => {
                let claimed = claimed.take();
                self.conclude_confirmed(leader, fetch, &stored, update, &times, claimed);
                Remainder::Nothing
            }
            Err(OriginError::Left) => {
                fetch.conclude(self, leader, Verdict::Left, self.clock.now());
                Remainder::Nothing
            }
            Err(error) => failed(fetch, Failure::Origin(error), ErrorPage::Absent),
        }
    }

    /// Judges a complete response, and publishes the verdict.
    fn conclude_whole(
        &self,
        leader: &Leader,
        fetch: Fetch,
        mut response: OriginResponse,
        times: &ExchangeTimes,
        claimed: &mut Option<ClaimGuard>,
    ) -> Remainder {
        let (route, now) = (&self.routes[fetch.route], times.response);
        complete(&mut response.fields, &route.rules, now);
        let facts = fetch.facts;
        let key = leader.key();
        let judged = judge(self, route, key, &facts, &response, times);
        fetch.keep_own_cookies(&mut response.fields, &route.rules);
        let keeps_stale = |hit: &Hit| on_error(&hit.lifetime(), &facts, now);
        if is_origin_failure(response.status)
            && (judged.is_err() || fetch.stored.as_ref().is_some_and(keeps_stale))
        {
            let failure = Failure::Status(response.status);
            let page = ErrorPage::Private(response, judged.err().unwrap_or(Detail::OriginError));
            return failed(fetch, failure, page);
        }
        if is_refusal(response.status) && (fetch.stored.is_some() || judged.is_err()) {
            // This client's own fields may be the reason: the stored response stays, and the
            // waiters fetch.
            let why = judged.err().unwrap_or(Detail::Refused);
            fetch.conclude(self, leader, Verdict::Refused(response, why), now);
            return Remainder::Nothing;
        }
        match judged {
            Ok(keepable) => {
                if let Some(body) = self.body_at_once(leader, route, &response, &keepable) {
                    let (whole, claimed) = ((keepable, body), claimed.take());
                    let whole = self.store_at_once(leader, &fetch, response, whole, times, claimed);
                    fetch.conclude(self, leader, Verdict::Stored(whole), now);
                    return Remainder::Nothing;
                }
                let incoming = &fetch.incoming;
                let (copy, body) =
                    self.begin_fill(leader, route, response, keepable, incoming, times);
                let filling = Arc::clone(&copy.filling);
                let view = filling.leader_request.origin_view(&route.rules);
                self.cache
                    .learn(leader, filling.key_update(&route.rules), &view);
                // Others get a response that is marked as one client's only once its body is known.
                if filling.lifetime.is_anonymous() {
                    fetch.answer(Verdict::Storable(copy));
                } else {
                    fetch.conclude(self, leader, Verdict::Storable(copy), now);
                }
                Remainder::Body(filling, body)
            }
            Err(why) => {
                self.give_claim_up(leader, &fetch, claimed.take());
                self.conclude_private(leader, fetch, response, why, now);
                Remainder::Nothing
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
            && !is_one_clients(&fetch.facts)
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
        fetch.conclude(self, leader, verdict, now);
    }

    /// Concludes a failed fetch, with a stale copy if there is one.
    async fn conclude_failed(&self, leader: &Leader, failed: Box<(Fetch, FetchFailure)>) {
        let (mut fetch, mut failure) = *failed;
        self.look_again(leader, &mut fetch).await;
        failure.stale = fetch.stored.take().filter(|_| !leader.is_purged());
        let now = self.clock.now();
        fetch.conclude(self, leader, Verdict::Failed(failure), now);
    }

    /// Sends the coalesced request to the origin; once more if the response turns out to vary on a
    /// field that was withheld.
    async fn fetch_once(
        &self,
        route: &Route,
        leader: &Leader,
        fetch: &mut Fetch,
    ) -> Result<(OriginAnswer, ExchangeTimes), OriginError> {
        let began = self.clock.now();
        let mut stored = fetch.stored.clone().filter(|_| !fetch.incoming.anew);
        let mut known = self.known_vary(leader.key(), stored.as_ref(), began);
        let mut has_learnt = false;
        let mut sent = began;
        loop {
            let outgoing = fetch.incoming.outgoing.fields();
            let mut shared = if fetch.facts.shares_context() {
                SharedRequest::with_credentials(outgoing, &route.rules, &known)
            } else {
                SharedRequest::of(outgoing, &route.rules, &known)
            };
            fetch.withheld = !shared.withheld.is_empty();
            let mut fields = std::mem::take(&mut shared.fields);
            let conditional = stored
                .as_ref()
                .is_some_and(|hit| add_validators(hit.fields(), &mut fields));
            let (method, (body, length)) = match &fetch.incoming.content {
                None => (Method::GET, (Body::Empty, None)),
                Some(content) => {
                    content.add_fields(&mut fields);
                    (fetch.incoming.head.method.clone(), content.body())
                }
            };
            let request = OriginRequest {
                method,
                scheme: fetch.incoming.head.scheme,
                authority: fetch.incoming.head.host.clone(),
                target: self.target_of(fetch.route, leader.key(), &fetch.incoming.head.target),
                fields,
                withheld: shared.withheld.clone(),
                body,
                length,
                upgrade: false,
                takes_trailers: false,
                interim: fetch.incoming.interim.clone(),
                urgency: fetch.urgency.clone(),
                clients: RequestClients::Audience(Arc::clone(leader.audience())),
                client: None,
                route: route.id,
                span: fetch.incoming.span,
                extensions: fetch.incoming.extensions.clone(),
            };
            let mut response = route.origin.fetch(request).await?;
            let times = ExchangeTimes {
                hashed_tags: hash_long_tags(&mut response, &route.rules)?,
                ..ExchangeTimes::of(&response, began, sent, self.clock.now())
            };
            fetch.withheld = shared.explains(response.status);
            sent = times.response;
            let named = self.learn_vary(route, leader.key(), response.fields.fields(), sent);
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
        let mut merged = refreshed(
            &fetch.facts,
            stored.status(),
            stored.fields(),
            update.fields.fields(),
            times.judged(),
            &route.rules,
        );
        fetch.keep_own_cookies(&mut merged.for_one, &route.rules);
        let renewed = |fields, lifetime| {
            let renewed = self.renewed(key, stored, fields, lifetime, &view, times);
            Memory::detached_hit(renewed)
        };
        // The stored body may be one that was not scanned.
        let has_token = || stored.body().is_none_or(has_form_token);
        let storable = match merged.storable {
            Storable::Yes(lifetime) if lifetime.is_anonymous() && has_token() => {
                Storable::No(NotStorable::FormToken)
            }
            storable => storable,
        };
        let verdict = match storable {
            Storable::Yes(lifetime) => {
                if fetch.urgency.has_clients() {
                    // The origin did not have to send the body again. What replaces it takes over its uses.
                    stored.object().count_use();
                }
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
        fetch.conclude(self, leader, verdict, times.response);
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
        if !is_one_clients(&fetch.facts) {
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
                let withheld = withheld_names(&view, &self.cache.known_vary(leader.key(), now));
                self.cache.note_whole(leader.key(), &withheld, now);
            }
        }
    }

    /// The request fields that are known to select the responses of a key.
    pub(crate) fn known_vary(&self, key: &[u8], stored: Option<&Hit>, now: Time) -> VaryNames {
        let known = self.cache.known_vary(key, now);
        stored.map_or(known.clone(), |hit| known.union(hit.vary()))
    }

    /// Records the fields that a response varies on, and returns them.
    pub(crate) fn learn_vary(
        &self,
        route: &Route,
        key: &[u8],
        response: Fields<'_>,
        now: Time,
    ) -> VaryNames {
        let named = vary::of_response(response, &route.rules.vary_ignored).names();
        self.cache.note_vary(key, &named, now);
        named
    }
}

/// Returns true for a request whose credentials may be the reason for the response. Those of one user context are
/// alike.
fn is_one_clients(facts: &RequestFacts) -> bool {
    facts.handling() == Handling::Credentialed && !facts.shares_context()
}

fn failed(fetch: Fetch, failure: Failure, page: ErrorPage) -> Remainder {
    let failure = FetchFailure {
        failure,
        stale: None,
        page,
    };
    Remainder::Failure(Box::new((fetch, failure)))
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// Each miss has one.
    #[test]
    fn the_future_of_a_fetch_is_small() {
        fn size<A, B, C, Future>(_: impl FnOnce(A, B, C) -> Future) -> usize {
            size_of::<Future>()
        }
        let size = size(Engine::lead);
        assert!(size <= 1024, "{size}");
    }
}
