//! Outcomes: every request has exactly one, and only metrics read them.

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered from a fresh stored response.
    Hit,
    /// Answered from a stale response, while it was refreshed or because the origin failed.
    Stale,
    /// Answered from a stored response after the origin confirmed it.
    Revalidated,
    /// Answered by the origin.
    Miss,
    /// Answered by a coalesced fetch that another request leads.
    Collapsed,
    /// Sent to the origin, bypassing the cache.
    Pass,
    /// Answered with an error of the cache itself.
    Error,
    /// Rejected by a rate limit, by the access rules of a route, or as a prefetch.
    Limited,
    /// Not answered: the client left.
    Left,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Self; 9] = [
        Self::Hit,
        Self::Stale,
        Self::Revalidated,
        Self::Miss,
        Self::Collapsed,
        Self::Pass,
        Self::Error,
        Self::Limited,
        Self::Left,
    ];

    /// The name in logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
            Self::Collapsed => "collapsed",
            Self::Pass => "pass",
            Self::Error => "error",
            Self::Limited => "limited",
            Self::Left => "aborted",
        }
    }
}
