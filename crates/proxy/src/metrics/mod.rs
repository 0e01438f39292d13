//! Metrics: requests and bytes by route, latencies of hits and origins, top URLs, recent errors.
//!
//! Counters of the hit path are per thread and summed up when they are read (`threads`); anything more expensive
//! than an addition is sampled (`sample`). Memory is bounded, and the labels of metrics come from
//! the configuration, never from clients.

mod errors;
mod fragments;
mod histogram;
mod origin_request;
mod refused;
mod sample;
mod snapshot;
mod table;
mod threads;
mod top;
mod url;
mod withheld;

use std::array;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use microcache_engine::{Body, Clock, Outcome, Response, RouteId};
use microcache_policy::{Detail, Time};
use parking_lot::Mutex;

use errors::Errors;
pub use errors::{ErrorKind, RecentError};
use fragments::FragmentCounters;
pub use fragments::FragmentOutcome;
use histogram::Histogram;
pub use histogram::{CompactLatencies, Latencies};
pub(crate) use origin_request::{GroupMetrics, OriginRequestMetrics};
pub use refused::Refusal;
use refused::RefusalCounters;
pub(crate) use sample::is_next;
pub use snapshot::{MetricsSnapshot, OriginSnapshot, RouteSnapshot};
use threads::{PerThread, WriteMode};
pub use top::{Amount, Measure, TopUrl, TopUrls};
use top::{MergedTop, ThreadTop};
pub(crate) use url::{DisplayUrl, RequestUrl};
use withheld::WithheldNames;

use crate::traces::Traces;

/// Limit of routes, and of upstream groups, with metrics of their own, removed ones included. The others
/// share [`OTHERS`].
const MOST_NAMES: usize = 1000;
/// Name of the routes or groups beyond the limit.
const OTHERS: &str = "(others)";
/// Number of outcomes.
const OUTCOMES: usize = Outcome::ALL.len();
/// Number of status classes.
const CLASSES: usize = 5;
/// Index of 2xx among them.
const SUCCESS: usize = 1;
/// Sampling interval of hit latencies and of [`Metrics::top`].
pub const SAMPLED_ONE_IN: u64 = sample::ONE_IN;

/// All metrics of a server.
pub(crate) struct Metrics {
    threads: PerThread<ThreadMetrics>,
    routes: NameRegistry,
    upstreams: NameRegistry,
    errors: Mutex<Errors>,
    /// Rejections by limits.
    pub(crate) refused: RefusalCounters,
    /// Early hints (103) sent from stored pages.
    pub(crate) early_hints: AtomicU64,
    /// Fragments of composed pages.
    pub(crate) fragments: FragmentCounters,
    /// Names of request fields that were withheld from origins.
    withheld: WithheldNames,
    clock: Clock,
    /// Spans, where requests are traced.
    traces: OnceLock<Arc<Traces>>,
}

/// Index of an upstream group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct UpstreamId(u16);

/// Metrics of one thread.
struct ThreadMetrics {
    /// By route number; zero is for requests without a route.
    routes: Box<[OnceLock<Box<RouteCounters>>]>,
    top: Mutex<ThreadTop>,
}

/// Metrics of one route and thread, aligned against false sharing.
#[repr(align(128))]
struct RouteCounters {
    outcomes: [AtomicU64; OUTCOMES],
    /// Responses by status class, 1xx to 5xx, except 2xx: these are the rest, so that most hits cost nothing more.
    statuses: [AtomicU64; CLASSES],
    bytes: AtomicU64,
    hits: Histogram,
    waits: Histogram,
}

/// Names in the order of registration, and the origin metrics of each.
struct NameRegistry {
    names: Mutex<Vec<String>>,
    origins: Box<[OnceLock<Box<OriginMetrics>>]>,
}

/// Origin metrics, shared by all threads: compared with an origin request, contention is cheap.
#[derive(Default)]
struct OriginMetrics {
    requests: AtomicU64,
    refreshes: AtomicU64,
    withheld: AtomicU64,
    unchanged_pages: AtomicU64,
    failures: AtomicU64,
    /// By status class, 1xx to 5xx.
    statuses: [AtomicU64; 5],
    bytes: AtomicU64,
    first_byte: Histogram,
    whole: Histogram,
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            threads: PerThread::new(),
            routes: NameRegistry::new(),
            upstreams: NameRegistry::new(),
            errors: Mutex::default(),
            refused: RefusalCounters::default(),
            early_hints: AtomicU64::new(0),
            fragments: FragmentCounters::default(),
            withheld: WithheldNames::default(),
            clock: Clock::start(),
            traces: OnceLock::new(),
        }
    }
}

impl Metrics {
    /// Returns the number of a route, registering its name.
    pub(crate) fn route(&self, name: &str) -> RouteId {
        RouteId(self.routes.number(name))
    }

    /// Counts a page that could not be changed by the edits of its route.
    pub(crate) fn note_unchanged_page(&self, route: RouteId) {
        let counters = self.routes.origin(route.0);
        counters.unchanged_pages.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of an upstream group, registering its name.
    pub(crate) fn upstream(&self, name: &str) -> UpstreamId {
        UpstreamId(self.upstreams.number(name))
    }

    /// Enables tracing.
    pub(crate) fn trace(&self, traces: Traces) {
        // There is one for each server.
        let _ = self.traces.set(Arc::new(traces));
    }

    /// Tracing, if enabled.
    pub(crate) fn traces(&self) -> Option<&Arc<Traces>> {
        self.traces.get()
    }

    /// Counts a request that was answered synchronously. Returns true if it is sampled: it is a hit to be passed to
    /// [`Self::note_hit`], and its latency is to be recorded.
    pub(crate) fn answered_at_once(
        &self,
        route: RouteId,
        outcome: Outcome,
        status: u16,
        bytes: u64,
    ) -> bool {
        let (cells, writer) = self.cells();
        let route = cells.route(route);
        writer.add(&route.outcomes[outcome as usize], 1);
        writer.add(&route.bytes, bytes);
        if status >= 300 {
            route.count_status(status, writer);
        }
        matches!(outcome, Outcome::Hit | Outcome::Stale) && sample::take()
    }

    /// Adds a sampled hit to the top URLs.
    pub(crate) fn note_hit(&self, named: RequestUrl<'_>, bytes: u64, now: Time) {
        let amounts = [(Measure::Requests, 1), (Measure::Bytes, bytes)];
        // A lock held by a reader is not waited for; the sample is lost.
        if let Some(mut top) = self.cells().0.top.try_lock() {
            top.add(named, &amounts, sample::ONE_IN, now);
        }
    }

    /// Records the latency of a sampled hit.
    pub(crate) fn hit_took(&self, route: RouteId, took: Duration) {
        let (cells, writer) = self.cells();
        cells.route(route).hits.record(took, writer);
    }

    /// Records a client's time to first byte, for requests that were not answered synchronously.
    pub(crate) fn waited(&self, route: RouteId, waited: Duration) {
        let (cells, writer) = self.cells();
        cells.route(route).waits.record(waited, writer);
    }

    /// Counts a request that was not answered synchronously, with the status of its response.
    pub(crate) fn count(&self, route: RouteId, outcome: Outcome, status: u16) {
        let (cells, writer) = self.cells();
        let route = cells.route(route);
        writer.add(&route.outcomes[outcome as usize], 1);
        route.count_status(status, writer);
    }

    /// Counts a request whose client left before the response.
    pub(crate) fn left(&self, route: RouteId) {
        let (cells, writer) = self.cells();
        writer.add(&cells.route(route).outcomes[Outcome::Left as usize], 1);
    }

    /// Removes a response that was counted, and will be again with another outcome and status.
    pub(crate) fn uncount(&self, route: RouteId, outcome: Outcome, status: u16) {
        let (cells, writer) = self.cells();
        let route = cells.route(route);
        // If another thread has counted the request, this thread's counter wraps below zero; the sum over all
        // threads is still right.
        writer.add(&route.outcomes[outcome as usize], u64::MAX);
        if let Some(class) = other_class(status) {
            writer.add(&route.statuses[class], u64::MAX);
        }
    }

    /// Counts bytes of content handed to a connection.
    pub(crate) fn sent(&self, route: RouteId, bytes: u64) {
        let (cells, writer) = self.cells();
        writer.add(&cells.route(route).bytes, bytes);
    }

    /// Adds a request other than a hit to the top URLs, or above a rate a sample of them.
    pub(crate) fn note<'a>(
        &self,
        named: impl FnOnce() -> RequestUrl<'a>,
        amounts: &[(Measure, u64)],
    ) {
        if let Some((one_in, now)) = sample::take_rated(|| self.clock.now()) {
            let mut top = self.cells().0.top.lock();
            top.add(named(), amounts, one_in, now);
        }
    }

    /// Records an error response generated here, with its reason.
    pub(crate) fn answered_error(
        &self,
        route: RouteId,
        named: Option<RequestUrl<'_>>,
        page: &Response,
        now: Time,
    ) {
        let detail = page.cache_status.detail.map(Detail::as_str);
        let text = match &page.body {
            Body::Full(text) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        self.error(RecentError {
            kind: ErrorKind::Answer,
            at: now,
            count: 1,
            route: self.route_name(route),
            upstream: None,
            url: named.map(|named| DisplayUrl::new(named).to_string()),
            status: Some(page.status),
            reason: format!("{}: {}", detail.unwrap_or("error"), text.trim_end()),
        });
    }

    /// Records an error.
    fn error(&self, error: RecentError) {
        self.errors.lock().add(error);
    }

    /// Name of a route; `None` for requests without one.
    pub(crate) fn route_name(&self, route: RouteId) -> Option<String> {
        self.routes.name(route.0)
    }

    /// Name of an upstream group.
    pub(crate) fn upstream_name(&self, upstream: UpstreamId) -> Option<String> {
        self.upstreams.name(upstream.0)
    }

    /// Top URLs by this measure.
    pub(crate) fn top(&self, measure: Measure, limit: usize) -> TopUrls {
        let now = self.clock.now();
        let mut all = MergedTop::new(now);
        for cells in self.threads.all() {
            cells.top.lock().read_into(&mut all, now);
        }
        all.most(measure, limit, now)
    }

    /// Recent errors, the latest first.
    pub(crate) fn errors(&self, limit: usize) -> Vec<RecentError> {
        self.errors.lock().latest(limit)
    }

    fn origin_of(&self, route: RouteId, upstream: UpstreamId) -> [&OriginMetrics; 2] {
        [
            self.routes.origin(route.0),
            self.upstreams.origin(upstream.0),
        ]
    }

    fn cells(&self) -> (&ThreadMetrics, WriteMode) {
        self.threads.mine(ThreadMetrics::default)
    }
}

impl Default for ThreadMetrics {
    fn default() -> Self {
        Self {
            routes: (0..=MOST_NAMES + 1).map(|_| OnceLock::new()).collect(),
            top: Mutex::default(),
        }
    }
}

impl ThreadMetrics {
    fn route(&self, route: RouteId) -> &RouteCounters {
        let known = self.routes.get(usize::from(route.0));
        // Every number comes from `NameRegistry::number`.
        known.unwrap_or(&self.routes[0]).get_or_init(Box::default)
    }
}

impl RouteCounters {
    fn count_status(&self, status: u16, writer: WriteMode) {
        if let Some(class) = other_class(status) {
            writer.add(&self.statuses[class], 1);
        }
    }
}

/// Returns the index of a status class, 1xx to 5xx, except of 2xx.
fn other_class(status: u16) -> Option<usize> {
    let class = usize::from(status / 100).checked_sub(1)?;
    (class != SUCCESS && class < CLASSES).then_some(class)
}

impl Default for RouteCounters {
    fn default() -> Self {
        Self {
            outcomes: array::from_fn(|_| AtomicU64::new(0)),
            statuses: array::from_fn(|_| AtomicU64::new(0)),
            bytes: AtomicU64::new(0),
            hits: Histogram::default(),
            waits: Histogram::default(),
        }
    }
}

impl NameRegistry {
    fn new() -> Self {
        Self {
            names: Mutex::default(),
            origins: (0..=MOST_NAMES + 1).map(|_| OnceLock::new()).collect(),
        }
    }

    /// Registers a name. Numbers begin with one; zero means none.
    fn number(&self, name: &str) -> u16 {
        let mut names = self.names.lock();
        let known = names.iter().position(|known| known == name);
        let at = known.unwrap_or_else(|| match names.len() {
            beyond if beyond > MOST_NAMES => MOST_NAMES,
            MOST_NAMES => {
                names.push(OTHERS.to_owned());
                MOST_NAMES
            }
            new => {
                names.push(name.to_owned());
                new
            }
        });
        at as u16 + 1
    }

    fn name(&self, number: u16) -> Option<String> {
        let at = usize::from(number).checked_sub(1)?;
        self.names.lock().get(at).cloned()
    }

    fn origin(&self, number: u16) -> &OriginMetrics {
        let known = self.origins.get(usize::from(number));
        known.unwrap_or(&self.origins[0]).get_or_init(Box::default)
    }
}
