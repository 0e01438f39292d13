//! Requests between a connection and the engine, independent of the HTTP version.
//!
//! A connection parses requests, has them answered here, and writes the responses; see `crate::connection` and
//! `crate::h2`. Sockets, message framing and keep-alive are not known here.

mod access;
mod account;
mod answering;
mod authentication;
mod before_cache;
mod cache_fields;
mod client_certificate;
mod content;
mod early_hints;
mod edge;
mod error_page;
pub(crate) mod explaining;
pub(crate) mod explaining_fragments;
pub(crate) mod finished;
pub(crate) mod forwarding;
pub(crate) mod header_rules;
mod heads;
mod last_hop;
mod log_notes;
mod maintenance;
mod monitor;
mod nesting;
pub(crate) mod pages;
mod pending_access;
mod pending_context;
pub(crate) mod plain_visit;
mod prefetch;
pub(crate) mod pseudonym;
mod purging;
mod rates;
mod request_id;
mod route_response;
mod sent_bytes;
#[cfg(test)]
mod tests;
mod user_context;
mod watching;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use http::{Extensions, Method, Version};
use microcache_engine::{
    Body, BodyError, BoxFuture, ClientConnection, FetchPlan, ForwardedRequest, Interims,
    NoResponse, Outcome, Refresh, Request, RequestHead, Response, RouteId, RouteMatch, Served,
};
use microcache_policy::edge::EdgeMode;
use microcache_policy::field_template::TemplateValues;
use microcache_policy::{Fields, RequestRules, Rules, Scheme, Span, Time, visitor_used_tls};

use crate::config::RateOf;
use crate::forward_auth::Grant;
use crate::metrics::{Refusal, RequestUrl};
use crate::observe::{Kind, TARGET, Traces};
use crate::shared::Shared;
pub(crate) use account::RequestAccount;
pub(crate) use answering::{AdmittedResponse, OngoingRequest, RequestEvent};
pub(crate) use cache_fields::CacheFields;
pub(crate) use content::{Allowance, AnnouncedContent, ContentSender};
pub use finished::{FinalResponse, FinishedRequest, TraceState};
pub(crate) use forwarding::{Caller, Peer};
use forwarding::{announce_composition, outgoing, set_fields};
pub(crate) use heads::{STRICT, is_bodiless, method, never_has_content, strict_unless_said};
use nesting::Nesting;
use pending_access::PendingAccess;
use pending_context::{ContextChange, PendingContext};
use purging::AuthorizedPurge;
pub use request_id::request_id;
pub(crate) use sent_bytes::SentBytes;
pub(crate) use watching::{PlainGet, RefreshOutcome, client_address, visitor_scheme};

/// State that the requests of one connection share.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    peer: Peer,
    /// Origin connections dedicated to this client, as for NTLM; created with its first request to an origin.
    client: Option<Arc<ClientConnection>>,
    /// Place of the requests for fragments of a page; `None` for a connection.
    nesting: Option<Box<Nesting>>,
}

/// Immediate outcome of a request.
pub(crate) enum Reply {
    /// Response whose body is complete, or in a file.
    Now(Response),
    /// The response takes time: see [`Session::ask`].
    Deferred(DeferredRequest),
}

/// A request whose response has to be waited for.
pub(crate) struct DeferredRequest {
    wanted: DeferredSource,
    route: RouteId,
    /// Fields that the authentication server has set.
    grant: Option<Arc<Grant>>,
    /// The user context that it may change.
    change: Option<ContextChange>,
    head: RequestHead,
    began: Time,
}

/// Source of the awaited response.
enum DeferredSource {
    /// The origin, perhaps behind a decision.
    Forward(ForwardSource),
    /// A purge, until it is in the journal.
    Purge(AuthorizedPurge),
    /// A page that waits for its fragments, on the route with this index.
    Page(BoxFuture<'static, Response>, usize),
}

/// Source of the response to a request that may be forwarded.
enum ForwardSource {
    /// The origin.
    Origin(FetchPlan),
    /// The cache or the origin, once the client is authenticated.
    Authentication(Box<PendingAccess>),
    /// The cache or the origin, once the client's user context is known.
    Context(Box<PendingContext>),
}

impl ForwardSource {
    /// Returns the index of the route, and whether the path can be read as that of another one.
    fn route(&self) -> (usize, bool) {
        match self {
            Self::Origin(plan) => (plan.route_index(), plan.has_ambiguous_path()),
            Self::Authentication(pending) => pending.route(),
            Self::Context(pending) => pending.route(),
        }
    }
}

impl Session {
    /// Session of a connection of this client with this scheme.
    pub(crate) fn new(shared: Arc<Shared>, caller: Caller, scheme: Scheme) -> Self {
        Self {
            peer: Peer::new(caller, scheme, &shared.trusted_proxies),
            client: None,
            nesting: None,
            shared,
        }
    }

    /// Returns a session of the same client without its origin connections, which serve one request at a time.
    fn detached(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            peer: self.peer.clone(),
            client: None,
            nesting: self.nesting.clone(),
        }
    }

    /// Adopts the active configuration. Called between two requests.
    #[inline]
    pub(crate) fn catch_up(&mut self) {
        if let Some(newer) = self.shared.newer() {
            self.peer.judge(&newer.trusted_proxies);
            self.shared = newer;
            self.verify_client_certificate();
        }
    }

    /// Returns `true` if the client is a trusted proxy.
    pub(crate) const fn is_trusted(&self) -> bool {
        self.peer.trusted
    }

    /// Returns a request on this connection, without content and upgrade.
    #[inline]
    pub(crate) fn request<'a>(
        &'a self,
        method: &'a Method,
        host: &'a [u8],
        target: &'a [u8],
        fields: Fields<'a>,
    ) -> Request<'a> {
        Request {
            method,
            scheme: self.peer.scheme,
            host,
            target,
            fields,
            address: self.peer.address(),
            has_body: false,
            content: None,
            upgrade: false,
            is_trusted: self.peer.trusted,
            signed_in: self.client.as_ref().is_some_and(|c| c.is_signed_in()),
            ttl: None,
            id: self.shared.assigns_ids.then(request_id::assign),
        }
    }

    /// Answers a request if that needs no waiting. The caller reports its end, with [`Self::finished`] or a
    /// [`RequestAccount`]. Returns the route's number in metrics.
    ///
    /// The reply is an out-parameter: returning it by value is a considerable part of a hit's cost.
    pub(crate) fn serve(
        &self,
        request: &Request<'_>,
        now: Time,
        reply: &mut Option<Reply>,
    ) -> RouteId {
        if self.shared.answers_before_routing
            && let Some(answer) = self.before_routing(request, now)
        {
            *reply = Some(Reply::Now(answer));
            return RouteId::default();
        }
        let engine = &self.shared.engine;
        let mut route = RouteId::default();
        // A panic affects its own request only.
        let served = catch_unwind(AssertUnwindSafe(|| {
            let found = engine.find(request);
            route = engine.id_of(found);
            match self.before_cache(found, request, now) {
                None => self.look_up(found, request, now, reply),
                before => *reply = before,
            }
            if self.shared.composes_pages {
                self.compose_at_once((found.route, route), request, now, reply);
            }
            if self.shared.watched_routes.is_some() {
                self.add_monitor(found.route, request.target, reply);
            }
            if self.shared.header_rules.is_some() {
                self.change_headers(found.route, request, reply);
            }
        }));
        if served.is_err() {
            *reply = Some(Reply::Now(pages::panicked(now)));
        }
        route
    }

    /// Answers a request that its route admits, from the cache or with what is beyond it.
    fn answer_from_cache(&self, found: RouteMatch, request: &Request<'_>, now: Time) -> Reply {
        let engine = &self.shared.engine;
        match engine.serve_on(found, request, now) {
            Served::Now(hit) if hit.outcome == Outcome::Hit => Reply::Now(hit),
            served => self.beyond_hits(served, engine.id_of(found), request, now),
        }
    }

    /// Answers a request as [`Self::answer_from_cache`] does. A hit is moved once, to where the caller wants it.
    #[inline]
    fn look_up(
        &self,
        found: RouteMatch,
        request: &Request<'_>,
        now: Time,
        reply: &mut Option<Reply>,
    ) {
        let engine = &self.shared.engine;
        *reply = match engine.serve_on(found, request, now) {
            Served::Now(hit) if hit.outcome == Outcome::Hit => {
                *reply = Some(Reply::Now(hit));
                return;
            }
            served => Some(self.beyond_hits(served, engine.id_of(found), request, now)),
        };
    }

    /// Returns the response to a request that is independent of routes: ACME challenges and redirects to TLS.
    fn before_routing(&self, request: &Request<'_>, now: Time) -> Option<Response> {
        self.challenge(request, now)
            .or_else(|| self.tls_redirect(request, now))
    }

    /// Returns the response to an ACME http-01 challenge. Unknown tokens are passed to the application.
    fn challenge(&self, request: &Request<'_>, now: Time) -> Option<Response> {
        let issued = self.shared.issued.as_ref()?;
        if !matches!(*request.method, Method::GET | Method::HEAD) {
            return None;
        }
        let answer = issued.answer_at(request.target)?;
        Some(pages::challenge(answer, now))
    }

    /// Returns the redirect of a request that has to use TLS.
    fn tls_redirect(&self, request: &Request<'_>, now: Time) -> Option<Response> {
        let port = self.shared.secure_port?;
        // A request without a host is not redirected: the target would be the application's host.
        let host = match request.host {
            host if host == self.shared.default_host.as_bytes() => &b""[..],
            host => host,
        };
        let trusted_fields = &self.shared.config.trusted_headers;
        let came_by_tls = request.scheme == Scheme::Https
            || request.is_trusted && visitor_used_tls(request.fields, trusted_fields);
        // Purges of applications are accepted without TLS.
        let stays = came_by_tls || self.shared.takes_for_purge(request);
        (!stays).then(|| pages::elsewhere(host, request.target, port, now))
    }

    /// Answers a request whose client is let in: by the route itself, or from its cache.
    fn once_admitted(&self, found: RouteMatch, request: &Request<'_>, now: Time) -> Reply {
        match self.route_response(found.route, request, now) {
            Some(response) => Reply::Now(response),
            None => self.answer_from_cache(found, request, now),
        }
    }

    /// Reports a failed TLS handshake.
    pub(crate) fn report_failed_handshake(&self, why: &std::io::Error) {
        self.shared.metrics.refused.count(Refusal::Handshake);
        // Port scanners cause many of these.
        let address = self.peer.address();
        tracing::debug!(target: TARGET, kind = "handshake", about = address, "{address}: no TLS session: {why}");
    }

    /// Reports a TLS handshake that timed out.
    pub(crate) fn report_handshake_timeout(&self) {
        self.shared.metrics.refused.count(Refusal::HandshakeLate);
    }

    /// Completes a request that is not a hit: rejects a loop, starts the refresh of a stale response, or defers the
    /// request.
    fn beyond_hits(
        &self,
        served: Served,
        route: RouteId,
        request: &Request<'_>,
        now: Time,
    ) -> Reply {
        if self.shared.lifecycle.maintenance.is_on()
            && let Some(mode) = self.maintenance_of(request)
        {
            return Reply::Now(self.stored_in_maintenance(&mode, served, now));
        }
        if let Some(page) = self.loop_detected(request.fields, now) {
            return Reply::Now(page);
        }
        match served {
            Served::Now(response) => Reply::Now(response),
            Served::Failed(failed) => Reply::Now(pages::failed(&failed, now)),
            Served::NowAndRefresh(response, refresh) => {
                self.refresh(refresh, request);
                Reply::Now(response)
            }
            Served::Fetch(plan) => self.before_the_origin(plan, route, request, now),
        }
    }

    /// Answers a request that needs the origin with a generated response (rejected purge, `Max-Forwards`, prefetch, rate
    /// limit),
    /// or defers it.
    fn before_the_origin(
        &self,
        plan: FetchPlan,
        route: RouteId,
        request: &Request<'_>,
        now: Time,
    ) -> Reply {
        if let Some(reply) = self.purge_reply(route, request, now) {
            return reply;
        }
        let answer = last_hop::answer(request, now)
            .or_else(|| self.denied_prefetch(plan.route_index(), request, now))
            .or_else(|| self.beyond_rate(plan.route_index(), RateOf::Misses, request, now));
        if let Some(response) = answer {
            return Reply::Now(response);
        }
        let wanted = DeferredSource::Forward(ForwardSource::Origin(plan));
        self.defer(wanted, route, request, now)
    }

    /// Returns the reply to a purge; `None` if the request is not one.
    fn purge_reply(&self, route: RouteId, request: &Request<'_>, now: Time) -> Option<Reply> {
        let through = self.peer.through();
        let purge = self.shared.requested_purge(request, through, now)?;
        Some(match purge {
            Ok(purge) => self.defer(DeferredSource::Purge(purge), route, request, now),
            Err(refused) => Reply::Now(refused),
        })
    }

    fn defer(
        &self,
        wanted: DeferredSource,
        route: RouteId,
        request: &Request<'_>,
        now: Time,
    ) -> Reply {
        Reply::Deferred(DeferredRequest {
            wanted,
            route,
            grant: None,
            change: None,
            head: self.copied(request),
            began: now,
        })
    }

    /// Reports that a limit of HTTP/2 was exceeded.
    pub(crate) fn report_refused(&self, why: Refusal, what: &str) {
        let line = || format!("{}, over HTTP/2: {what}", self.peer.address());
        self.shared.refused(why, line);
    }

    /// Reports a PROXY header where it is not allowed; the connection is closed.
    pub(crate) fn refuse_proxy_header(&self) {
        let address = self.peer.address();
        self.shared.refused(Refusal::ProxyUntrusted, || {
            format!("{address} sends a PROXY header, but is not in `proxy_protocol`: its connections are closed")
        });
    }

    /// Returns the error response to a request that cannot be parsed.
    pub(crate) fn refuse(&self, status: u16, reason: &str, version: Version) -> Response {
        let now = self.shared.engine.clock.now();
        let page = pages::refused(status, reason, now);
        let limit = match status {
            408 => Some(Refusal::HeadLate),
            414 => Some(Refusal::Target),
            431 => Some(Refusal::Head),
            _ => None,
        };
        if let Some(limit) = limit {
            let line = || format!("{} was answered {status}: {reason}", self.peer.address());
            self.shared.refused(limit, line);
        }
        let metrics = &self.shared.metrics;
        metrics.count(RouteId::default(), page.outcome, page.status);
        metrics.sent(RouteId::default(), page.length.unwrap_or_default());
        metrics.answered_error(RouteId::default(), None, &page, now);
        if let Some(on_finished) = &self.shared.on_finished {
            on_finished(&FinishedRequest::refused(&self.peer, version, &page, now));
        }
        page
    }

    /// Starts a deferred request: a fetch or a purge. The connection passes the announced content to the
    /// [`ContentSender`].
    pub(crate) fn ask(
        &mut self,
        unanswered: DeferredRequest,
        version: Version,
        announced: Option<AnnouncedContent>,
    ) -> (OngoingRequest, Option<ContentSender>) {
        let DeferredRequest {
            wanted,
            route,
            grant,
            change,
            head,
            began,
        } = unanswered;
        let mut account = RequestAccount::open(&self.shared, route, head.clone(), version, began);
        let source = match wanted {
            DeferredSource::Forward(source) => source,
            DeferredSource::Purge(purge) => return self.purge(purge, account, announced),
            DeferredSource::Page(page, index) => {
                let headers = self.headers_of(index, &head);
                let answer = Box::pin(async move { Ok(page.await) });
                let (answering, sender) = self.without_content(answer, account, announced);
                return (answering.with_headers_of(headers), sender);
            }
        };
        let (index, is_ambiguous) = source.route();
        let most = self
            .shared
            .max_body(index, is_ambiguous, &head.as_request());
        let is_too_large =
            |announced: AnnouncedContent| announced.length.is_some_and(|it| it > most);
        if announced.is_some_and(is_too_large) {
            let page = pages::too_large(self.shared.engine.clock.now());
            self.shared
                .refused_body(&BodyError::TooLarge, self.peer.address());
            let answer = Box::pin(std::future::ready(Ok(page)));
            return self.without_content(answer, account, announced);
        }
        account.waits();
        let engine = &self.shared.engine;
        let rules = engine.rules(index);
        let (body, sender, expectation) = match announced {
            None => (Body::Empty, None, None),
            Some(announced) => {
                let timeouts = &self.shared.timeouts;
                let allowance = Allowance::new(timeouts.body, timeouts.body_rate);
                let (body, sender, expectation) =
                    content::channel(announced, most, allowance, &rules.request);
                (body, Some(sender), expectation)
            }
        };
        let interims = Interims::default();
        let headers = self.headers_of(index, &head);
        let is_watched = self.shared.is_watched(index);
        let watched = is_watched.then(|| head.target.clone());
        let composer = self.composer(index, &head);
        let mut incoming = self.incoming(head, rules, body);
        let span = account.span().map(|span| Traces::part(&span));
        traced(&mut incoming, span, &rules.request);
        if let Some(grant) = grant {
            grant.add_fields(&mut incoming.outgoing);
        }
        incoming.length = announced.and_then(|announced| announced.length);
        incoming.interim = Some(interims.clone());
        incoming.client = Some(Arc::clone(self.client.get_or_insert_default()));
        if let Some(visit) = account.visit() {
            incoming.extensions.insert(visit.clone());
        }
        let network = incoming.network;
        let answer = match source {
            ForwardSource::Origin(plan) => {
                if version == Version::HTTP_2 {
                    self.send_hints(index, &incoming.as_request(), &interims);
                }
                Arc::clone(&self.shared.engine).ask(plan, incoming)
            }
            ForwardSource::Authentication(pending) => self.once_authenticated(*pending, incoming),
            ForwardSource::Context(pending) => self.once_in_context(*pending, incoming),
        };
        let answer: BoxFuture<'static, _> = match change {
            None => answer,
            Some(change) => Box::pin(async move {
                let _after_it = change;
                answer.await
            }),
        };
        let answer = match composer {
            Some(composer) => composer.compose(answer),
            None => answer,
        };
        let shared = Arc::clone(&self.shared);
        let answering = OngoingRequest::new(answer, interims, expectation, shared, account);
        let answering = answering.of_watched(watched).of_client(network);
        (answering.with_headers_of(headers), sender)
    }

    /// Carries a purge out.
    fn purge(
        &self,
        purge: AuthorizedPurge,
        account: RequestAccount,
        announced: Option<AnnouncedContent>,
    ) -> (OngoingRequest, Option<ContentSender>) {
        let (engine, lifecycle) = (&self.shared.engine, &self.shared.lifecycle);
        let answer = purge.carry_out(Arc::clone(engine), Arc::clone(&lifecycle.predecessor));
        let answer = Box::pin(async move { Ok(answer.await) });
        self.without_content(answer, account, announced)
    }

    /// Starts a request whose response does not depend on its content. Announced content is not read, so the response
    /// is the last on its connection.
    fn without_content(
        &self,
        answer: BoxFuture<'static, Result<Response, NoResponse>>,
        account: RequestAccount,
        announced: Option<AnnouncedContent>,
    ) -> (OngoingRequest, Option<ContentSender>) {
        let timeouts = &self.shared.timeouts;
        let sender = announced.map(|announced| {
            let allowance = Allowance::new(timeouts.body, timeouts.body_rate);
            let (_unread, sender, _) =
                content::channel(announced, 0, allowance, &RequestRules::default());
            sender
        });
        let shared = Arc::clone(&self.shared);
        let answering = OngoingRequest::new(answer, Interims::default(), None, shared, account);
        (answering, sender)
    }

    /// Reports a request that was answered at once. Returns `true` if its latency is to be recorded.
    pub(crate) fn finished(
        &self,
        route: RouteId,
        request: &Request<'_>,
        version: Version,
        response: &Response,
        now: Time,
    ) -> bool {
        let (metrics, outcome) = (&self.shared.metrics, response.outcome);
        let bytes = account::content_length(request, response);
        let named = || RequestUrl {
            scheme: request.scheme,
            host: request.host,
            target: microcache_push::redacted_target(request.target),
        };
        let is_timed = metrics.answered_at_once(route, outcome, response.status, bytes);
        if is_timed {
            metrics.note_hit(named(), bytes, now);
        }
        if outcome == Outcome::Error {
            metrics.answered_error(route, Some(named()), response, now);
        }
        if let Some(on_finished) = &self.shared.on_finished {
            let route = self.shared.route(route, request);
            on_finished(&FinishedRequest::at_once(
                request, route, version, response, bytes, now,
            ));
        }
        is_timed
    }

    /// Returns the account of a request whose response is still to be sent.
    pub(crate) fn account_of(
        &self,
        route: RouteId,
        request: &Request<'_>,
        version: Version,
        response: &Response,
        now: Time,
    ) -> RequestAccount {
        let head = self.copied(request);
        let mut account = RequestAccount::open(&self.shared, route, head, version, now);
        account.answered(response, now);
        account
    }

    fn copied(&self, request: &Request<'_>) -> RequestHead {
        RequestHead::copied(request, self.peer.shared_address())
    }

    /// Returns the error response to a request that this process has forwarded to itself, as its pseudonym in `Via` or
    /// `CDN-Loop` shows. The forwarding request takes it for a failure of the origin, and may serve a stale response.
    fn loop_detected(&self, fields: Fields<'_>, now: Time) -> Option<Response> {
        if !self.shared.pseudonym.is_in(fields) {
            return None;
        }
        let line = "a forwarded request came back: an origin address leads to this server";
        self.shared.notices.say(Kind::Loop, "", line);
        Some(pages::leads_back(now))
    }

    fn refresh(&self, refresh: Box<Refresh>, request: &Request<'_>) {
        let rules = self.shared.engine.rules(refresh.route_index());
        let mut incoming = self.incoming(self.copied(request), rules, Body::Empty);
        // The client has its response, so no part of the span remains.
        let traces = self.shared.metrics.traces();
        let span = traces.and_then(|traces| traces.begin(request.fields, request.is_trusted));
        traced(&mut incoming, span, &rules.request);
        self.shared.engine.refresh(refresh, incoming);
    }

    /// Returns the engine's request to the origin, independent of a client.
    fn incoming(&self, head: RequestHead, rules: &Rules, body: Body) -> ForwardedRequest {
        let (fields, edge) = (head.fields.fields(), rules.edge);
        let rules = &rules.request;
        let mut outgoing = outgoing(
            &head.method,
            fields,
            head.upgrade,
            &head.host,
            &self.peer,
            rules,
        );
        if !rules.set_fields.is_empty() {
            let client = self.peer.client_text(fields, &self.shared.trusted_proxies);
            let certificate = self.peer.certificate();
            let values = TemplateValues {
                client_address: client.as_bytes(),
                host: &head.host,
                scheme: self.peer.scheme.as_str(),
                request_id: &request_id(&head.as_request()).unwrap_or_default(),
                certificate_subject: certificate.map_or("", |it| it.subject()),
                certificate_fingerprint: certificate.map_or("", |it| it.fingerprint()),
            };
            set_fields(&mut outgoing, rules, &values);
        }
        if edge != EdgeMode::Off {
            announce_composition(&mut outgoing);
        }
        self.shared.pseudonym.add_to(&mut outgoing);
        if let Some(line) = self.shared.untrusted_forwarders.notice(fields, &self.peer) {
            self.shared
                .notices
                .say(Kind::NotTrusted, self.peer.address(), line);
        }
        let network = self.peer.client(fields, &self.shared.trusted_proxies);
        ForwardedRequest {
            head,
            network,
            outgoing,
            body,
            length: None,
            content: None,
            client: None,
            interim: None,
            span: None,
            ttl: None,
            anew: false,
            extensions: Extensions::new(),
        }
    }
}

/// Continues the trace in the request to the origin, so that the application's spans join it.
fn traced(incoming: &mut ForwardedRequest, span: Option<Span>, rules: &RequestRules) {
    incoming.span = span;
    if let Some(span) = span
        && !rules.removed_fields.matches(b"traceparent")
    {
        incoming.outgoing.set("traceparent", span.traceparent());
    }
}
