//! The response to a request from a stored response.

use microcache_policy::reuse::{Reuse, reuse};
use microcache_policy::status::CacheStatus;
use microcache_policy::{Detail, Lifetime, RequestFacts, Time};
use microcache_store::Hit;

use crate::body::Body;
use crate::message::{Request, Response};
use crate::outcome::Outcome;
use crate::request::engine::Engine;
use crate::request::lookup_context::LookupContext;
use crate::request::respond::{CacheStatusInputs, Reusable};

impl Engine {
    /// The response from a stored response, encoded as its route demands.
    pub(crate) fn answer_on(
        &self,
        look: &LookupContext<'_>,
        hit: Hit,
        now: Time,
        outcome: Outcome,
    ) -> Response {
        if !self.rules(look.route).compress.is_on() {
            return answer(hit, look.request, look.facts, now, outcome);
        }
        hit.count_use();
        let cache_status = status_of(&hit.lifetime(), now);
        let inputs = CacheStatusInputs {
            cache_status,
            outcome,
        };
        self.answer_encoded(look, hit, now, inputs)
    }
}

/// Returns true if a stored response is fresh, in memory, and sent as it is: the case of nearly every hit.
#[inline]
pub(crate) fn is_plain_hit(hit: &Hit, facts: &RequestFacts, now: Time) -> bool {
    let asks_for_all = !facts.is_head() && !facts.is_conditional() && facts.range().is_none();
    asks_for_all && hit.body().is_some() && reuse(&hit.lifetime(), facts, now) == Reuse::Fresh
}

/// The response from a stored response for which [`is_plain_hit`] is true: what [`answer`] returns, built in place.
#[expect(
    clippy::inline_always,
    reason = "a call would move the response, the larger part of its cost"
)]
#[inline(always)]
pub(crate) fn plain_hit(hit: Hit, now: Time) -> Response {
    // Before the use is counted, so that it need not be read from memory again.
    let lifetime = hit.lifetime();
    hit.count_use();
    Response {
        status: hit.status(),
        fields: None,
        age: Some(lifetime.age(now) / 1000),
        cache_status: status_of(&lifetime, now),
        length: Some(hit.body_len()),
        body: Body::Stored(hit),
        tunnel: None,
        outcome: Outcome::Hit,
    }
}

/// The response from a stored response.
pub(crate) fn answer(
    hit: Hit,
    request: &Request<'_>,
    facts: &RequestFacts,
    now: Time,
    outcome: Outcome,
) -> Response {
    hit.count_use();
    let cache_status = status_of(&hit.lifetime(), now);
    Reusable::stored(hit).respond(request.fields, facts, now, cache_status, outcome)
}

/// The response from an entry of the tier of this name.
pub(crate) fn answer_from(
    tier: Detail,
    hit: Hit,
    request: &Request<'_>,
    facts: &RequestFacts,
    now: Time,
) -> Response {
    let outcome = if hit.lifetime().ttl(now) > 0 {
        Outcome::Hit
    } else {
        Outcome::Stale
    };
    let mut response = answer(hit, request, facts, now, outcome);
    response.cache_status.detail = Some(tier);
    response
}

/// The `Cache-Status` parameters of a stored response.
fn status_of(lifetime: &Lifetime, now: Time) -> CacheStatus {
    CacheStatus {
        hit: true,
        ttl: Some(lifetime.ttl(now).div_euclid(1000)),
        ..CacheStatus::default()
    }
}
