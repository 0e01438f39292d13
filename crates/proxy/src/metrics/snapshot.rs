//! A snapshot of all metrics.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use microcache_engine::Outcome;

use super::{
    CLASSES, FragmentOutcome, Latencies, Metrics, NameRegistry, OUTCOMES, OriginMetrics, Refusal,
    SUCCESS,
};

/// All metrics since the start.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot {
    /// By route, removed ones included.
    pub routes: Vec<RouteSnapshot>,
    /// Requests without a route: they could not be parsed.
    pub no_route: RouteSnapshot,
    /// Origin metrics of each upstream group, by name.
    pub upstreams: Vec<(String, OriginSnapshot)>,
    /// Rejections by limits, by reason.
    pub refused: Vec<(Refusal, u64)>,
    /// Early hints (103) sent from stored pages.
    pub early_hints: u64,
    /// Fragments of composed pages, in the order of [`FragmentOutcome::ALL`].
    pub fragments: [u64; FragmentOutcome::ALL.len()],
}

/// Metrics of a route.
#[derive(Clone, Debug, Default)]
pub struct RouteSnapshot {
    /// Its name.
    pub name: String,
    /// Requests by outcome, in the order of [`Outcome::ALL`].
    outcomes: [u64; OUTCOMES],
    /// Responses by status class, except 2xx.
    statuses: [u64; CLASSES],
    /// Bytes of content sent to clients.
    pub bytes: u64,
    /// Latency of hits, from the parsed request until the response is handed to the connection; one in
    /// sixteen is measured.
    pub hits: Latencies,
    /// Clients' time to first byte where the response was not available synchronously: waits for the origin,
    /// a coalesced fetch, or a tier.
    pub waits: Latencies,
    /// Metrics of its origin requests.
    pub origin: OriginSnapshot,
}

/// Origin metrics.
#[derive(Clone, Debug, Default)]
pub struct OriginSnapshot {
    /// Requests to it, refreshes included.
    pub requests: u64,
    /// Refreshes.
    pub refreshes: u64,
    /// Shared fetches that omitted fields of the client's request.
    pub withheld: u64,
    /// Pages that could not be changed by the edits of the route.
    pub unchanged_pages: u64,
    /// Requests without a response, or with a truncated one.
    pub failures: u64,
    /// Responses by status class, 1xx to 5xx.
    pub statuses: [u64; 5],
    /// Bytes of content received.
    pub bytes: u64,
    /// Time to first byte.
    pub first_byte: Latencies,
    /// Time to the last byte.
    pub whole: Latencies,
}

impl Metrics {
    /// All of them.
    pub(crate) fn snapshot(&self) -> MetricsSnapshot {
        let origins = |names: &NameRegistry| -> Vec<_> {
            let known = names.names.lock().clone().into_iter();
            known
                .enumerate()
                .map(|(at, name)| (name, names.read(at + 1)))
                .collect()
        };
        let mut no_route = RouteSnapshot::default();
        self.read_into(0, &mut no_route);
        let routes = origins(&self.routes).into_iter().enumerate();
        MetricsSnapshot {
            routes: routes
                .map(|(at, (name, origin))| {
                    let mut route = RouteSnapshot {
                        name,
                        origin,
                        ..RouteSnapshot::default()
                    };
                    self.read_into(at + 1, &mut route);
                    route
                })
                .collect(),
            no_route,
            upstreams: origins(&self.upstreams),
            refused: self.refused.all(),
            early_hints: self.early_hints.load(Ordering::Relaxed),
            fragments: self.fragments.all(),
        }
    }

    /// Sums up a route's counters of all threads.
    fn read_into(&self, number: usize, route: &mut RouteSnapshot) {
        for cells in self.threads.all() {
            let Some(cells) = cells.routes.get(number).and_then(|cells| cells.get()) else {
                continue;
            };
            for (sum, count) in route.outcomes.iter_mut().zip(&cells.outcomes) {
                *sum = sum.wrapping_add(read(count));
            }
            for (sum, count) in route.statuses.iter_mut().zip(&cells.statuses) {
                *sum = sum.wrapping_add(read(count));
            }
            route.bytes += read(&cells.bytes);
            cells.hits.read_into(&mut route.hits);
            cells.waits.read_into(&mut route.waits);
        }
    }
}

impl NameRegistry {
    fn read(&self, number: usize) -> OriginSnapshot {
        let origin = self.origins.get(number).and_then(|origin| origin.get());
        origin.map(|origin| origin.read()).unwrap_or_default()
    }
}

impl OriginMetrics {
    fn read(&self) -> OriginSnapshot {
        let mut snapshot = OriginSnapshot {
            requests: read(&self.requests),
            refreshes: read(&self.refreshes),
            withheld: read(&self.withheld),
            unchanged_pages: read(&self.unchanged_pages),
            failures: read(&self.failures),
            statuses: std::array::from_fn(|at| read(&self.statuses[at])),
            bytes: read(&self.bytes),
            ..OriginSnapshot::default()
        };
        self.first_byte.read_into(&mut snapshot.first_byte);
        self.whole.read_into(&mut snapshot.whole);
        snapshot
    }
}

impl MetricsSnapshot {
    /// All client requests with this outcome.
    pub fn of(&self, outcome: Outcome) -> u64 {
        self.all().map(|route| route.of(outcome)).sum()
    }

    /// All client requests.
    pub fn requests(&self) -> u64 {
        self.all().map(RouteSnapshot::requests).sum()
    }

    /// Bytes of content sent to clients.
    pub fn bytes(&self) -> u64 {
        self.all().map(|route| route.bytes).sum()
    }

    /// Responses to clients by status class, 1xx to 5xx.
    pub fn responses(&self) -> [u64; CLASSES] {
        let mut all = [0; CLASSES];
        for route in self.all() {
            for (sum, count) in all.iter_mut().zip(route.responses()) {
                *sum += count;
            }
        }
        all
    }

    /// Latency of hits.
    pub fn hits(&self) -> Latencies {
        let mut hits = Latencies::default();
        self.routes.iter().for_each(|route| hits.add(&route.hits));
        hits
    }

    /// Clients' time to first byte where the response was not available synchronously.
    pub fn waits(&self) -> Latencies {
        let mut waits = Latencies::default();
        self.routes.iter().for_each(|route| waits.add(&route.waits));
        waits
    }

    /// Sum over all origins.
    pub fn origin(&self) -> OriginSnapshot {
        let mut all = OriginSnapshot::default();
        self.routes.iter().for_each(|route| all.add(&route.origin));
        all
    }

    /// Origin requests avoided.
    pub fn fetches_avoided(&self) -> u64 {
        self.routes.iter().map(RouteSnapshot::fetches_avoided).sum()
    }

    /// Origin time avoided.
    pub fn origin_time_avoided(&self) -> Duration {
        self.routes
            .iter()
            .map(RouteSnapshot::origin_time_avoided)
            .sum()
    }

    fn all(&self) -> impl Iterator<Item = &RouteSnapshot> {
        self.routes.iter().chain([&self.no_route])
    }
}

impl RouteSnapshot {
    /// Client requests with this outcome.
    pub const fn of(&self, outcome: Outcome) -> u64 {
        self.outcomes[outcome as usize]
    }

    /// All its client requests.
    pub fn requests(&self) -> u64 {
        self.outcomes.iter().sum()
    }

    /// Responses to its clients by status class, 1xx to 5xx.
    pub fn responses(&self) -> [u64; CLASSES] {
        let mut responses = self.statuses;
        let others: u64 = self.statuses.iter().sum();
        let answered = self.requests() - self.of(Outcome::Left);
        // The counters are read one after the other.
        responses[SUCCESS] = answered.saturating_sub(others);
        responses
    }

    /// Origin requests avoided: requests answered from a stored response or a coalesced fetch, less
    /// background refreshes.
    pub fn fetches_avoided(&self) -> u64 {
        let answered = [Outcome::Hit, Outcome::Stale, Outcome::Collapsed];
        let answered: u64 = answered.iter().map(|&outcome| self.of(outcome)).sum();
        answered.saturating_sub(self.origin.refreshes)
    }

    /// Origin time avoided: avoided requests times the route's mean origin response time.
    pub fn origin_time_avoided(&self) -> Duration {
        let mean = self.origin.whole.mean().unwrap_or_default();
        let seconds = mean.as_secs_f64() * self.fetches_avoided() as f64;
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX)
    }
}

impl OriginSnapshot {
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.refreshes += other.refreshes;
        self.withheld += other.withheld;
        self.unchanged_pages += other.unchanged_pages;
        self.failures += other.failures;
        for (sum, more) in self.statuses.iter_mut().zip(other.statuses) {
            *sum += more;
        }
        self.bytes += other.bytes;
        self.first_byte.add(&other.first_byte);
        self.whole.add(&other.whole);
    }
}

fn read(cell: &AtomicU64) -> u64 {
    cell.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_counted_by_status_class() {
        let metrics = Metrics::default();
        let route = metrics.route("r");
        for (outcome, status) in [
            (Outcome::Miss, 200),
            (Outcome::Pass, 101),
            (Outcome::Miss, 404),
            (Outcome::Error, 502),
        ] {
            metrics.count(route, outcome, status);
        }
        metrics.left(route);
        // A response that another one replaced before it was sent.
        metrics.count(route, Outcome::Pass, 500);
        metrics.uncount(route, Outcome::Pass, 500);
        metrics.count(route, Outcome::Error, 204);
        for status in [200, 304] {
            metrics.answered_at_once(route, Outcome::Hit, status, 0);
        }
        let snapshot = metrics.snapshot();
        assert_eq!(snapshot.responses(), [1, 3, 1, 1, 1]);
        assert_eq!(snapshot.routes[0].responses(), [1, 3, 1, 1, 1]);
    }
}
