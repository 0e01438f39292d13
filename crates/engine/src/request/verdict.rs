//! The verdict of a fetch: its result for the leader and for the waiters.

use microcache_policy::{Detail, Time};
use microcache_store::{Hit, TagNumbers};

use crate::cache::Cache;
use crate::cache::flight::{Failure, FetchProgress, Leader, SharedAnswer};
use crate::origin::OriginResponse;
use crate::request::store_response::LeaderResponse;

/// The result of a fetch, as the leader gets it.
pub(crate) enum Verdict {
    /// A response that all waiters may read while it arrives.
    Storable(LeaderResponse),
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
    /// The response is too large to be stored, and the client requested a range of it: it is to
    /// fetch the range directly.
    TooLarge,
    /// The response to the request with fields withheld is neither shareable nor right for its own
    /// client, which is to send all of them.
    AskWhole,
    /// Every waiter left before the origin was asked.
    Left,
    /// No answer.
    Failed(FetchFailure),
}

/// A stored response that the origin has confirmed.
pub(crate) struct Confirmation {
    /// The response to be stored and shared.
    pub(crate) stored: Hit,
    /// The same with the fields for the leader's client only.
    pub(crate) for_one: Hit,
    /// It was stored; false if a purge came first.
    pub(crate) is_kept: bool,
}

/// A failed fetch.
pub(crate) struct FetchFailure {
    pub(crate) failure: Failure,
    /// A stale copy that is usable on errors.
    pub(crate) stale: Option<Hit>,
    /// The origin's error page, if it sent one, and the reason it is not stored.
    pub(crate) page: Option<(OriginResponse, Detail)>,
    /// The error page may be due to withheld fields: the client is to send all of them.
    pub(crate) ask_whole: bool,
}

impl Verdict {
    /// Publishes the result to the waiters, and to later requests that join until the fetch has
    /// ended.
    pub(crate) fn publish(&self, cache: &Cache, leader: &Leader, now: Time) {
        leader.publish(match self {
            // Some waiters may have come after a purge, and must not get an earlier response.
            _ if self
                .tags()
                .is_some_and(|tags| cache.is_purged_since(leader, tags)) =>
            {
                FetchProgress::LookAgain
            }
            Self::Storable(copy) => {
                FetchProgress::Answer(SharedAnswer::Filling(copy.filling.clone()), now)
            }
            Self::Confirmed(confirmed) => {
                FetchProgress::Answer(SharedAnswer::Confirmed(confirmed.stored.clone()), now)
            }
            Self::Found(hit, tier) => {
                FetchProgress::Answer(SharedAnswer::Found(hit.clone(), *tier), now)
            }
            Self::ConfirmedForOne(..) | Self::Private(..) | Self::TooLarge | Self::AskWhole => {
                FetchProgress::Released
            }
            // The next request to come leads the next fetch.
            Self::Left => FetchProgress::LookAgain,
            Self::Refused(..) => FetchProgress::Refused,
            Self::Failed(failed) => {
                FetchProgress::Failed(failed.failure.clone(), failed.stale.clone())
            }
        });
    }

    /// The verdict for a client whose fields were partly withheld from the origin: a response for
    /// one client does not answer its full request.
    pub(crate) fn for_withheld_request(self) -> Self {
        match self {
            Self::Private(..) | Self::Refused(..) | Self::ConfirmedForOne(..) => Self::AskWhole,
            Self::Failed(failed) => Self::Failed(FetchFailure {
                ask_whole: failed.page.is_some(),
                page: None,
                ..failed
            }),
            other => other,
        }
    }

    /// The purge tags of a response for everyone.
    fn tags(&self) -> Option<&TagNumbers> {
        match self {
            Self::Storable(copy) => Some(&copy.filling.tags),
            Self::Confirmed(confirmed) => Some(&confirmed.stored.tags),
            Self::Found(hit, _) => Some(&hit.tags),
            _ => None,
        }
    }
}
