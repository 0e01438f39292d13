//! Outcome of a request: the result reported by the cache, or the cause of failure.

use std::fmt;
use std::io::{self, ErrorKind};

/// Result of the cache lookup, as reported by `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheOutcome {
    /// Served from a fresh stored response.
    Hit,
    /// Served from a stale stored response.
    Stale,
    /// Served from a stored response after revalidation by the origin.
    Revalidated,
    /// Fetched from the origin.
    Miss,
    /// Served by a concurrent request's response (request coalescing).
    Collapsed,
    /// Forwarded to the origin, bypassing the cache.
    Pass,
    /// No `Cache-Status` in the response.
    None,
}

impl CacheOutcome {
    /// Number of outcomes.
    pub const COUNT: usize = 7;

    /// All outcomes, in table order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Hit,
        Self::Stale,
        Self::Revalidated,
        Self::Miss,
        Self::Collapsed,
        Self::Pass,
        Self::None,
    ];

    /// Name in tables and in machine-readable formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
            Self::Collapsed => "collapsed",
            Self::Pass => "pass",
            Self::None => "none",
        }
    }

    /// Returns whether the response was served without waiting for the origin.
    pub const fn is_from_store(self) -> bool {
        matches!(self, Self::Hit | Self::Stale)
    }
}

impl fmt::Display for CacheOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Reason why a request got no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestFault {
    /// The server refused the connection.
    Refused,
    /// Connecting failed for another reason.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// The connection was reset.
    Reset,
    /// The connection was closed before the response was complete.
    ClosedEarly,
    /// The request exceeded its timeout.
    TimedOut,
    /// The response was malformed.
    Malformed,
}

impl RequestFault {
    /// Number of faults.
    pub const COUNT: usize = 7;

    /// All faults, in table order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Refused,
        Self::Connect,
        Self::Tls,
        Self::Reset,
        Self::ClosedEarly,
        Self::TimedOut,
        Self::Malformed,
    ];

    /// Name in tables and in machine-readable formats.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "connection refused",
            Self::Connect => "connection failed",
            Self::Tls => "TLS failed",
            Self::Reset => "connection reset",
            Self::ClosedEarly => "truncated response",
            Self::TimedOut => "timed out",
            Self::Malformed => "malformed response",
        }
    }

    /// The fault of a failed connect.
    pub(super) fn of_connect(error: &io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionRefused => Self::Refused,
            _ => Self::Connect,
        }
    }
}

/// The fault of an open connection.
impl From<io::Error> for RequestFault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe | ErrorKind::ConnectionAborted => {
                Self::Reset
            }
            // Reported by rustls for bytes that are not TLS.
            ErrorKind::InvalidData => Self::Tls,
            _ => Self::ClosedEarly,
        }
    }
}

impl fmt::Display for RequestFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
