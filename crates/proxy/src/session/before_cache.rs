//! The decisions of a route before its cache is asked, in their order: the canonical path, access, rate,
//! authentication, and whether the route itself answers.

use microcache_engine::{Bypass, Request, Response, RouteMatch};
use microcache_policy::Time;

use super::Session;
use crate::config::RateOf;

impl Session {
    /// Returns the response to a request that does not reach the cache of its route.
    #[inline]
    pub(super) fn before_cache(
        &self,
        found: RouteMatch,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Response> {
        if found.bypass == Some(Bypass::Path)
            && let Some(page) = self.ambiguous_path(found.route, request, now)
        {
            return Some(page);
        }
        if self.shared.controls_access
            && let Some(page) = self.denied_address(found.route, request, now)
        {
            return Some(page);
        }
        self.beyond_rate(found.route, RateOf::Requests, request, now)
    }
}
