//! Which requests are traced, and what is told of them.
//!
//! A request that is traced has a span, and so has what is asked of the origin for it, as a part of it: that
//! one is the parent of whatever the application makes. Whoever asked already says whether the trace is
//! kept: if not, it is not kept here either; and if it is, that counts where the peer is trusted. All others
//! are traced by chance.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use microcache_engine::OriginRequest;
use microcache_engine::origin::Urgency;
use microcache_policy::{Fields, Span, trace_parent};

/// What became of spans, since the start.
#[derive(Debug, Default)]
pub struct TraceCounts {
    /// Those that a collector has taken.
    pub sent: AtomicU64,
    /// Those for which there was no room.
    pub dropped: AtomicU64,
    /// Those that no collector has taken.
    pub failed: AtomicU64,
}

/// Who is told of what was asked of origins.
type Tell = Box<dyn Fn(&OriginSpan) + Send + Sync>;

/// The tracing of a server.
pub struct Traces {
    share: f64,
    tell: Tell,
    counts: Arc<TraceCounts>,
}

/// Something that was asked of an origin.
#[derive(Debug)]
pub struct OriginSpan {
    /// Its place in the trace.
    pub span: Span,
    /// The upstream group.
    pub upstream: String,
    /// The method.
    pub method: String,
    /// The host, as the origin is told it.
    pub host: String,
    /// The path, without the query.
    pub path: String,
    /// A stale response was the answer meanwhile.
    pub is_refresh: bool,
    /// When it wanted a place among those that are with the origin.
    pub began: SystemTime,
    /// When it was over.
    pub ended: SystemTime,
    /// What it was answered, if it was.
    pub status: Option<u16>,
    /// What went wrong.
    pub error: Option<String>,
}

impl std::fmt::Debug for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Traces({})", self.share)
    }
}

impl Traces {
    /// Of so many requests, from 0 to 1. What is asked of origins for them is told.
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

    /// What became of spans.
    pub fn counts(&self) -> &TraceCounts {
        &self.counts
    }

    /// The span of a request, if it is traced. `vouched` says that the peer is trusted.
    pub fn begin(&self, request: Fields<'_>, vouched: bool) -> Option<Span> {
        let from = trace_parent(request);
        let is_traced = match from {
            Some(from) if !from.is_sampled => false,
            Some(_) if vouched => true,
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

    /// A part of a span.
    pub(crate) fn part(span: &Span) -> Span {
        span.child(name())
    }
}

/// The span of what is being asked of an origin. It is told of when this is dropped.
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

/// As much of a path is told.
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
            is_refresh: matches!(request.urgency, Urgency::Refresh { .. }),
            began: SystemTime::now(),
            status: AtomicU16::new(0),
            error: OnceLock::new(),
        }
    }

    pub(crate) fn answered(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self, why: String) {
        // The first is the reason of the others.
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
            error: error.or_else(|| (status == 0).then(|| "it was given up".to_owned())),
        });
    }
}

/// The path of a target, as much of it as is told, without the query.
pub fn shown_path(target: &[u8]) -> String {
    let end = memchr::memchr2(b'?', b'#', target).unwrap_or(target.len());
    text(&target[..end.min(LONGEST_PATH)])
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether something is one of this share of all. By chance: whoever takes every hundredth sees of what
/// repeats every hundred times all or nothing.
pub fn by_chance(share: f64) -> bool {
    share > 0.0 && (random() >> 11) as f64 / ((1_u64 << 53) as f64) < share
}

/// A name of a span: no zeros (Trace Context §3.2.2.4).
fn name() -> [u8; 8] {
    random().max(1).to_be_bytes()
}

/// A number that differs from process to process and from call to call.
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
    fn whoever_asks_decides_as_far_as_he_is_trusted() {
        let (all, none) = (traces(1.0), traces(0.0));
        let begin = |traces: &Traces, block: &str, vouched| {
            traces.begin(Fields::new(block.as_bytes()), vouched)
        };
        for vouched in [false, true] {
            assert!(begin(&all, "", vouched).is_some_and(|span| span.parent.is_none()));
            assert!(begin(&none, "", vouched).is_none());
            assert!(begin(&all, &request("00"), vouched).is_none());
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
    fn of_a_target_the_path_is_told() {
        assert_eq!(shown_path(b"/a/b?secret=1"), "/a/b");
        assert_eq!(shown_path(b"*"), "*");
        assert_eq!(shown_path(&[b'x'; 5000]).len(), LONGEST_PATH);
    }
}
