//! Routes, as the engine sees them, and its settings.

use std::sync::Arc;

use microcache_policy::{Detail, Explanation, Millis, Rules};
use microcache_store::MemoryLimits;

use crate::cache::flight::FlightLimits;
use crate::message::Request;
use crate::origin::{Origin, RouteId};

/// The operator's settings for a set of requests.
pub struct Route {
    /// The name in logs.
    pub name: String,
    /// The number in metrics.
    pub id: RouteId,
    /// The caching rules.
    pub rules: Rules,
    /// The route bypasses the cache: no lookup, no storing.
    pub pass: bool,
    /// The origin answers synchronously, and nothing is looked up or stored elsewhere.
    pub answers_at_once: bool,
    /// Simultaneous misses are coalesced into one request to the origin.
    pub collapse: bool,
    /// The largest stored body in bytes.
    pub max_object: u64,
    /// The origin of requests that the cache cannot answer.
    pub origin: Arc<dyn Origin>,
}

/// The route of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteMatch {
    /// The route's index.
    pub route: usize,
    /// The reason the request bypasses the route's cache, if it does.
    pub bypass: Option<Bypass>,
}

/// The reason a request bypasses the cache of a route that caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bypass {
    /// A condition of the operator, or of the program that sent it.
    Condition,
    /// The path can also be read as another route's.
    Path,
    /// The user context of its credentials is unknown.
    UserContext,
}

impl Bypass {
    pub(crate) const fn detail(self) -> Option<Detail> {
        match self {
            Self::Condition => None,
            Self::Path => Some(Detail::AmbiguousPath),
            Self::UserContext => Some(Detail::UserContext),
        }
    }

    /// The explanation of this reason.
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Condition => Explanation::of(
                "a `bypass` condition of the route matches the request, or it is for a visitor's own tokens (`from`)",
            )
            .unless("change `bypass` on the route, or remove the matching part of the request"),
            Self::Path => Detail::AmbiguousPath.explanation(),
            Self::UserContext => Detail::UserContext.explanation(),
        }
    }
}

/// Finds the route of a request. Any function does where the url alone decides.
pub trait FindRoute: Send + Sync {
    /// Returns the route of a request.
    fn find(&self, request: &Request<'_>) -> RouteMatch;

    /// Returns the indices of all routes that requests for the same url, with other fields, may take.
    fn all_of_url(&self, request: &Request<'_>) -> Vec<usize> {
        vec![self.find(request).route]
    }
}

impl<F: Fn(&Request<'_>) -> RouteMatch + Send + Sync> FindRoute for F {
    fn find(&self, request: &Request<'_>) -> RouteMatch {
        self(request)
    }
}

/// The kind of clients that the cache serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clients {
    /// Visitors: a stale page is better than a wait, and a slow client must not hold up others.
    #[default]
    Visitors,
    /// The program's own code: no request may fail, or get another response, because of the cache.
    Program,
}

/// The engine's settings.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// The kind of clients.
    pub clients: Clients,
    /// Limits of the memory tier.
    pub memory: MemoryLimits,
    /// Bytes buffered for bodies under way. Above it bodies stream through unstored, with little
    /// buffering; slow readers may pin half of it.
    pub fill_memory: u64,
    /// The longest time in milliseconds that a slow reader may hold up the other readers of an
    /// unstorable body.
    pub slow_reader_timeout: Millis,
    /// The longest time in milliseconds that a body may take and still be shared and stored; after
    /// it the body streams through, and the next request starts a fetch of its own.
    pub fill_timeout: Millis,
    /// Limits of coalesced fetches and their waiters.
    pub flights: FlightLimits,
    /// The time in milliseconds for which requests for an unstorable response are not coalesced
    /// (hit-for-miss).
    pub hit_for_miss: Millis,
    /// The time in milliseconds for which a url with an oversized response is remembered.
    pub remember_too_large: Millis,
    /// The pause between two refresh attempts of a response, in milliseconds.
    pub refresh_pause: Millis,
    /// The time in milliseconds that a visitor's request waits for the origin before a copy usable
    /// on errors is served.
    pub stale_wait: Millis,
    /// The longest time in milliseconds that a request waits for a coalesced fetch. After it the
    /// request fails, or is sent directly if it is a program's own.
    pub wait_timeout: Millis,
    /// The most bodies queued for compression.
    pub compress_queue: usize,
}
