//! Rules for response heads that all HTTP versions share.

use http::Method;
use http::method::InvalidMethod;
use microcache_engine::Response;
use microcache_policy::Scheme;

use super::Session;

/// Field that makes browsers use TLS only (RFC 6797 §6.1).
pub(crate) const STRICT: &str = "Strict-Transport-Security";

impl Session {
    /// Returns the `Strict-Transport-Security` for clients on TLS; it is not sent without TLS (RFC 6797 §7.2).
    pub(crate) fn strict(&self) -> Option<&str> {
        let policy = self.shared.strict.as_deref();
        policy.filter(|_| self.peer.scheme == Scheme::Https)
    }
}

/// Returns this policy, unless the application sends its own.
pub(crate) fn strict_unless_said<'a>(
    policy: Option<&'a str>,
    response: &Response,
) -> Option<&'a str> {
    policy.filter(|_| response.fields().get(STRICT).is_none())
}

/// Returns the method with this name, which is a token: the only requirement on a method.
#[inline]
pub(crate) fn method(name: &[u8]) -> Result<Method, InvalidMethod> {
    // Nearly all requests have this one.
    if name == b"GET" {
        return Ok(Method::GET);
    }
    Method::from_bytes(name)
}

/// Returns `true` if a response with this status has no content.
pub(crate) const fn is_bodiless(status: u16, head_only: bool) -> bool {
    head_only || never_has_content(status)
}

/// Returns `true` for statuses without content in any case (RFC 9110 §6.4.1).
pub(crate) const fn never_has_content(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
