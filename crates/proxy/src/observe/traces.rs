//! Tracing: sampling of requests, and spans of origin requests (W3C Trace Context).
//!
//! A traced request has a span, and its origin requests have child spans, which are the parents of the
//! application's. The `sampled` flag of an incoming `traceparent` is respected if it is off, and also if it
//! is on and the peer is trusted. All other requests are sampled at random.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use microcache_engine::OriginRequest;
use microcache_policy::{Fields, Span, trace_parent};

/// Export counters of spans since the start.
#[derive(Debug, Default)]
pub struct TraceCounts {
    /// Spans accepted by the collector.
    pub sent: AtomicU64,
    /// Spans dropped because the queue was full.
    pub dropped: AtomicU64,
    /// Spans that the collector did not accept.
    pub failed: AtomicU64,
}

/// Callback for origin spans.
type SpanSink = Box<dyn Fn(&OriginSpan) + Send + Sync>;

/// The tracing of a server.
pub struct Traces {
    share: f64,
    tell: SpanSink,
    counts: Arc<TraceCounts>,
}

/// Span of an origin request.
#[derive(Debug)]
pub struct OriginSpan {
    /// Ids of the span.
    pub span: Span,
    /// The upstream group.
    pub upstream: String,
    /// The method.
    pub method: String,
    /// `Host` sent to the origin.
    pub host: String,
    /// The path, without the query.
    pub path: String,
    /// A background refresh: a stale response was served meanwhile.
    pub is_refresh: bool,
    /// Arrival at the queue.
    pub began: SystemTime,
    /// End of the request.
    pub ended: SystemTime,
    /// Status of the response, if there was one.
    pub status: Option<u16>,
    /// Error.
    pub error: Option<String>,
}

impl std::fmt::Debug for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Traces({})", self.share)
    }
}

impl Traces {
    /// Traces a share of requests, from 0 to 1. `tell` is called with their origin spans.
    pub fn new(
        share: f64,
        counts: Arc<TraceCounts>,
        tell: impl Fn(&OriginSpan) + Send + Sync + 'static,
    ) -> Self {
        Self {
            share,
            tell: Box::new(tell),
            counts,
        }
    }

    /// Export counters.
    pub fn counts(&self) -> &TraceCounts {
        &self.counts
    }

    /// Begins the span of a request, if it is traced. `is_trusted` says that the peer is trusted.
    pub fn begin(&self, request: Fields<'_>, is_trusted: bool) -> Option<Span> {
        let from = trace_parent(request);
        let is_traced = match from {
            Some(from) if !from.is_sampled => false,
            Some(_) if is_trusted => true,
            _ => by_chance(self.share),
        };
        is_traced.then(|| {
            let trace = || {
                let halves = [name(), name()];
                std::array::from_fn(|at| halves[at / 8][at % 8])
            };
            Span {
                trace: from.map_or_else(trace, |from| from.trace),
                id: name(),
                parent: from.map(|from| from.parent),
            }
        })
    }

    /// Begins a child span.
    pub(crate) fn part(span: &Span) -> Span {
        span.child(name())
    }
}

/// Span of an origin request in progress, reported on drop.
#[derive(Debug)]
pub(crate) struct OpenSpan {
    traces: Arc<Traces>,
    span: Span,
    upstream: String,
    method: String,
    host: String,
    path: String,
    is_refresh: bool,
    began: SystemTime,
    status: AtomicU16,
    error: OnceLock<String>,
}

/// Limit of a reported path, in bytes.
const LONGEST_PATH: usize = 512;

impl OpenSpan {
    pub(crate) fn new(
        traces: &Arc<Traces>,
        span: Span,
        request: &OriginRequest,
        upstream: String,
    ) -> Self {
        Self {
            traces: Arc::clone(traces),
            span,
            upstream,
            method: request.method.to_string(),
            host: text(&request.authority),
            path: shown_path(&request.target),
            is_refresh: !request.urgency.has_clients(),
            began: SystemTime::now(),
            status: AtomicU16::new(0),
            error: OnceLock::new(),
        }
    }

    pub(crate) fn answered(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, why: String) {
        // The first error is the cause of the others.
        let _ = self.error.set(why);
    }
}

impl Drop for OpenSpan {
    fn drop(&mut self) {
        let status = self.status.load(Ordering::Relaxed);
        let error = self.error.take();
        (self.traces.tell)(&OriginSpan {
            span: self.span,
            upstream: std::mem::take(&mut self.upstream),
            method: std::mem::take(&mut self.method),
            host: std::mem::take(&mut self.host),
            path: std::mem::take(&mut self.path),
            is_refresh: self.is_refresh,
            began: self.began,
            ended: SystemTime::now(),
            status: (status > 0).then_some(status),
            error: error.or_else(|| (status == 0).then(|| "cancelled".to_owned())),
        });
    }
}

/// Path of a target for display: without the query, cut if it is long.
pub fn shown_path(target: &[u8]) -> String {
    let end = memchr::memchr2(b'?', b'#', target).unwrap_or(target.len());
    text(&target[..end.min(LONGEST_PATH)])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns true with this probability. Random, since every hundredth of a periodic sequence could be all or
/// none.
pub fn by_chance(share: f64) -> bool {
    share > 0.0 && (random() >> 11) as f64 / ((1_u64 << 53) as f64) < share
}

/// A random span id, never zero (Trace Context §3.2.2.4).
fn name() -> [u8; 8] {
    random().max(1).to_be_bytes()
}

/// A random number that differs between processes and calls.
fn random() -> u64 {
    thread_local! {
        static STATE: Cell<u64> = Cell::new(RandomState::new().hash_one(0) | 1);
    }
    // xorshift64* (Marsaglia).
    let mut state = STATE.get();
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    STATE.set(state);
    state.wrapping_mul(0x2545_F491_4F6C_DD1D)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn traces(share: f64) -> Traces {
        Traces::new(share, Arc::default(), |_| {})
    }

    fn request(flags: &str) -> String {
        format!("traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-{flags}\r\n")
    }

    #[test]
    fn the_clients_sampling_decision_counts_if_it_is_trusted() {
        let (all, none) = (traces(1.0), traces(0.0));
        let begin = |traces: &Traces, block: &str, is_trusted| {
            traces.begin(Fields::new(block.as_bytes()), is_trusted)
        };
        for is_trusted in [false, true] {
            assert!(begin(&all, "", is_trusted).is_some_and(|span| span.parent.is_none()));
            assert!(begin(&none, "", is_trusted).is_none());
            assert!(begin(&all, &request("00"), is_trusted).is_none());
        }
        assert!(begin(&none, &request("01"), false).is_none());
        let span = begin(&none, &request("01"), true).expect("he is trusted");
        assert_eq!(span.trace[..2], [0x4b, 0xf9]);
        assert_eq!(span.parent.map(|parent| parent[7]), Some(0xb7));
        assert_ne!(Some(span.id), span.parent);
        let strange = begin(&all, &request("01"), false).expect("by chance");
        assert_eq!(strange.trace, span.trace);
        assert_ne!(strange.id, span.id);
    }

    #[test]
    fn a_share_is_about_that_of_all() {
        let taken = (0..20_000).filter(|_| by_chance(0.25)).count();
        assert!((4_000..6_000).contains(&taken), "{taken}");
        assert!(!by_chance(0.0) && by_chance(1.0));
    }

    #[test]
    fn a_span_has_the_path_of_the_target_only() {
        assert_eq!(shown_path(b"/a/b?secret=1"), "/a/b");
        assert_eq!(shown_path(b"*"), "*");
        assert_eq!(shown_path(&[b'x'; 5000]).len(), LONGEST_PATH);
    }
}
