//! Requests while the server is in maintenance mode.

use std::sync::Arc;

use microcache_engine::{Request, Response, Served};
use microcache_policy::Time;

use super::error_page::put_page;
use super::{Session, pages};
use crate::lifecycle::Maintenance;

impl Session {
    /// Returns the mode for a request that it concerns. Purges by plugins are carried out as usual.
    #[cold]
    #[inline(never)]
    pub(super) fn maintenance_of(&self, request: &Request<'_>) -> Option<Arc<Maintenance>> {
        let mode = self.shared.lifecycle.maintenance.mode()?;
        if self.shared.takes_for_purge(request) {
            return None;
        }
        let client = self.client_address(request);
        let blocks = &self.shared.config.maintenance_allow;
        let is_allowed = mode.admits(client)
            || client.is_some_and(|client| blocks.iter().any(|block| block.contains(client)));
        (!is_allowed).then_some(mode)
    }

    /// Returns the response to a request that is stopped before its route decides about it.
    pub(super) fn stopped_for_maintenance(
        &self,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Response> {
        let mode = self.maintenance_of(request)?;
        (!mode.keep_cached).then(|| self.maintenance_page(&mode, now))
    }

    /// Returns the response to a request that is not a fresh hit: what is stored, without a request to the origin.
    pub(super) fn stored_in_maintenance(
        &self,
        mode: &Maintenance,
        served: Served,
        now: Time,
    ) -> Response {
        match served {
            Served::Now(response) | Served::NowAndRefresh(response, _) => response,
            Served::Fetch(_) | Served::Failed(_) => self.maintenance_page(mode, now),
        }
    }

    fn maintenance_page(&self, mode: &Maintenance, now: Time) -> Response {
        let mut response = pages::maintenance(mode.retry_after, now);
        if let Some(page) = &self.shared.config.maintenance_page {
            put_page(page, &mut response);
        }
        response
    }
}
