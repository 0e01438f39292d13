//! One request to an origin, from the moment it wants a place until the last byte of its answer. It is counted each
//! time it is sent, and not before.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use microcache_engine::RouteId;
use microcache_engine::body::BodyError;
use microcache_engine::origin::{OriginError, OriginRequest, Urgency};
use microcache_policy::Scheme;

use super::threads::Writer;
use super::{ErrorKind, Figures, Measure, Named, OriginFigures, RecentError, UpstreamId, Url};
use crate::traces::OpenSpan;

/// The figures that a group of servers adds to.
#[derive(Clone, Debug)]
pub(crate) struct GroupFigures {
    figures: Arc<Figures>,
    upstream: UpstreamId,
}

/// A request to an origin.
pub(crate) struct AskedOrigin {
    of: GroupFigures,
    route: RouteId,
    scheme: Scheme,
    host: Bytes,
    target: Bytes,
    is_refresh: bool,
    /// When it was sent, once it was.
    sent: Option<Instant>,
    /// Its span, if it is traced.
    span: Option<OpenSpan>,
}

impl GroupFigures {
    /// For the group of this name.
    pub(crate) fn new(figures: &Arc<Figures>, name: &str) -> Self {
        Self {
            upstream: figures.upstream(name),
            figures: Arc::clone(figures),
        }
    }

    /// A request that wants a place.
    pub(crate) fn ask(&self, request: &OriginRequest) -> AskedOrigin {
        AskedOrigin {
            of: self.clone(),
            route: request.route,
            scheme: request.scheme,
            host: request.authority.clone(),
            target: request.target.clone(),
            is_refresh: matches!(request.urgency, Urgency::Refresh { .. }),
            sent: None,
            span: self.span(request),
        }
    }

    /// Counts that fields of the client's request are withheld from one that is sent for everyone. Returns the
    /// route's name and the names of fields that were not withheld there before.
    pub(crate) fn withheld(&self, request: &OriginRequest) -> Option<(String, Vec<String>)> {
        if request.withheld.is_empty() {
            return None;
        }
        for figures in self.figures.origin_of(request.route, self.upstream) {
            figures.withheld.fetch_add(1, Ordering::Relaxed);
        }
        let new = self
            .figures
            .withheld
            .new_of(request.route, &request.withheld);
        let route = self.figures.route_name(request.route)?;
        (!new.is_empty()).then_some((route, new))
    }

    fn span(&self, request: &OriginRequest) -> Option<OpenSpan> {
        let (span, traces) = (request.span?, self.figures.traces()?);
        let upstream = self.figures.upstream_name(self.upstream);
        let upstream = upstream.unwrap_or_default();
        Some(OpenSpan::new(traces, span, request, upstream))
    }
}

impl AskedOrigin {
    /// It has a place, and a server is chosen now.
    pub(crate) fn sent(&mut self, now: Instant) {
        self.sent = Some(now);
    }

    /// Counts that it is sent, for the first time or once more.
    pub(crate) fn count(&self) {
        for figures in self.figures() {
            let refreshes = u64::from(self.is_refresh);
            figures.requests.fetch_add(1, Ordering::Relaxed);
            figures.refreshes.fetch_add(refreshes, Ordering::Relaxed);
        }
    }

    /// Its answer begins with this status. Says how long that took.
    pub(crate) fn answered(&self, status: u16) -> Duration {
        let took = self.took();
        let class = usize::from(status / 100).saturating_sub(1).min(4);
        if let Some(span) = &self.span {
            span.answered(status);
        }
        for figures in self.figures() {
            figures.statuses[class].fetch_add(1, Ordering::Relaxed);
            figures.first_byte.record(took, Writer::Many);
        }
        if status >= 500 {
            self.error(Some(status), format!("the origin answered {status}"));
        }
        took
    }

    /// Its answer is whole, with so much content, and took so long if that says something of the origin.
    pub(crate) fn ended(&self, bytes: u64, took: Option<Duration>) {
        for figures in self.figures() {
            figures.bytes.fetch_add(bytes, Ordering::Relaxed);
            if let Some(took) = took {
                figures.whole.record(took, Writer::Many);
            }
        }
        let Some(took) = took else {
            return;
        };
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.of.figures.note(
            self.named(),
            &[(Measure::OriginTime, micros)],
            self.of.figures.clock.now(),
        );
    }

    /// It has no answer.
    pub(crate) fn failed(&self, why: &OriginError) {
        if let Some(span) = &self.span {
            span.failed(why.to_string());
        }
        // That the client's content is broken is no fault of the origin's, nor that it has left.
        if !matches!(why, OriginError::RequestBody(_) | OriginError::Left) {
            self.count_failure();
            self.error(None, why.to_string());
        }
    }

    /// Its answer broke off.
    pub(crate) fn broke_off(&self, why: &BodyError) {
        if let Some(span) = &self.span {
            span.failed(format!("the answer broke off: {why}"));
        }
        self.count_failure();
        self.error(None, format!("an answer broke off: {why}"));
    }

    fn count_failure(&self) {
        for figures in self.figures() {
            figures.failures.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn error(&self, status: Option<u16>, reason: String) {
        let figures = &self.of.figures;
        figures.error(RecentError {
            kind: ErrorKind::Origin,
            at: figures.clock.now(),
            count: 1,
            route: figures.route_name(self.route),
            upstream: figures.upstream_name(self.of.upstream),
            url: Some(Url::new(self.named()).to_string()),
            status,
            reason,
        });
    }

    fn named(&self) -> Named<'_> {
        Named {
            scheme: self.scheme,
            host: &self.host,
            target: &self.target,
        }
    }

    fn figures(&self) -> [&OriginFigures; 2] {
        self.of.figures.origin_of(self.route, self.of.upstream)
    }

    /// How long it takes until now.
    pub(crate) fn took(&self) -> Duration {
        self.sent.map(|sent| sent.elapsed()).unwrap_or_default()
    }
}
