//! A response that arrived whole and has been stored.

use bytes::Bytes;
use microcache_policy::{CacheStatus, Detail, FieldBlock, Fields, Lifetime, RequestFacts, Time};

use crate::message::Response;
use crate::request::respond::Reusable;

/// A response that has been stored, as the leader gets it.
pub(crate) struct WholeResponse {
    status: u16,
    lifetime: Lifetime,
    /// The origin's, with those that must not be replayed to other clients.
    fields: FieldBlock,
    body: Bytes,
    /// False if a purge came first.
    is_kept: bool,
    has_too_many_tags: bool,
}

impl WholeResponse {
    pub(crate) const fn new(
        status: u16,
        fields: FieldBlock,
        lifetime: Lifetime,
        body: Bytes,
    ) -> Self {
        Self {
            status,
            lifetime,
            fields,
            body,
            is_kept: false,
            has_too_many_tags: false,
        }
    }

    /// Sets what `Cache-Status` says about its storage.
    pub(crate) fn stored(self, is_kept: bool, has_too_many_tags: bool) -> Self {
        Self {
            is_kept,
            has_too_many_tags,
            ..self
        }
    }

    pub(crate) const fn status(&self) -> u16 {
        self.status
    }

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
        cache_status.stored = self.is_kept;
        if self.has_too_many_tags {
            cache_status.detail = Some(Detail::TooManyTags);
        }
        let reusable = Reusable::whole(self.status, &self.fields, self.lifetime, self.body);
        reusable.respond_first(request, facts, now, cache_status)
    }
}
