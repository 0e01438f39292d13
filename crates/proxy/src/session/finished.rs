//! What is known of a request when it is over: all that a line of an access log can say.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::{Method, Version};
use microcache_engine::{Body, Outcome, Request, Response, RouteId};
use microcache_policy::{CacheStatus, FieldBlock, Scheme, Span, Time};

use super::{OwnedHead, Peer};
use crate::metrics::{Measure, RequestUrl};
use crate::shared::Shared;

/// Who wants to know of each request when it is over.
pub(crate) type OnFinished = Arc<dyn Fn(&Finished<'_>) + Send + Sync>;

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub struct Finished<'a> {
    /// The address of the client.
    pub address: &'a str,
    /// The request; `None` if it could not be read.
    pub request: Option<Request<'a>>,
    /// The version of HTTP that it came by.
    pub version: Version,
    /// What it was answered; `None` if the client left before.
    pub answer: Option<FinalResponse>,
    /// Bytes of content that were given to the connection.
    pub bytes: u64,
    /// When the head had been read.
    pub began: Time,
    /// When it was over.
    pub ended: Time,
    /// Whether it is traced.
    pub traced: Traced,
}

/// Whether a request is traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// It was answered at once, and nobody has asked that yet.
    Undecided,
    /// It is not.
    No,
    /// It is.
    Yes(Span),
}

/// The final response to a request.
#[derive(Clone, Copy, Debug)]
pub struct FinalResponse {
    /// The status code.
    pub status: u16,
    /// What the request counts as.
    pub outcome: Outcome,
    /// What the cache did.
    pub cache_status: CacheStatus,
    /// When it was known.
    pub at: Time,
}

impl<'a> Finished<'a> {
    /// A request that was answered in the moment it was read, with a whole body.
    pub(super) fn at_once(
        request: &Request<'a>,
        version: Version,
        response: &Response,
        bytes: u64,
        now: Time,
    ) -> Self {
        Self {
            address: request.address,
            request: Some(*request),
            version,
            answer: Some(FinalResponse::of(response, now)),
            bytes,
            began: now,
            ended: now,
            traced: Traced::Undecided,
        }
    }

    /// A request that could not be read, and was answered with this page.
    pub(super) fn refused(peer: &'a Peer, version: Version, page: &Response, now: Time) -> Self {
        Self {
            address: peer.address(),
            request: None,
            version,
            answer: Some(FinalResponse::of(page, now)),
            bytes: page.length.unwrap_or_default(),
            began: now,
            ended: now,
            traced: Traced::No,
        }
    }
}

/// How much content goes with an answer that has a whole body.
pub(super) fn content_length(request: &Request<'_>, response: &Response) -> u64 {
    match &response.body {
        _ if *request.method == Method::HEAD => 0,
        Body::Stored(hit) => hit.body.len(),
        Body::Full(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

impl FinalResponse {
    fn of(response: &Response, at: Time) -> Self {
        Self {
            status: response.status,
            outcome: response.outcome,
            cache_status: response.cache_status,
            at,
        }
    }
}

/// A request that takes longer. It is counted when it is answered; when it is dropped the request is
/// over, however it ended: that is told once. Empty only where it was handed on.
#[derive(Default)]
pub(crate) struct Account(Option<Box<Open>>);

struct Open {
    shared: Arc<Shared>,
    route: RouteId,
    head: OwnedHead,
    address: Arc<str>,
    scheme: Scheme,
    is_trusted: bool,
    version: Version,
    state: State,
    bytes: u64,
    began: Time,
    /// Its span, if it is traced, which few are.
    span: Option<Box<Span>>,
}

/// How far it is.
enum State {
    Read,
    /// The client waits for its answer since then.
    Waits(Instant),
    Answered(FinalResponse),
}

impl State {
    const fn answer(&self) -> Option<FinalResponse> {
        match self {
            Self::Answered(answer) => Some(*answer),
            Self::Read | Self::Waits(_) => None,
        }
    }
}

impl Account {
    pub(super) fn open(
        shared: &Arc<Shared>,
        route: RouteId,
        head: OwnedHead,
        peer: &Peer,
        version: Version,
        began: Time,
    ) -> Self {
        let traces = shared.metrics.traces();
        let span = traces.and_then(|traces| traces.begin(head.fields.fields(), peer.trusted));
        Self(Some(Box::new(Open {
            span: span.map(Box::new),
            shared: Arc::clone(shared),
            route,
            head,
            address: peer.shared_address(),
            scheme: peer.scheme,
            is_trusted: peer.trusted,
            version,
            state: State::Read,
            bytes: 0,
            began,
        })))
    }

    /// The address of the client.
    pub(super) fn address(&self) -> Option<&str> {
        self.0.as_ref().map(|open| &*open.address)
    }

    /// The span of the request, if it is traced.
    pub(super) fn span(&self) -> Option<Span> {
        self.0.as_ref()?.span.as_deref().copied()
    }

    /// The client waits from now on until the request is answered.
    pub(super) fn waits(&mut self) {
        if let Some(open) = &mut self.0 {
            open.state = State::Waits(Instant::now());
        }
    }

    /// The answer may go on for long: of the request only that is kept which somebody is told at the end.
    pub(super) fn goes_on(&mut self) {
        if let Some(open) = &mut self.0
            && open.shared.on_finished.is_none()
        {
            open.head.fields = FieldBlock::default();
            open.head.target = Bytes::copy_from_slice(&open.head.target);
        }
    }

    /// The request has this answer; the last one counts.
    pub(crate) fn answered(&mut self, response: &Response, now: Time) {
        let Some(open) = &mut self.0 else {
            return;
        };
        let (metrics, outcome) = (&open.shared.metrics, response.outcome);
        if let State::Waits(since) = open.state {
            metrics.waited(open.route, since.elapsed());
        }
        match open.state.answer() {
            None => metrics.count(open.route, outcome),
            Some(before) => metrics.count_instead(open.route, outcome, before.outcome),
        }
        open.state = State::Answered(FinalResponse::of(response, now));
        if outcome == Outcome::Error {
            metrics.answered_error(open.route, Some(open.named()), response, now);
        }
    }

    /// So much content was given to the connection.
    pub(crate) fn sent(&mut self, bytes: u64) {
        if let Some(open) = &mut self.0 {
            open.bytes += bytes;
            open.shared.metrics.sent(open.route, bytes);
        }
    }
}

impl Open {
    fn named(&self) -> RequestUrl<'_> {
        RequestUrl {
            scheme: self.scheme,
            host: &self.head.host,
            target: microcache_push::redacted_target(&self.head.target),
        }
    }

    /// Adds it to what there is most of.
    fn note(&self, now: Time) {
        let metrics = &self.shared.metrics;
        let asked = match self.state.answer().map(|answer| answer.outcome) {
            Some(Outcome::Hit | Outcome::Stale | Outcome::Error) => 0,
            Some(_) => 1,
            None => {
                metrics.count(self.route, Outcome::Left);
                0
            }
        };
        let amounts = [
            (Measure::Requests, 1),
            (Measure::Misses, asked),
            (Measure::Bytes, self.bytes),
        ];
        metrics.note(self.named(), &amounts, now);
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let now = self.shared.engine.clock.now();
        self.note(now);
        let Some(tell) = &self.shared.on_finished else {
            return;
        };
        let head = &self.head;
        let request = Request {
            method: &head.method,
            scheme: self.scheme,
            host: &head.host,
            target: &head.target,
            fields: head.fields.fields(),
            address: &self.address,
            has_body: head.has_body,
            upgrade: head.upgrade,
            vouched: self.is_trusted,
            signed_in: false,
            ttl: None,
        };
        tell(&Finished {
            address: &self.address,
            request: Some(request),
            version: self.version,
            answer: self.state.answer(),
            bytes: self.bytes,
            began: self.began,
            ended: now,
            traced: self
                .span
                .as_deref()
                .map_or(Traced::No, |span| Traced::Yes(*span)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each event stream that is open has one.
    #[test]
    fn what_is_known_of_a_request_under_way_is_small() {
        assert!(size_of::<Open>() <= 256);
    }
}
