//! What a route does not let through.

use microcache_engine::{Request, Response};
use microcache_policy::Time;

use super::{Session, pages};
use crate::config::RateOf;
use crate::metrics::Refusal;
use crate::rates::{RateLimit, RateLimits};

impl Session {
    /// The answer to a request that its route does not let through, where it counts these.
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

    /// The answer to a request whose path can be read as that of other routes, if it is not to go on: it counts on each
    /// of them, whatever they count, because it is never answered from memory.
    pub(super) fn ambiguous_path(
        &self,
        route: usize,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Response> {
        let (method, host, target) = (request.method, request.host, request.target);
        let ambiguous = self.shared.routing.ambiguous(method, host, target)?;
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
        // Applications purge as fast as they have to.
        if self.shared.takes_for_purge(request) {
            return None;
        }
        let client = self
            .peer
            .client(request.fields, &self.shared.trusted_proxies);
        let early = rates.take(limit, request, client, now).err()?;
        self.shared.refused(Refusal::Rate, || {
            format!(
                "{client} was answered 429: its route lets through {} by {}",
                limit.quota, limit.by
            )
        });
        Some(pages::too_many(limit, early, now))
    }
}
