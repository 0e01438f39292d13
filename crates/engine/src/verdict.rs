//! The verdict of a fetch: its result for the leader and for the waiters.

use microcache_policy::{Detail, Time};
use microcache_store::{Hit, TagNumbers};

use crate::cache::Cache;
use crate::cache::flight::{Failure, Leader, Progress, Shareable};
use crate::keep::LeadersCopy;
use crate::origin::OriginResponse;

/// The result of a fetch, as the leader gets it.
pub(crate) enum Verdict {
    /// A response that everyone may read while it arrives.
    Storable(LeadersCopy),
    /// The stored response, confirmed by the origin.
    Confirmed(Confirmed),
    /// The same, and in the same breath that it is not to be kept: why not.
    ConfirmedForOne(Hit, Detail),
    /// A stored response that was found behind memory, in the tier of this name.
    Found(Hit, Detail),
    /// A response for the leader's client only, with the reason.
    Private(OriginResponse, Detail),
    /// A response by which the origin refuses the request of the one who asked, which says nothing of
    /// others.
    Refused(OriginResponse, Detail),
    /// The whole is too large to be kept, and the client wants a part: it asks for that.
    TooLarge,
    /// The response to the request with fields withheld is neither shareable nor right for its own
    /// client, which is to send all of them.
    AskWhole,
    /// Everyone who wanted it has left before the origin was asked.
    Left,
    /// No answer.
    Failed(Failed),
}

/// A stored response that the origin has confirmed.
pub(crate) struct Confirmed {
    /// As it is stored from now on.
    pub(crate) stored: Hit,
    /// The same with the fields that are for the client that asked alone.
    pub(crate) for_one: Hit,
    /// It was stored; false if a purge came first.
    pub(crate) is_kept: bool,
}

/// A fetch without an answer.
pub(crate) struct Failed {
    pub(crate) failure: Failure,
    /// A copy that may be used nevertheless.
    pub(crate) stale: Option<Hit>,
    /// The origin's error page, if it sent one, and why that is not kept.
    pub(crate) page: Option<(OriginResponse, Detail)>,
    /// It may be the page of a request that the origin has not seen all of: its client asks with everything.
    pub(crate) ask_whole: bool,
}

impl Verdict {
    /// Publishes the result to the waiters, and to later requests that join until the fetch has
    /// ended.
    pub(crate) fn tell_others(&self, cache: &Cache, leader: &Leader, now: Time) {
        leader.tell(match self {
            // Some of them may have come after a purge, and must not get what was asked for before.
            _ if self
                .tags()
                .is_some_and(|tags| cache.is_purged_since(leader, tags)) =>
            {
                Progress::LookAgain
            }
            Self::Storable(copy) => Progress::Answer(Shareable::Filling(copy.filling.clone()), now),
            Self::Confirmed(confirmed) => {
                Progress::Answer(Shareable::Confirmed(confirmed.stored.clone()), now)
            }
            Self::Found(hit, tier) => Progress::Answer(Shareable::Found(hit.clone(), *tier), now),
            Self::ConfirmedForOne(..) | Self::Private(..) | Self::TooLarge | Self::AskWhole => {
                Progress::Released
            }
            // One who has just come leads the next fetch.
            Self::Left => Progress::LookAgain,
            Self::Refused(..) => Progress::Refused,
            Self::Failed(failed) => Progress::Failed(failed.failure.clone(), failed.stale.clone()),
        });
    }

    /// The same for a client of whose request the origin has not seen all: an answer for that client alone is none to
    /// what it has asked.
    pub(crate) fn for_one_who_said_more(self) -> Self {
        match self {
            Self::Private(..) | Self::Refused(..) | Self::ConfirmedForOne(..) => Self::AskWhole,
            Self::Failed(failed) => Self::Failed(Failed {
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
