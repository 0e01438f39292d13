//! The user context of a request: a hash of the user's role, which the application gives for the credentials of the
//! request. It is part of the key, so that users of the same role share pages that permit sharing.
//!
//! The protocol is that of `FOSHttpCache`. A client's own field of that name never counts.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;
use microcache_engine::{
    BoxFuture, Bypass, ForwardedRequest, NoResponse, OriginRequest, Request, RequestClients,
    Response, RouteMatch,
};
use microcache_policy::{
    FieldsBuf, IndexedBlock, Network, Time, USER_CONTEXT, cookies, is_user_context, names,
};
use tokio::time::timeout;

use super::pending_context::{ContextChange, PendingContext};
use super::{DeferredRequest, DeferredSource, ForwardSource, Reply, Session, pages};
use crate::config::UserContext;
use crate::forward_auth::{Grant, QuestionTurn};

/// The media type that asks for a hash.
const MEDIA_TYPE: &str = "application/vnd.fos.user-context-hash";
/// The longest hash, in bytes.
const LONGEST: usize = 256;

/// The credentials of a request for the application.
enum ContextCredentials {
    None,
    /// Programs could read the cookies differently.
    Unclear,
    /// The fields with them.
    Some(FieldsBuf),
}

impl Session {
    /// Answers a request on a route with a user context.
    #[cold]
    #[inline(never)]
    pub(super) fn in_context(
        &self,
        found: RouteMatch,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Reply> {
        let route = &self.shared.config.routes[found.route];
        let context = route.user_context.as_ref()?;
        if self.shared.takes_for_purge(request) {
            return None;
        }
        let mut fields = FieldsBuf::indexed(request.fields.as_block().len() + LONGEST);
        fields.extend_if(request.fields, |name, _| !is_user_context(name));
        let own =
            |fields: &'_ FieldsBuf| self.answer_from_cache(found, &with(request, fields), now);
        let credentials = match self.context_credentials(context, found.route, request) {
            ContextCredentials::None => return Some(own(&fields)),
            ContextCredentials::Unclear => {
                let found = unknown(found);
                return Some(self.answer_from_cache(found, &with(request, &fields), now));
            }
            ContextCredentials::Some(credentials) => credentials,
        };
        let decisions = &self.shared.decisions;
        let parts = [
            &b"user context"[..],
            context.target().as_bytes(),
            request.host,
        ];
        let parts = parts.into_iter().chain([credentials.fields().as_block()]);
        let route_name = [route.name.as_bytes()];
        let fingerprint = decisions.fingerprint(parts.chain(route_name));
        if !request.method.is_safe() {
            decisions.forget(&fingerprint);
            return Some(match own(&fields) {
                Reply::Deferred(deferred) => Reply::Deferred(DeferredRequest {
                    change: Some(ContextChange::new(decisions, fingerprint)),
                    ..deferred
                }),
                reply @ Reply::Now(_) => reply,
            });
        }
        let is_cached = matches!(*request.method, Method::GET | Method::HEAD)
            && !request.has_body
            && !request.upgrade
            && !route.pass
            && found.bypass.is_none();
        if !is_cached || self.shared.lifecycle.maintenance.is_on() {
            return Some(own(&fields));
        }
        if let Some(grant) = decisions.get(&fingerprint) {
            grant.add_fields(&mut fields);
            return Some(own(&fields));
        }
        if let Some(page) = self.loop_detected(request.fields, now) {
            return Some(Reply::Now(page));
        }
        let request = with(request, &fields);
        let client = self
            .peer
            .client(request.fields, &self.shared.trusted_proxies);
        let pending = PendingContext {
            found,
            question: Box::new(self.question(context, &request, credentials, client)),
            fingerprint,
        };
        let source = DeferredSource::Forward(ForwardSource::Context(Box::new(pending)));
        Some(self.defer(source, self.shared.engine.id_of(found), &request, now))
    }

    fn context_credentials(
        &self,
        context: &UserContext,
        route: usize,
        request: &Request<'_>,
    ) -> ContextCredentials {
        let mut credentials = FieldsBuf::new();
        let rules = &self.shared.engine.rules(route).request;
        let Some(cookies) = cookies::named(request.fields, rules, context.cookies()) else {
            return ContextCredentials::Unclear;
        };
        if !cookies.is_empty() {
            credentials.push("Cookie", cookies.join(&b"; "[..]));
        }
        for value in request.fields.values(names::AUTHORIZATION) {
            credentials.push("Authorization", value);
        }
        if credentials.fields().as_block().is_empty() {
            ContextCredentials::None
        } else {
            ContextCredentials::Some(credentials)
        }
    }

    /// Returns the request for the hash.
    fn question(
        &self,
        context: &UserContext,
        request: &Request<'_>,
        credentials: FieldsBuf,
        client: Network,
    ) -> OriginRequest {
        let host = Bytes::copy_from_slice(request.host);
        let target = Bytes::copy_from_slice(context.target().as_bytes());
        let mut question = OriginRequest::bare(Method::GET, host, target);
        question.scheme = request.scheme;
        question.clients = RequestClients::One(client);
        question.fields = credentials;
        let fields = &mut question.fields;
        fields.push("Accept", MEDIA_TYPE);
        fields.push("X-Forwarded-Host", request.host);
        fields.push("X-Forwarded-Proto", request.scheme.as_str());
        let address = self
            .peer
            .client_text(request.fields, &self.shared.trusted_proxies);
        fields.push("X-Forwarded-For", address.as_bytes());
        self.shared.pseudonym.add_to(fields);
        question
    }

    /// Answers a request once its user context is known. Without one it passes, and its response is for its client only.
    pub(super) fn once_in_context(
        &self,
        pending: PendingContext,
        mut incoming: ForwardedRequest,
    ) -> BoxFuture<'static, Result<Response, NoResponse>> {
        let session = self.detached();
        Box::pin(async move {
            let found = pending.found;
            let known = session.context_of(pending, incoming.network).await;
            if let Some(grant) = &known {
                let mut fields = FieldsBuf::indexed(0);
                fields.extend_if(incoming.head.fields.fields(), |_, _| true);
                grant.add_fields(&mut fields);
                incoming.head.fields = IndexedBlock::from(fields);
                grant.add_fields(&mut incoming.outgoing);
            }
            let found = if known.is_some() {
                found
            } else {
                unknown(found)
            };
            let engine = &session.shared.engine;
            let now = engine.clock.now();
            match session.answer_from_cache(found, &incoming.as_request(), now) {
                Reply::Now(response) => Ok(response),
                Reply::Deferred(DeferredRequest {
                    wanted: DeferredSource::Forward(ForwardSource::Origin(plan)),
                    ..
                }) => Arc::clone(engine).ask(plan, incoming).await,
                // A purge has no user context.
                Reply::Deferred(_) => Ok(pages::panicked(now)),
            }
        })
    }

    /// Waits for the user context. `None` if the application gives none in time.
    async fn context_of(&self, pending: PendingContext, client: Network) -> Option<Arc<Grant>> {
        let PendingContext {
            found,
            question,
            fingerprint,
        } = pending;
        let context = self.shared.config.routes[found.route]
            .user_context
            .as_ref()?;
        let decisions = &self.shared.decisions;
        let known = async {
            let mut turn = None;
            match decisions.turn(fingerprint) {
                QuestionTurn::Ask(question) => turn = Some(question),
                QuestionTurn::Wait(answer) => {
                    answer.arrived().await;
                    if let Some(grant) = decisions.get(&fingerprint) {
                        return Some(grant);
                    }
                }
            }
            let response = self
                .shared
                .engine
                .origin(found.route)
                .fetch(*question)
                .await
                .ok()?;
            let hash = response.fields.fields().get("x-user-context-hash")?;
            let is_valid = response.status / 100 == 2
                && (1..=LONGEST).contains(&hash.len())
                && hash.iter().all(u8::is_ascii_graphic);
            let grant = Arc::new(Grant::of_field(USER_CONTEXT, hash));
            if let Some(turn) = turn.filter(|_| is_valid) {
                decisions.keep_answer(&turn, (fingerprint, client), &grant, context.kept_for());
            }
            is_valid.then_some(grant)
        };
        timeout(context.timeout(), known).await.ok().flatten()
    }
}

/// The same request with these fields.
fn with<'a>(request: &Request<'a>, fields: &'a FieldsBuf) -> Request<'a> {
    Request {
        fields: fields.fields(),
        ..*request
    }
}

/// The route of a request without a user context: it passes.
fn unknown(found: RouteMatch) -> RouteMatch {
    RouteMatch {
        bypass: found.bypass.or(Some(Bypass::UserContext)),
        ..found
    }
}
