//! Early hints (103) for navigations that wait for the origin, from the page that is stored for strangers.

use std::sync::atomic::Ordering;

use http::Method;
use microcache_engine::{Interims, Request};
use microcache_policy::early_hints::early_hints;
use microcache_policy::known_name::names;

use super::Session;
use crate::config::EarlyHints;

impl Session {
    /// Sends the links of the stored page to a navigation. Browsers heed them over HTTP/2 only.
    pub(super) fn send_hints(&self, route: usize, request: &Request<'_>, interims: &Interims) {
        if self.shared.config.routes[route].early_hints == EarlyHints::Off
            || *request.method != Method::GET
            || request.fields.value(names::SEC_FETCH_MODE) != Some(b"navigate")
        {
            return;
        }
        let Some(page) = self.shared.engine.page_of_strangers(route, request) else {
            return;
        };
        let links = early_hints(page.fields(), request.host);
        if links.fields().contains("link") {
            self.shared
                .metrics
                .early_hints
                .fetch_add(1, Ordering::Relaxed);
            interims.hint(links);
        }
    }
}
