//! The facts of a request, and the handling that follows from them before any lookup.

use http::Method;
use microcache_policy::request::{Handling, PassReason, fragment_fields};
use microcache_policy::status::Forward;
use microcache_policy::{Detail, RequestFacts, Rules};

use crate::message::Request;
use crate::request::engine::Engine;
use crate::request::lookup_context::LookupContext;
use crate::request::request_key::key_of;
use crate::request::route::{Bypass, Route};

/// The handling of a request before any lookup.
pub(crate) enum RequestMode {
    /// Passed to the origin without a lookup.
    Pass(Forward, Option<Detail>),
    /// Looked up, but not coalesced.
    Direct,
    /// Looked up and coalesced.
    Coalesced,
}

impl Engine {
    /// The facts of a request on its route. A request for a page fragment is cacheable if its url's
    /// responses are known to vary on the fields that mark it.
    #[expect(
        clippy::inline_always,
        reason = "a hit pays for the call, which others make only now and then"
    )]
    #[inline(always)]
    pub(crate) fn facts_on(&self, route: &Route, request: &Request<'_>) -> RequestFacts {
        let mut facts = facts_of(request, &route.rules);
        if facts.handling() == Handling::Pass(PassReason::Fragment) {
            facts = self.fragment_facts(route, request, facts);
        }
        facts
    }

    #[cold]
    fn fragment_facts(
        &self,
        route: &Route,
        request: &Request<'_>,
        facts: RequestFacts,
    ) -> RequestFacts {
        let known = self
            .cache
            .known_vary(&key_of(request, &route.rules), self.clock.now());
        let mut fields = fragment_fields(request.fields, &route.rules);
        let is_known = |name: &[u8]| {
            let mut known = known.iter();
            known.any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
        };
        if fields.all(is_known) {
            facts.distinguishing_fragments()
        } else {
            facts
        }
    }

    /// The facts of a request for which the origin is asked.
    pub(crate) fn facts_of_fetch(&self, look: &LookupContext<'_>) -> RequestFacts {
        // The content of a QUERY chooses the response, as a query does.
        if look.request.content.is_some() {
            return *look.facts;
        }
        look.facts
            .of_target(look.request.target, self.rules(look.route))
    }
}

/// The handling of a request with these facts.
#[inline]
pub(crate) fn mode_of(route: &Route, bypass: Option<Bypass>, facts: &RequestFacts) -> RequestMode {
    if route.pass || bypass.is_some() {
        return RequestMode::Pass(Forward::Bypass, bypass.and_then(Bypass::detail));
    }
    match facts.handling() {
        Handling::Pass(why) => RequestMode::Pass(forward(why), Some(why.detail())),
        Handling::Credentialed if facts.shares_context() => RequestMode::Coalesced,
        Handling::Credentialed => RequestMode::Direct,
        Handling::Cache => RequestMode::Coalesced,
    }
}

fn forward(why: PassReason) -> Forward {
    match why {
        PassReason::Method => Forward::Method,
        PassReason::Upgrade => Forward::Bypass,
        _ => Forward::Request,
    }
}

/// Reads the facts of a request on a route with these rules.
#[expect(
    clippy::inline_always,
    reason = "a hit pays for the call, which others make only now and then"
)]
#[inline(always)]
pub(crate) fn facts_of(request: &Request<'_>, rules: &Rules) -> RequestFacts {
    let (method, has_body) = match request.content {
        None => (request.method, request.has_body),
        Some(_) => (&Method::GET, false),
    };
    let mut facts = RequestFacts::read(method, request.fields, has_body, rules);
    if request.content.is_some() {
        facts = facts.without_range();
    }
    if let Some(ttl) = request.ttl {
        facts = facts.fresh_for(ttl);
    }
    if request.upgrade {
        facts.upgrading()
    } else if request.signed_in {
        facts.signed_in()
    } else {
        facts
    }
}
