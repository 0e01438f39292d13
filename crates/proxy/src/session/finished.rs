//! Record of a finished request, for the access log.

use std::sync::Arc;

use http::Version;
use microcache_engine::{Outcome, Request, Response};
use microcache_policy::{CacheStatus, Fields, Span, Time};

use super::forwarding::Peer;
use crate::config::Route;
use crate::observe::VisitedServer;

/// Callback for each finished request.
pub(crate) type OnFinished = Arc<dyn Fn(&FinishedRequest<'_>) + Send + Sync>;

/// A finished request.
#[derive(Clone, Copy, Debug)]
pub struct FinishedRequest<'a> {
    /// Address of the client.
    pub address: &'a str,
    /// The request; `None` if it could not be parsed.
    pub request: Option<Request<'a>>,
    /// Its route; `None` if it was answered before routing.
    pub route: Option<&'a Route>,
    /// HTTP version of the request.
    pub version: Version,
    /// Final response; `None` if the client left before it.
    pub answer: Option<FinalResponse>,
    /// Fields of the response, for the access log: all of a response that was answered at once, else the chosen ones.
    pub response: Fields<'a>,
    /// Origin server that was asked, if the access log has it.
    pub server: Option<&'a VisitedServer>,
    /// Bytes of content passed to the connection.
    pub bytes: u64,
    /// Time at which the head was read.
    pub began: Time,
    /// Time of the end.
    pub ended: Time,
    /// Trace of the request.
    pub traced: TraceState,
}

/// Tracing state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceState {
    /// Answered at once; sampling is not decided yet.
    Undecided,
    /// Not traced.
    No,
    /// Traced, with its span.
    Yes(Span),
}

/// Final response to a request.
#[derive(Clone, Copy, Debug)]
pub struct FinalResponse {
    /// Status code.
    pub status: u16,
    /// Outcome in the metrics.
    pub outcome: Outcome,
    /// Cache-Status (RFC 9211).
    pub cache_status: CacheStatus,
    /// Time at which the response began.
    pub at: Time,
}

impl<'a> FinishedRequest<'a> {
    /// Records a request that was answered at once, with a complete body.
    pub(super) fn at_once(
        request: &Request<'a>,
        route: Option<&'a Route>,
        version: Version,
        response: &'a Response,
        bytes: u64,
        now: Time,
    ) -> Self {
        Self {
            response: response.fields(),
            server: None,
            address: request.address,
            request: Some(*request),
            route,
            version,
            answer: Some(FinalResponse::of(response, now)),
            bytes,
            began: now,
            ended: now,
            traced: TraceState::Undecided,
        }
    }

    /// Records a request that could not be parsed, and its error response.
    pub(super) fn refused(peer: &'a Peer, version: Version, page: &'a Response, now: Time) -> Self {
        Self {
            response: page.fields(),
            server: None,
            address: peer.address(),
            request: None,
            route: None,
            version,
            answer: Some(FinalResponse::of(page, now)),
            bytes: page.length.unwrap_or_default(),
            began: now,
            ended: now,
            traced: TraceState::No,
        }
    }
}

impl FinalResponse {
    pub(super) fn of(response: &Response, at: Time) -> Self {
        Self {
            status: response.status,
            outcome: response.outcome,
            cache_status: response.cache_status,
            at,
        }
    }
}
