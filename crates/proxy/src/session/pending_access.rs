//! Requests whose clients are being authenticated.

use std::sync::Arc;

use microcache_engine::{Bypass, Origin, OriginRequest, RouteMatch};

use crate::fingerprints::Fingerprint;
use crate::passwords::PendingVerification;

/// A request whose client is being authenticated.
pub(super) struct PendingAccess {
    pub(super) found: RouteMatch,
    pub(super) check: AccessCheck,
}

/// The authentication of a client.
pub(super) enum AccessCheck {
    /// The password is being verified.
    Password(PendingVerification),
    /// An authentication server decides.
    Server {
        server: Arc<dyn Origin>,
        question: Box<OriginRequest>,
        /// Identifies the request, if its admission is kept.
        fingerprint: Option<Fingerprint>,
    },
}

impl PendingAccess {
    /// Returns the index of the route, and whether the path can be read as that of another one.
    pub(super) fn route(&self) -> (usize, bool) {
        (self.found.route, self.found.bypass == Some(Bypass::Path))
    }
}
