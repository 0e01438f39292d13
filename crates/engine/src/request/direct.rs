//! Direct fetches: requests that go to the origin without coalescing.

use std::sync::Arc;

use microcache_policy::edge::EdgeMode;
use microcache_policy::request_fields::withheld_names;
use microcache_policy::{
    CacheStatus, Detail, FieldsBuf, Handling, HeadUpdate, SharedRequest, Storable, Time, Vary,
    cookies, head_update, invalidates, is_conditional_or_partial, is_origin_failure, is_refusal,
    refreshed, takes_trailers, vary,
};
use microcache_store::{Hit, Key, TagNumbers};
use tokio::time::Instant;

use crate::audience::{Audience, RequestClients};
use crate::body::Body;
use crate::cache::ChangeKind;
use crate::cache::fetch_outcome::Failure;
use crate::cache::flight::UnsharedFetch;
use crate::fill::FillPump;
use crate::message::{ForwardedRequest, Response};
use crate::origin::{
    BoxFuture, ExchangeTimes, OriginError, OriginRequest, OriginResponse, RouteId, Urgency,
};
use crate::outcome::Outcome;
use crate::request::engine::Engine;
use crate::request::failure::NoResponse;
use crate::request::plan::{DirectFetch, FetchReason};
use crate::request::respond::passed_on;
use crate::request::route::Route;
use crate::request::stale::{StaleQuery, WaitOutcome};
use crate::request::store_response::{complete, judge};
use crate::request::tags::hash_long_tags;

impl Engine {
    /// Fetches directly. If a stale copy is usable on errors, it is served once the origin takes longer than
    /// `stale_wait`.
    pub(crate) fn ask_directly(
        self: Arc<Self>,
        mut plan: Box<DirectFetch>,
        incoming: ForwardedRequest,
    ) -> BoxFuture<'static, Result<Response, NoResponse>> {
        if let Some(key) = plan.key.take() {
            let own = self.key_of_its_own(plan.why.route, &incoming.as_request(), key);
            plan.key = Some(own);
        }
        let why = &plan.why;
        let key = plan.key.as_ref().filter(|_| plan.may_have_copy);
        let has_copy = key.is_some_and(|key| {
            let query = StaleQuery {
                route: why.route,
                facts: &why.facts,
                key,
                incoming: &incoming,
                known: [None; 2],
            };
            self.newest_copy(&query, why.at).is_some()
        });
        if has_copy {
            return Box::pin(self.fetch_beside_copy(plan, incoming));
        }
        let clients = RequestClients::One(incoming.network);
        self.fetch_directly(plan, incoming, clients)
    }

    /// Fetches directly, but serves the stale copy once the origin takes longer than `stale_wait`. The fetch then
    /// continues in the background.
    async fn fetch_beside_copy(
        self: Arc<Self>,
        plan: Box<DirectFetch>,
        incoming: ForwardedRequest,
    ) -> Result<Response, NoResponse> {
        let audience = Arc::default();
        // Leaves when this future is dropped, unless the fetch continues without it.
        let seat = Audience::join(&audience, incoming.network);
        let (why, key, request) = (plan.why, plan.key.clone(), incoming.without_body());
        let clients = RequestClients::Audience(audience);
        let answer = tokio::spawn(Arc::clone(&self).fetch_directly(plan, incoming, clients));
        let copy = || {
            let query = StaleQuery {
                route: why.route,
                facts: &why.facts,
                key: key.as_ref()?,
                incoming: &request,
                known: [None; 2],
            };
            self.stale_copy(&query, Detail::OriginSlow, self.clock.now())
        };
        match self.or_stale(answer, (Instant::now(), None), copy).await {
            WaitOutcome::Done(Ok(answer)) => answer,
            WaitOutcome::Stale(response) => {
                seat.keep();
                Ok(response)
            }
            WaitOutcome::Done(Err(_)) | WaitOutcome::TooLong => {
                Err(NoResponse::new(Failure::Abandoned, why.forward))
            }
        }
    }

    /// Fetches directly. With a key the response may be stored, so the origin gets the same request
    /// as for a coalesced fetch. Range and conditional requests are sent unchanged, and their
    /// responses are never stored.
    ///
    /// Not an `async fn`, which would store its arguments twice.
    fn fetch_directly(
        self: Arc<Self>,
        mut plan: Box<DirectFetch>,
        mut incoming: ForwardedRequest,
        clients: RequestClients,
    ) -> BoxFuture<'static, Result<Response, NoResponse>> {
        Box::pin(async move {
            let why = &mut plan.why;
            let route = &self.routes[why.route];
            let began = self.clock.now();
            let key = plan.key.as_ref();
            let filling = key.filter(|_| !plan.whole);
            let mut sent = self.direct_fields(route, why, filling, &mut incoming.outgoing, began);
            // From here on a purge of the key is noticed.
            let unshared = key.filter(|_| sent.fills);
            let unshared = unshared.map(|key| self.cache.begin_unshared(key));
            let request = request(&mut incoming, &mut sent, route.id, clients.clone());
            let mut hashed_tags = TagNumbers::NONE;
            let answer = route.origin.fetch(request).await.and_then(|mut response| {
                hashed_tags = hash_long_tags(&mut response, &route.rules)?;
                Ok(response)
            });
            // Boxed, as all that follows: a rare branch must not enlarge the future of every request.
            let answer = match (failure(&answer), key) {
                (Some(failure), Some(key)) => {
                    let copied = self.stale_copy_or(answer, why, key, &incoming, failure);
                    match Box::pin(copied).await {
                        Ok(copy) => return Ok(copy),
                        Err(answer) => answer,
                    }
                }
                _ => answer,
            };
            let mut response =
                answer.map_err(|error| NoResponse::new(Failure::Origin(error), why.forward))?;
            let times = ExchangeTimes {
                hashed_tags,
                ..ExchangeTimes::of(&response, began, began, self.clock.now())
            };
            complete(&mut response.fields, &route.rules, times.response);
            if let Some(key) = key
                && self.needs_all_fields(&sent, why, key, &incoming, &response, &times)
            {
                drop((unshared, response));
                why.detail = why.detail.or(Some(Detail::Withheld));
                plan.whole = true;
                return self.fetch_directly(plan, incoming, clients).await;
            }
            if invalidates(&incoming.head.method, response.status) {
                let passed = self.pass_on_after_invalidation(why, &incoming, response);
                return Ok(Box::pin(passed).await);
            }
            Ok(self.store_or_pass_on(unshared, why, &incoming, response, &times))
        })
    }

    /// Learns from the response to a direct fetch which fields its url varies on, and whether it is shareable. Returns
    /// true if it has to be fetched once more with all fields of the client: some were withheld, and it is not
    /// shareable.
    fn needs_all_fields(
        &self,
        sent: &DirectFields,
        why: &FetchReason,
        key: &Key,
        incoming: &ForwardedRequest,
        response: &OriginResponse,
        times: &ExchangeTimes,
    ) -> bool {
        let (route, now) = (&self.routes[why.route], times.response);
        self.learn_vary(route, key, response.fields.fields(), now);
        let explains = |shared: &SharedRequest| shared.explains(response.status);
        let withholds = sent.leaves_out.as_ref().is_some_and(explains);
        let is_kept = (withholds || sent.has_credentials)
            && judge(self, route, key, &why.facts, response, times).is_ok();
        if sent.has_credentials && is_kept {
            self.cache.note_open(key, now);
        }
        let needs_all = withholds && !is_kept;
        // Later requests like this one are sent unchanged from the start.
        if needs_all && !is_refusal(response.status) && !is_origin_failure(response.status) {
            let view = incoming.origin_view(&route.rules);
            let withheld = withheld_names(&view, &self.cache.known_vary(key, now));
            self.cache.note_whole(key, &withheld, now);
        }
        needs_all
    }

    /// Selects the fields that a direct fetch sends: all of them if nothing is to be stored, or for
    /// range and conditional requests. A request with credentials also sends everything, because
    /// the response is for its client; only if the last such response was shareable are the
    /// client's own fields left out, so that this one can be stored.
    fn direct_fields(
        &self,
        route: &Route,
        why: &FetchReason,
        key: Option<&Key>,
        outgoing: &mut FieldsBuf,
        now: Time,
    ) -> DirectFields {
        let rules = &route.rules;
        let all = |outgoing, has_credentials| DirectFields {
            fields: std::mem::take(outgoing),
            fills: false,
            leaves_out: None,
            has_credentials,
        };
        let client = outgoing.fields();
        let Some(key) = key.filter(|_| !is_conditional_or_partial(client)) else {
            return all(outgoing, false);
        };
        let known = self.known_vary(key, None, now);
        let has_credentials = why.facts.handling() == Handling::Credentialed;
        let mut shared = if has_credentials {
            SharedRequest::with_credentials(client, rules, &known)
        } else {
            SharedRequest::of(client, rules, &known)
        };
        if has_credentials {
            let is_open = !shared.leaves_out() || self.cache.is_open(key, now);
            if !shared.withheld.is_empty() || !is_open {
                return all(outgoing, true);
            }
        }
        if is_for_one(route, why) {
            vary::accept_as(&mut shared.fields, client);
        }
        DirectFields {
            fields: std::mem::take(&mut shared.fields),
            fills: true,
            leaves_out: Some(shared).filter(|shared| !has_credentials && shared.may_explain()),
            has_credentials,
        }
    }

    /// Stores the response to a direct fetch if it is storable, and answers the client.
    fn store_or_pass_on(
        self: &Arc<Self>,
        unshared: Option<UnsharedFetch>,
        why: &FetchReason,
        incoming: &ForwardedRequest,
        mut response: OriginResponse,
        times: &ExchangeTimes,
    ) -> Response {
        let (route, facts) = (&self.routes[why.route], &why.facts);
        let cache_status = direct_status(why, &response);
        let Some(unshared) = unshared else {
            return passed_on(response, facts, cache_status, Outcome::Pass);
        };
        let view = incoming.origin_view(&route.rules);
        let stored = || self.cache.response(unshared.key(), &view, times.response);
        if facts.is_head() {
            if let Some(stored) = stored() {
                self.update_from_head(unshared, why, incoming, &stored, &response, times);
            }
        } else if !(is_refusal(response.status) && stored().is_some()
            || is_for_one(route, why) && response.fields.fields().contains("content-encoding"))
            && let Ok(keepable) = judge(self, route, unshared.key(), facts, &response, times)
            && let Some(leader) = unshared.lead()
        {
            keep_own_cookies(&mut response, why, incoming, route);
            let (copy, body) = self.begin_fill(&leader, route, response, keepable, incoming, times);
            let filling = Arc::clone(&copy.filling);
            let (engine, number) = (Arc::clone(self), why.route);
            tokio::spawn(async move {
                let route = &engine.routes[number];
                let pump = FillPump::new(&engine, route, leader, &filling, None);
                pump.run(body).await;
            });
            return copy.respond(
                incoming.head.fields.fields(),
                facts,
                times.response,
                cache_status,
            );
        }
        keep_own_cookies(&mut response, why, incoming, route);
        passed_on(response, facts, cache_status, Outcome::Pass)
    }

    /// Passes on the response to an unsafe request, once what it has changed is invalidated.
    async fn pass_on_after_invalidation(
        &self,
        why: &FetchReason,
        incoming: &ForwardedRequest,
        response: OriginResponse,
    ) -> Response {
        let (status, fields) = (response.status, response.fields.fields());
        self.invalidate_after(&incoming.as_request(), status, fields)
            .await;
        let cache_status = direct_status(why, &response);
        passed_on(response, &why.facts, cache_status, Outcome::Pass)
    }

    /// The response from a stale copy that is usable because the origin failed, or the origin's answer.
    async fn stale_copy_or(
        &self,
        answer: Result<OriginResponse, OriginError>,
        why: &FetchReason,
        key: &[u8],
        incoming: &ForwardedRequest,
        failure: Failure,
    ) -> Result<Response, Result<OriginResponse, OriginError>> {
        let query = StaleQuery {
            route: why.route,
            facts: &why.facts,
            key,
            incoming,
            known: [None; 2],
        };
        let detail = failure.detail();
        let copy = match self.stale_copy(&query, detail, self.clock.now()) {
            None => self.stale_copy_in_tiers(&query, detail).await,
            copy => copy,
        };
        copy.ok_or(answer)
    }

    /// Updates the stored response from a HEAD response (RFC 9111 §4.3.5). A HEAD response for one
    /// client says nothing about other clients' responses.
    fn update_from_head(
        &self,
        unshared: UnsharedFetch,
        why: &FetchReason,
        incoming: &ForwardedRequest,
        stored: &Hit,
        response: &OriginResponse,
        times: &ExchangeTimes,
    ) {
        let (route, facts) = (&self.routes[why.route], &why.facts);
        let view = incoming.origin_view(&route.rules);
        if facts.handling() != Handling::Cache
            || !self.is_of(unshared.key(), route, stored, response, times.response)
        {
            return;
        }
        let mut fields = response.fields.clone();
        if let Some(length) = response.length {
            fields.push("Content-Length", length.to_string());
        }
        let rules = &route.rules;
        let (have, new) = (stored.fields(), response.fields.fields());
        let merged = refreshed(facts, 200, have, new, times.judged(), rules);
        if matches!(merged.storable, Storable::No(why) if why.is_for_one()) {
            return;
        }
        let renewed = match head_update(stored.fields(), stored.body_len(), fields.fields(), rules)
        {
            HeadUpdate::Invalidate => stored.with_lifetime(stored.lifetime_expired(times.response)),
            HeadUpdate::Freshen(fields) => {
                let Storable::Yes(lifetime) = merged.storable else {
                    return;
                };
                let key = unshared.key();
                self.renewed(key, stored, &fields, lifetime, &view, times)
            }
        };
        if let Some(leader) = unshared.lead() {
            self.cache
                .commit(&leader, renewed, &view, None, ChangeKind::Renewed);
        }
    }

    /// Checks whether a HEAD response applies to the stored response: it has a field to compare,
    /// and both vary on the same request fields.
    fn is_of(
        &self,
        key: &[u8],
        route: &Route,
        stored: &Hit,
        response: &OriginResponse,
        now: Time,
    ) -> bool {
        let fields = response.fields.fields();
        let comparable = fields.contains("etag")
            || fields.contains("last-modified")
            || response.length.is_some();
        let named = vary::of_response(fields, &route.rules.vary_ignored);
        let same_vary =
            named != Vary::Any && self.cache.vary_of(key, &named.names(), now) == *stored.vary();
        response.status == 200 && stored.status() == 200 && comparable && same_vary
    }
}

/// The request fields that a direct fetch sends to the origin.
struct DirectFields {
    fields: FieldsBuf,
    /// The response may be stored.
    fills: bool,
    /// The request as it is shared, if what was withheld may explain the response: it may be sent once more, with all
    /// fields. `None` if it has credentials or is sent unchanged.
    leaves_out: Option<SharedRequest>,
    /// The request carries credentials; `false` as well where nothing can be stored.
    has_credentials: bool,
}

/// Leaves the client's cookies as they are where the origin did not see them.
fn keep_own_cookies(
    response: &mut OriginResponse,
    why: &FetchReason,
    incoming: &ForwardedRequest,
    route: &Route,
) {
    if why.facts.handling() != Handling::Credentialed {
        let client = incoming.head.fields.fields();
        cookies::remove_replacements(&mut response.fields, client, &route.rules);
    }
}

/// Checks whether the response is likely for one client only, on a route that compresses. The
/// origin then gets the client's own `Accept-Encoding`, and an encoded response is not stored. Where
/// tags are replaced, it has to be readable.
fn is_for_one(route: &Route, why: &FetchReason) -> bool {
    let rules = &route.rules;
    rules.compress.is_on()
        && rules.edge == EdgeMode::Off
        && !why.facts.is_head()
        && why.detail != Some(Detail::CollapseOff)
}

/// The request to the origin. Only what a second one does not need is taken from `incoming`.
fn request(
    incoming: &mut ForwardedRequest,
    sent: &mut DirectFields,
    route: RouteId,
    clients: RequestClients,
) -> OriginRequest {
    let (interim, extensions, withheld) = match &sent.leaves_out {
        Some(shared) => (
            incoming.interim.clone(),
            incoming.extensions.clone(),
            shared.withheld.clone(),
        ),
        None => (
            incoming.interim.take(),
            std::mem::take(&mut incoming.extensions),
            Vec::new(),
        ),
    };
    let mut fields = std::mem::take(&mut sent.fields);
    let (body, length) = match &incoming.content {
        None => (
            std::mem::replace(&mut incoming.body, Body::Empty),
            incoming.length.take(),
        ),
        Some(content) => {
            content.add_fields(&mut fields);
            content.body()
        }
    };
    OriginRequest {
        method: incoming.head.method.clone(),
        scheme: incoming.head.scheme,
        authority: incoming.head.host.clone(),
        target: incoming.head.target.clone(),
        fields,
        withheld,
        body,
        length,
        upgrade: incoming.head.upgrade,
        takes_trailers: takes_trailers(incoming.head.fields.fields()),
        interim,
        urgency: Urgency::Client,
        clients,
        client: incoming.client.clone(),
        route,
        span: incoming.span,
        extensions,
    }
}

fn failure(answer: &Result<OriginResponse, OriginError>) -> Option<Failure> {
    match answer {
        Ok(response) => {
            is_origin_failure(response.status).then_some(Failure::Status(response.status))
        }
        Err(error) => Some(Failure::Origin(error.clone())),
    }
}

/// The `Cache-Status` parameters of a direct fetch.
fn direct_status(why: &FetchReason, response: &OriginResponse) -> CacheStatus {
    CacheStatus {
        fwd: Some(why.forward),
        fwd_status: Some(response.status),
        detail: why.detail,
        ..CacheStatus::default()
    }
}
