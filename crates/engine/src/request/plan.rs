//! Plans to ask the origin: for a request that the cache cannot answer, and for the refresh of a stale response.

use microcache_policy::status::Forward;
use microcache_policy::{Detail, RequestFacts, Selection, Time};
use microcache_store::{Hit, Key};

/// A request that the cache cannot answer. Boxed, as it is handed on through several functions and futures.
pub enum FetchPlan {
    /// To be sent directly.
    Direct(Box<DirectFetch>),
    /// To be coalesced with others.
    Coalesced(Box<CoalescedFetch>),
}

impl FetchPlan {
    /// The index of its route.
    pub const fn route_index(&self) -> usize {
        match self {
            Self::Direct(fetch) => fetch.why.route,
            Self::Coalesced(fetch) => fetch.why.route,
        }
    }

    /// Returns true if it bypasses the cache because its path can be read as another route's.
    pub fn has_ambiguous_path(&self) -> bool {
        matches!(self, Self::Direct(fetch) if fetch.why.detail == Some(Detail::AmbiguousPath))
    }

    /// Converts it to a direct fetch. A complete response is still stored.
    #[must_use]
    pub fn direct(self) -> Self {
        match self {
            Self::Coalesced(fetch) => {
                let CoalescedFetch { why, spec } = *fetch;
                Self::Direct(Box::new(DirectFetch {
                    why,
                    key: Some(spec.key),
                    whole: false,
                    may_have_copy: true,
                }))
            }
            direct @ Self::Direct(_) => direct,
        }
    }

    /// Converts it to a fetch without a client. The error is the reason its response is for one client.
    pub fn without_client(self) -> Result<Box<Refresh>, Option<Detail>> {
        match self {
            Self::Direct(fetch) => Err(fetch.why.detail),
            Self::Coalesced(fetch) => {
                let CoalescedFetch { why, spec } = *fetch;
                let FetchReason { route, facts, .. } = why;
                Ok(Box::new(Refresh { route, facts, spec }))
            }
        }
    }

    /// Returns true if a stored response may be confirmed by the origin.
    pub const fn may_be_confirmed(&self) -> bool {
        match self {
            Self::Direct(_) => false,
            Self::Coalesced(fetch) => fetch.spec.stored.is_some(),
        }
    }
}

/// A direct fetch.
pub struct DirectFetch {
    pub(crate) why: FetchReason,
    /// The key that a storable response is stored under; without one, nothing is stored.
    pub(crate) key: Option<Key>,
    /// All of the client's fields are sent, and the response is for that client only.
    pub(crate) whole: bool,
    /// A stored copy may be usable on errors; false if the lookup has found none that the request selects.
    pub(crate) may_have_copy: bool,
}

/// A fetch that may be coalesced.
pub struct CoalescedFetch {
    pub(crate) why: FetchReason,
    pub(crate) spec: FetchSpec,
}

/// The reason the origin is asked, as `Cache-Status` reports it, and the facts of the request.
#[derive(Clone, Copy)]
pub(crate) struct FetchReason {
    pub(crate) route: usize,
    pub(crate) facts: RequestFacts,
    pub(crate) forward: Forward,
    pub(crate) detail: Option<Detail>,
    /// The time of the lookup.
    pub(crate) at: Time,
}

/// The subject of a coalesced fetch.
pub(crate) struct FetchSpec {
    pub(crate) key: Key,
    /// The request's values of the fields that the latest response varied on.
    pub(crate) selection: Selection,
    /// A stored response to revalidate.
    pub(crate) stored: Option<Hit>,
}

/// A stale response to be refreshed.
pub struct Refresh {
    pub(crate) route: usize,
    pub(crate) facts: RequestFacts,
    pub(crate) spec: FetchSpec,
}

impl Refresh {
    /// The index of its route.
    pub const fn route_index(&self) -> usize {
        self.route
    }
}
