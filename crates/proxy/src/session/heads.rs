//! What the heads of responses have in common, however they are written.

use microcache_engine::Response;
use microcache_policy::Scheme;

use super::Session;

/// Has the client come by TLS only from now on (RFC 6797 §6.1).
pub(crate) const STRICT: &str = "Strict-Transport-Security";

impl Session {
    /// What clients are told who came by TLS: not to come without it. Others must not be told (RFC 6797 §7.2).
    pub(crate) fn strict(&self) -> Option<&str> {
        let policy = self.shared.strict.as_deref();
        policy.filter(|_| self.peer.scheme == Scheme::Https)
    }
}

/// This policy, unless the application says its own.
pub(crate) fn strict_unless_said<'a>(
    policy: Option<&'a str>,
    response: &Response,
) -> Option<&'a str> {
    policy.filter(|_| response.fields().get(STRICT).is_none())
}

/// Whether no content follows the head of a response with this status.
pub(crate) const fn is_bodiless(status: u16, head_only: bool) -> bool {
    head_only || never_has_content(status)
}

/// RFC 9110 §6.4.1: these end with their head, whatever it says.
pub(crate) const fn never_has_content(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
