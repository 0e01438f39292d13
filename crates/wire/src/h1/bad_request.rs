//! The error of a request that the parsers refuse.

/// Error of a malformed or refused request. The connection cannot be used any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct BadRequest {
    status: u16,
    reason: &'static str,
}

impl BadRequest {
    pub(super) const UNKNOWN_CODING: Self = Self {
        status: 501,
        reason: "a transfer coding other than chunked",
    };
    pub(super) const TOO_MANY_FIELDS: Self = Self {
        status: 431,
        reason: "too many fields",
    };
    /// Method that is not supported.
    pub const METHOD: Self = Self {
        status: 405,
        reason: "this method is not supported",
    };
    /// Request without TLS on a listener with TLS.
    pub const NOT_TLS: Self = Self {
        status: 400,
        reason: "this port requires TLS: use an https:// URL",
    };
    /// Head that did not arrive in time.
    pub const TIMEOUT: Self = Self {
        status: 408,
        reason: "the request head did not arrive in time",
    };
    pub(crate) const HEAD_TOO_LARGE: Self = Self {
        status: 431,
        reason: "the head is too large",
    };
    pub(super) const TARGET_TOO_LONG: Self = Self {
        status: 414,
        reason: "the request target is too long",
    };
    pub(super) const VERSION: Self = Self {
        status: 505,
        reason: "a version other than HTTP/1.0 or HTTP/1.1",
    };

    pub(super) const fn malformed(reason: &'static str) -> Self {
        Self {
            status: 400,
            reason,
        }
    }

    /// Returns the status of the response: 400, 405, 408, 414, 431, 501 or 505.
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Returns the reason, for the log and the error page.
    pub const fn reason(&self) -> &'static str {
        self.reason
    }
}
