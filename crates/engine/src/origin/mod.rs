//! The origin: its requests, responses and errors.

pub(crate) mod client;
pub(crate) mod interim;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use bytes::Bytes;
use http::{Extensions, Method};
use microcache_policy::{Fields, FieldsBuf, Network, Scheme, Span, Time};
use microcache_store::clock;
pub use microcache_store::tier::BoxFuture;
use microcache_store::{FetchCost, Hit, TagNumbers};
use tokio::io::{AsyncRead, AsyncWrite};

use crate::audience::RequestClients;
use crate::body::{Body, BodyError};
use crate::cause::Cause;
pub use client::ClientConnection;
pub use interim::{Interim, Interims};

/// A request to the origin. Its fields are end-to-end ones, plus `Expect`, `Upgrade` and those the
/// proxy adds; `Host` and the framing fields are written by the connection.
#[derive(Debug)]
pub struct OriginRequest {
    /// The method.
    pub method: Method,
    /// The scheme that the client used.
    pub scheme: Scheme,
    /// The host, with the port unless it is the scheme's default.
    pub authority: Bytes,
    /// The raw path and query.
    pub target: Bytes,
    /// Field lines to send.
    pub fields: FieldsBuf,
    /// Names of the client's fields that are withheld because the response is shared.
    pub withheld: Vec<String>,
    /// The body.
    pub body: Body,
    /// The body's length, if the client sent one; without it the body is chunked.
    pub length: Option<u64>,
    /// The client asked for another protocol (`Upgrade` is among the fields).
    pub upgrade: bool,
    /// The client accepts trailers. Never set for a coalesced fetch.
    pub takes_trailers: bool,
    /// Takes 1xx responses on their way to the client.
    pub interim: Option<Interims>,
    /// The urgency of the request.
    pub urgency: Urgency,
    /// The clients that wait for the answer.
    pub clients: RequestClients,
    /// The connection of the only client that the response is for; `None` for a coalesced request
    /// or a refresh.
    pub client: Option<Arc<ClientConnection>>,
    /// The route, for metrics.
    pub route: RouteId,
    /// The trace span of the request, if it is recorded.
    pub span: Option<Span>,
    /// Extensions of the client's request, for the origin implementation.
    pub extensions: Extensions,
}

impl OriginRequest {
    /// A plain request without fields, body, client or route.
    pub fn bare(method: Method, authority: Bytes, target: Bytes) -> Self {
        Self {
            method,
            scheme: Scheme::Http,
            authority,
            target,
            fields: FieldsBuf::new(),
            withheld: Vec::new(),
            body: Body::Empty,
            length: None,
            upgrade: false,
            takes_trailers: false,
            interim: None,
            urgency: Urgency::Client,
            clients: RequestClients::One(Network::from_bits(0)),
            client: None,
            route: RouteId(0),
            span: None,
            extensions: Extensions::new(),
        }
    }
}

/// A route's number in metrics, stable across reloads; 0 for no route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RouteId(pub u16);

/// The urgency of a request to the origin.
#[derive(Clone, Debug)]
pub enum Urgency {
    /// Clients wait for it. Their addresses take turns.
    Client,
    /// A background refresh: a stale copy is being served. Entries that can soon no longer be
    /// served go first, then the most requested.
    Refresh {
        /// Number of times the stale copy was served since it expired.
        demand: Arc<AtomicU32>,
        /// The time for which it can still be served while its refresh is under way.
        left: Duration,
    },
    /// A fetch before any client asks. Clients and refreshes go first.
    Ahead,
}

impl Urgency {
    /// Returns true if clients wait for it.
    pub const fn has_clients(&self) -> bool {
        matches!(self, Self::Client)
    }
}

/// The origin's final answer.
#[derive(Debug)]
pub struct OriginResponse {
    /// The status code.
    pub status: u16,
    /// End-to-end fields, without `Content-Length`.
    pub fields: FieldsBuf,
    /// The `Content-Length` of the representation, if sent. Also set for responses to HEAD and for
    /// 304, which have no body.
    pub length: Option<u64>,
    /// The body.
    pub body: Body,
    /// With status 101, the connection with the new protocol.
    pub tunnel: Option<Box<Tunnel>>,
    /// Milliseconds from the call of [`Origin::fetch`] to the sending of the attempt that was
    /// answered: in a queue, or with failed attempts.
    pub waited: u32,
}

/// The times of a fetch, and the tags whose names were not kept.
#[derive(Clone, Debug)]
pub(crate) struct ExchangeTimes {
    /// The beginning: later purges cover the response.
    pub(crate) began: Time,
    /// `request_time` of RFC 9111 §4.2.3: the sending of the attempt that was answered. The time in
    /// the origin's queue does not age a response.
    pub(crate) request: Time,
    /// `response_time`: the arrival of its head.
    pub(crate) response: Time,
    /// The tags in lines that were too long to be stored and sent on.
    pub(crate) hashed_tags: TagNumbers,
}

impl ExchangeTimes {
    /// The times that decide freshness and storability.
    pub(crate) fn judged(&self) -> microcache_policy::Times {
        microcache_policy::Times {
            request: self.request,
            response: self.response,
            date: clock::date(self.response),
        }
    }

    /// The cost of the fetch. A time below the resolution of the clock counts as half of it.
    pub(crate) fn cost(&self) -> FetchCost {
        let took = Duration::from_millis(self.response.since(self.request));
        FetchCost::of(took.max(Duration::from_micros(500)))
    }

    /// The times of a fetch that began at `began`, sent its request at `sent`, and gets this
    /// response now.
    pub(crate) fn of(response: &OriginResponse, began: Time, sent: Time, now: Time) -> Self {
        Self {
            began,
            request: sent.plus(response.waited.into()),
            response: now,
            hashed_tags: TagNumbers::NONE,
        }
    }
}

/// A connection after a protocol switch.
pub struct Tunnel {
    /// Bytes that the origin has sent after its 101 response.
    pub early: Bytes,
    /// The connection.
    pub io: Box<dyn Duplex>,
    /// The tunnel holds a file descriptor.
    pub has_descriptor: bool,
}

impl std::fmt::Debug for Tunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tunnel({} early bytes)", self.early.len())
    }
}

/// A byte stream in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {
    /// Returns true if the last read took all that is available for now, and its waker is registered for more. A reader
    /// that is polled by one task then need not poll again before it is woken.
    fn is_drained(&self) -> bool {
        false
    }

    /// Records that the bytes of the last read were sent at once.
    fn mark_sent(&mut self) {}
}

/// The reason there is no response from the origin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OriginError {
    /// No server of the group could be connected to.
    #[error("cannot connect to the origin: {0}")]
    Connect(Arc<str>),
    /// The connection ended before a full response head.
    #[error("the origin closed the connection without an answer")]
    Disconnected,
    /// The response did not arrive in time.
    #[error("the origin did not answer in time")]
    Timeout,
    /// The response was not valid HTTP.
    #[error("the origin's answer was malformed: {0}")]
    Malformed(&'static str),
    /// The queue before the origin is full, or the wait in it was too long.
    #[error("the origin is at its limit of concurrent requests")]
    Busy,
    /// The request was not sent: every client that waited for the answer has left.
    #[error("every client that waited for the response has disconnected")]
    Left,
    /// Every server of the group is down.
    #[error("no healthy server")]
    Down,
    /// The client's own request body failed on its way.
    #[error("the request body failed")]
    RequestBody(#[source] BodyError),
    /// An error of a custom origin.
    #[error("the origin could not be contacted")]
    Other(#[source] Cause),
}

/// A source of responses for requests that the cache cannot answer.
pub trait Origin: Send + Sync {
    /// Sends one request and waits for the final response head.
    ///
    /// Dropping the future, or the response's body, before the end cancels the exchange.
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>>;

    /// The response to a GET of this target, if it is available without waiting. Called only for
    /// routes with [`Route::answers_at_once`](crate::Route::answers_at_once), which look up and
    /// store nothing.
    fn ready_response(&self, _target: &[u8]) -> Option<Hit> {
        None
    }

    /// As [`Self::ready_response`], for a request with these fields: they may change the response, or forbid it.
    fn ready_response_for(&self, target: &[u8], _request: Fields<'_>) -> Option<Hit> {
        self.ready_response(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_of_a_fetch_is_without_its_wait_in_the_queue() {
        let times = |waited: u32, now: u64| {
            let response = OriginResponse {
                status: 200,
                fields: FieldsBuf::new(),
                length: None,
                body: Body::Empty,
                tunnel: None,
                waited,
            };
            let began = Time::from_secs(100);
            ExchangeTimes::of(&response, began, began, began.plus(now))
        };
        let cost = |micros| FetchCost::of(Duration::from_micros(micros));
        assert_eq!(times(3000, 3500).cost(), cost(500_000));
        assert_eq!(times(0, 7).cost(), cost(7000));
        assert_eq!(times(3000, 3000).cost(), cost(500));
    }
}
