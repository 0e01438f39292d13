//! What the cache did for a response.

use std::time::Duration;

use microcache_engine::{Outcome as EngineOutcome, Response};
use microcache_policy::{CacheStatus, Detail, Forward, is_origin_failure};

use crate::clock::Missing;

/// What the cache did for a response: in the extensions of each one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheInfo {
    /// What became of the request.
    pub outcome: Outcome,
    /// The response is being stored, or was stored anew because the server has confirmed it.
    pub stored: bool,
    /// How old it is, if it was stored before.
    pub age: Option<Duration>,
    /// How much longer what is stored is fresh: nothing if it is stale, or has to be confirmed before each use.
    pub fresh_for: Option<Duration>,
    /// The tier behind memory where it was found: `disk`, `directory`, `memcached` or `redis`.
    pub tier: Option<&'static str>,
    /// A word on why the request was not simply a hit or a miss: those of `Cache-Status` (docs/caching-rules.md), and
    /// `no-timers` or `no-runtime` of one that passes by the cache because its tokio runtime has no timers, or there
    /// is none.
    pub why: Option<&'static str>,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// Answered from a fresh stored response.
    Hit,
    /// Answered from a stale one: it is being refreshed, the server failed, or the request accepts it.
    Stale,
    /// Answered from a stored response that the server has confirmed first.
    Validated,
    /// Answered by the server.
    Miss,
    /// Answered by the fetch that somebody else had begun.
    Collapsed,
    /// Sent to the server without the cache.
    Bypass,
    /// Answered by the cache itself: 504, because nothing is stored and the server was not to be asked.
    Module,
    /// Answered by the server with an error of its own, and there was no stored response to stand in.
    Failure,
}

impl Outcome {
    /// All of them.
    pub const ALL: &[Self] = &[
        Self::Hit,
        Self::Stale,
        Self::Validated,
        Self::Miss,
        Self::Collapsed,
        Self::Bypass,
        Self::Module,
        Self::Failure,
    ];

    /// In one word, for logs and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Validated => "validated",
            Self::Miss => "miss",
            Self::Collapsed => "collapsed",
            Self::Bypass => "bypass",
            Self::Module => "module",
            Self::Failure => "failure",
        }
    }
}

impl CacheInfo {
    /// Of a request that has passed by the cache.
    pub(crate) const fn bypass() -> Self {
        Self {
            outcome: Outcome::Bypass,
            stored: false,
            age: None,
            fresh_for: None,
            tier: None,
            why: None,
        }
    }

    /// The same, because this is missing where it came from.
    pub(crate) const fn without(missing: Missing) -> Self {
        Self {
            why: Some(missing.why()),
            ..Self::bypass()
        }
    }

    /// Of an answer that the cache has made up itself.
    pub(crate) const fn module() -> Self {
        Self {
            outcome: Outcome::Module,
            why: Some(Detail::OnlyIfCached.as_str()),
            ..Self::bypass()
        }
    }

    pub(crate) fn of(response: &Response) -> Self {
        let (status, detail) = (&response.cache_status, response.cache_status.detail);
        let outcome = match response.outcome {
            // What a request takes although it is stale is as good as fresh to it.
            EngineOutcome::Hit if status.ttl.is_some_and(|ttl| ttl < 0) => Outcome::Stale,
            EngineOutcome::Hit => Outcome::Hit,
            EngineOutcome::Stale => Outcome::Stale,
            EngineOutcome::Revalidated => Outcome::Validated,
            EngineOutcome::Collapsed => Outcome::Collapsed,
            // The others are those of a server.
            _ if passes_by(status) => Outcome::Bypass,
            _ if is_origin_failure(response.status) => Outcome::Failure,
            _ => Outcome::Miss,
        };
        let (tier, why) = match detail {
            Some(Detail::Tier(name)) => (Some(name), None),
            detail => (None, detail.map(Detail::as_str)),
        };
        Self {
            outcome,
            stored: response.cache_status.stored,
            age: response.age.map(Duration::from_secs),
            fresh_for: status
                .ttl
                .map(|ttl| Duration::from_secs(ttl.try_into().unwrap_or(0))),
            tier,
            why,
        }
    }
}

/// Whether a request had nothing to do with the cache.
fn passes_by(status: &CacheStatus) -> bool {
    match status.fwd {
        Some(Forward::Bypass | Forward::Method) => true,
        Some(Forward::Request) => matches!(
            status.detail,
            Some(Detail::Body | Detail::EventStream | Detail::Connection | Detail::NoStore)
        ),
        _ => false,
    }
}
