//! Prefetches that what is stored does not answer.

use microcache_engine::{Request, Response};
use microcache_policy::Time;
use microcache_policy::prefetch::is_for_hits_only;

use super::{Session, pages};
use crate::metrics::Refusal;

impl Session {
    /// Returns the response to a prefetch for which the origin must not be asked.
    pub(super) fn denied_prefetch(
        &self,
        route: usize,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Response> {
        if !self.denies_prefetch(route, request) {
            return None;
        }
        self.shared.refused(Refusal::Prefetch, || {
            let address = self.peer.address();
            format!("a prefetch from {address} was answered 503: the page is not stored, and the route has prefetch = \"hits\"")
        });
        Some(pages::prefetch_denied(now))
    }

    /// Returns true for a prefetch for which the origin must not be asked. Fragments belong to a page that is stored.
    pub(super) fn denies_prefetch(&self, route: usize, request: &Request<'_>) -> bool {
        let rules = self.shared.engine.rules(route);
        self.nesting.is_none() && is_for_hits_only(request.method, request.fields, rules)
    }
}
