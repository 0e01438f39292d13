//! Authentication of clients, before the cache of their route is asked.

use std::sync::Arc;

use microcache_engine::{
    BoxFuture, Bypass, ForwardedRequest, NoResponse, Request, Response, RouteMatch,
};
use microcache_policy::Time;

use super::{DeferredRequest, DeferredSource, ForwardSource, Reply, Session, pages};
use crate::metrics::Refusal;
use crate::passwords::{Credentials, PasswordCheck, PendingVerification};

/// A request whose client is being authenticated.
pub(super) struct PendingAccess {
    found: RouteMatch,
    verification: PendingVerification,
}

impl PendingAccess {
    /// Returns the index of the route, and whether the path can be read as that of another one.
    pub(super) fn route(&self) -> (usize, bool) {
        (self.found.route, self.found.bypass == Some(Bypass::Path))
    }
}

impl Session {
    /// Returns the response to a request without valid credentials for its route, or defers it until they are verified.
    #[cold]
    #[inline(never)]
    pub(super) fn authenticate(
        &self,
        found: RouteMatch,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Reply> {
        let basic = self.shared.config.routes[found.route].basic_auth.as_ref()?;
        if self.shared.takes_for_purge(request) {
            return None;
        }
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
                let pending = PendingAccess {
                    found,
                    verification,
                };
                return Some(Reply::Deferred(DeferredRequest {
                    wanted: DeferredSource::Forward(ForwardSource::Authentication(Box::new(
                        pending,
                    ))),
                    route: self.shared.engine.id_of(found),
                    head: self.copied(request),
                    began: now,
                }));
            }
            PasswordCheck::TooManyOfNetwork => pages::too_many_passwords(now),
            PasswordCheck::QueueFull => pages::passwords_busy(now),
        };
        self.shared.refused(Refusal::Authentication, || {
            format!(
                "{client} was answered {}: too many passwords wait for their verification",
                busy.status
            )
        });
        Some(Reply::Now(busy))
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
        incoming: ForwardedRequest,
    ) -> BoxFuture<'static, Result<Response, NoResponse>> {
        let session = Self {
            shared: Arc::clone(&self.shared),
            peer: self.peer.clone(),
            client: None,
        };
        Box::pin(async move {
            let PendingAccess {
                found,
                verification,
            } = pending;
            let is_right = verification.verified().await;
            let engine = &session.shared.engine;
            let now = engine.clock.now();
            if !is_right {
                return Ok(session.wrong_password(found.route, &incoming, now));
            }
            let request = incoming.as_request();
            if let Some(response) = session.route_response(found.route, &request, now) {
                return Ok(response);
            }
            match session.answer_from_cache(found, &request, now) {
                Reply::Now(response) => Ok(response),
                Reply::Deferred(DeferredRequest {
                    wanted: DeferredSource::Forward(ForwardSource::Origin(plan)),
                    ..
                }) => Arc::clone(engine).ask(plan, incoming).await,
                // Purges need no authentication, and no request needs two.
                Reply::Deferred(_) => Ok(pages::panicked(now)),
            }
        })
    }

    fn wrong_password(&self, route: usize, incoming: &ForwardedRequest, now: Time) -> Response {
        let route = &self.shared.config.routes[route];
        self.shared.refused(Refusal::Authentication, || {
            let (client, name) = (incoming.network, &route.name);
            format!("{client} was answered 401: a wrong password for the route {name}")
        });
        let realm = route.basic_auth.as_ref().map_or("", |basic| basic.realm());
        pages::unauthorized(realm, now)
    }
}
