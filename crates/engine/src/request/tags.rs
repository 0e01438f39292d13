//! The purge tags of a response: those in its fields, and those in fields that are too long to be kept.

use microcache_policy::tags::MAX_OTHER_FIELDS;
use microcache_policy::{CacheKind, FieldsBuf, ResponseFacts, Rules, Tags, take_long_tags};
use microcache_store::{Stored, TagNumbers};

use crate::cache::tag_numbers;
use crate::origin::{ExchangeTimes, OriginError, OriginResponse};

/// Removes lines with tags that are too long to be stored and sent on, and returns the tags in
/// them. A program gets all that its origin sends.
///
/// Fails if the rest of the head is too large: only for its tags may a head exceed
/// [`MAX_OTHER_FIELDS`].
pub(super) fn hash_long_tags(
    response: &mut OriginResponse,
    rules: &Rules,
) -> Result<TagNumbers, OriginError> {
    if rules.kind != CacheKind::Shared {
        return Ok(TagNumbers::NONE);
    }
    let long = take_long_tags(&mut response.fields, rules);
    if response.fields.fields().as_block().len() > MAX_OTHER_FIELDS {
        return Err(OriginError::Malformed("the head is too large"));
    }
    if long == FieldsBuf::new() {
        return Ok(TagNumbers::NONE);
    }
    Ok(tag_numbers(&[], Tags::read(long.fields(), rules).iter()))
}

/// The tags of a response that is stored.
pub(super) fn tags_of(
    key: &[u8],
    response: &ResponseFacts<'_>,
    times: &ExchangeTimes,
) -> TagNumbers {
    tag_numbers(key, response.tags().iter()).and(&times.hashed_tags)
}

/// The tags of a response after a confirmation. Those that were stored without their names stay
/// until the origin names others in long lines: a confirmation need not repeat them.
pub(super) fn renewed_tags(
    key: &[u8],
    stored: &Stored,
    merged: &ResponseFacts<'_>,
    times: &ExchangeTimes,
    rules: &Rules,
) -> TagNumbers {
    let tags = tags_of(key, merged, times);
    if stored.tags().is_empty() || !times.hashed_tags.is_empty() {
        return tags;
    }
    let named = tag_numbers(key, Tags::read(stored.fields(), rules).iter());
    if named == *stored.tags() {
        tags
    } else {
        tags.and(stored.tags())
    }
}
