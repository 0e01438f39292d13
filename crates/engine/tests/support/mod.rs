//! An engine for tests: one route to one origin, and requests from one client.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::flight::FlightLimits;
use microcache_engine::{
    Body, Clients, Engine, ForwardedRequest, Origin, Request, RequestHead, Route, RouteId,
    RouteMatch, Settings,
};
use microcache_policy::{FieldsBuf, Network, Rules, Scheme};
use microcache_store::{MemoryLimits, Tiers};

/// The only client.
pub(crate) const CLIENT: &str = "192.0.2.1";

/// Limits that no test reaches unless it changes them.
pub(crate) fn settings() -> Settings {
    Settings {
        clients: Clients::Visitors,
        memory: MemoryLimits {
            capacity: 64 << 20,
            object: 4 << 20,
            variants: 8,
        },
        fill_memory: 16 << 20,
        slow_reader_timeout: 2_000,
        fill_timeout: 60_000,
        flights: FlightLimits::of_one(1024, 1024),
        hit_for_miss: 2_000,
        remember_too_large: 60_000,
        refresh_pause: 1_000,
        stale_wait: 2_000,
        wait_timeout: 60_000,
        compress_queue: 64,
    }
}

/// A route of all requests to this origin, under these rules.
pub(crate) fn route(origin: Arc<dyn Origin>, rules: Rules) -> Route {
    Route {
        name: "all".to_owned(),
        id: RouteId::default(),
        rules,
        pass: false,
        collapse: true,
        answers_at_once: false,
        max_object: 1 << 30,
        origin,
    }
}

/// An empty cache with this route and these tiers.
pub(crate) fn engine(settings: Settings, route: Route, tiers: Tiers) -> Arc<Engine> {
    let find = |_: &Request<'_>| RouteMatch {
        route: 0,
        bypass: None,
    };
    let engine = Engine::new(settings, vec![route], Arc::new(find), tiers);
    Arc::new(engine)
}

/// A request without a body, whose fields are forwarded unchanged.
pub(crate) fn incoming(
    method: Method,
    host: &'static str,
    target: Bytes,
    fields: FieldsBuf,
) -> ForwardedRequest {
    ForwardedRequest {
        head: RequestHead {
            method,
            scheme: Scheme::Http,
            host: Bytes::from_static(host.as_bytes()),
            target,
            fields: fields.clone().into(),
            address: CLIENT.into(),
            upgrade: false,
            is_trusted: false,
            id: None,
        },
        network: Network::from_bits(1),
        outgoing: fields,
        body: Body::Empty,
        length: None,
        content: None,
        client: None,
        interim: None,
        span: None,
        ttl: None,
        anew: false,
        extensions: http::Extensions::new(),
    }
}
