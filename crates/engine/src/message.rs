//! Requests and responses as the engine sees them.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, Method};
use microcache_policy::key::{Scheme, normal_host};
use microcache_policy::status::CacheStatus;
use microcache_policy::{
    FieldBlock, Fields, FieldsBuf, IndexedBlock, Millis, Network, OriginView, Rules, Span,
};

use crate::body::Body;
use crate::content::{ContentDigest, QueryContent};
use crate::origin::Tunnel;
use crate::origin::client::ClientConnection;
use crate::origin::interim::Interims;
use crate::outcome::Outcome;

/// A number that identifies a request in logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestId(NonZeroU64, u64);

impl RequestId {
    /// Returns the identifier with these halves. The first is never zero, so that a request without one is small.
    pub fn of([first, last]: [u64; 2]) -> Self {
        Self(NonZeroU64::new(first).unwrap_or(NonZeroU64::MIN), last)
    }
}

impl fmt::Display for RequestId {
    /// Writes 32 hexadecimal digits.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(first, last) = self;
        write!(f, "{first:016x}{last:016x}")
    }
}

/// A borrowed request head, with all that a hit needs.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one thing that a request is or not"
)]
pub struct Request<'a> {
    /// The method.
    pub method: &'a Method,
    /// The scheme that the client used.
    pub scheme: Scheme,
    /// The authority.
    pub host: &'a [u8],
    /// The raw path and query.
    pub target: &'a [u8],
    /// The client's field lines.
    pub fields: Fields<'a>,
    /// The client's address, as reported to the origin.
    pub address: &'a str,
    /// The request has a body.
    pub has_body: bool,
    /// The content of a QUERY, once it is received: part of the key.
    pub content: Option<&'a ContentDigest>,
    /// The client requests another protocol (`Upgrade` or CONNECT).
    pub upgrade: bool,
    /// The peer is a trusted proxy, and its forwarding fields count.
    pub is_trusted: bool,
    /// The client's connection is authenticated, so the request is personal without a field that
    /// says so.
    pub signed_in: bool,
    /// The freshness lifetime in milliseconds that the caller demands, whatever the origin says.
    pub ttl: Option<Millis>,
    /// The identifier, if one is assigned.
    pub id: Option<RequestId>,
}

impl<'a> Request<'a> {
    /// A plain GET request for a url, without fields or client.
    pub fn of_url(scheme: Scheme, host: &'a [u8], target: &'a [u8]) -> Self {
        Self {
            method: &Method::GET,
            scheme,
            host,
            target,
            fields: Fields::default(),
            address: "",
            has_body: false,
            content: None,
            upgrade: false,
            is_trusted: false,
            signed_in: false,
            ttl: None,
            id: None,
        }
    }

    /// The request fields that the origin sees on a route with these rules.
    pub const fn origin_view(&self, rules: &'a Rules) -> OriginView<'a> {
        OriginView {
            fields: self.fields,
            rules,
            address: self.address,
            is_trusted: self.is_trusted,
        }
    }
}

/// An owned request head.
#[derive(Clone, Debug)]
pub struct RequestHead {
    /// The method.
    pub method: Method,
    /// The scheme that the client used.
    pub scheme: Scheme,
    /// The authority, as in keys ([`normal_host`]).
    pub host: Bytes,
    /// The raw path and query.
    pub target: Bytes,
    /// The client's field lines.
    pub fields: IndexedBlock,
    /// The client's address, as reported to the origin.
    pub address: Arc<str>,
    /// The client requests another protocol (`Upgrade` or CONNECT).
    pub upgrade: bool,
    /// The peer is a trusted proxy.
    pub is_trusted: bool,
    /// The identifier, if one is assigned.
    pub id: Option<RequestId>,
}

/// A request that needs the origin: an owned head, and the parts to be forwarded.
#[derive(Debug)]
pub struct ForwardedRequest {
    /// The head.
    pub head: RequestHead,
    /// The address that the request counts for in fair queues.
    pub network: Network,
    /// The field lines to forward.
    pub outgoing: FieldsBuf,
    /// The body.
    pub body: Body,
    /// The body's length, if the client sent one.
    pub length: Option<u64>,
    /// The content of a QUERY, once it is received.
    pub content: Option<Arc<QueryContent>>,
    /// The client's connection; `None` for a refresh.
    pub client: Option<Arc<ClientConnection>>,
    /// Takes 1xx responses on their way to the client.
    pub interim: Option<Interims>,
    /// The trace span of the origin request, if it is recorded.
    pub span: Option<Span>,
    /// The freshness lifetime in milliseconds that the caller demands, whatever the origin says.
    pub ttl: Option<Millis>,
    /// A forced reload: the stored response is not revalidated but replaced.
    pub anew: bool,
    /// Extensions of the request, for the origin implementation.
    pub extensions: Extensions,
}

/// The request that brought a response, reduced to the parts that [`OriginView`] reads.
#[derive(Clone, Debug)]
pub struct LeaderRequest {
    fields: IndexedBlock,
    address: Arc<str>,
    is_trusted: bool,
}

impl LeaderRequest {
    /// The request fields that the origin saw on a route with these rules.
    pub fn origin_view<'a>(&'a self, rules: &'a Rules) -> OriginView<'a> {
        OriginView {
            fields: self.fields.fields(),
            rules,
            address: &self.address,
            is_trusted: self.is_trusted,
        }
    }
}

impl RequestHead {
    /// Copies a request from this address. Host, target and fields take one allocation.
    pub fn copied(request: &Request<'_>, address: Arc<str>) -> Self {
        let host = normal_host(request.scheme, request.host);
        let (fields, mut target) =
            IndexedBlock::copied_with(request.fields, &[&host, request.target]);
        let host = target.split_to(host.len());
        Self {
            method: request.method.clone(),
            scheme: request.scheme,
            host,
            target,
            fields,
            address,
            upgrade: request.upgrade,
            is_trusted: request.is_trusted,
            id: request.id,
        }
    }

    /// The view of a request without a body.
    pub fn as_request(&self) -> Request<'_> {
        Request {
            method: &self.method,
            scheme: self.scheme,
            host: &self.host,
            target: &self.target,
            fields: self.fields.fields(),
            address: &self.address,
            has_body: false,
            content: None,
            upgrade: self.upgrade,
            is_trusted: self.is_trusted,
            signed_in: false,
            ttl: None,
            id: self.id,
        }
    }
}

impl ForwardedRequest {
    /// The part of the request that is kept with its response.
    pub fn leader_request(&self) -> LeaderRequest {
        LeaderRequest {
            fields: self.head.fields.clone(),
            address: Arc::clone(&self.head.address),
            is_trusted: self.head.is_trusted,
        }
    }

    /// The request fields that the origin sees on a route with these rules.
    pub fn origin_view<'a>(&'a self, rules: &'a Rules) -> OriginView<'a> {
        self.as_request().origin_view(rules)
    }

    /// A copy for answering the request, without the parts to be forwarded.
    pub(crate) fn without_body(&self) -> Self {
        Self {
            head: self.head.clone(),
            network: self.network,
            outgoing: FieldsBuf::new(),
            body: Body::Empty,
            length: None,
            content: self.content.clone(),
            client: self.client.clone(),
            interim: None,
            span: self.span,
            ttl: self.ttl,
            anew: self.anew,
            extensions: self.extensions.clone(),
        }
    }

    /// The request to revalidate the response that this one was answered with, independent of its
    /// client.
    pub(crate) fn for_renewal(&self) -> Self {
        Self {
            outgoing: self.outgoing.clone(),
            client: None,
            span: None,
            ..self.without_body()
        }
    }

    /// The view for a lookup.
    pub fn as_request(&self) -> Request<'_> {
        Request {
            has_body: !matches!(self.body, Body::Empty),
            content: self.content.as_ref().map(|content| content.digest()),
            signed_in: self.client.as_ref().is_some_and(|c| c.is_signed_in()),
            ttl: self.ttl,
            ..self.head.as_request()
        }
    }
}

/// A final response. `Age`, `Cache-Status` and the framing are added when it is written.
#[derive(Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// End-to-end field lines except those below; `None` if they are those of the stored response
    /// in `body`. A hit then holds a single reference.
    pub fields: Option<FieldBlock>,
    /// `Age` in seconds, for a stored response.
    pub age: Option<u64>,
    /// The `Cache-Status` parameters.
    pub cache_status: CacheStatus,
    /// The `Content-Length`, if known. A response to HEAD has one and no body.
    pub length: Option<u64>,
    /// The body.
    pub body: Body,
    /// With status 101, the connection to the origin.
    pub tunnel: Option<Box<Tunnel>>,
    /// The outcome that the request counts as.
    pub outcome: Outcome,
}

impl Response {
    /// The field lines.
    pub fn fields(&self) -> Fields<'_> {
        match (&self.fields, &self.body) {
            (Some(fields), _) => fields.fields(),
            (None, Body::Stored(hit)) => hit.fields(),
            (None, _) => Fields::default(),
        }
    }
}
