//! The shared state and its construction.
//!
//! A reload builds another one, and a connection takes it up between two requests: one request is never
//! subject to rules of two configurations.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use microcache_engine::{BodyError, Engine, Origin, Request, RouteId};
use microcache_policy::edge::EdgeMode;
use microcache_push::{BackendError, FindPage, Hub, Push};
use microcache_store::Tiers;
use microcache_wire::h1::HeadLimits;
use rustls::ServerConfig;

use super::active::Active;
use super::derived::{
    default_host, fill_memory, head_limits, issued, max_bodies, own_address, settings,
    slow_reader_timeout, watched_routes,
};
use super::origins::{CacheOrigins, authentication, routes};
use super::push::{start_mercure, start_push};
use super::routing::Routing;
use crate::admission::{ConnectionLimits, FIRST_REQUEST, LimitSettings, PinnedBytes};
use crate::config::{self, Cidr, ClientTimeouts, Config, Http2Limits, UpdateStore};
use crate::forward_auth::DecisionCache;
use crate::lifecycle::Lifecycle;
use crate::metrics::{Metrics, Refusal};
use crate::observe::Notices;
use crate::passwords::PasswordVerifier;
use crate::rates::RateLimits;
use crate::session::finished::OnFinished;
use crate::session::forwarding::UntrustedForwarders;
use crate::session::header_rules::HeaderRules;
use crate::session::pseudonym::Pseudonym;
use crate::tls::IssuedCertificates;
use crate::upstream::Groups;
use crate::warming::jobs::WarmJobs;

/// State that all connections share.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that the configuration has or not"
)]
pub(crate) struct Shared {
    pub(crate) config: Arc<Config>,
    pub(crate) engine: Arc<Engine>,
    pub(crate) groups: Groups,
    /// Routing table.
    pub(crate) routing: Arc<Routing>,
    /// Push documents, if any.
    pub(crate) push: Option<Arc<Push>>,
    /// Mercure hub, if enabled.
    pub(crate) mercure: Option<Arc<Hub>>,
    /// The routes by their numbers in metrics.
    routes_by_id: HashMap<RouteId, RouteOfId>,
    /// Finder of watched pages.
    find_page: FindPage,
    pub(crate) head_limits: HeadLimits,
    pub(crate) timeouts: ClientTimeouts,
    pub(crate) idle_millis: u64,
    pub(crate) trusted_proxies: Vec<Cidr>,
    /// Proxies whose connections begin with a PROXY header.
    proxy_protocol: Vec<Cidr>,
    /// Addresses that may send purge requests through the proxy, as plugins do.
    pub(crate) purge_from: Vec<Cidr>,
    /// Limit of request bodies, by number of the route.
    max_bodies: Box<[u64]>,
    /// Routes whose pages may be watched, by number; `None` if there are none.
    pub(crate) watched_routes: Option<Box<[bool]>>,
    /// Limit of requests per connection.
    pub(crate) requests_per_connection: u64,
    /// Limits of HTTP/2 connections.
    pub(crate) http2: Http2Limits,
    /// `Host` for HTTP/1.0 requests without one.
    pub(crate) default_host: String,
    /// TLS configuration for clients, if any listener uses TLS.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// `Strict-Transport-Security` of HTTPS responses.
    pub(crate) strict: Option<String>,
    /// Port of the redirect from HTTP to HTTPS.
    pub(crate) secure_port: Option<u16>,
    /// Issued certificates and pending challenges, if ACME is enabled.
    pub(crate) issued: Option<Arc<IssuedCertificates>>,
    /// A redirect to HTTPS or an ACME challenge has to be checked before the cache.
    pub(crate) answers_before_routing: bool,
    /// The log, or a field that a route sets, has the identifier of the request.
    pub(crate) assigns_ids: bool,
    /// Some routes answer requests themselves.
    pub(crate) has_route_responses: bool,
    pub(crate) pseudonym: Arc<Pseudonym>,
    pub(crate) connection_limits: Arc<ConnectionLimits>,
    pub(crate) pinned: PinnedBytes,
    /// Some routes do not admit every client, or a URL is a purge.
    pub(crate) controls_access: bool,
    /// Verifier of users' passwords.
    pub(crate) passwords: Arc<PasswordVerifier>,
    /// Authentication servers, by number of the route.
    pub(crate) authentication: Box<[Option<Arc<dyn Origin>>]>,
    /// Their decisions that are kept.
    pub(crate) decisions: Arc<DecisionCache>,
    /// Changes of the fields of responses, by number of the route; `None` if there are none.
    pub(crate) header_rules: Option<Box<[Arc<HeaderRules>]>>,
    /// Some routes replace the tags of pages.
    pub(crate) composes_pages: bool,
    /// Rate limits of routes, if any.
    pub(crate) rates: Option<Box<RateLimits>>,
    pub(crate) notices: Notices,
    pub(crate) metrics: Arc<Metrics>,
    /// Untrusted peers that sent `X-Forwarded-Proto`.
    pub(crate) untrusted_forwarders: Arc<UntrustedForwarders>,
    /// Callback for finished requests.
    pub(crate) on_finished: Option<OnFinished>,
    pub(crate) lifecycle: Arc<Lifecycle>,
    pub(crate) warming: Arc<WarmJobs>,
    pub(crate) active: Arc<Active<Self>>,
    /// Generation of the configuration: the number of reloads before it.
    generation: u64,
}

impl Shared {
    /// Starts the upstream groups on the current runtime, and builds the initial state. `watch` makes the finder
    /// of watched pages.
    pub(crate) fn start(
        config: Arc<Config>,
        push: Option<Arc<Push>>,
        tiers: Tiers,
        notices: Notices,
        watch: fn(&Arc<Active<Self>>) -> FindPage,
    ) -> Self {
        let metrics = Arc::default();
        let groups = Groups::start(&config.upstreams, &notices, &metrics);
        let origins = groups.origins(&config.trusted_proxies, own_address(&config));
        let state = Self::before((&origins, push), config, tiers, notices, metrics, watch);
        Self { groups, ..state }
    }

    /// Builds the initial state before these origins and documents, without upstream groups.
    pub(crate) fn before(
        (origins, push): (&[Arc<dyn Origin>], Option<Arc<Push>>),
        config: Arc<Config>,
        tiers: Tiers,
        notices: Notices,
        metrics: Arc<Metrics>,
        watch: fn(&Arc<Active<Self>>) -> FindPage,
    ) -> Self {
        let object = config.usual_largest().max(tiers.largest());
        let active = Arc::default();
        let find_page = watch(&active);
        let mercure = start_mercure(None, &config);
        let behind = CacheOrigins {
            origins,
            push: push.as_ref(),
            mercure: mercure.as_ref(),
            find_page: &find_page,
            observers: (&notices, &metrics),
        };
        let (routes, routing) = routes(&config, behind, object, &metrics);
        let lasting = Lasting {
            engine: Engine::new(settings(&config), routes, Arc::clone(&routing) as _, tiers),
            routing,
            groups: Groups::default(),
            push,
            mercure,
            find_page,
            pseudonym: Arc::new(Pseudonym::new()),
            connection_limits: Arc::new(ConnectionLimits::new(
                LimitSettings::of(&config),
                notices.clone(),
            )),
            pinned: PinnedBytes::new(fill_memory(&config), slow_reader_timeout(&config)),
            rates: RateLimits::of(&config, |name| metrics.route(name), None),
            passwords: Arc::default(),
            authentication: authentication(&config, origins),
            decisions: Arc::default(),
            notices,
            metrics,
            untrusted_forwarders: Arc::default(),
            on_finished: None,
            lifecycle: Arc::default(),
            warming: Arc::default(),
            active,
            generation: 0,
        };
        lasting.with(config)
    }

    /// Returns the route of a request. `id` is its number in metrics, which the routes beyond the limit of names share.
    pub(crate) fn route(&self, id: RouteId, request: &Request<'_>) -> Option<&config::Route> {
        let index = match *self.routes_by_id.get(&id)? {
            RouteOfId::One(index) => index,
            RouteOfId::Several => self.engine.find(request).route,
        };
        self.config.routes.get(index)
    }

    /// Limit of a request's body: the lowest of the routes that its path may be read as.
    pub(crate) fn max_body(&self, route: usize, is_ambiguous: bool, request: &Request<'_>) -> u64 {
        let most = self.max_bodies[route];
        if !is_ambiguous {
            return most;
        }
        let ambiguous = self.routing.ambiguous(request);
        let routes = ambiguous.map(|it| it.routes).unwrap_or_default();
        let bodies = routes.into_iter().map(|route| self.max_bodies[route]);
        bodies.fold(most, u64::min)
    }

    /// Returns true if the pages of a route may be watched.
    pub(crate) fn is_watched(&self, route: usize) -> bool {
        let watched = self.watched_routes.as_ref();
        watched.is_some_and(|watched| watched[route])
    }

    /// Builds the state for another configuration, with the same cache and connections.
    pub(crate) fn renewed(&self, config: Config) -> Self {
        let config = Arc::new(config);
        let groups = &self.groups;
        let groups = groups.renewed(&config.upstreams, &self.notices, &self.metrics);
        let object = config
            .usual_largest()
            .max(self.engine.cache.largest_in_tiers());
        let push = self.push.clone().or_else(|| start_push(&config).ok()?);
        let mercure = start_mercure(self.mercure.as_ref(), &config);
        let origins = groups.origins(&config.trusted_proxies, own_address(&config));
        let behind = CacheOrigins {
            origins: &origins,
            push: push.as_ref(),
            mercure: mercure.as_ref(),
            find_page: &self.find_page,
            observers: (&self.notices, &self.metrics),
        };
        let (routes, routing) = routes(&config, behind, object, &self.metrics);
        self.connection_limits.resize(LimitSettings::of(&config));
        if let Some(push) = &self.push {
            push.renew_keys(config.push.keys.clone());
        }
        let lasting = Lasting {
            engine: self
                .engine
                .reconfigured(settings(&config), routes, Arc::clone(&routing) as _),
            routing,
            groups,
            push,
            mercure,
            find_page: Arc::clone(&self.find_page),
            pseudonym: Arc::clone(&self.pseudonym),
            connection_limits: Arc::clone(&self.connection_limits),
            pinned: self
                .pinned
                .with_limit(fill_memory(&config), slow_reader_timeout(&config)),
            rates: RateLimits::of(
                &config,
                |name| self.metrics.route(name),
                self.rates.as_deref(),
            ),
            passwords: Arc::clone(&self.passwords),
            authentication: authentication(&config, &origins),
            decisions: Arc::clone(&self.decisions),
            notices: self.notices.clone(),
            metrics: Arc::clone(&self.metrics),
            untrusted_forwarders: Arc::clone(&self.untrusted_forwarders),
            on_finished: self.on_finished.clone(),
            lifecycle: Arc::clone(&self.lifecycle),
            warming: Arc::clone(&self.warming),
            active: Arc::clone(&self.active),
            generation: self.generation + 1,
        };
        lasting.with(config)
    }

    /// Returns true if connections from this address begin with a PROXY header.
    pub(crate) fn expects_proxy_header(&self, peer: IpAddr) -> bool {
        let mut blocks = self.proxy_protocol.iter();
        blocks.any(|block| block.contains(peer))
    }

    /// Counts a request that was rejected because of its body, if a limit was exceeded.
    pub(crate) fn refused_body(&self, why: &BodyError, address: &str) {
        let (limit, names) = match why {
            BodyError::TooLarge => (Refusal::Body, "max_body_size"),
            BodyError::Timeout => (Refusal::BodyLate, "client_body_timeout, client_body_rate"),
            _ => return,
        };
        self.refused(limit, || format!("{address}: {why} ({names})"));
    }

    /// Counts and logs a rejection.
    pub(crate) fn refused(&self, why: Refusal, line: impl FnOnce() -> String) {
        self.metrics.refused.count(why);
        self.notices.refused(why.as_str(), line);
    }

    /// Returns a newer configuration, if there is one.
    #[inline]
    pub(crate) fn newer(&self) -> Option<Arc<Self>> {
        if self.active.generation() == self.generation {
            return None;
        }
        self.active.get()
    }

    /// Returns the active configuration.
    pub(crate) fn latest(self: &Arc<Self>) -> Arc<Self> {
        self.newer().unwrap_or_else(|| Arc::clone(self))
    }

    /// Activates this state. Upstream groups that are not part of it end with their last request.
    pub(crate) fn activate(self: Arc<Self>) {
        let (active, groups) = (Arc::clone(&self.active), self.groups.clone());
        let generation = self.generation;
        if let Some(before) = active.replace(self, generation) {
            before.groups.retire_unless_in(&groups);
        }
    }

    /// Generation of the configuration.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Loads the Mercure hub's history and starts recording, if it is persistent. To be called before the first
    /// request.
    pub(crate) fn keep_updates(&self) -> Result<(), BackendError> {
        let hub = self.mercure.as_ref();
        match hub.zip(self.config.push.mercure.kept.as_ref()) {
            Some((hub, UpdateStore::Directory(directory, sync))) => {
                Ok(hub.persist_in(directory, *sync)?)
            }
            Some((hub, UpdateStore::Redis(settings))) => Ok(hub.share(settings.clone())?),
            None => Ok(()),
        }
    }

    /// Returns true if each connection is closed after its next response.
    pub(crate) fn is_leaving(&self) -> bool {
        self.lifecycle.is_leaving()
    }

    /// Keep-alive (idle) timeout of client connections; short while draining, when only a request already
    /// under way is awaited.
    pub(crate) fn idle(&self) -> Duration {
        let idle = self.timeouts.idle;
        let is_stopping =
            self.lifecycle.draining_since().is_some() && !self.lifecycle.is_replaced();
        if is_stopping {
            idle.min(FIRST_REQUEST)
        } else {
            idle
        }
    }
}

/// State that survives reloads.
struct Lasting {
    engine: Engine,
    groups: Groups,
    routing: Arc<Routing>,
    push: Option<Arc<Push>>,
    mercure: Option<Arc<Hub>>,
    find_page: FindPage,
    pseudonym: Arc<Pseudonym>,
    connection_limits: Arc<ConnectionLimits>,
    pinned: PinnedBytes,
    rates: Option<Box<RateLimits>>,
    passwords: Arc<PasswordVerifier>,
    authentication: Box<[Option<Arc<dyn Origin>>]>,
    decisions: Arc<DecisionCache>,
    notices: Notices,
    metrics: Arc<Metrics>,
    untrusted_forwarders: Arc<UntrustedForwarders>,
    on_finished: Option<OnFinished>,
    lifecycle: Arc<Lifecycle>,
    warming: Arc<WarmJobs>,
    active: Arc<Active<Shared>>,
    generation: u64,
}

/// The routes with one number in metrics.
#[derive(Clone, Copy, Debug)]
enum RouteOfId {
    /// The route with this index.
    One(usize),
    /// Routes beyond the limit of names.
    Several,
}

impl Lasting {
    fn with(self, config: Arc<Config>) -> Shared {
        let secure_port = config.tls.secure_port();
        let mut routes_by_id = HashMap::new();
        for (index, id) in self.engine.route_ids().enumerate() {
            let of_id = routes_by_id.entry(id);
            of_id
                .and_modify(|of_id| *of_id = RouteOfId::Several)
                .or_insert(RouteOfId::One(index));
        }
        Shared {
            routes_by_id,
            engine: Arc::new(self.engine),
            groups: self.groups,
            routing: self.routing,
            push: self.push,
            mercure: self.mercure,
            find_page: self.find_page,
            head_limits: head_limits(&config),
            timeouts: config.timeouts,
            idle_millis: config.timeouts.idle.as_millis() as u64,
            trusted_proxies: config.trusted_proxies.clone(),
            proxy_protocol: config.proxy_protocol.clone(),
            purge_from: config.purge_from.clone(),
            max_bodies: max_bodies(&config),
            watched_routes: watched_routes(&config),
            requests_per_connection: config.limits.requests_per_connection.unwrap_or(u64::MAX),
            http2: config.limits.http2,
            default_host: default_host(&config),
            tls: config.tls.ready.clone(),
            strict: config.tls.strict.clone(),
            secure_port,
            issued: issued(&config),
            assigns_ids: config.needs_request_ids(),
            has_route_responses: config.routes.iter().any(config::Route::may_answer),
            answers_before_routing: secure_port.is_some() || config.acme.is_on(),
            pseudonym: self.pseudonym,
            connection_limits: self.connection_limits,
            pinned: self.pinned,
            controls_access: config.purge_path.is_some()
                || config
                    .routes
                    .iter()
                    .any(|route| route.controls_access() || route.user_context.is_some()),
            passwords: self.passwords,
            authentication: self.authentication,
            decisions: self.decisions,
            header_rules: HeaderRules::of(&config),
            composes_pages: config
                .routes
                .iter()
                .any(|route| route.rules.edge != EdgeMode::Off),
            rates: self.rates,
            notices: self.notices,
            metrics: self.metrics,
            untrusted_forwarders: self.untrusted_forwarders,
            on_finished: self.on_finished,
            lifecycle: self.lifecycle,
            warming: self.warming,
            active: self.active,
            generation: self.generation,
            config,
        }
    }
}
