//! The outcome of a fetch, as its waiters see it.

use std::sync::Arc;

use bytes::Bytes;
use microcache_policy::vary::VaryNames;
use microcache_policy::{Detail, FieldBlock, Fields, Lifetime, Rules, Time};
use microcache_store::{FetchCost, Hit, KeyUpdate, TagNumbers};

use crate::fill::Fill;
use crate::message::LeaderRequest;
use crate::origin::OriginError;

/// The outcome of a fetch, as its waiters see it.
#[derive(Clone, Debug)]
pub enum FetchOutcome {
    /// A shareable answer, and the time at which it arrived.
    Answer(SharedAnswer, Time),
    /// The answer is in the cache: look up again.
    LookAgain,
    /// An answer for the leader only: each waiter fetches for itself.
    Released,
    /// The origin refused the leader's request, which says nothing about other requests.
    Refused,
    /// A failure, with a stale copy if one is usable.
    Failed(Failure, Option<Hit>),
}

/// The reason a fetch brought nothing to share.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The origin was unreachable, or its response invalid.
    #[error("the origin could not answer")]
    Origin(#[from] OriginError),
    /// The origin answered with a server error.
    #[error("the origin answered with status {0}")]
    Status(u16),
    /// The fetch was cancelled.
    #[error("the fetch was cancelled")]
    Abandoned,
    /// The request is `only-if-cached`, and no usable response is stored.
    #[error("nothing usable is stored, and the request has only-if-cached")]
    OnlyIfCached,
    /// Too many requests wait, most of them from the same address.
    #[error("too many requests are waiting")]
    TooManyWait,
}

/// An answer that may be served to all waiters.
#[derive(Clone, Debug)]
pub enum SharedAnswer {
    /// A response whose body is still arriving.
    Filling(Arc<Filling>),
    /// The stored response, confirmed by the origin.
    Confirmed(Hit),
    /// An entry of the tier of this name.
    Found(Hit, Detail),
}

impl SharedAnswer {
    /// The purge tags of the answer.
    pub(crate) fn tags(&self) -> &TagNumbers {
        match self {
            Self::Filling(filling) => &filling.tags,
            Self::Confirmed(hit) | Self::Found(hit, _) => hit.tags(),
        }
    }

    /// The time at which it was requested.
    pub(crate) fn began(&self) -> Time {
        match self {
            Self::Filling(filling) => filling.began,
            Self::Confirmed(hit) | Self::Found(hit, _) => hit.began(),
        }
    }

    /// The field lines for all clients.
    pub(crate) fn fields(&self) -> Fields<'_> {
        match self {
            Self::Filling(filling) => filling.fields.fields(),
            Self::Confirmed(hit) | Self::Found(hit, _) => hit.fields(),
        }
    }
}

/// A storable response whose body is still arriving.
#[derive(Debug)]
pub struct Filling {
    /// The status code.
    pub status: u16,
    /// The field lines to send and to store.
    pub fields: FieldBlock,
    /// The body's length, if known.
    pub length: Option<u64>,
    /// The freshness lifetime and stale windows.
    pub lifetime: Lifetime,
    /// The request fields that select it.
    pub vary: VaryNames,
    /// The values of those fields in the leader's request.
    pub selection: Bytes,
    /// The leader's request.
    pub leader_request: LeaderRequest,
    /// The time at which the request was sent.
    pub began: Time,
    /// The purge tags.
    pub tags: TagNumbers,
    /// The cost of the fetch.
    pub cost: FetchCost,
    /// Its tags are replaced for each client, so conditions and ranges do not apply to it.
    pub has_tags: bool,
    pub(crate) fill: Arc<Fill>,
}

impl Filling {
    /// The facts about the key that the response reveals.
    pub(crate) fn key_update<'a>(&'a self, rules: &'a Rules) -> KeyUpdate<'a> {
        KeyUpdate {
            fields: self.fields.fields(),
            rules,
            vary: &self.vary,
            selection: &self.selection,
            usable_until: self.lifetime.usable_until(),
        }
    }
}
