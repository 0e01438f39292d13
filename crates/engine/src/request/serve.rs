//! The engine, its routes and settings, and the synchronous part of a request.
//!
//! [`Engine::serve`] is the whole hit: route, facts, key, lookup, reuse decision, response; no
//! await, no lock held. A request that it cannot answer becomes a [`FetchPlan`], which
//! [`Engine::ask`] carries out.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_policy::key::{self, KeyBuf, KeySpace};
use microcache_policy::prefetch::is_for_hits_only;
use microcache_policy::request::{Handling, PassReason, fragment_fields};
use microcache_policy::request_fields::withheld_names;
use microcache_policy::reuse::{Reuse, RevalidationReason, awaits_refresh, reuse};
use microcache_policy::status::{CacheStatus, Forward};
use microcache_policy::{
    AcceptClass, Detail, Fields, Lifetime, OriginView, RequestFacts, Rules, Scheme, Time,
};
use microcache_store::{Hit, Key, Tiers};

use crate::body::Body;
use crate::cache::flight::Failure;
use crate::cache::{Cache, MemoryLookup, Scope, SimplifiedKey};
use crate::content::ContentBudget;
use crate::fill::FillBudget;
use crate::message::{Request, Response};
use crate::origin::{Origin, RouteId};
use crate::outcome::Outcome;
use crate::request::failure::NoResponse;
use crate::request::plan::{
    CoalescedFetch, DirectFetch, FetchPlan, FetchReason, FetchSpec, Refresh,
};
use crate::request::respond::{CacheStatusInputs, Reusable};
use crate::request::route::{Bypass, FindRoute, Route, RouteMatch, Settings};
use microcache_store::Clock;

/// The engine: policy, store and origins put together.
pub struct Engine {
    /// The cache: memory, tiers, fetches under way and purges.
    pub cache: Arc<Cache>,
    pub(crate) fill_budget: Arc<FillBudget>,
    pub(crate) content_budget: Arc<ContentBudget>,
    pub(crate) settings: Settings,
    pub(crate) routes: Vec<Route>,
    find: Arc<dyn FindRoute>,
    /// The clock of all ages and lifetimes; the same after a reconfiguration.
    pub clock: Clock,
}

/// The result of serving a request from the cache.
pub enum Served {
    /// The response.
    Now(Response),
    /// This response; the caller should start the refresh.
    NowAndRefresh(Response, Box<Refresh>),
    /// A request that needs the origin.
    Fetch(FetchPlan),
    /// A failure without a response.
    Failed(NoResponse),
}

impl Engine {
    /// An engine with an empty memory, these routes and these tiers.
    pub fn new(
        settings: Settings,
        routes: Vec<Route>,
        find: Arc<dyn FindRoute>,
        tiers: Tiers,
    ) -> Self {
        Self::with_clock(settings, routes, find, tiers, Clock::start())
    }

    /// An engine as by [`Self::new`], with a clock of its own.
    pub fn with_clock(
        settings: Settings,
        routes: Vec<Route>,
        find: Arc<dyn FindRoute>,
        tiers: Tiers,
        clock: Clock,
    ) -> Self {
        Self {
            cache: Arc::new(Cache::new(settings.memory, settings.flights, tiers, clock)),
            fill_budget: Arc::new(FillBudget::new(settings.fill_memory, settings.clients)),
            content_budget: Arc::default(),
            settings,
            routes: sealed(routes),
            find,
            clock,
        }
    }

    /// An engine with the same cache, and other routes and limits. The capacity of memory and its
    /// largest object stay unchanged. Requests under way finish with the engine they began with.
    #[must_use]
    pub fn reconfigured(
        &self,
        settings: Settings,
        routes: Vec<Route>,
        find: Arc<dyn FindRoute>,
    ) -> Self {
        self.cache
            .set_limits(settings.memory.variants, settings.flights);
        self.fill_budget.set_limit(settings.fill_memory);
        Self {
            cache: Arc::clone(&self.cache),
            fill_budget: Arc::clone(&self.fill_budget),
            content_budget: Arc::clone(&self.content_budget),
            settings,
            routes: sealed(routes),
            find,
            clock: self.clock,
        }
    }

    /// Answers a request from memory, or returns the fetch that is needed.
    pub fn serve(&self, request: &Request<'_>, now: Time) -> Served {
        self.serve_on(self.find(request), request, now)
    }

    /// The route that a request takes.
    pub fn find(&self, request: &Request<'_>) -> RouteMatch {
        self.find.find(request)
    }

    /// A route's number in metrics.
    pub fn id_of(&self, found: RouteMatch) -> RouteId {
        self.routes[found.route].id
    }

    /// The numbers of all routes in metrics, by index.
    pub fn route_ids(&self) -> impl Iterator<Item = RouteId> {
        self.routes.iter().map(|route| route.id)
    }

    /// Answers a request on a known route from memory, or returns the fetch that is needed.
    // If inlined, its result is moved three more times.
    #[inline(never)]
    pub fn serve_on(&self, found: RouteMatch, request: &Request<'_>, now: Time) -> Served {
        let route = &self.routes[found.route];
        let facts = self.facts_on(route, request);
        let pass = |forward, detail| {
            let route = found.route;
            let why = FetchReason {
                route,
                facts,
                forward,
                detail,
                at: now,
            };
            Served::Fetch(FetchPlan::Direct(Box::new(DirectFetch {
                why,
                key: None,
                whole: true,
                may_have_copy: false,
            })))
        };

        // 1. May the cache handle the request?
        let may_coalesce = match mode_of(route, found.bypass, &facts) {
            RequestMode::Pass(forward, detail) => return pass(forward, detail),
            RequestMode::Direct => false,
            RequestMode::Coalesced => true,
        };

        if route.answers_at_once {
            return match route
                .origin
                .ready_response_for(request.target, request.fields)
            {
                Some(hit) => Served::Now(answer(hit, request, &facts, now, Outcome::Hit)),
                None => pass(Forward::UriMiss, None),
            };
        }

        // 2. The key, and the entry in memory.
        let mut space = key::KEY_SPACE;
        let (unusual, simplified);
        let plain = plain_key(&mut space, facts.accept(), request, &route.rules);
        let mut key = if let Some(plain) = plain {
            plain
        } else {
            unusual = key_as(facts.accept(), request, &route.rules);
            &unusual[..]
        };
        let view = request.origin_view(&route.rules);
        let mut since = Time::default();
        if self.cache.queries.has_any()
            && let Some(simpler) = self.simplified(route, key, &view, may_coalesce, now)
        {
            simplified = simpler.key;
            (key, since) = (&simplified[..], simpler.since);
        }
        let known = self.cache.look_up(key, &view, now);

        // 3. Is the stored response reusable?
        let (known, forward) = match known {
            MemoryLookup::Response(hit) if hit.began() < since => {
                (MemoryLookup::Response(hit), Forward::Stale)
            }
            MemoryLookup::Response(hit)
                if !route.rules.compress.is_on() && is_plain_hit(&hit, &facts, now) =>
            {
                return Served::Now(plain_hit(hit, now));
            }
            MemoryLookup::Response(hit) => match self.usability(&hit, key, &view, &facts, now) {
                usable @ (Usability::Fresh | Usability::Stale) => {
                    let look = LookupContext {
                        route: found.route,
                        key,
                        request,
                        view: &view,
                        facts: &facts,
                    };
                    return match usable {
                        Usability::Stale => self.serve_stale(hit, &look, now),
                        _ => Served::Now(self.answer_on(&look, hit, now, Outcome::Hit)),
                    };
                }
                Usability::None(forward) => (MemoryLookup::Response(hit), forward),
            },
            known => {
                let forward = nothing_selected(&known);
                (known, forward)
            }
        };

        let look = LookupContext {
            route: found.route,
            key,
            request,
            view: &view,
            facts: &facts,
        };
        self.beyond_memory(&look, known, forward, may_coalesce, now)
    }

    /// The key of the simplest equivalent url, as the responses of the path state it. `None` if the request is not
    /// coalesced with those for other urls, or the response in memory states something else.
    #[cold]
    pub(crate) fn simplified(
        &self,
        route: &Route,
        key: &[u8],
        view: &OriginView<'_>,
        may_coalesce: bool,
        now: Time,
    ) -> Option<SimplifiedKey> {
        let simplified = self.cache.queries.simplified(key, now)?;
        let may_share = may_coalesce && route.collapse && !route.rules.key.whole_query;
        let is_shared = may_share
            && match self.cache.look_up(&simplified.key, view, now) {
                MemoryLookup::Response(hit) => {
                    key::is_equivalent(key, &simplified.key, hit.fields())
                }
                known => {
                    let selection = known.selection(view);
                    known.uncacheable(&selection, now).is_none()
                        && !self.cache.is_too_large(&simplified.key, &selection, now)
                }
            };
        is_shared.then_some(simplified)
    }

    /// The key that a request is looked up by, and the time since when entries under it count.
    pub(crate) fn key_and_since(
        &self,
        route: &Route,
        request: &Request<'_>,
        view: &OriginView<'_>,
        may_coalesce: bool,
        now: Time,
    ) -> (KeyBuf, Time) {
        let key = key_of(request, &route.rules);
        match self.simplified(route, &key, view, may_coalesce, now) {
            Some(SimplifiedKey { key, since }) => (key, since),
            None => (key, Time::default()),
        }
    }

    /// Returns true if a response under this key, fetched then, may answer a request: it has the request's url, or
    /// states that they are equivalent.
    pub(crate) fn is_for_url(
        &self,
        request: &Request<'_>,
        (route, key): (usize, &[u8]),
        (response, began): (Fields<'_>, Time),
    ) -> bool {
        if !self.cache.queries.has_any() {
            return true;
        }
        let own = key_of(request, self.rules(route));
        own[..] == *key || {
            let simplified = self.cache.queries.simplified(&own, self.clock.now());
            simplified.is_some_and(|simplified| simplified.since <= began)
                && key::is_equivalent(&own, key, response)
        }
    }

    /// The key of a request that is sent on its own: that of its whole url, even if `key` is that of an equivalent one.
    pub(crate) fn key_of_its_own(&self, route: usize, request: &Request<'_>, key: Key) -> Key {
        if self.cache.queries.has_any() {
            Key::from(&*key_of(request, self.rules(route)))
        } else {
            key
        }
    }

    /// The target that a coalesced fetch asks for: the url of its key.
    pub(crate) fn target_of(&self, route: usize, key: &[u8], target: &Bytes) -> Bytes {
        if !self.cache.queries.has_any() || self.rules(route).key.whole_query {
            return target.clone();
        }
        key::target_of(key).map_or_else(|| target.clone(), Bytes::from)
    }

    /// Continues a lookup that memory cannot answer: with a tier that can without waiting, or with a plan to ask the
    /// origin.
    fn beyond_memory(
        &self,
        look: &LookupContext<'_>,
        known: MemoryLookup,
        forward: Forward,
        may_coalesce: bool,
        now: Time,
    ) -> Served {
        // 4. Would it wait for another request's response? If not, a tier may answer synchronously.
        let LookupContext {
            key, view, facts, ..
        } = *look;
        let selection = known.selection(view);
        let why_direct = self.why_direct(look, &known, &selection, may_coalesce, now);
        if why_direct.is_none()
            && !matches!(known, MemoryLookup::Response(_))
            && let Some(response) = self.answer_without_waiting(look, now)
        {
            return Served::Now(response);
        }

        // 5. The origin has to be asked, coalesced or directly.
        if facts.only_if_cached() {
            return Served::Failed(NoResponse::new(Failure::OnlyIfCached, forward));
        }
        let why = FetchReason {
            route: look.route,
            facts: self.facts_of_fetch(look),
            forward: if may_coalesce {
                forward
            } else {
                Forward::Request
            },
            detail: why_direct,
            at: now,
        };
        let key = Key::from(key);
        Served::Fetch(if why_direct.is_some() {
            FetchPlan::Direct(Box::new(DirectFetch {
                why,
                key: Some(key),
                whole: why_direct == Some(Detail::Withheld),
                may_have_copy: matches!(known, MemoryLookup::Response(_)),
            }))
        } else {
            let spec = FetchSpec {
                key,
                selection,
                stored: known.response(),
            };
            FetchPlan::Coalesced(Box::new(CoalescedFetch { why, spec }))
        })
    }

    /// Decides whether the stored response that a request selects may be its answer.
    #[inline]
    pub(crate) fn usability(
        &self,
        hit: &Hit,
        key: &[u8],
        view: &OriginView<'_>,
        facts: &RequestFacts,
        now: Time,
    ) -> Usability {
        match reuse(&hit.lifetime(), facts, now) {
            Reuse::Fresh => Usability::Fresh,
            Reuse::Stale | Reuse::Revalidate(RevalidationReason::Expired)
                if sets_cookies(hit, view, now) =>
            {
                Usability::None(Forward::Stale)
            }
            Reuse::Stale => Usability::Stale,
            Reuse::Revalidate(RevalidationReason::Expired)
                if self.awaits_refresh(hit, key, view, now) =>
            {
                Usability::Stale
            }
            Reuse::Revalidate(RevalidationReason::Expired | RevalidationReason::NoCache) => {
                Usability::None(Forward::Stale)
            }
            Reuse::Revalidate(
                RevalidationReason::MaxAge
                | RevalidationReason::MinFresh
                | RevalidationReason::Reload,
            )
            | Reuse::NotShareable => Usability::None(Forward::Request),
        }
    }

    /// Returns true for a copy beyond its stale window that is still usable because its refresh is
    /// under way.
    fn awaits_refresh(&self, hit: &Hit, key: &[u8], request: &OriginView<'_>, now: Time) -> bool {
        awaits_refresh(&hit.lifetime(), now)
            && self
                .cache
                .is_refreshing(key, &hit.object().selection(request))
    }

    /// Serves the stale copy, with a refresh unless one was started recently.
    fn serve_stale(&self, hit: Hit, look: &LookupContext<'_>, now: Time) -> Served {
        // No refresh for a request with `only-if-cached` or a prefetch, which must not use up the pause either.
        let request = look.request;
        if look.facts.only_if_cached()
            || is_for_hits_only(request.method, request.fields, self.rules(look.route))
            || !hit.claim_refresh(now, self.settings.refresh_pause)
        {
            return Served::Now(self.answer_on(look, hit, now, Outcome::Stale));
        }
        let spec = FetchSpec {
            key: look.key.into(),
            selection: hit.object().selection(look.view),
            stored: Some(hit.clone()),
        };
        let response = self.answer_on(look, hit, now, Outcome::Stale);
        let refresh = Box::new(Refresh {
            route: look.route,
            facts: self.facts_of_fetch(look),
            spec,
        });
        Served::NowAndRefresh(response, refresh)
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

    /// The reason a request should not be coalesced, if there is one.
    pub(crate) fn why_direct(
        &self,
        look: &LookupContext<'_>,
        known: &MemoryLookup,
        selection: &[u8],
        may_coalesce: bool,
        now: Time,
    ) -> Option<Detail> {
        let nothing_fits = !matches!(known, MemoryLookup::Response(_));
        if !may_coalesce {
            Some(Detail::Credentials)
        } else if !self.routes[look.route].collapse {
            Some(Detail::CollapseOff)
        } else if nothing_fits && self.cache.is_too_large(look.key, selection, now) {
            Some(Detail::TooLarge)
        } else if self.is_sent_whole(look, now) {
            Some(Detail::Withheld)
        } else {
            let why = known.uncacheable(selection, now)?;
            Some(match why {
                Detail::FormToken => why,
                _ => Detail::HitForMiss,
            })
        }
    }

    /// Returns true if the last request with the same fields withheld got a response that was not
    /// shareable.
    fn is_sent_whole(&self, look: &LookupContext<'_>, now: Time) -> bool {
        if !self.cache.sends_any_whole() {
            return false;
        }
        let withheld = withheld_names(look.view, &self.cache.known_vary(look.key, now));
        !withheld.is_empty() && self.cache.is_sent_whole(look.key, &withheld, now)
    }

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

    /// The purge scopes of all responses of a url: its query may be normalised in another way on each of the routes that
    /// its requests may take. The host may be in any case and have the scheme's default port.
    pub fn scopes_of_url(&self, scheme: Scheme, host: &[u8], target: &[u8]) -> Vec<Scope> {
        let request = Request::of_url(scheme, host, target);
        let mut scopes = Vec::new();
        for route in self.routes_of_url(&request) {
            let key = key_of(&request, &route.rules);
            let simplified = self.cache.queries.simplified(&key, self.clock.now());
            let keys = [Some(key), simplified.map(|simplified| simplified.key)];
            for scope in keys.iter().flatten().map(|key| scope_of(key, &request)) {
                if !scopes.contains(&scope) {
                    scopes.push(scope);
                }
            }
        }
        scopes
    }

    /// The rules of the route with this number.
    pub fn rules(&self, route: usize) -> &Rules {
        &self.routes[route].rules
    }

    /// The origin of the route with this number.
    pub fn origin(&self, route: usize) -> &Arc<dyn Origin> {
        &self.routes[route].origin
    }

    pub(crate) fn route(&self, request: &Request<'_>) -> &Route {
        &self.routes[self.find.find(request).route]
    }

    /// The routes that requests for the same url may take.
    pub(crate) fn routes_of_url(&self, request: &Request<'_>) -> impl Iterator<Item = &Route> {
        let indices = self.find.all_of_url(request).into_iter();
        indices.map(|index| &self.routes[index])
    }
}

pub(crate) fn scope_of(key: &[u8], request: &Request<'_>) -> Scope {
    let (host, target) = match key::url_of(key) {
        Some((_, host, path, query)) => (host, key::join_query(path, query)),
        // Every key has them.
        None => (request.host, request.target.to_vec()),
    };
    Scope::Url {
        host: Bytes::copy_from_slice(host),
        target: target.into(),
    }
}

/// Seals the rules of the routes: entries stored under other sharing rules are not found.
fn sealed(routes: Vec<Route>) -> Vec<Route> {
    let sealed = |route: Route| Route {
        rules: route.rules.sealed(),
        ..route
    };
    routes.into_iter().map(sealed).collect()
}

/// The handling of a request before any lookup.
pub(crate) enum RequestMode {
    /// Passed to the origin without a lookup.
    Pass(Forward, Option<Detail>),
    /// Looked up, but not coalesced.
    Direct,
    /// Looked up and coalesced.
    Coalesced,
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

/// The use that a stored response permits.
pub(crate) enum Usability {
    /// It is served.
    Fresh,
    /// It is served stale, and should be refreshed.
    Stale,
    /// It is not served; the origin is asked for this reason.
    None(Forward),
}

/// Returns true if the origin has recently set a cookie in its response to such a request. Each
/// client then needs a response of its own, and the stale copy is for errors only.
#[cold]
fn sets_cookies(hit: &Hit, view: &OriginView<'_>, now: Time) -> bool {
    let object = hit.object();
    object.uncacheable(&object.selection(view), now) == Some(Detail::SetCookie)
}

/// The reason to ask the origin where the request selects no response.
pub(crate) fn nothing_selected(known: &MemoryLookup) -> Forward {
    match known {
        MemoryLookup::Key(object) if object.variants().next().is_some() => Forward::VaryMiss,
        _ => Forward::UriMiss,
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

/// The key of an ordinary request for this kind of representation; `None` for another, which has the key by [`key_as`].
#[inline]
fn plain_key<'s>(
    space: &'s mut KeySpace,
    accept: AcceptClass,
    request: &Request<'_>,
    rules: &Rules,
) -> Option<&'s [u8]> {
    if request.content.is_some() {
        return None;
    }
    let (scheme, is_trusted) = (request.scheme, request.is_trusted);
    let (host, target) = (request.host, request.target);
    key::plain(space, accept, scheme, host, target, is_trusted, &rules.key)
}

/// The key of a request for this kind of representation, under these rules.
pub(crate) fn key_as(accept: AcceptClass, request: &Request<'_>, rules: &Rules) -> KeyBuf {
    let mut key = key::build_for(
        accept,
        request.scheme,
        request.host,
        request.target,
        request.fields,
        request.is_trusted,
        rules,
    );
    if let Some(content) = request.content {
        add_content(&mut key, content);
    }
    key
}

/// The key of a request under these rules.
pub(crate) fn key_of(request: &Request<'_>, rules: &Rules) -> KeyBuf {
    let mut key = key::build(
        request.scheme,
        request.host,
        request.target,
        request.fields,
        request.is_trusted,
        rules,
    );
    if let Some(content) = request.content {
        add_content(&mut key, content);
    }
    key
}

/// Adds the content of a QUERY to the key of its url. No other part of a key is as short and begins so.
#[cold]
fn add_content(key: &mut KeyBuf, content: &[u8]) {
    key.push(b'Q');
    key.extend_from_slice(content);
}

/// A request during a lookup, with the facts read so far.
pub(crate) struct LookupContext<'a> {
    pub(crate) route: usize,
    pub(crate) key: &'a [u8],
    pub(crate) request: &'a Request<'a>,
    pub(crate) view: &'a OriginView<'a>,
    pub(crate) facts: &'a RequestFacts,
}

fn forward(why: PassReason) -> Forward {
    match why {
        PassReason::Method => Forward::Method,
        PassReason::Upgrade => Forward::Bypass,
        _ => Forward::Request,
    }
}

/// Returns true if a stored response is fresh, in memory, and sent as it is: the case of nearly every hit.
#[inline]
fn is_plain_hit(hit: &Hit, facts: &RequestFacts, now: Time) -> bool {
    let asks_for_all = !facts.is_head() && !facts.is_conditional() && facts.range().is_none();
    asks_for_all && hit.body().is_some() && reuse(&hit.lifetime(), facts, now) == Reuse::Fresh
}

/// The response from a stored response for which [`is_plain_hit`] is true: what [`answer`] returns, built in place.
#[expect(
    clippy::inline_always,
    reason = "a call would move the response, the larger part of its cost"
)]
#[inline(always)]
fn plain_hit(hit: Hit, now: Time) -> Response {
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

/// The `Cache-Status` parameters of a stored response.
fn status_of(lifetime: &Lifetime, now: Time) -> CacheStatus {
    CacheStatus {
        hit: true,
        ttl: Some(lifetime.ttl(now).div_euclid(1000)),
        ..CacheStatus::default()
    }
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
