//! A response that arrived whole and has been stored.

use bytes::Bytes;
use microcache_policy::{CacheStatus, Detail, FieldBlock, Fields, Lifetime, RequestFacts, Time};

use crate::message::Response;
use crate::request::respond::Reusable;

/// A response that has been stored, as the leader gets it.
pub(crate) struct WholeResponse {
    pub(crate) status: u16,
    pub(crate) lifetime: Lifetime,
    /// The origin's, with those that must not be replayed to other clients.
    pub(crate) fields: FieldBlock,
    pub(crate) body: Bytes,
    /// False if a purge came first, or memory has no room for it.
    pub(crate) is_stored: bool,
    pub(crate) has_too_many_tags: bool,
}

impl WholeResponse {
    pub(crate) fn fields(&self) -> Fields<'_> {
        self.fields.fields()
    }

    /// The response to the leader.
    pub(crate) fn respond(
        self,
        request: Fields<'_>,
        facts: &RequestFacts,
        now: Time,
        mut cache_status: CacheStatus,
    ) -> Response {
        cache_status.stored = self.is_stored;
        if self.has_too_many_tags {
            cache_status.detail = Some(Detail::TooManyTags);
        }
        let reusable = Reusable::whole(self.status, &self.fields, self.lifetime, self.body);
        reusable.respond_first(request, facts, now, cache_status)
    }
}
