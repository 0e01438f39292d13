//! Simulated requests, for the operator's `explain`: read by the same parser, validated and routed like real
//! ones, but not counted, logged or traced.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use microcache_engine::{
    Body, Bypass, Decision, Explained, Failure, Frame, NoResponse, Origin, OriginError, Request,
    Response,
};
use microcache_policy::key::{normal_host, split_query};
use microcache_policy::{
    CacheStatus, Detail, FieldBlock, FieldIndex, Fields, FormTokenScan, Scheme, Time, upgrade,
};
use microcache_push::{MERCURE_PATH, SCRIPT_PATHS};
use microcache_wire::h1::{BadRequest, Framing, RequestTarget, parse_request, split_target};
use tokio::time::{Instant, timeout_at};

use super::explaining_fragments::ExplainedFragment;
use super::{Caller, Session, last_hop, pages};
use crate::config::{Cidr, Config, GoesTo, RateOf};
use crate::shared::{AmbiguousPath, Shared};

/// Time limit of the origin's complete response. The command line waits 30 seconds.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// A simulated request.
#[derive(Clone, Debug)]
pub struct SimulatedRequest {
    /// Head in HTTP/1.1 syntax.
    pub head: Vec<u8>,
    /// Address of the client. Default: a loopback address, or the proxy that terminates TLS.
    pub address: Option<IpAddr>,
    /// TLS was terminated by a proxy in front.
    pub is_secure: bool,
}

/// Explanation of a simulated request.
#[derive(Debug)]
pub struct RequestExplanation {
    /// The request as parsed.
    pub request: ParsedRequest,
    /// Decision of the engine.
    pub explained: Explained,
    /// Reason for a generated response, which takes precedence.
    pub own: Option<Detail>,
    /// Response of the route itself, if that is the generated one.
    pub route_response: Option<RouteResponse>,
    /// Path and query that the origin is asked for, if the route changes them.
    pub rewritten: Option<Vec<u8>>,
    /// Built-in service that answers instead of the application.
    pub hosted: Option<BuiltinService>,
    /// URL of the authentication server that decides about the request first, without its scheme, and whether an
    /// admission is kept.
    pub authentication: Option<(String, bool)>,
    /// Rate limit of the route.
    pub rated: Option<RateLimitState>,
    /// Response of the origin, if it was asked.
    pub fetched: Option<FetchedResponse>,
    /// Fragments of the page that is stored.
    pub fragments: Vec<ExplainedFragment>,
}

/// Response of a route that answers itself.
#[derive(Debug)]
pub struct RouteResponse {
    /// Status code.
    pub status: u16,
    /// Target of a redirect.
    pub location: Option<Vec<u8>>,
}

/// Built-in service that answers in place of an application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BuiltinService {
    /// Published documents.
    Documents {
        /// A document exists at the path.
        is_there: bool,
        /// The document is public, or the request has a valid token.
        is_let: bool,
        /// A publishers' secret is configured, so documents can change.
        has_publishers: bool,
    },
    /// Subscriptions to several documents, or to pages.
    Watch,
    /// The script that updates pages.
    Script,
    /// The Mercure hub.
    Hub,
    /// The hub's subscription API.
    Subscriptions,
}

/// A request as parsed.
#[derive(Debug)]
pub struct ParsedRequest {
    /// Method.
    pub method: Method,
    /// Host in its normalised form, as in cache keys.
    pub host: Vec<u8>,
    /// Path and query as received.
    pub target: Vec<u8>,
    /// Field lines.
    pub fields: FieldBlock,
    /// The peer is a trusted proxy, whose forwarding fields are believed.
    pub is_trusted: bool,
    /// Content would follow.
    pub has_body: bool,
    /// An upgrade is requested.
    pub upgrade: bool,
}

/// Response of the origin.
#[derive(Debug)]
pub struct FetchedResponse {
    /// Response without its body, or the generated error response.
    pub answer: Response,
    /// The origin gave no response.
    pub failed: bool,
    /// Time of the request.
    pub sent: Time,
    /// Time of the response.
    pub received: Time,
    /// The body was complete, if it is stored.
    pub is_whole: bool,
    /// The body has a token for one visitor, on a route where that decides about storing.
    pub has_token: bool,
}

/// Rate limit of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimitState {
    /// Quota and its period.
    pub quota: String,
    /// Client attribute it is counted by, as in the option.
    pub by: String,
    /// Only cache misses count.
    pub only_misses: bool,
    /// Requests left now.
    pub left: u64,
}

/// Error of a simulated request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidRequest {
    /// Status of the response.
    pub status: u16,
    /// Reason.
    pub reason: &'static str,
}

/// Explains a request. With `ask`, the request is sent to the origin and its response stored if it may be.
///
/// Fails with the error response of a request that cannot be parsed.
pub(crate) async fn explain(
    shared: &Arc<Shared>,
    imagined: &SimulatedRequest,
    ask: bool,
) -> Result<RequestExplanation, InvalidRequest> {
    let (session, read) = imagined.read(shared)?;
    let engine = &shared.engine;
    let mut explained = engine.explain(&read.on(&session)).await;
    let rated = session.rated(&read, &explained);
    let own = session.answers_itself(&read, &explained, rated.as_ref());
    let route_response = own.and_then(|own| session.explained_response(&read, &explained, own));
    let rewritten = session.rewritten(&read, explained.route());
    let hosted = session.hosted(&read, &shared.config, explained.route());
    let authentication = session.authentication_server(&read, explained.route());
    let mut fetched = None;
    // Without an application there is no origin to ask.
    if ask && own.is_none() && hosted.is_none() {
        fetched = Some(session.fetch(&read, &explained).await);
        explained.variants = engine.explain(&read.on(&session)).await.variants;
    }
    let fragments = session
        .explained_fragments(&read.on(&session), &explained)
        .await;
    Ok(RequestExplanation {
        fragments,
        request: read,
        explained,
        own,
        route_response,
        rewritten,
        hosted,
        authentication,
        rated,
        fetched,
    })
}

/// Returns the identifiers of the variants stored for a request.
pub(crate) async fn variants(
    shared: &Arc<Shared>,
    imagined: &SimulatedRequest,
) -> Result<Vec<u64>, InvalidRequest> {
    let (session, read) = imagined.read(shared)?;
    let engine = &shared.engine;
    Ok(engine.variants_for(&read.on(&session)).await)
}

impl SimulatedRequest {
    /// Parses the request as on a connection of its client.
    pub(super) fn read(
        &self,
        shared: &Arc<Shared>,
    ) -> Result<(Session, ParsedRequest), InvalidRequest> {
        // With TLS here, there is no proxy in front to terminate it.
        let (scheme, terminators) = match &shared.tls {
            Some(_) if self.is_secure => (Scheme::Https, &[][..]),
            _ => (Scheme::Http, &shared.trusted_proxies[..]),
        };
        let caller = Caller::at(self.sender(terminators));
        let session = Session::new(Arc::clone(shared), caller, scheme);
        let read = session.read(self).map_err(|bad| InvalidRequest {
            status: bad.status(),
            reason: bad.reason(),
        })?;
        Ok((session, read))
    }

    fn sender(&self, trusted: &[Cidr]) -> IpAddr {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let terminator = || {
            let is_here = trusted.iter().any(|block| block.contains(here));
            trusted.first().filter(|_| self.is_secure && !is_here)
        };
        self.address
            .unwrap_or_else(|| terminator().map_or(here, Cidr::first))
    }
}

impl Session {
    /// Parses the request as on this connection.
    fn read(&self, imagined: &SimulatedRequest) -> Result<ParsedRequest, BadRequest> {
        let mut index = FieldIndex::default();
        let parsed = parse_request(&imagined.head, &self.shared.head_limits, &mut index)?;
        // An incomplete head would be waited for.
        let (head, _) = parsed.ok_or(BadRequest::TIMEOUT)?;
        let host = head.host.unwrap_or_default();
        let (host, target) = match split_target(head.method, head.target)? {
            RequestTarget::Origin(target) => (host, target.to_vec()),
            RequestTarget::Asterisk => (host, b"*".to_vec()),
            RequestTarget::Absolute {
                authority, path, ..
            } => (authority, path.into_owned()),
            RequestTarget::Authority(_) => return Err(BadRequest::METHOD),
        };
        let method = Method::from_bytes(head.method).map_err(|_| BadRequest::METHOD)?;
        Ok(ParsedRequest {
            method,
            host: normal_host(self.peer.scheme, host),
            target,
            fields: FieldBlock::copied_with(head.fields, &[]).0,
            is_trusted: self.peer.trusted,
            has_body: !matches!(head.framing, Framing::None | Framing::Length(0)),
            upgrade: head.upgrade && upgrade::is_requested(head.fields),
        })
    }

    /// Returns the reason for a generated response, in the order of [`Self::beyond_hits`] and what follows it.
    fn answers_itself(
        &self,
        read: &ParsedRequest,
        explained: &Explained,
        rated: Option<&RateLimitState>,
    ) -> Option<Detail> {
        let request = read.on(self);
        let decision = explained.decision;
        let asks = matches!(decision, Decision::Pass(..) | Decision::Ask { .. });
        let is_purge = self.shared.takes_for_purge(&request);
        let used_up = rated.filter(|rated| rated.left == 0 && !is_purge);
        let mode = self.maintenance_of(&request);
        let ambiguous = self.ambiguous(read, explained).filter(|_| !is_purge);
        if ambiguous.is_some_and(|it| it.is_refused) {
            Some(Detail::AmbiguousPath)
        } else if !self.admits_address(explained.route(), &request) {
            Some(Detail::AccessDenied)
        } else if !self.admits_certificate(explained.route(), &request) {
            Some(Detail::CertificateRequired)
        } else if mode.as_ref().is_some_and(|mode| !mode.keep_cached) {
            Some(Detail::Maintenance)
        } else if self.lacks_credentials(explained.route(), &request) {
            Some(Detail::AuthenticationRequired)
        } else if used_up.is_some_and(|rated| !rated.only_misses) {
            Some(Detail::RateLimited)
        } else if let Some(response) =
            self.route_response(explained.route(), &request, explained.now)
        {
            response.cache_status.detail
        } else if decision.is_hit() {
            None
        } else if mode.is_some() {
            (!matches!(decision, Decision::Stored { .. })).then_some(Detail::Maintenance)
        } else if self.shared.pseudonym.is_in(request.fields) {
            Some(Detail::Loop)
        } else if asks && is_purge {
            Some(Detail::Purge)
        } else if asks {
            let answer = last_hop::answer(&request, explained.now);
            let own = answer.and_then(|answer| answer.cache_status.detail);
            let is_denied = self.denies_prefetch(explained.route(), &request);
            own.or(is_denied.then_some(Detail::Prefetch))
                .or(used_up.map(|_| Detail::RateLimited))
        } else {
            None
        }
    }

    /// Returns the response of the route itself, if it is the one with this reason.
    fn explained_response(
        &self,
        read: &ParsedRequest,
        explained: &Explained,
        own: Detail,
    ) -> Option<RouteResponse> {
        let request = read.on(self);
        let response = self.route_response(explained.route(), &request, explained.now)?;
        let location = response.fields().get("location").map(<[u8]>::to_vec);
        (response.cache_status.detail == Some(own)).then_some(RouteResponse {
            status: response.status,
            location,
        })
    }

    /// Returns the URL of the authentication server that is asked, and whether an admission is kept.
    fn authentication_server(&self, read: &ParsedRequest, route: usize) -> Option<(String, bool)> {
        let request = read.on(self);
        let auth = self.asked_server(route, &request)?;
        let is_asked = !self.shared.takes_for_purge(&request);
        let url = || format!("{}{}", auth.authority(), auth.target());
        is_asked.then(|| (url(), !auth.kept_for().is_zero()))
    }

    /// Returns the target for the origin, if the route changes it.
    fn rewritten(&self, read: &ParsedRequest, route: usize) -> Option<Vec<u8>> {
        let route = self.shared.config.routes.get(route)?;
        let target = route.rewrite.target(&read.on(self), &route.matcher);
        target.filter(|target| *target != read.target)
    }

    /// Returns the built-in service that answers on a route.
    fn hosted(
        &self,
        read: &ParsedRequest,
        config: &Config,
        route: usize,
    ) -> Option<BuiltinService> {
        let (path, _) = split_query(&read.target);
        let push = self.shared.push.as_ref();
        match config.routes.get(route)?.goes_to {
            GoesTo::Upstream(_)
            | GoesTo::Files(_)
            | GoesTo::FilesFirst(..)
            | GoesTo::Redirect(_)
            | GoesTo::Respond(_) => None,
            GoesTo::Watch if SCRIPT_PATHS.iter().any(|it| it.as_bytes() == path) => {
                Some(BuiltinService::Script)
            }
            GoesTo::Watch => Some(BuiltinService::Watch),
            GoesTo::Mercure if path == MERCURE_PATH.as_bytes() => Some(BuiltinService::Hub),
            GoesTo::Mercure => Some(BuiltinService::Subscriptions),
            GoesTo::Push => Some(BuiltinService::Documents {
                is_there: push.is_some_and(|push| push.ready_response(&read.target).is_some()),
                is_let: push.is_some_and(|push| push.is_readable_by(path, read.fields.fields())),
                has_publishers: config.push.keys.publisher_secret.is_some(),
            }),
        }
    }

    /// Returns the rate limit of the request's route, without counting the request.
    fn rated(&self, read: &ParsedRequest, explained: &Explained) -> Option<RateLimitState> {
        let rates = self.shared.rates.as_deref()?;
        let request = read.on(self);
        let client = self
            .peer
            .client(request.fields, &self.shared.trusted_proxies);
        let routes = match self.ambiguous(read, explained) {
            Some(ambiguous) => ambiguous.routes,
            None => vec![explained.route()],
        };
        let limits = routes.into_iter().filter_map(|it| rates.any_limit(it));
        let all = limits.map(|limit| RateLimitState {
            quota: limit.quota.to_string(),
            by: limit.by.to_string(),
            only_misses: limit.of() == RateOf::Misses,
            left: rates.left(limit, &request, client, explained.now),
        });
        all.min_by_key(|rated| rated.left)
    }

    /// Returns the routes of a path that can be interpreted in several ways.
    fn ambiguous(&self, read: &ParsedRequest, explained: &Explained) -> Option<AmbiguousPath> {
        if explained.bypass != Some(Bypass::Path) {
            return None;
        }
        self.shared.routing.ambiguous(&read.on(self))
    }

    /// Sends the request to the origin, and reads its response to the end if it is stored.
    async fn fetch(&self, read: &ParsedRequest, explained: &Explained) -> FetchedResponse {
        let engine = &self.shared.engine;
        let rules = engine.rules(explained.route());
        let incoming = self.incoming(self.copied(&read.on(self)), rules, Body::Empty);
        let sent = engine.clock.now();
        let deadline = Instant::now() + TIME_LIMIT;
        let answer = Arc::clone(engine).ask_for_operator(incoming, explained);
        let answer = timeout_at(deadline, answer).await;
        let received = engine.clock.now();
        let failed = !matches!(answer, Ok(Ok(_)));
        let mut answer = match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(none)) => pages::failed(&none, received),
            Err(_) => pages::failed(&too_late(explained), received),
        };
        let mut body = std::mem::replace(&mut answer.body, Body::Empty);
        let is_scanned = rules.anonymous_ttl.is_some() && !answer.cache_status.stored;
        let has_token =
            is_scanned && timeout_at(deadline, has_form_token(&mut body)).await == Ok(true);
        // A response that is not stored is not read.
        let is_whole = !answer.cache_status.stored
            || !matches!(body, Body::Empty) && timeout_at(deadline, drain(body)).await == Ok(true);
        FetchedResponse {
            answer,
            failed,
            sent,
            received,
            is_whole,
            has_token,
        }
    }
}

impl ParsedRequest {
    /// Returns the request on a connection.
    pub(super) fn on<'a>(&'a self, session: &'a Session) -> Request<'a> {
        Request {
            has_body: self.has_body,
            upgrade: self.upgrade,
            ..session.request(&self.method, &self.host, &self.target, self.fields())
        }
    }

    /// Returns the field lines.
    pub fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }
}

fn too_late(explained: &Explained) -> NoResponse {
    NoResponse {
        cache_status: CacheStatus {
            detail: Some(Detail::OriginTimeout),
            ..explained.decision.cache_status()
        },
        cause: Failure::Origin(OriginError::Timeout),
    }
}

/// Reads a body until a token is found. Returns `true` if it has one.
async fn has_form_token(body: &mut Body) -> bool {
    let mut scan = FormTokenScan::default();
    while let Some(Ok(frame)) = body.frame().await {
        if let Frame::Data(data) = frame
            && scan.push(&data)
        {
            return true;
        }
    }
    scan.finish()
}

/// Reads a body to its end. Returns `true` if it was complete.
pub(super) async fn drain(mut body: Body) -> bool {
    while let Some(frame) = body.frame().await {
        if frame.is_err() {
            return false;
        }
    }
    true
}
