//! Rate limits of routes.

use microcache_engine::{Request, Response};
use microcache_policy::Time;

use super::{Session, pages};
use crate::config::RateOf;
use crate::metrics::Refusal;
use crate::rates::{RateLimit, RateLimits};

impl Session {
    /// Returns the response to a request above the rate limit of its route.
    #[inline]
    pub(super) fn beyond_rate(
        &self,
        route: usize,
        of: RateOf,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Response> {
        let rates = self.shared.rates.as_deref()?;
        let limit = rates.limit(route, of)?;
        self.held_back(rates, limit, request, now)
    }

    /// Returns the response to a request whose path can be interpreted as that of other routes, if it is
    /// refused. It counts on each of them, even on those that count misses only, because it is never served
    /// from memory.
    pub(super) fn ambiguous_path(
        &self,
        route: usize,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Response> {
        let ambiguous = self.shared.routing.ambiguous(request)?;
        if ambiguous.is_refused && !self.shared.takes_for_purge(request) {
            return Some(pages::ambiguous_path(now));
        }
        let rates = self.shared.rates.as_deref()?;
        let others = ambiguous.routes.into_iter().filter(|&it| it != route);
        let mut limits = others.filter_map(|it| rates.any_limit(it));
        limits.find_map(|limit| self.held_back(rates, limit, request, now))
    }

    fn held_back(
        &self,
        rates: &RateLimits,
        limit: &RateLimit,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Response> {
        // Purges are not limited; fragments are part of a page that has been counted.
        if self.nesting.is_some() || self.shared.takes_for_purge(request) {
            return None;
        }
        let client = self
            .peer
            .client(request.fields, &self.shared.trusted_proxies);
        let early = rates.take(limit, request, client, now).err()?;
        self.shared.refused(Refusal::Rate, || {
            format!(
                "{client} was answered 429: the rate limit of the route is {} by {}",
                limit.quota, limit.by
            )
        });
        Some(pages::too_many(limit, early, now))
    }
}
