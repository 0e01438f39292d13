//! Account of a request: counts it when it is answered, and reports its end.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Version};
use microcache_engine::{Body, Outcome, Request, RequestHead, Response, RouteId};
use microcache_policy::{Fields, IndexedBlock, Span, Time};
use microcache_store::poll_clock;
use tokio::time::Instant;

use super::finished::{FinalResponse, FinishedRequest, TraceState};
use super::log_notes::LogNotes;
use crate::metrics::{Measure, RequestUrl};
use crate::observe::ServerVisit;
use crate::shared::Shared;

/// Returns the bytes of content of a response with a complete body.
pub(super) fn content_length(request: &Request<'_>, response: &Response) -> u64 {
    match &response.body {
        _ if *request.method == Method::HEAD => 0,
        Body::Stored(hit) => hit.body_len(),
        Body::Full(bytes) => bytes.len() as u64,
        _ => 0,
    }
}

/// Account of a request that is not answered at once. Counts the request when it is answered, and reports it
/// once when dropped. Empty after it was handed on.
#[derive(Default)]
pub(crate) struct RequestAccount(Option<Box<OpenRequest>>);

struct OpenRequest {
    shared: Arc<Shared>,
    route: RouteId,
    head: RequestHead,
    version: Version,
    state: State,
    bytes: u64,
    began: Time,
    /// Span, if the request is traced, which few are.
    span: Option<Box<Span>>,
    /// Notes for the access log, if it has fields that need them.
    notes: Option<Box<LogNotes>>,
}

/// Progress of the request.
enum State {
    Read,
    /// Waiting for the response since then.
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

impl RequestAccount {
    pub(super) fn open(
        shared: &Arc<Shared>,
        route: RouteId,
        head: RequestHead,
        version: Version,
        began: Time,
    ) -> Self {
        let traces = shared.metrics.traces();
        let span = traces.and_then(|traces| traces.begin(head.fields.fields(), head.is_trusted));
        let is_logged = shared.on_finished.is_some();
        Self(Some(Box::new(OpenRequest {
            span: span.map(Box::new),
            notes: is_logged
                .then(|| LogNotes::of(&shared.config.logs))
                .flatten(),
            shared: Arc::clone(shared),
            route,
            head,
            version,
            state: State::Read,
            bytes: 0,
            began,
        })))
    }

    /// Returns the address of the client.
    pub(super) fn address(&self) -> Option<&str> {
        self.0.as_ref().map(|open| &*open.head.address)
    }

    /// Returns the span of the request, if it is traced.
    pub(super) fn span(&self) -> Option<Span> {
        self.0.as_ref()?.span.as_deref().copied()
    }

    /// Returns where the upstream group notes the server that is asked, if the access log has it.
    pub(super) fn visit(&self) -> Option<&ServerVisit> {
        Some(&self.0.as_ref()?.notes.as_ref()?.visit)
    }

    /// Starts the time that the client waits for its response.
    pub(super) fn waits(&mut self) {
        if let Some(open) = &mut self.0 {
            open.state = State::Waits(poll_clock::now());
        }
    }

    /// Drops everything but what the final report needs, for a response that may take long.
    pub(super) fn release_request(&mut self) {
        if let Some(open) = &mut self.0
            && open.shared.on_finished.is_none()
        {
            open.head.fields = IndexedBlock::default();
            open.head.host = Bytes::copy_from_slice(&open.head.host);
            open.head.target = Bytes::copy_from_slice(&open.head.target);
        }
    }

    /// Records a response; the last one counts.
    pub(crate) fn answered(&mut self, response: &Response, now: Time) {
        let Some(open) = &mut self.0 else {
            return;
        };
        let (metrics, outcome) = (&open.shared.metrics, response.outcome);
        if let State::Waits(since) = open.state {
            metrics.waited(open.route, poll_clock::now() - since);
        }
        if let Some(before) = open.state.answer() {
            metrics.uncount(open.route, before.outcome, before.status);
        }
        metrics.count(open.route, outcome, response.status);
        if let Some(notes) = &mut open.notes {
            notes.answered(&open.shared.config.logs, response);
        }
        open.state = State::Answered(FinalResponse::of(response, now));
        if outcome == Outcome::Error {
            metrics.answered_error(open.route, Some(open.named()), response, now);
        }
    }

    /// Records bytes of content passed to the connection.
    pub(crate) fn sent(&mut self, bytes: u64) {
        if let Some(open) = &mut self.0 {
            open.bytes += bytes;
            open.shared.metrics.sent(open.route, bytes);
        }
    }

    /// Returns the route that the request is counted for.
    pub(super) fn route(&self) -> Option<RouteId> {
        self.0.as_ref().map(|open| open.route)
    }

    /// Records bytes that the metrics have counted already.
    pub(crate) fn add_counted(&mut self, bytes: u64) {
        if let Some(open) = &mut self.0 {
            open.bytes += bytes;
        }
    }
}

impl OpenRequest {
    fn named(&self) -> RequestUrl<'_> {
        RequestUrl {
            scheme: self.head.scheme,
            host: &self.head.host,
            target: microcache_push::redacted_target(&self.head.target),
        }
    }

    /// Adds the request to the top lists.
    fn note(&self) {
        let metrics = &self.shared.metrics;
        let misses = match self.state.answer().map(|answer| answer.outcome) {
            Some(Outcome::Hit | Outcome::Stale | Outcome::Error) => 0,
            Some(_) => 1,
            None => {
                metrics.left(self.route);
                0
            }
        };
        let amounts = [
            (Measure::Requests, 1),
            (Measure::Misses, misses),
            (Measure::Bytes, self.bytes),
        ];
        metrics.note(|| self.named(), &amounts);
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.note();
        let Some(on_finished) = &self.shared.on_finished else {
            return;
        };
        let notes = self.notes.as_ref();
        let server = notes.and_then(|notes| notes.visit.server());
        on_finished(&FinishedRequest {
            response: notes.map_or_else(Fields::default, |notes| notes.response.fields()),
            server: server.as_ref(),
            address: &self.head.address,
            request: Some(self.head.as_request()),
            route: self.shared.route(self.route, &self.head.as_request()),
            version: self.version,
            answer: self.state.answer(),
            bytes: self.bytes,
            began: self.began,
            ended: self.shared.engine.clock.now(),
            traced: self
                .span
                .as_deref()
                .map_or(TraceState::No, |span| TraceState::Yes(*span)),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each open event stream has one; the allocator's size classes are 256 and 320.
    #[test]
    fn the_account_of_an_open_request_is_small() {
        assert!(size_of::<OpenRequest>() <= 288);
    }
}
