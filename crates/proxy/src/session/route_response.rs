//! Responses of the route itself: redirects and fixed responses. They are never stored.

use microcache_engine::{Body, Outcome, Request, Response, clock};
use microcache_policy::{CacheStatus, Detail, FieldsBuf, Time, date};

use super::{Session, heads, pages};
use crate::config::{FixedResponse, GoesTo, Redirect, Route};

impl Session {
    /// Returns the response of a route that answers itself.
    #[inline]
    pub(super) fn route_response(
        &self,
        route: usize,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Response> {
        // Purges concern what other routes have stored for the URL.
        if !self.shared.has_route_responses || self.shared.takes_for_purge(request) {
            return None;
        }
        self.response_of(&self.shared.config.routes[route], request, now)
    }

    #[inline(never)]
    fn response_of(&self, route: &Route, request: &Request<'_>, now: Time) -> Option<Response> {
        let list = route.redirects.as_ref();
        if let Some(redirect) = list.and_then(|list| list.find(request.target)) {
            return Some(self.redirected(redirect, route, request, now));
        }
        match &route.goes_to {
            GoesTo::Redirect(redirect) => Some(self.redirected(redirect, route, request, now)),
            GoesTo::Respond(response) => Some(fixed(response, now)),
            _ => None,
        }
    }

    fn redirected(
        &self,
        redirect: &Redirect,
        route: &Route,
        request: &Request<'_>,
        now: Time,
    ) -> Response {
        // The host of a request without one is that of the origin, which is not for clients.
        let has_no_host =
            redirect.has_host() && request.host == self.shared.default_host.as_bytes();
        let location = redirect.location(request, &route.matcher);
        let Some(location) = location.filter(|_| !has_no_host) else {
            return pages::refused(400, "there is no redirect for this host and target", now);
        };
        let mut fields = FieldsBuf::new();
        fields.push("Date", date::format(clock::date(now)));
        fields.push("Location", location);
        if route.matcher.goes_by_more_than_url() {
            // A cache would redirect requests that the conditions do not match.
            fields.push("Cache-Control", "no-store");
        }
        response(redirect.status, fields, Body::Empty, 0, Detail::Redirect)
    }
}

fn fixed(fixed: &FixedResponse, now: Time) -> Response {
    let mut fields = FieldsBuf::new();
    fields.push("Date", date::format(clock::date(now)));
    if !fixed.content_type.is_empty() {
        fields.push("Content-Type", &fixed.content_type);
    }
    fields.push("Cache-Control", &fixed.cache_control);
    let (body, length) = (Body::Full(fixed.body.clone()), fixed.body.len());
    response(fixed.status, fields, body, length, Detail::Respond)
}

fn response(status: u16, fields: FieldsBuf, body: Body, length: usize, detail: Detail) -> Response {
    Response {
        status,
        fields: Some(fields.into()),
        age: None,
        cache_status: CacheStatus {
            detail: Some(detail),
            ..CacheStatus::default()
        },
        length: (!heads::never_has_content(status)).then_some(length as u64),
        body,
        tunnel: None,
        outcome: Outcome::Pass,
    }
}
