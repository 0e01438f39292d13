//! The verdict of a fetch: its result for the leader and for the waiters.

use microcache_policy::{Detail, Fields, Time};
use microcache_store::Hit;

use crate::cache::Cache;
use crate::cache::fetch_outcome::{Failure, FetchOutcome, SharedAnswer};
use crate::cache::flight::Leader;
use crate::origin::OriginResponse;
use crate::request::store_response::LeaderResponse;
use crate::request::whole_response::WholeResponse;

/// The result of a fetch, as the leader gets it.
pub(crate) enum Verdict {
    /// A response that all waiters may read while it arrives.
    Storable(LeaderResponse),
    /// A response that arrived whole, and has been stored.
    Stored(WholeResponse),
    /// The stored response, confirmed by the origin.
    Confirmed(Confirmation),
    /// Confirmed by a 304, but no longer storable, for this reason.
    ConfirmedForOne(Hit, Detail),
    /// An entry of the tier of this name.
    Found(Hit, Detail),
    /// A response for the leader's client only, with the reason.
    Private(OriginResponse, Detail),
    /// A refusal of the leader's request, which says nothing about other requests.
    Refused(OriginResponse, Detail),
    /// The leading request is to be sent directly, for this reason: it wants a range of a response
    /// that is too large to be stored, or the response without its withheld fields is neither
    /// shareable nor right for its client.
    FetchDirectly(Detail),
    /// Every waiter left before the origin was asked.
    Left,
    /// No answer.
    Failed(FetchFailure),
}

/// A stored response that the origin has confirmed.
pub(crate) struct Confirmation {
    /// The response to be stored and shared.
    pub(crate) stored: Hit,
    /// The stored response with the fields for the leader's client only.
    pub(crate) for_one: Hit,
    /// It was stored; false if a purge came first.
    pub(crate) is_kept: bool,
}

/// A failed fetch.
pub(crate) struct FetchFailure {
    pub(crate) failure: Failure,
    /// A stale copy that is usable on errors.
    pub(crate) stale: Option<Hit>,
    pub(crate) page: ErrorPage,
}

/// The origin's response to a failed fetch.
pub(crate) enum ErrorPage {
    /// No response.
    Absent,
    /// A response for the leader's client only, with the reason.
    Private(OriginResponse, Detail),
    /// A response that may be due to withheld fields: the request is to be sent with all of them.
    Doubtful,
}

impl Verdict {
    /// Publishes the result to the waiters, and to later requests that join until the fetch has
    /// ended.
    pub(crate) fn publish(&self, cache: &Cache, leader: &Leader, now: Time) {
        let shared = |answer: SharedAnswer| {
            // Some waiters may have come after a purge, and must not get an earlier response.
            if cache.is_purged_since(leader, answer.tags()) {
                FetchOutcome::LookAgain
            } else {
                FetchOutcome::Answer(answer, now)
            }
        };
        leader.publish(match self {
            Self::Storable(copy) => shared(SharedAnswer::Filling(copy.filling.clone())),
            Self::Confirmed(confirmed) => shared(SharedAnswer::Confirmed(confirmed.stored.clone())),
            Self::Found(hit, tier) => shared(SharedAnswer::Found(hit.clone(), *tier)),
            Self::ConfirmedForOne(..) | Self::Private(..) | Self::FetchDirectly(_) => {
                FetchOutcome::Released
            }
            // Those that have come while it was stored find it in memory; after `Left`, the next one leads a fetch.
            Self::Stored(_) | Self::Left => FetchOutcome::LookAgain,
            Self::Refused(..) => FetchOutcome::Refused,
            Self::Failed(failed) => {
                FetchOutcome::Failed(failed.failure.clone(), failed.stale.clone())
            }
        });
    }

    /// The field lines of a response for the leader; `None` without one, and for a failure.
    pub(crate) fn fields(&self) -> Option<Fields<'_>> {
        match self {
            Self::Storable(copy) => Some(copy.filling.fields.fields()),
            Self::Stored(whole) => Some(whole.fields()),
            Self::Confirmed(confirmed) => Some(confirmed.stored.fields()),
            Self::ConfirmedForOne(hit, _) | Self::Found(hit, _) => Some(hit.fields()),
            Self::Private(response, _) | Self::Refused(response, _) => {
                Some(response.fields.fields())
            }
            Self::FetchDirectly(_) | Self::Left | Self::Failed(_) => None,
        }
    }

    /// The verdict for a client whose fields were partly withheld from the origin: a response for
    /// one client does not answer its full request.
    pub(crate) fn for_withheld_request(self) -> Self {
        match self {
            Self::Private(..) | Self::Refused(..) | Self::ConfirmedForOne(..) => {
                Self::FetchDirectly(Detail::Withheld)
            }
            Self::Failed(failed) if matches!(failed.page, ErrorPage::Private(..)) => {
                Self::Failed(FetchFailure {
                    page: ErrorPage::Doubtful,
                    ..failed
                })
            }
            other => other,
        }
    }
}
