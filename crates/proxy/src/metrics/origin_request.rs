//! Metrics of one origin request, from its arrival at the queue to the last byte of its response. Every
//! attempt to send it is counted.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_engine::RouteId;
use microcache_engine::body::BodyError;
use microcache_engine::origin::{OriginError, OriginRequest};
use microcache_policy::Scheme;

use super::threads::WriteMode;
use super::{
    DisplayUrl, ErrorKind, Measure, Metrics, OriginMetrics, RecentError, RequestUrl, UpstreamId,
};
use crate::traces::OpenSpan;

/// Metrics of an upstream group.
#[derive(Clone, Debug)]
pub(crate) struct GroupMetrics {
    metrics: Arc<Metrics>,
    upstream: UpstreamId,
}

/// A request to an origin, for metrics, errors and traces.
pub(crate) struct OriginRequestMetrics {
    of: GroupMetrics,
    route: RouteId,
    scheme: Scheme,
    host: Bytes,
    target: Bytes,
    is_refresh: bool,
    /// Time of the latest attempt, once it was sent.
    sent: Option<Instant>,
    /// Its span, if it is traced, which few are.
    span: Option<Box<OpenSpan>>,
}

impl GroupMetrics {
    /// Metrics of the group with this name.
    pub(crate) fn new(metrics: &Arc<Metrics>, name: &str) -> Self {
        Self {
            upstream: metrics.upstream(name),
            metrics: Arc::clone(metrics),
        }
    }

    /// Begins a request that waits for a permit.
    pub(crate) fn begin(&self, request: &OriginRequest) -> OriginRequestMetrics {
        OriginRequestMetrics {
            of: self.clone(),
            route: request.route,
            scheme: request.scheme,
            host: request.authority.clone(),
            target: request.target.clone(),
            is_refresh: !request.urgency.has_clients(),
            sent: None,
            span: self.span(request),
        }
    }

    /// Counts a shared fetch that omitted fields of the client's request. Returns the route's name and
    /// the field names that are new there.
    pub(crate) fn withheld(&self, request: &OriginRequest) -> Option<(String, Vec<String>)> {
        if request.withheld.is_empty() {
            return None;
        }
        for metrics in self.metrics.origin_of(request.route, self.upstream) {
            metrics.withheld.fetch_add(1, Ordering::Relaxed);
        }
        let new = self
            .metrics
            .withheld
            .new_of(request.route, &request.withheld);
        let route = self.metrics.route_name(request.route)?;
        (!new.is_empty()).then_some((route, new))
    }

    fn span(&self, request: &OriginRequest) -> Option<Box<OpenSpan>> {
        let (span, traces) = (request.span?, self.metrics.traces()?);
        let upstream = self.metrics.upstream_name(self.upstream);
        let upstream = upstream.unwrap_or_default();
        Some(Box::new(OpenSpan::new(traces, span, request, upstream)))
    }
}

impl OriginRequestMetrics {
    /// Records that a permit was granted, and that a server is being chosen.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.sent = Some(now);
    }

    /// Counts an attempt.
    pub(crate) fn count(&self) {
        for metrics in self.metrics() {
            let refreshes = u64::from(self.is_refresh);
            metrics.requests.fetch_add(1, Ordering::Relaxed);
            metrics.refreshes.fetch_add(refreshes, Ordering::Relaxed);
        }
    }

    /// Records the status of a response that begins now, and returns the time to first byte.
    pub(crate) fn answered(&self, status: u16, now: Instant) -> Duration {
        let took = self.took(now);
        let class = usize::from(status / 100).saturating_sub(1).min(4);
        if let Some(span) = &self.span {
            span.answered(status);
        }
        for metrics in self.metrics() {
            metrics.statuses[class].fetch_add(1, Ordering::Relaxed);
            metrics.first_byte.record(took, WriteMode::Many);
        }
        if status >= 500 {
            self.error(Some(status), format!("the origin answered {status}"));
        }
        took
    }

    /// Records the end of the response: bytes of content, and its duration if that is representative of the
    /// origin.
    pub(crate) fn ended(&self, bytes: u64, took: Option<Duration>) {
        for metrics in self.metrics() {
            metrics.bytes.fetch_add(bytes, Ordering::Relaxed);
            if let Some(took) = took {
                metrics.whole.record(took, WriteMode::Many);
            }
        }
        let Some(took) = took else {
            return;
        };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let amounts = [(Measure::OriginTime, micros)];
        self.of.metrics.note(|| self.named(), &amounts);
    }

    /// Records a failure without a response.
    pub(crate) fn failed(&self, why: &OriginError) {
        if let Some(span) = &self.span {
            span.failed(why.to_string());
        }
        // A broken request body, or a client that left, is not a failure of the origin.
        if !matches!(why, OriginError::RequestBody(_) | OriginError::Left) {
            self.count_failure();
            self.error(None, why.to_string());
        }
    }

    /// Records a truncated response.
    pub(crate) fn broke_off(&self, why: &BodyError) {
        if let Some(span) = &self.span {
            span.failed(format!("the response was truncated: {why}"));
        }
        self.count_failure();
        self.error(None, format!("a response was truncated: {why}"));
    }

    fn count_failure(&self) {
        for metrics in self.metrics() {
            metrics.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn error(&self, status: Option<u16>, reason: String) {
        let metrics = &self.of.metrics;
        metrics.error(RecentError {
            kind: ErrorKind::Origin,
            at: metrics.clock.now(),
            count: 1,
            route: metrics.route_name(self.route),
            upstream: metrics.upstream_name(self.of.upstream),
            url: Some(DisplayUrl::new(self.named()).to_string()),
            status,
            reason,
        });
    }

    fn named(&self) -> RequestUrl<'_> {
        RequestUrl {
            scheme: self.scheme,
            host: &self.host,
            target: &self.target,
        }
    }

    fn metrics(&self) -> [&OriginMetrics; 2] {
        self.of.metrics.origin_of(self.route, self.of.upstream)
    }

    /// Time since it was sent.
    pub(crate) fn took(&self, now: Instant) -> Duration {
        let sent = self.sent.map(|sent| now.saturating_duration_since(sent));
        sent.unwrap_or_default()
    }
}
