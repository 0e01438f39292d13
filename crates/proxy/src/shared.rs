//! What all connections share, put together from the configuration.
//!
//! A reload makes another one, and a connection takes that up between two requests: what was read of
//! a request is never held against rules that came after it.

use std::sync::Arc;
use std::time::Duration;

use microcache_engine::flight::FlightLimits;
use microcache_engine::serve::FindRoute;
use microcache_engine::{Engine, Origin, Request, Route, RouteFound, Settings};
use microcache_store::{MemoryLimits, Tiers};
use rustls::ServerConfig;

use crate::config::{Cidr, ClientTimeouts, Config, GoesTo};
use crate::descriptors;
use crate::figures::Figures;
use crate::files::Files;
use crate::h1::Limits as HeadLimits;
use crate::in_force::{InForce, Life};
use crate::lent::Lent;
use crate::notices::Notices;
use crate::room::Room;
use crate::session::{OnFinished, Pseudonym, Strangers};

/// The largest share of the memory that one response may take.
const LARGEST_SHARE: u64 = 16;
/// The share of the memory that bodies under way may take on top of it.
const FILL_SHARE: u64 = 4;
/// The time between two attempts to refresh a response.
const REFRESH_PAUSE: u64 = 1000;
/// How long a request waits for somebody else's fetch before it gets a 504. Longer than any
/// fetch may take with the default time-outs, so it matters only when something is wrong.
const WAIT_TIMEOUT: u64 = 90_000;

/// What all connections share.
pub(crate) struct Shared {
    pub(crate) engine: Arc<Engine>,
    pub(crate) head_limits: HeadLimits,
    pub(crate) timeouts: ClientTimeouts,
    pub(crate) idle_millis: u64,
    pub(crate) trusted_proxies: Vec<Cidr>,
    /// Who may purge the way plugins do.
    pub(crate) purge_from: Vec<Cidr>,
    /// Stands in where an HTTP/1.0 client names no host.
    pub(crate) default_host: String,
    /// What TLS sessions with clients begin with, where it is spoken.
    pub(crate) tls: Option<Arc<ServerConfig>>,
    /// What clients are told who came by TLS.
    pub(crate) strict: Option<String>,
    /// The port that requests are sent to that did not come by TLS.
    pub(crate) secure_port: Option<u16>,
    pub(crate) pseudonym: Arc<Pseudonym>,
    pub(crate) room: Arc<Room>,
    pub(crate) lent: Lent,
    pub(crate) notices: Notices,
    pub(crate) figures: Arc<Figures>,
    /// Who has said that the visitor came by TLS, and was not believed.
    pub(crate) strangers: Arc<Strangers>,
    /// Who is told of each request when it is over.
    pub(crate) on_finished: Option<OnFinished>,
    pub(crate) life: Arc<Life>,
    /// How many reloads came before it.
    generation: u64,
}

impl Shared {
    /// For requests to these origins, one for each upstream group.
    pub(crate) fn before(
        origins: &[Arc<dyn Origin>],
        config: &Config,
        tiers: Tiers,
        notices: Notices,
        figures: Arc<Figures>,
    ) -> Self {
        let object = (config.memory / LARGEST_SHARE).max(tiers.largest());
        let (routes, find) = routes(config, origins, object, &figures);
        Self {
            engine: Arc::new(Engine::new(settings(config), routes, find, tiers)),
            head_limits: head_limits(config),
            timeouts: config.timeouts,
            idle_millis: config.timeouts.idle.as_millis() as u64,
            trusted_proxies: config.trusted_proxies.clone(),
            purge_from: config.purge_from.clone(),
            default_host: default_host(config),
            tls: config.tls.ready.clone(),
            strict: config.tls.strict.clone(),
            secure_port: config.tls.secure_port(),
            pseudonym: Arc::new(Pseudonym::new()),
            room: Arc::new(Room::new(
                descriptors::for_clients(config),
                config.limits.max_connections,
                config.limits.max_tunnels,
                notices.clone(),
            )),
            lent: Lent::new(fill_memory(config), slow_reader_timeout(config)),
            notices,
            figures,
            strangers: Arc::default(),
            on_finished: None,
            life: Arc::default(),
            generation: 0,
        }
    }

    /// The same cache, connections and room with another configuration, before these origins.
    pub(crate) fn renewed(&self, origins: &[Arc<dyn Origin>], config: &Config) -> Self {
        let object = (config.memory / LARGEST_SHARE).max(self.engine.cache.largest_behind());
        let (routes, find) = routes(config, origins, object, &self.figures);
        self.room.rebound(
            descriptors::for_clients(config),
            config.limits.max_connections,
            config.limits.max_tunnels,
        );
        Self {
            engine: Arc::new(self.engine.reconfigured(settings(config), routes, find)),
            head_limits: head_limits(config),
            timeouts: config.timeouts,
            idle_millis: config.timeouts.idle.as_millis() as u64,
            trusted_proxies: config.trusted_proxies.clone(),
            purge_from: config.purge_from.clone(),
            default_host: default_host(config),
            tls: config.tls.ready.clone(),
            strict: config.tls.strict.clone(),
            secure_port: config.tls.secure_port(),
            pseudonym: Arc::clone(&self.pseudonym),
            room: Arc::clone(&self.room),
            lent: self
                .lent
                .renewed(fill_memory(config), slow_reader_timeout(config)),
            notices: self.notices.clone(),
            figures: Arc::clone(&self.figures),
            strangers: Arc::clone(&self.strangers),
            on_finished: self.on_finished.clone(),
            life: Arc::clone(&self.life),
            generation: self.generation + 1,
        }
    }

    /// What has come into force since, if something has.
    #[inline]
    pub(crate) fn newer(&self) -> Option<Arc<Self>> {
        if self.life.generation() == self.generation {
            return None;
        }
        self.life.in_force().map(|InForce { shared, .. }| shared)
    }

    /// What is in force now.
    pub(crate) fn latest(self: &Arc<Self>) -> Arc<Self> {
        self.newer().unwrap_or_else(|| Arc::clone(self))
    }

    /// How many reloads came before it.
    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    /// Whether the server is told to stop: no connection takes another request.
    pub(crate) fn is_draining(&self) -> bool {
        self.life.is_draining()
    }
}

fn head_limits(config: &Config) -> HeadLimits {
    HeadLimits {
        head: config.limits.head_bytes,
        target: config.limits.target_bytes,
        fields: config.limits.fields,
    }
}

fn slow_reader_timeout(config: &Config) -> Duration {
    Duration::from_millis(config.limits.slow_reader_timeout)
}

/// The first server there is.
fn default_host(config: &Config) -> String {
    let group = config.upstreams.first();
    let server = group.and_then(|group| group.servers.first());
    server
        .map(|server| format!("{}:{}", server.host, server.port))
        .unwrap_or_default()
}

/// What bodies on their way may take: once while they arrive, and once while clients take what was
/// stored.
fn fill_memory(config: &Config) -> u64 {
    let limit = config.limits.fill_memory;
    limit.unwrap_or(config.memory / FILL_SHARE)
}

/// The largest object that memory takes.
pub(crate) fn largest_in_memory(config: &Config) -> u64 {
    let of_routes = config.routes.iter().filter_map(|route| route.max_object);
    let largest = of_routes.fold(config.memory / LARGEST_SHARE, u64::max);
    largest.min(config.memory / 4)
}

/// The bounds of the cache.
pub(crate) fn settings(config: &Config) -> Settings {
    Settings {
        memory: MemoryLimits {
            capacity: config.memory,
            object: largest_in_memory(config),
            variants: config.limits.max_variants,
        },
        fill_memory: fill_memory(config),
        slow_reader_timeout: config.limits.slow_reader_timeout,
        fill_timeout: config.limits.fill_timeout,
        flights: FlightLimits {
            fetches: config.limits.max_fetches,
            waiters: config.limits.max_waiters_per_fetch,
        },
        hit_for_miss: config.hit_for_miss,
        remember_too_large: config.remember_too_large,
        refresh_pause: REFRESH_PAUSE,
        stale_wait: config.stale_wait,
        wait_timeout: WAIT_TIMEOUT,
    }
}

/// The routes to these origins, and what finds the one that a request takes. Bodies of more than `object`
/// bytes are kept only where a route says so.
fn routes(
    config: &Config,
    origins: &[Arc<dyn Origin>],
    object: u64,
    figures: &Figures,
) -> (Vec<Route>, FindRoute) {
    let routes = config
        .routes
        .iter()
        .map(|route| Route {
            name: route.name.clone(),
            id: figures.route(&route.name),
            rules: route.rules.clone(),
            pass: route.pass,
            collapse: route.collapse,
            max_object: route.max_object.unwrap_or(object),
            origin: match &route.goes_to {
                GoesTo::Upstream(number) => Arc::clone(&origins[*number]),
                GoesTo::Files(root) => Arc::new(Files::new(root.clone())),
            },
        })
        .collect();
    let config = config.clone();
    let find = move |request: &Request<'_>| {
        let found = config.route(request.method, request.host, request.target);
        // The last route takes everything, so there always is one.
        let route = found.unwrap_or(config.routes.len() - 1);
        RouteFound {
            route,
            bypass: config.routes[route].bypasses(request.fields, request.target),
        }
    };
    (routes, Box::new(find))
}
