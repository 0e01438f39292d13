//! Direct fetches: requests that go to the origin without coalescing.

use std::sync::Arc;

use microcache_policy::request_fields::withheld_names;
use microcache_policy::{
    CacheStatus, Detail, Fields, FieldsBuf, Handling, HeadUpdate, SharedRequest, Storable, Vary,
    head_update, invalidates, is_conditional_field, is_origin_failure, is_refusal, refreshed,
    takes_trailers, vary,
};
use microcache_store::Hit;
use tokio::time::Instant;

use crate::audience::Audience;
use crate::body::Body;
use crate::cache::ChangeKind;
use crate::cache::flight::{Failure, UnsharedFetch};
use crate::fill::FillPump;
use crate::message::{Incoming, Response};
use crate::origin::{ExchangeTimes, OriginError, OriginRequest, OriginResponse, RouteId, Urgency};
use crate::outcome::Outcome;
use crate::request::failure::NoResponse;
use crate::request::respond::passed_on;
use crate::request::serve::{DirectFetch, Engine, FetchReason, Route};
use crate::request::stale::{StaleQuery, WaitOutcome};
use crate::request::store_response::{complete, judge};

impl Engine {
    /// Fetches directly, but serves a stale copy that is usable on errors once the origin takes
    /// longer than `stale_wait`. The fetch then continues in the background.
    pub(crate) async fn fetch_directly_or_stale(
        self: Arc<Self>,
        question: DirectFetch,
        incoming: Incoming,
    ) -> Result<Response, NoResponse> {
        let audience = Arc::default();
        // Leaves when this future is dropped, unless the fetch continues without it.
        let seat = Audience::join(&audience, incoming.network);
        let Some(key) = &question.key else {
            return self.fetch_directly(question, incoming, audience).await;
        };
        let (why, key, request) = (question.why, key.clone(), incoming.without_body());
        let query = StaleQuery {
            route: why.route,
            facts: &why.facts,
            key: &key,
            incoming: &request,
            known: [None; 2],
        };
        if self.stale_copy(&query, Detail::OriginSlow).is_none() {
            return self.fetch_directly(question, incoming, audience).await;
        }
        let answer = tokio::spawn(Arc::clone(&self).fetch_directly(question, incoming, audience));
        let copy = || self.stale_copy(&query, Detail::OriginSlow);
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
    pub(crate) async fn fetch_directly(
        self: Arc<Self>,
        question: DirectFetch,
        mut incoming: Incoming,
        audience: Arc<Audience>,
    ) -> Result<Response, NoResponse> {
        let DirectFetch { why, key, whole } = question;
        let route = &self.routes[why.route];
        let began = self.clock.now();
        let client = std::mem::take(&mut incoming.outgoing);
        let filling = key.as_ref().filter(|_| !whole);
        let sent = self.direct_fields(route, &why, filling.map(|key| &key[..]), client.fields());
        let again = sent.leaves_out.as_ref().map(|_| incoming.again(client));
        let mut request = request(&mut incoming, sent.fields, route.id, Arc::clone(&audience));
        if let Some(shared) = &sent.leaves_out {
            request.withheld.clone_from(&shared.withheld);
        }
        // From here on a purge of the key is noticed.
        let unshared = key.as_ref().filter(|_| sent.fills);
        let unshared = unshared.map(|key| self.cache.begin_unshared(key));
        let answer = route.origin.fetch(request).await;
        if let Some(failure) = failure(&answer)
            && let Some(key) = &key
            // Boxed: a rare branch must not enlarge the future of every request.
            && let Some(copy) = Box::pin(self.stale_copy_on_failure(&why, key, &incoming, &failure)).await
        {
            return Ok(copy);
        }
        let mut response = match answer {
            Ok(response) => response,
            Err(error) => {
                return Err(NoResponse::new(Failure::Origin(error), why.forward));
            }
        };
        let times = ExchangeTimes::of(&response, began, began, self.clock.now());
        complete(&mut response.fields, &route.rules, times.response);
        if let Some(key) = &key {
            self.learn_vary(route, key, response.fields.fields());
            let explains = |shared: &SharedRequest| shared.explains(response.status);
            let withholds = sent.leaves_out.as_ref().is_some_and(explains);
            let is_kept = (withholds || sent.has_credentials)
                && judge(&self, route, key, &why.facts, &response, &times).is_ok();
            if sent.has_credentials && is_kept {
                self.cache.note_open(key);
            }
            if let Some(again) = again.filter(|_| withholds && !is_kept) {
                // Later requests like this one are sent unchanged from the start.
                if !is_refusal(response.status) && !is_origin_failure(response.status) {
                    let view = incoming.origin_view(&route.rules);
                    let withheld = withheld_names(&view, &self.cache.known_vary(key));
                    self.cache.note_whole(key, &withheld);
                }
                drop((unshared, response));
                let why = FetchReason {
                    detail: why.detail.or(Some(Detail::Withheld)),
                    ..why
                };
                let key = Some(key.clone());
                let question = DirectFetch {
                    why,
                    key,
                    whole: true,
                };
                return Box::pin(self.fetch_directly(question, again, audience)).await;
            }
        }
        let (status, fields) = (response.status, response.fields.fields());
        if invalidates(&incoming.head.method, status) {
            let request = incoming.as_request();
            Box::pin(self.invalidate_after(&request, status, fields)).await;
        }

        let Some(unshared) = unshared else {
            let cache_status = direct_status(&why, &response);
            return Ok(passed_on(response, &why.facts, cache_status, Outcome::Pass));
        };
        Ok(self.store_or_pass_on(unshared, &why, &incoming, response, &times))
    }

    /// Selects the fields that a direct fetch sends: all of them if nothing is to be stored, or for
    /// range and conditional requests. A request with credentials also sends everything, because
    /// the response is for its client; only if the last such response was shareable are the
    /// client's own fields left out, so that this one can be stored.
    fn direct_fields(
        &self,
        route: &Route,
        why: &FetchReason,
        key: Option<&[u8]>,
        client: Fields<'_>,
    ) -> DirectFields {
        let rules = &route.rules;
        let all = |has_credentials| DirectFields {
            fields: client.iter().collect(),
            fills: false,
            leaves_out: None,
            has_credentials,
        };
        let Some(key) = key.filter(|_| !asks_for_less(client)) else {
            return all(false);
        };
        let known = self.known_vary(key, None);
        let has_credentials = why.facts.handling() == Handling::Credentialed;
        let mut shared = if has_credentials {
            SharedRequest::with_credentials(client, rules, &known)
        } else {
            SharedRequest::of(client, rules, &known)
        };
        if has_credentials {
            let is_open = !shared.leaves_out() || self.cache.is_open(key);
            if !shared.withheld.is_empty() || !is_open {
                return all(true);
            }
        }
        if is_for_one(route, why) {
            vary::accept_as(&mut shared.fields, client);
        }
        DirectFields {
            fields: std::mem::take(&mut shared.fields),
            fills: true,
            leaves_out: Some(shared).filter(|_| !has_credentials),
            has_credentials,
        }
    }

    /// Stores the response to a direct fetch if it is storable, and answers the client.
    fn store_or_pass_on(
        self: &Arc<Self>,
        unshared: UnsharedFetch,
        why: &FetchReason,
        incoming: &Incoming,
        response: OriginResponse,
        times: &ExchangeTimes,
    ) -> Response {
        let (route, facts) = (&self.routes[why.route], &why.facts);
        let cache_status = direct_status(why, &response);
        let view = incoming.origin_view(&route.rules);
        let stored = self.cache.response(unshared.key(), &view);
        if facts.is_head() {
            if let Some(stored) = stored {
                self.update_from_head(unshared, why, incoming, &stored, &response, times);
            }
        } else if !(is_refusal(response.status) && stored.is_some()
            || is_for_one(route, why) && response.fields.fields().contains("content-encoding"))
            && let Ok(keepable) = judge(self, route, unshared.key(), facts, &response, times)
            && let Some(leader) = unshared.lead()
        {
            let (copy, body) =
                self.begin_fill(&leader, route, response, keepable, incoming, times.began);
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
        passed_on(response, facts, cache_status, Outcome::Pass)
    }

    /// The response from a stale copy that is usable because the origin failed.
    async fn stale_copy_on_failure(
        &self,
        why: &FetchReason,
        key: &[u8],
        incoming: &Incoming,
        failure: &Failure,
    ) -> Option<Response> {
        let query = StaleQuery {
            route: why.route,
            facts: &why.facts,
            key,
            incoming,
            known: [None; 2],
        };
        match self.stale_copy(&query, failure.detail()) {
            Some(response) => Some(response),
            None => self.stale_copy_in_tiers(&query, failure.detail()).await,
        }
    }

    /// Updates the stored response from a HEAD response (RFC 9111 §4.3.5). A HEAD response for one
    /// client says nothing about other clients' responses.
    fn update_from_head(
        &self,
        unshared: UnsharedFetch,
        why: &FetchReason,
        incoming: &Incoming,
        stored: &Hit,
        response: &OriginResponse,
        times: &ExchangeTimes,
    ) {
        let (route, facts) = (&self.routes[why.route], &why.facts);
        let view = incoming.origin_view(&route.rules);
        if facts.handling() != Handling::Cache
            || !self.is_of(unshared.key(), route, stored, response)
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
            HeadUpdate::Invalidate => {
                let mut lifetime = stored.lifetime();
                lifetime.expire(times.response);
                stored.with_lifetime(lifetime)
            }
            HeadUpdate::Freshen(fields) => {
                let Storable::Yes(lifetime) = merged.storable else {
                    return;
                };
                let key = unshared.key();
                self.renewed(key, stored, &fields, lifetime, &view, times.began)
            }
        };
        if let Some(leader) = unshared.lead() {
            self.cache
                .commit(&leader, renewed, &view, None, ChangeKind::Renewed);
        }
    }

    /// Checks whether a HEAD response applies to the stored response: it has a field to compare,
    /// and both vary on the same request fields.
    fn is_of(&self, key: &[u8], route: &Route, stored: &Hit, response: &OriginResponse) -> bool {
        let fields = response.fields.fields();
        let comparable = fields.contains("etag")
            || fields.contains("last-modified")
            || response.length.is_some();
        let named = vary::of_response(fields, &route.rules.vary_ignored);
        let same_vary =
            named != Vary::Any && self.cache.vary_of(key, &named.names()) == *stored.vary();
        response.status == 200 && stored.status() == 200 && comparable && same_vary
    }
}

/// The request fields that a direct fetch sends to the origin.
struct DirectFields {
    fields: FieldsBuf,
    /// The response may be stored.
    fills: bool,
    /// The request as it is shared, with the client's own fields withheld; `None` if it has credentials or is
    /// sent unchanged.
    leaves_out: Option<SharedRequest>,
    /// The request carries credentials; `false` as well where nothing can be stored.
    has_credentials: bool,
}

/// Checks whether the response is likely for one client only, on a route that compresses. The
/// origin then gets the client's own `Accept-Encoding`, and an encoded response is not stored.
fn is_for_one(route: &Route, why: &FetchReason) -> bool {
    route.rules.compress.is_on() && !why.facts.is_head() && why.detail != Some(Detail::CollapseOff)
}

fn request(
    incoming: &mut Incoming,
    fields: FieldsBuf,
    route: RouteId,
    audience: Arc<Audience>,
) -> OriginRequest {
    OriginRequest {
        method: incoming.head.method.clone(),
        scheme: incoming.head.scheme,
        authority: incoming.head.host.clone(),
        target: incoming.head.target.clone(),
        fields,
        withheld: Vec::new(),
        body: std::mem::replace(&mut incoming.body, Body::Empty),
        length: incoming.length,
        upgrade: incoming.head.upgrade,
        takes_trailers: takes_trailers(incoming.head.fields.fields()),
        interim: incoming.interim.take(),
        urgency: Urgency::Client,
        audience,
        client: incoming.client.clone(),
        route,
        span: incoming.span,
        extensions: std::mem::take(&mut incoming.extensions),
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

/// Checks for a range or conditional request.
fn asks_for_less(fields: Fields<'_>) -> bool {
    fields
        .lines()
        .any(|line| is_conditional_field(line.field_name()))
}
