//! Requests whose user context is being asked for, or may change.

use std::sync::Arc;

use microcache_engine::{OriginRequest, RouteMatch};

use crate::fingerprints::Fingerprint;
use crate::forward_auth::DecisionCache;

/// A request whose user context is being asked for.
pub(super) struct PendingContext {
    pub(super) found: RouteMatch,
    pub(super) question: Box<OriginRequest>,
    pub(super) fingerprint: Fingerprint,
}

/// Forgets a user context when the application has answered the request, or the request was cancelled.
pub(super) struct ContextChange {
    decisions: Arc<DecisionCache>,
    fingerprint: Fingerprint,
}

impl PendingContext {
    /// Returns the index of the route. A path that can be read as that of another one has no user context.
    pub(super) const fn route(&self) -> (usize, bool) {
        (self.found.route, false)
    }
}

impl ContextChange {
    pub(super) fn new(decisions: &Arc<DecisionCache>, fingerprint: Fingerprint) -> Self {
        Self {
            decisions: Arc::clone(decisions),
            fingerprint,
        }
    }
}

impl Drop for ContextChange {
    fn drop(&mut self) {
        self.decisions.forget(&self.fingerprint);
    }
}
