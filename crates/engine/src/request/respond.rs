//! From a reusable response to a client's response: preconditions, ranges, HEAD.

use bytes::Bytes;
use microcache_policy::range::{RangeVerdict, range};
use microcache_policy::status::CacheStatus;
use microcache_policy::validate::{Precondition, not_modified_keeps, precondition};
use microcache_policy::{FieldBlock, Fields, FieldsBuf, Lifetime, RequestFacts, Time};
use microcache_store::Hit;

use crate::body::Body;
use crate::body::FileReader;
use crate::cache::fetch_outcome::Filling;
use crate::fill::FillReader;
use crate::message::Response;
use crate::origin::OriginResponse;
use crate::outcome::Outcome;

/// The `Cache-Status` parameters and the outcome of a response.
#[derive(Clone, Copy)]
pub(crate) struct CacheStatusInputs {
    pub(crate) cache_status: CacheStatus,
    pub(crate) outcome: Outcome,
}

/// A reusable response.
pub(crate) struct Reusable<'a> {
    status: u16,
    /// `None` for those of the stored response.
    fields: Option<&'a FieldBlock>,
    lifetime: Lifetime,
    length: Option<u64>,
    /// It is part of a page that is composed for each client: conditions and ranges are about the whole.
    is_part: bool,
    content: ReusableBody,
}

enum ReusableBody {
    Stored(Hit),
    /// In one piece that is not a stored response.
    Whole(Bytes),
    Arriving(FillReader),
}

impl<'a> Reusable<'a> {
    #[inline]
    pub(crate) fn stored(hit: Hit) -> Self {
        Self {
            status: hit.status(),
            fields: None,
            lifetime: hit.lifetime(),
            length: Some(hit.body_len()),
            is_part: hit.pieces().is_some(),
            content: ReusableBody::Stored(hit),
        }
    }

    /// A stored response with an encoded body and the matching head.
    pub(crate) fn encoded(hit: &Hit, head: &'a FieldBlock, body: Bytes) -> Self {
        Self {
            status: hit.status(),
            fields: Some(head),
            lifetime: hit.lifetime(),
            length: Some(body.len() as u64),
            is_part: false,
            content: ReusableBody::Whole(body),
        }
    }

    pub(crate) fn filling(filling: &'a Filling, reader: FillReader) -> Self {
        Self::first(filling, &filling.fields, reader)
    }

    /// A filling response with the leader's own fields.
    pub(crate) fn first(filling: &'a Filling, fields: &'a FieldBlock, reader: FillReader) -> Self {
        Self {
            status: filling.status,
            fields: Some(fields),
            lifetime: filling.lifetime,
            length: filling.length,
            is_part: filling.has_tags,
            content: ReusableBody::Arriving(reader),
        }
    }

    /// A response that arrived whole, with the leader's own fields.
    pub(crate) const fn whole(
        status: u16,
        fields: &'a FieldBlock,
        lifetime: Lifetime,
        body: Bytes,
    ) -> Self {
        Self {
            status,
            fields: Some(fields),
            lifetime,
            length: Some(body.len() as u64),
            is_part: false,
            content: ReusableBody::Whole(body),
        }
    }

    /// The response to the client that it was fetched for.
    pub(crate) fn respond_first(
        self,
        request: Fields<'_>,
        facts: &RequestFacts,
        now: Time,
        mut cache_status: CacheStatus,
    ) -> Response {
        cache_status.fwd_status = Some(self.status);
        cache_status.ttl = Some(usable_for(&self.lifetime, now));
        let mut response = self.respond(request, facts, now, cache_status, Outcome::Miss);
        // It comes from the origin: `Age` is sent only if it came through another cache.
        response.age = response.age.filter(|&age| age > 0);
        response
    }

    /// The response to one client.
    pub(crate) fn respond(
        self,
        request: Fields<'_>,
        facts: &RequestFacts,
        now: Time,
        cache_status: CacheStatus,
        outcome: Outcome,
    ) -> Response {
        let mut response = Response {
            status: self.status,
            fields: None,
            age: Some(self.lifetime.age(now) / 1000),
            cache_status,
            length: self.length,
            body: Body::Empty,
            tunnel: None,
            outcome,
        };
        let stored = self.fields();
        if facts.is_conditional() && !self.is_part {
            match precondition(request, facts, self.status, stored, now) {
                Precondition::Send => {}
                Precondition::NotModified => {
                    response.status = 304;
                    response.length = None;
                    response.fields = Some(not_modified_fields(stored));
                    return response;
                }
                Precondition::Failed => {
                    response.status = 412;
                    response.length = Some(0);
                    return response;
                }
            }
        }
        let mut part = None;
        if facts.range().is_some()
            && !self.is_part
            && let Some(length) = self.length
        {
            match range(request, facts, self.status, stored, length, now) {
                RangeVerdict::Full => {}
                RangeVerdict::Part { first, last } => {
                    part = Some((first, last));
                    response.status = 206;
                    response.length = Some(last - first + 1);
                    let range = format!("bytes {first}-{last}/{length}");
                    response.fields = Some(with_content_range(stored, &range));
                }
                RangeVerdict::Unsatisfiable => {
                    response.status = 416;
                    response.length = Some(0);
                    let range = format!("bytes */{length}");
                    response.fields = Some(with_content_range(Fields::default(), &range));
                    return response;
                }
            }
        }
        if part.is_none() {
            response.fields = match &self.content {
                ReusableBody::Stored(hit) if facts.is_head() || hit.body().is_none() => {
                    Some(hit.fields().into())
                }
                ReusableBody::Stored(_) => None,
                ReusableBody::Whole(_) | ReusableBody::Arriving(_) => self.fields.cloned(),
            };
        }
        if !facts.is_head() {
            response.body = self.content.part(part);
        }
        response
    }

    fn fields(&self) -> Fields<'_> {
        match (&self.content, self.fields) {
            (_, Some(fields)) => fields.fields(),
            (ReusableBody::Stored(hit), None) => hit.fields(),
            (ReusableBody::Whole(_) | ReusableBody::Arriving(_), None) => Fields::default(),
        }
    }
}

impl ReusableBody {
    fn part(self, part: Option<(u64, u64)>) -> Body {
        match (self, part) {
            (Self::Stored(hit), part) => match (hit.file(), part) {
                (Some(file), None) => Body::File(FileReader::new(file)),
                (Some(file), Some((first, last))) => {
                    Body::File(FileReader::new(file).slice(first, last))
                }
                (None, Some((first, last))) => {
                    let bytes = hit.shared_body().unwrap_or_default();
                    Body::Full(bytes.slice(first as usize..=last as usize))
                }
                (None, None) => Body::Stored(hit),
            },
            (Self::Whole(bytes), None) => Body::Full(bytes),
            (Self::Whole(bytes), Some((first, last))) => {
                Body::Full(bytes.slice(first as usize..=last as usize))
            }
            (Self::Arriving(reader), None) => Body::Fill(reader),
            (Self::Arriving(reader), Some((first, last))) => Body::Fill(reader.slice(first, last)),
        }
    }
}

fn not_modified_fields(stored: Fields<'_>) -> FieldBlock {
    let mut kept = FieldsBuf::with_capacity(stored.as_block().len());
    kept.extend_if(stored, |name, _| not_modified_keeps(name));
    kept.into()
}

fn with_content_range(stored: Fields<'_>, value: &str) -> FieldBlock {
    let mut fields = FieldsBuf::from(stored);
    fields.set("Content-Range", value);
    fields.into()
}

/// Whole seconds for which a response that has just arrived is usable without revalidation; a
/// started second counts.
pub(crate) fn usable_for(lifetime: &Lifetime, now: Time) -> i64 {
    if lifetime.must_be_validated() {
        return 0;
    }
    lifetime.ttl(now).saturating_add(999).div_euclid(1000)
}

/// The origin's response, for this client only.
pub(crate) fn passed_on(
    origin: OriginResponse,
    facts: &RequestFacts,
    mut cache_status: CacheStatus,
    outcome: Outcome,
) -> Response {
    cache_status.fwd_status = Some(origin.status);
    Response {
        status: origin.status,
        fields: Some(origin.fields.into()),
        age: None,
        cache_status,
        length: origin.length,
        body: if facts.is_head() {
            Body::Empty
        } else {
            origin.body
        },
        tunnel: origin.tunnel,
        outcome,
    }
}
