//! Access to routes.

use std::net::IpAddr;

use microcache_engine::{Request, Response};
use microcache_policy::Time;

use super::{Session, pages};
use crate::metrics::Refusal;

impl Session {
    /// Returns the response to a client whose address or certificate the route does not admit. Purges have a list of
    /// their own.
    #[cold]
    #[inline(never)]
    pub(super) fn denied(
        &self,
        route: usize,
        request: &Request<'_>,
        now: Time,
    ) -> Option<Response> {
        let (page, why) = if !self.admits_address(route, request) {
            let why = "`allow` and `deny` of the route do not admit it";
            (pages::denied(now), why)
        } else if !self.admits_certificate(route, request) {
            let why = "it has no certificate that the route requires";
            (pages::certificate_required(now), why)
        } else {
            return None;
        };
        self.shared.refused(Refusal::Access, || {
            let trusted = &self.shared.trusted_proxies;
            let client = self.peer.client_text(request.fields, trusted);
            let name = &self.shared.config.routes[route].name;
            format!("{client} was answered 403 on the route {name}: {why}")
        });
        Some(page)
    }

    /// Returns whether a route admits the certificate of the connection, or its lack.
    pub(super) fn admits_certificate(&self, route: usize, request: &Request<'_>) -> bool {
        let rule = &self.shared.config.routes[route].client_certificate;
        rule.is_off()
            || self.shared.takes_for_purge(request)
            || rule.admits(self.peer.certificate().map(|it| &**it))
    }

    /// Returns whether a route admits the address of a request's client.
    pub(super) fn admits_address(&self, route: usize, request: &Request<'_>) -> bool {
        let addresses = &self.shared.config.routes[route].addresses;
        addresses.is_open()
            || self.shared.takes_for_purge(request)
            || addresses.admits(self.client_address(request))
    }

    /// Returns the address of a request's client, if it is known.
    pub(super) fn client_address(&self, request: &Request<'_>) -> Option<IpAddr> {
        self.peer
            .client_address(request.fields, &self.shared.trusted_proxies)
    }
}
