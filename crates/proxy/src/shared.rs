//! What all connections share, put together from the configuration.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use microcache_engine::flight::FlightLimits;
use microcache_engine::{Engine, Origin, Request, Route, RouteFound, Settings};
use microcache_store::{MemoryLimits, Tiers};
use tokio::sync::Notify;

use crate::config::{Cidr, ClientTimeouts, Config};
use crate::descriptors;
use crate::h1::Limits as HeadLimits;
use crate::lent::Lent;
use crate::notices::Notices;
use crate::room::Room;
use crate::session::{OnFinished, Pseudonym, Strangers};
use crate::upstream::Group;
use crate::upstream::settings::GroupSettings;

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
    pub(crate) pseudonym: Pseudonym,
    pub(crate) room: Room,
    pub(crate) lent: Lent,
    pub(crate) notices: Notices,
    /// Who has said that the visitor came by TLS, and was not believed.
    pub(crate) strangers: Strangers,
    /// Who is told of each request when it is over.
    pub(crate) on_finished: Option<OnFinished>,
    draining: AtomicBool,
    stop: Notify,
}

impl Shared {
    /// Starts the upstream groups, on the current runtime, and puts everything together.
    pub(crate) fn start(
        config: &Config,
        tiers: Tiers,
        notices: Notices,
    ) -> (Self, Vec<Arc<Group>>) {
        let start = |settings: &GroupSettings| Group::start(settings.clone(), notices.clone());
        let groups: Vec<_> = config.upstreams.iter().map(start).collect();
        let origin = |group: &Arc<Group>| Arc::clone(group) as Arc<dyn Origin>;
        let origins: Vec<_> = groups.iter().map(origin).collect();
        (Self::before(&origins, config, tiers, notices), groups)
    }

    /// The same before these origins, one for each group.
    pub(crate) fn before(
        origins: &[Arc<dyn Origin>],
        config: &Config,
        tiers: Tiers,
        notices: Notices,
    ) -> Self {
        let default_host = config
            .upstreams
            .first()
            .and_then(|group| group.servers.first());
        Self {
            engine: Arc::new(engine(config, origins, tiers)),
            head_limits: HeadLimits {
                head: config.limits.head_bytes,
                target: config.limits.target_bytes,
                fields: config.limits.fields,
            },
            timeouts: config.timeouts,
            idle_millis: config.timeouts.idle.as_millis() as u64,
            trusted_proxies: config.trusted_proxies.clone(),
            purge_from: config.purge_from.clone(),
            default_host: default_host
                .map(|server| format!("{}:{}", server.host, server.port))
                .unwrap_or_default(),
            pseudonym: Pseudonym::new(),
            room: Room::new(
                descriptors::for_clients(config),
                config.limits.max_connections,
                config.limits.max_tunnels,
                notices.clone(),
            ),
            lent: Lent::new(
                fill_memory(config),
                Duration::from_millis(config.limits.slow_reader_timeout),
            ),
            notices,
            strangers: Strangers::default(),
            on_finished: None,
            draining: AtomicBool::new(false),
            stop: Notify::new(),
        }
    }

    /// Whether the server is told to stop: no connection takes another request.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Has the server stop, as a signal does.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.notify_one();
    }

    /// Ready when somebody asks the server to stop.
    pub(crate) async fn stop_asked(&self) {
        self.stop.notified().await;
    }

    /// Says so to all connections.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }
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

/// The cache, with its routes to these origins and these tiers behind it.
fn engine(config: &Config, origins: &[Arc<dyn Origin>], tiers: Tiers) -> Engine {
    let settings = settings(config);
    let object = (config.memory / LARGEST_SHARE).max(tiers.largest());
    let routes = config
        .routes
        .iter()
        .map(|route| Route {
            name: route.name.clone(),
            rules: route.rules.clone(),
            pass: route.pass,
            collapse: route.collapse,
            max_object: route.max_object.unwrap_or(object),
            origin: Arc::clone(&origins[route.upstream]),
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
    Engine::new(settings, routes, Box::new(find), tiers)
}
