//! The decisions of a route before its cache is asked, in their order: the canonical path, access, maintenance,
//! rate, authentication, whether the route itself answers, and the
//! user context.

use microcache_engine::{Bypass, Request, RouteMatch};
use microcache_policy::Time;

use super::{Reply, Session};
use crate::config::RateOf;

impl Session {
    /// Returns the response to a request that does not reach the cache of its route, or not at once.
    #[inline]
    pub(super) fn before_cache(
        &self,
        found: RouteMatch,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Reply> {
        if found.bypass == Some(Bypass::Path)
            && let Some(page) = self.ambiguous_path(found.route, request, now)
        {
            return Some(Reply::Now(page));
        }
        if self.shared.controls_access
            && let Some(page) = self.denied(found.route, request, now)
        {
            return Some(Reply::Now(page));
        }
        if self.shared.lifecycle.maintenance.is_on()
            && let Some(page) = self.stopped_for_maintenance(request, now)
        {
            return Some(Reply::Now(page));
        }
        if let Some(page) = self.beyond_rate(found.route, RateOf::Requests, request, now) {
            return Some(Reply::Now(page));
        }
        if self.shared.controls_access
            && let Some(reply) = self.authenticate(found, request, now)
        {
            return Some(reply);
        }
        if let Some(response) = self.route_response(found.route, request, now) {
            return Some(Reply::Now(response));
        }
        if self.shared.controls_access {
            // A purge by GET, before the cache is asked for a page of that name.
            if self.shared.purged_by_get(request).is_some() {
                return self.purge_reply(self.shared.engine.id_of(found), request, now);
            }
            return self.in_context(found, request, now);
        }
        None
    }
}
