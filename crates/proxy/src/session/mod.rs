//! What every protocol owes a request, between a connection and the engine.
//!
//! A face reads requests off a connection, has them answered here, and writes the answers; HTTP/1
//! (`crate::connection`) is one. Nothing here knows a socket, how messages are framed, or whether a
//! connection goes on.

mod answering;
mod content;
pub(crate) mod explaining;
mod finished;
mod forwarding;
mod heads;
mod last_hop;
mod monitor;
pub(crate) mod pages;
mod pseudonym;
mod purging;
mod rates;
#[cfg(test)]
mod tests;
mod watching;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use bytes::Bytes;
use http::{Extensions, Method, Version};
use microcache_engine::{
    Body, BodyError, BoxFuture, Bypass, ClientConnection, FetchPlan, Incoming, Interims,
    NoResponse, Outcome, Refresh, Request, Response, RouteId, Served,
};
use microcache_policy::key::normal_host;
use microcache_policy::{FieldBlock, Fields, RequestRules, Scheme, Span, Time, says_https};

use crate::config::RateOf;
use crate::metrics::{ImmediateResponse, Refusal, RequestUrl};
use crate::notices::{Kind, TARGET};
use crate::shared::Shared;
use crate::traces::Traces;
pub(crate) use answering::{Answered, Answering, Event};
pub(crate) use content::{Allowance, Announced, Sender as ContentSender};
pub(crate) use finished::{Account, OnFinished};
pub use finished::{FinalResponse, Finished, Traced};
use forwarding::outgoing;
pub(crate) use forwarding::{Caller, Peer, Strangers};
pub(crate) use heads::{STRICT, is_bodiless, never_has_content, strict_unless_said};
pub(crate) use pseudonym::Pseudonym;
use purging::Purge;
pub(crate) use watching::{Freshened, PlainGet, client_address, visitor_scheme};

/// What the requests of one connection have in common.
pub(crate) struct Session {
    pub(crate) shared: Arc<Shared>,
    peer: Peer,
    /// What the origin's side keeps for this client alone, once something was asked of it.
    client: Option<Arc<ClientConnection>>,
}

/// A request head as a face has read it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head<'a> {
    pub(crate) method: &'a Method,
    pub(crate) host: &'a [u8],
    /// The raw path and query.
    pub(crate) target: &'a [u8],
    pub(crate) fields: Fields<'a>,
    /// Content follows.
    pub(crate) has_body: bool,
    /// The client wants to leave HTTP, for a protocol that may travel.
    pub(crate) upgrade: bool,
}

/// The same, copied out of the buffer that it was read into.
#[derive(Clone, Debug)]
struct OwnedHead {
    method: Method,
    host: Bytes,
    target: Bytes,
    fields: FieldBlock,
    has_body: bool,
    upgrade: bool,
}

/// What a request gets without waiting.
pub(crate) enum Reply {
    /// This answer. Its body is whole, or lies in a file.
    Now(Response),
    /// Nothing yet: it takes its time, with [`Session::ask`].
    Ask(Box<Unanswered>),
}

/// A request whose answer has to be waited for.
pub(crate) struct Unanswered {
    wanted: Wanted,
    route: RouteId,
    head: OwnedHead,
    began: Time,
}

/// What is waited for.
#[expect(
    clippy::large_enum_variant,
    reason = "it lies in the box of what is unanswered, and nearly always is the larger one"
)]
enum Wanted {
    /// The origin.
    Origin(FetchPlan),
    /// A purge, until it is written down.
    Purge(Purge),
}

impl Session {
    /// For a connection of this client, on which requests come by this scheme.
    pub(crate) fn new(shared: Arc<Shared>, caller: Caller, scheme: Scheme) -> Self {
        Self {
            peer: Peer::new(caller, scheme, &shared.trusted_proxies),
            client: None,
            shared,
        }
    }

    /// Has what is in force now hold for the next request. To be called between two of them.
    #[inline]
    pub(crate) fn catch_up(&mut self) {
        if let Some(newer) = self.shared.newer() {
            self.peer.judge(&newer.trusted_proxies);
            self.shared = newer;
        }
    }

    /// Whether the client is a proxy that is trusted.
    pub(crate) const fn is_trusted(&self) -> bool {
        self.peer.trusted
    }

    /// A request of this connection.
    pub(crate) fn request<'a>(&'a self, head: Head<'a>) -> Request<'a> {
        Request {
            method: head.method,
            scheme: self.peer.scheme,
            host: head.host,
            target: head.target,
            fields: head.fields,
            address: self.peer.address(),
            has_body: head.has_body,
            upgrade: head.upgrade,
            vouched: self.peer.trusted,
            signed_in: self.client.as_ref().is_some_and(|c| c.is_signed_in()),
            ttl: None,
        }
    }

    /// Answers a request if that needs no waiting. Whoever writes the answer says how it ended, with
    /// [`Self::finished`] or an [`Account`].
    ///
    /// The reply is put where it is to be read from: to hand it on by value is a good part of what a
    /// hit costs. Says which route it was.
    pub(crate) fn serve(
        &self,
        request: &Request<'_>,
        now: Time,
        reply: &mut Option<Reply>,
    ) -> RouteId {
        if self.shared.looks_first
            && let Some(answer) = self.before_all_else(request, now)
        {
            *reply = Some(Reply::Now(answer));
            return RouteId::default();
        }
        let engine = &self.shared.engine;
        let mut route = RouteId::default();
        // A panic in one request is that request's alone.
        let served = catch_unwind(AssertUnwindSafe(|| {
            let found = engine.find(request);
            route = engine.id_of(found);
            if found.bypass == Some(Bypass::Path)
                && let Some(page) = self.ambiguous_path(found.route, request, now)
            {
                *reply = Some(Reply::Now(page));
                return;
            }
            if let Some(page) = self.beyond_rate(found.route, RateOf::Requests, request, now) {
                *reply = Some(Reply::Now(page));
                return;
            }
            *reply = Some(match engine.serve_on(found, request, now) {
                Served::Now(response) if response.outcome == Outcome::Hit => Reply::Now(response),
                served => self.beyond_hits(served, route, request, now),
            });
            if self.shared.watched_routes.is_some() {
                self.add_monitor(found.route, request.target, reply);
            }
        }));
        if served.is_err() {
            *reply = Some(Reply::Now(pages::panicked(now)));
        }
        route
    }

    /// The answer to a request that has nothing to do with the application.
    fn before_all_else(&self, request: &Request<'_>, now: Time) -> Option<Response> {
        self.challenge(request, now)
            .or_else(|| self.elsewhere(request, now))
    }

    /// The answer to an authority that wants to see that a name is ours. What nobody is about to ask for is the application's.
    fn challenge(&self, request: &Request<'_>, now: Time) -> Option<Response> {
        let issued = self.shared.issued.as_ref()?;
        if !matches!(*request.method, Method::GET | Method::HEAD) {
            return None;
        }
        let answer = issued.answer_at(request.target)?;
        Some(pages::challenge(answer, now))
    }

    /// The answer to a request that is to come by TLS.
    fn elsewhere(&self, request: &Request<'_>, now: Time) -> Option<Response> {
        let port = self.shared.secure_port?;
        // Who names no host is shown no way: he would be shown the application's.
        let host = match request.host {
            host if host == self.shared.default_host.as_bytes() => &b""[..],
            host => host,
        };
        let came_by_tls =
            request.scheme == Scheme::Https || request.vouched && says_https(request.fields);
        // Applications purge where they always have.
        let stays = came_by_tls || self.shared.takes_for_purge(request);
        (!stays).then(|| pages::elsewhere(host, request.target, port, now))
    }

    /// A client and this server could not agree on a session.
    pub(crate) fn tell_no_session(&self, why: &std::io::Error) {
        self.shared.metrics.refused.count(Refusal::Handshake);
        // Whoever looks for open ports makes many of these.
        let address = self.peer.address();
        tracing::debug!(target: TARGET, kind = "handshake", about = address, "{address}: no TLS session: {why}");
    }

    /// They have not come to an end with it in time.
    pub(crate) fn tell_late_session(&self) {
        self.shared.metrics.refused.count(Refusal::HandshakeLate);
    }

    /// What is owed to a request before the origin is asked about it.
    fn beyond_hits(
        &self,
        served: Served,
        route: RouteId,
        request: &Request<'_>,
        now: Time,
    ) -> Reply {
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
            Served::Ask(question) => self.before_the_origin(question, route, request, now),
        }
    }

    /// The answer to a request that the cache has none for, if it is ours to give.
    fn before_the_origin(
        &self,
        question: FetchPlan,
        route: RouteId,
        request: &Request<'_>,
        now: Time,
    ) -> Reply {
        let later = |wanted| {
            Reply::Ask(Box::new(Unanswered {
                wanted,
                route,
                head: OwnedHead::copied(request),
                began: now,
            }))
        };
        let through = self.peer.through();
        let answer = match self.shared.purge_asked(request, through, now) {
            Some(Ok(purge)) => return later(Wanted::Purge(purge)),
            Some(Err(refused)) => Some(refused),
            None => last_hop::answer(request, now)
                .or_else(|| self.beyond_rate(question.route(), RateOf::Misses, request, now)),
        };
        match answer {
            Some(response) => Reply::Now(response),
            None => later(Wanted::Origin(question)),
        }
    }

    /// Something of a connection by HTTP/2 was refused, because there was too much of it.
    pub(crate) fn tell_refused(&self, why: Refusal, what: &str) {
        let line = || format!("{}, by HTTP/2: {what}", self.peer.address());
        self.shared.refused(why, line);
    }

    /// A connection begins with the PROXY protocol where it must not: nothing of it is believed, and it ends.
    pub(crate) fn refuse_introduction(&self) {
        let address = self.peer.address();
        self.shared.refused(Refusal::ProxyUntrusted, || {
            format!("{address} begins with the PROXY protocol, and is not in `proxy_protocol`: its connections are closed")
        });
    }

    /// The page for a request that cannot be read.
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
        metrics.count(RouteId::default(), page.outcome);
        metrics.sent(RouteId::default(), page.length.unwrap_or_default());
        metrics.answered_error(RouteId::default(), None, &page, now);
        if let Some(tell) = &self.shared.on_finished {
            tell(&Finished::refused(&self.peer, version, &page, now));
        }
        page
    }

    /// Takes a request to the origin, with the content that it has announced. Whoever reads the
    /// content off the connection gives it to the [`ContentSender`].
    pub(crate) fn ask(
        &mut self,
        unanswered: Box<Unanswered>,
        version: Version,
        announced: Option<Announced>,
    ) -> (Answering, Option<ContentSender>) {
        let Unanswered {
            wanted,
            route,
            head,
            began,
        } = *unanswered;
        let mut account = self.account(route, head.clone(), version, began);
        let question = match wanted {
            Wanted::Origin(question) => question,
            Wanted::Purge(purge) => return self.purge(purge, account, announced),
        };
        let most = self
            .shared
            .max_body(&question, &self.request(head.borrowed()));
        let is_too_large = |announced: Announced| announced.length.is_some_and(|it| it > most);
        if announced.is_some_and(is_too_large) {
            let page = pages::too_large(self.shared.engine.clock.now());
            self.shared
                .refused_body(&BodyError::TooLarge, self.peer.address());
            let answer = Box::pin(std::future::ready(Ok(page)));
            return self.without_content(answer, account, announced);
        }
        account.waits();
        let engine = &self.shared.engine;
        let rules = &engine.rules(question.route()).request;
        let (body, sender, expectation) = match announced {
            None => (Body::Empty, None, None),
            Some(announced) => {
                let timeouts = &self.shared.timeouts;
                let allowance = Allowance::new(timeouts.body, timeouts.body_rate);
                let (body, sender, expectation) =
                    content::channel(announced, most, allowance, rules);
                (body, Some(sender), expectation)
            }
        };
        let interims = Interims::default();
        let is_watched = self.shared.is_watched(question.route());
        let watched = is_watched.then(|| head.target.clone());
        let mut incoming = self.incoming(head, rules, body);
        let span = account.span().map(|span| Traces::part(&span));
        traced(&mut incoming, span, rules);
        incoming.length = announced.and_then(|announced| announced.length);
        incoming.interim = Some(interims.clone());
        incoming.client = Some(Arc::clone(self.client.get_or_insert_default()));
        let network = incoming.network;
        let answer = Arc::clone(&self.shared.engine).ask(question, incoming);
        let shared = Arc::clone(&self.shared);
        let answering = Answering::new(Box::pin(answer), interims, expectation, shared, account);
        (answering.of_watched(watched).of_client(network), sender)
    }

    /// Carries a purge out.
    fn purge(
        &self,
        purge: Purge,
        account: Account,
        announced: Option<Announced>,
    ) -> (Answering, Option<ContentSender>) {
        let (engine, lifecycle) = (&self.shared.engine, &self.shared.lifecycle);
        let answer = purge.carry_out(Arc::clone(engine), Arc::clone(&lifecycle.predecessor));
        let answer = Box::pin(async move { Ok(answer.await) });
        self.without_content(answer, account, announced)
    }

    /// For an answer that needs nothing of what the request announces: that is not read, and so the connection's last.
    fn without_content(
        &self,
        answer: BoxFuture<'static, Result<Response, NoResponse>>,
        account: Account,
        announced: Option<Announced>,
    ) -> (Answering, Option<ContentSender>) {
        let timeouts = &self.shared.timeouts;
        let sender = announced.map(|announced| {
            let allowance = Allowance::new(timeouts.body, timeouts.body_rate);
            let (_unread, sender, _) =
                content::channel(announced, 0, allowance, &RequestRules::default());
            sender
        });
        let shared = Arc::clone(&self.shared);
        let answering = Answering::new(answer, Interims::default(), None, shared, account);
        (answering, sender)
    }

    /// The request was answered, and with that it is over. Says whether it is wanted how long that took.
    pub(crate) fn finished(
        &self,
        route: RouteId,
        request: &Request<'_>,
        version: Version,
        response: &Response,
        now: Time,
    ) -> bool {
        let (metrics, outcome) = (&self.shared.metrics, response.outcome);
        let bytes = finished::content_length(request, response);
        let named = RequestUrl {
            scheme: request.scheme,
            host: request.host,
            target: microcache_push::redacted_target(request.target),
        };
        let is_timed = metrics.answered_at_once(&ImmediateResponse {
            route,
            outcome,
            bytes,
            named,
            now,
        });
        if outcome == Outcome::Error {
            metrics.answered_error(route, Some(named), response, now);
        }
        if let Some(tell) = &self.shared.on_finished {
            tell(&Finished::at_once(request, version, response, bytes, now));
        }
        is_timed
    }

    /// The same for an answer that is still to be sent.
    pub(crate) fn account_of(
        &self,
        route: RouteId,
        request: &Request<'_>,
        version: Version,
        response: &Response,
        now: Time,
    ) -> Account {
        let mut account = self.account(route, OwnedHead::copied(request), version, now);
        account.answered(response, now);
        account
    }

    fn account(&self, route: RouteId, head: OwnedHead, version: Version, began: Time) -> Account {
        Account::open(&self.shared, route, head, &self.peer, version, began)
    }

    /// The answer to a request that was sent from here, and that is no hit: that led here. A failure of
    /// the origin is what it is to those who sent it on, so stored copies are used.
    fn loop_detected(&self, fields: Fields<'_>, now: Time) -> Option<Response> {
        if !self.shared.pseudonym.is_in(fields) {
            return None;
        }
        let line = "a request came back to where it was sent from: an origin leads back here";
        self.shared.notices.say(Kind::Loop, "", line);
        Some(pages::leads_back(now))
    }

    fn refresh(&self, refresh: Refresh, request: &Request<'_>) {
        let rules = &self.shared.engine.rules(refresh.route()).request;
        let mut incoming = self.incoming(OwnedHead::copied(request), rules, Body::Empty);
        // The client has its answer, and no part of its span is left to be.
        let traces = self.shared.metrics.traces();
        let span = traces.and_then(|traces| traces.begin(request.fields, request.vouched));
        traced(&mut incoming, span, rules);
        self.shared.engine.refresh(refresh, incoming);
    }

    /// What the engine needs to ask the origin, on behalf of nobody yet.
    fn incoming(&self, head: OwnedHead, rules: &RequestRules, body: Body) -> Incoming {
        let fields = head.fields.fields();
        let mut outgoing = outgoing(
            &head.method,
            fields,
            head.upgrade,
            &head.host,
            &self.peer,
            rules,
        );
        outgoing.push("Via", self.shared.pseudonym.via());
        if let Some(line) = self.shared.strangers.notice(fields, &self.peer) {
            self.shared
                .notices
                .say(Kind::NotTrusted, self.peer.address(), line);
        }
        let network = self.peer.client(fields, &self.shared.trusted_proxies);
        Incoming {
            outgoing,
            method: head.method,
            scheme: self.peer.scheme,
            host: head.host,
            target: head.target,
            fields: head.fields,
            address: self.peer.shared_address(),
            network,
            body,
            length: None,
            upgrade: head.upgrade,
            vouched: self.peer.trusted,
            client: None,
            interim: None,
            span: None,
            ttl: None,
            anew: false,
            extensions: Extensions::new(),
        }
    }
}

/// Makes what is asked of the origin a part of a trace, if it is to be: then the application's spans are
/// parts of this one.
fn traced(incoming: &mut Incoming, span: Option<Span>, rules: &RequestRules) {
    incoming.span = span;
    if let Some(span) = span
        && !rules.removed_fields.matches(b"traceparent")
    {
        incoming.outgoing.set("traceparent", span.traceparent());
    }
}

impl OwnedHead {
    fn borrowed(&self) -> Head<'_> {
        Head {
            method: &self.method,
            host: &self.host,
            target: &self.target,
            fields: self.fields.fields(),
            has_body: self.has_body,
            upgrade: self.upgrade,
        }
    }

    /// One allocation for all of it but the host, which goes on as it is keyed.
    fn copied(request: &Request<'_>) -> Self {
        let (fields, target) = FieldBlock::copied_with(request.fields, &[request.target]);
        Self {
            method: request.method.clone(),
            fields,
            host: normal_host(request.scheme, request.host).into(),
            target,
            has_body: request.has_body,
            upgrade: request.upgrade,
        }
    }
}
