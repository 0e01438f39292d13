//! Validation with the origin: what to ask, and what its answer changes (RFC 9111 §3.2, §4.3).

use crate::etag::EntityTag;
use crate::fields::{Fields, FieldsBuf};
use crate::hop;
use crate::request::RequestFacts;
use crate::rules::{Rules, SetCookie};
use crate::storable::{Storable, storable};
use crate::stored_fields::fields_to_store;
use crate::time::Time;

pub use crate::precondition::{Precondition, not_modified_keeps, precondition};

/// Adds to a request what makes it conditional on the stored response (§4.3.1). Returns whether there was anything to add.
pub fn add_validators(stored: Fields<'_>, out: &mut FieldsBuf) -> bool {
    let tag = stored.get("etag").filter(|value| !value.is_empty());
    let modified = stored
        .get("last-modified")
        .filter(|value| !value.is_empty());
    if let Some(tag) = tag {
        out.push("If-None-Match", tag);
    }
    if let Some(modified) = modified {
        out.push("If-Modified-Since", modified);
    }
    tag.is_some() || modified.is_some()
}

/// Whether a client's field asks for something else than the whole response, and so must not go with a request that fills.
pub fn is_conditional_field(name: &[u8]) -> bool {
    const CONDITIONAL: [&str; 6] = [
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "range",
    ];
    CONDITIONAL
        .iter()
        .any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
}

/// Whether a 304 speaks of this stored response (§4.3.4). One without any validator answers the condition we set, and that named this one.
pub fn same_representation(stored: Fields<'_>, fresh: Fields<'_>) -> bool {
    let (stored_tag, fresh_tag) = (stored.get("etag"), fresh.get("etag"));
    if let (Some(stored), Some(fresh)) = (stored_tag, fresh_tag) {
        return match (EntityTag::parse(stored), EntityTag::parse(fresh)) {
            (Some(stored), Some(fresh)) if fresh.is_weak() => stored.weak_eq(fresh),
            (Some(stored), Some(fresh)) => stored.strong_eq(fresh),
            _ => stored == fresh,
        };
    }
    match fresh.get("last-modified") {
        Some(fresh) => stored.get("last-modified") == Some(fresh),
        None => fresh_tag.is_none(),
    }
}

/// The stored fields after a 304, ready to be stored (§3.2): each field of `fresh` replaces those of its name, but for what describes the
/// stored body's framing.
pub fn merge_not_modified(stored: Fields<'_>, fresh: Fields<'_>, rules: &Rules) -> FieldsBuf {
    fields_to_store(merge(stored, fresh, rules).fields(), rules)
}

/// What a 304 makes of a stored response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refreshed {
    /// The fields to store from now on.
    pub fields: FieldsBuf,
    /// Whether it may stay, and its new lifetime.
    pub storable: Storable,
}

/// Merges a 304 into a stored response of `status` and judges the result, with the age that the 304 has.
pub fn refreshed(
    request: &RequestFacts<'_>,
    status: u16,
    stored: Fields<'_>,
    fresh: Fields<'_>,
    request_time: Time,
    response_time: Time,
    rules: &Rules,
) -> Refreshed {
    let merged = merge(stored, fresh, rules);
    Refreshed {
        storable: storable(
            request,
            status,
            merged.fields(),
            request_time,
            response_time,
            rules,
        ),
        fields: fields_to_store(merged.fields(), rules),
    }
}

/// What the answer to a HEAD makes of a stored response to GET.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadUpdate {
    /// It speaks of the stored response: these are its fields now.
    Freshen(FieldsBuf),
    /// It speaks of another one: what is stored is stale.
    Invalidate,
}

/// Compares every validator the HEAD received, and the length, with what is stored (§4.3.5).
pub fn head_update(
    stored: Fields<'_>,
    stored_len: u64,
    head: Fields<'_>,
    rules: &Rules,
) -> HeadUpdate {
    let same = |name| {
        head.get(name)
            .is_none_or(|value| stored.get(name) == Some(value))
    };
    let same_len = head.get("content-length").is_none_or(|value| {
        std::str::from_utf8(value).is_ok_and(|text| text.parse() == Ok(stored_len))
    });
    if same("etag") && same("last-modified") && same_len {
        HeadUpdate::Freshen(merge_not_modified(stored, head, rules))
    } else {
        HeadUpdate::Invalidate
    }
}

/// Stored and fresh fields together, still with the fresh `Age`. A stored `Date` does not outlive the response it dated, and a cookie in a 304
/// is for one client: it joins the stored ones only if the operator replays them.
fn merge(stored: Fields<'_>, fresh: Fields<'_>, rules: &Rules) -> FieldsBuf {
    let fresh = hop::end_to_end(fresh);
    let fresh = fresh.fields();
    let updates = |name: &[u8]| {
        let replays =
            rules.set_cookie == SetCookie::Store || !name.eq_ignore_ascii_case(b"set-cookie");
        replays && !describes_framing(name)
    };
    let replaced = |name: &[u8]| {
        let named = fresh
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name));
        name.eq_ignore_ascii_case(b"date") || (named && updates(name))
    };
    let kept = stored.iter().filter(|(name, _)| !replaced(name));
    let new = fresh.iter().filter(|(name, _)| updates(name));
    kept.chain(new).collect()
}

/// Fields that say how the stored bytes are to be read; replacing them would corrupt what they describe.
fn describes_framing(name: &[u8]) -> bool {
    const FRAMING: [&str; 4] = [
        "content-encoding",
        "content-length",
        "content-range",
        "transfer-encoding",
    ];
    FRAMING
        .iter()
        .any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
}
