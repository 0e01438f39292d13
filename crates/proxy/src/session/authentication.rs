//! Authentication of clients, before the cache of their route is asked.

use std::sync::Arc;

use http::Method;
use microcache_engine::{BoxFuture, ForwardedRequest, NoResponse, Request, Response, RouteMatch};
use microcache_policy::known_name::names;
use microcache_policy::{FieldBlock, FieldsBuf, Network, Scheme, Time, visitor_used_tls};
use tokio::time::timeout;

use super::pending_access::{AccessCheck, PendingAccess};
use super::{DeferredRequest, DeferredSource, ForwardSource, Reply, Session, pages};
use crate::config::{BasicAuth, ForwardAuth};
use crate::forward_auth::{AuthQuestion, AuthSubject, Decision, Grant, QuestionTurn};
use crate::metrics::Refusal;
use crate::passwords::{Credentials, PasswordCheck};

impl Session {
    /// Returns the response to a request that its route does not admit, or defers it until that is decided.
    #[cold]
    #[inline(never)]
    pub(super) fn authenticate(
        &self,
        found: RouteMatch,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Reply> {
        let route = &self.shared.config.routes[found.route];
        if !route.authenticates() || self.shared.takes_for_purge(request) {
            return None;
        }
        if let Some(basic) = &route.basic_auth {
            return self.verify_password(basic, found, request, now);
        }
        let auth = self.asked_server(found.route, request)?;
        Some(self.ask_server(auth, found, request, now))
    }

    /// Returns the authentication server that is asked about a request.
    pub(super) fn asked_server(&self, route: usize, request: &Request<'_>) -> Option<&ForwardAuth> {
        let auth = self
            .shared
            .config
            .routes
            .get(route)?
            .forward_auth
            .as_ref()?;
        let needs_permission = || {
            let push = self.shared.push.as_ref();
            let is_read = [Method::GET, Method::HEAD, Method::CONNECT].contains(request.method);
            is_read && push.is_some_and(|it| it.needs_permission(request.target, request.fields))
        };
        (!auth.is_for_readers() || needs_permission()).then_some(auth)
    }

    /// Returns the response to a request without valid credentials, or defers it until they are verified.
    fn verify_password(
        &self,
        basic: &BasicAuth,
        found: RouteMatch,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Reply> {
        let Some(credentials) = Credentials::of(request.fields) else {
            return Some(Reply::Now(pages::unauthorized(basic.realm(), now)));
        };
        let client = self
            .peer
            .client(request.fields, &self.shared.trusted_proxies);
        let passwords = &self.shared.passwords;
        let busy = match passwords.check(basic.users(), &credentials, client) {
            PasswordCheck::Accepted => return None,
            PasswordCheck::Pending(verification) => {
                let check = AccessCheck::Password(verification);
                return Some(self.deferred(PendingAccess { found, check }, request, now));
            }
            PasswordCheck::TooManyOfNetwork => pages::too_many_passwords(now),
            PasswordCheck::QueueFull => pages::passwords_busy(now),
        };
        self.shared.refused(Refusal::Authentication, || {
            let status = busy.status;
            format!(
                "{client} was answered {status}: too many passwords wait for their verification"
            )
        });
        Some(Reply::Now(busy))
    }

    /// Answers a request that was admitted a short time ago, or defers it until the server has decided.
    fn ask_server(
        &self,
        auth: &ForwardAuth,
        found: RouteMatch,
        request: &Request<'_>,
        now: Time,
    ) -> Reply {
        if let Some(page) = self.loop_detected(request.fields, now) {
            return Reply::Now(page);
        }
        let Some(server) = self.shared.authentication[found.route].clone() else {
            return Reply::Now(pages::authentication_unavailable(now));
        };
        let (fields, trusted) = (request.fields, &self.shared.trusted_proxies);
        let trusted_fields = &self.shared.config.trusted_headers;
        let is_https = request.scheme == Scheme::Https
            || request.is_trusted && visitor_used_tls(fields, trusted_fields);
        let scheme = if is_https {
            Scheme::Https
        } else {
            Scheme::Http
        };
        let host = fields.value(names::X_FORWARDED_HOST);
        let address = self.peer.client_text(fields, trusted);
        let subject = AuthSubject {
            request,
            scheme: scheme.as_str(),
            host: host.filter(|_| request.is_trusted).unwrap_or(request.host),
            address: &address,
        };
        let question = AuthQuestion {
            authority: auth.authority(),
            target: auth.target(),
            via: self.shared.pseudonym.via(),
        };
        let decisions = &self.shared.decisions;
        let is_kept = !auth.kept_for().is_zero();
        let fingerprint = is_kept.then(|| decisions.fingerprint(subject.identity(&question)));
        if let Some(grant) = fingerprint.and_then(|it| decisions.get(&it)) {
            return match self.once_admitted(found, request, now) {
                Reply::Deferred(deferred) => Reply::Deferred(DeferredRequest {
                    grant: Some(grant),
                    ..deferred
                }),
                reply @ Reply::Now(_) => reply,
            };
        }
        let check = AccessCheck::Server {
            question: Box::new(question.about(&subject)),
            server,
            fingerprint,
        };
        self.deferred(PendingAccess { found, check }, request, now)
    }

    fn deferred(&self, pending: PendingAccess, request: &Request<'_>, now: Time) -> Reply {
        let route = self.shared.engine.id_of(pending.found);
        let source = ForwardSource::Authentication(Box::new(pending));
        self.defer(DeferredSource::Forward(source), route, request, now)
    }

    /// Returns whether a request has no credentials although its route requires some. They are not verified.
    pub(super) fn lacks_credentials(&self, route: usize, request: &Request<'_>) -> bool {
        self.shared.config.routes[route].basic_auth.is_some()
            && !self.shared.takes_for_purge(request)
            && Credentials::of(request.fields).is_none()
    }

    /// Answers a request once its client is authenticated.
    pub(super) fn once_authenticated(
        &self,
        pending: PendingAccess,
        mut incoming: ForwardedRequest,
    ) -> BoxFuture<'static, Result<Response, NoResponse>> {
        let session = self.detached();
        Box::pin(async move {
            let PendingAccess { found, check } = pending;
            let grant = match session.admit(found.route, check, incoming.network).await {
                Ok(grant) => grant,
                Err(refused) => return Ok(*refused),
            };
            let engine = &session.shared.engine;
            let now = engine.clock.now();
            let request = incoming.as_request();
            let mut response = match session.once_admitted(found, &request, now) {
                Reply::Now(response) => response,
                Reply::Deferred(DeferredRequest {
                    wanted: DeferredSource::Forward(ForwardSource::Origin(plan)),
                    ..
                }) => {
                    grant.add_fields(&mut incoming.outgoing);
                    Arc::clone(engine).ask(plan, incoming).await?
                }
                // Purges need no authentication, and no request needs two.
                Reply::Deferred(_) => pages::panicked(now),
            };
            if grant.sets_cookies() {
                let mut fields = FieldsBuf::new();
                fields.extend_if(response.fields(), |_, _| true);
                grant.add_cookies(&mut fields);
                response.fields = Some(FieldBlock::from(fields));
            }
            Ok(response)
        })
    }

    /// Waits for the decision about a client. Fails with the response to one that is not admitted.
    async fn admit(
        &self,
        route: usize,
        check: AccessCheck,
        client: Network,
    ) -> Result<Arc<Grant>, Box<Response>> {
        match check {
            AccessCheck::Password(verification) => {
                if verification.verified().await {
                    return Ok(Arc::default());
                }
                Err(Box::new(self.wrong_password(route, client)))
            }
            AccessCheck::Server {
                server,
                question,
                fingerprint,
            } => {
                let Some(auth) = &self.shared.config.routes[route].forward_auth else {
                    return Err(Box::new(self.no_decision(route, "it is not configured")));
                };
                let decisions = &self.shared.decisions;
                let decided = async {
                    let mut turn = None;
                    if let Some(fingerprint) = fingerprint {
                        match decisions.turn(fingerprint) {
                            QuestionTurn::Ask(question) => turn = Some(question),
                            QuestionTurn::Wait(answer) => {
                                answer.arrived().await;
                                // A refusal, or a grant with a cookie, is for the other request alone.
                                if let Some(grant) = decisions.get(&fingerprint) {
                                    return Ok(Ok(grant));
                                }
                            }
                        }
                    }
                    let response = server.fetch(*question).await;
                    let response = response.map_err(|error| error.to_string())?;
                    let decision = Decision::of(response, auth.copied()).await?;
                    let grant = match decision {
                        Decision::Granted(grant) => Arc::new(grant),
                        Decision::Refused(response) => return Ok(Err(response)),
                    };
                    if let Some(fingerprint) = fingerprint {
                        decisions.keep((fingerprint, client), &grant, auth.kept_for());
                    }
                    // Behind the decision, which those that wait look for.
                    drop(turn);
                    Ok(Ok(grant))
                };
                let decided = timeout(auth.timeout(), decided).await;
                let late = || Err("it has not decided within `timeout`".to_owned());
                decided
                    .unwrap_or_else(|_| late())
                    .unwrap_or_else(|why: String| Err(Box::new(self.no_decision(route, &why))))
            }
        }
    }

    fn wrong_password(&self, route: usize, client: Network) -> Response {
        let route = &self.shared.config.routes[route];
        self.shared.refused(Refusal::Authentication, || {
            let name = &route.name;
            format!("{client} was answered 401: a wrong password for the route {name}")
        });
        let realm = route.basic_auth.as_ref().map_or("", BasicAuth::realm);
        pages::unauthorized(realm, self.shared.engine.clock.now())
    }

    fn no_decision(&self, route: usize, why: &str) -> Response {
        self.shared.refused(Refusal::Authentication, || {
            let name = &self.shared.config.routes[route].name;
            format!("a request was answered 503: the authentication server of the route {name} cannot be asked: {why}")
        });
        pages::authentication_unavailable(self.shared.engine.clock.now())
    }
}
