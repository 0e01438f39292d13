//! What became of a request: what the cache said about it, or why there was no answer.

use std::fmt;

/// What a cache says it did, read off `Cache-Status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// Answered from a fresh stored response.
    Hit,
    /// Answered from a stale stored response.
    Stale,
    /// Answered from a stored response that the origin confirmed first.
    Revalidated,
    /// Answered by the origin.
    Miss,
    /// Answered by the origin's answer to somebody else.
    Collapsed,
    /// Sent to the origin past the cache.
    Pass,
    /// Nothing was said.
    None,
}

impl Outcome {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All of them, in the order of every table.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Hit,
        Self::Stale,
        Self::Revalidated,
        Self::Miss,
        Self::Collapsed,
        Self::Pass,
        Self::None,
    ];

    /// The word in tables and documents.
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

    /// Whether nobody waited for the origin.
    pub const fn is_from_store(self) -> bool {
        matches!(self, Self::Hit | Self::Stale)
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// Why a request got no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// Nobody listens.
    Refused,
    /// No connection for another reason.
    Connect,
    /// No agreement on TLS.
    Tls,
    /// The connection was reset.
    Reset,
    /// The connection was closed before the answer was complete.
    ClosedEarly,
    /// The answer took longer than the time-out.
    TimedOut,
    /// The answer was not HTTP.
    Malformed,
}

impl Fault {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// All of them, in the order of every table.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Refused,
        Self::Connect,
        Self::Tls,
        Self::Reset,
        Self::ClosedEarly,
        Self::TimedOut,
        Self::Malformed,
    ];

    /// The words in tables and documents.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Refused => "connection refused",
            Self::Connect => "connection failed",
            Self::Tls => "TLS failed",
            Self::Reset => "connection reset",
            Self::ClosedEarly => "closed early",
            Self::TimedOut => "timed out",
            Self::Malformed => "malformed answer",
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
