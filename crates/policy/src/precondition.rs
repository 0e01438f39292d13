//! A client's conditional request, answered from what is stored (RFC 9111 §4.3.2, RFC 9110 §13).

use crate::date;
use crate::etag::{self, EntityTag};
use crate::fields::Fields;
use crate::request::RequestFacts;
use crate::time::Time;

/// What a client's preconditions make of a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// It is sent.
    Send,
    /// The client has it already: 304.
    NotModified,
    /// It is not what the client wants to go on with: 412.
    Failed,
}

/// Evaluates them in the order of RFC 9110 §13.2.2. Only a 200 has a representation they could speak of.
pub fn precondition(
    request: Fields<'_>,
    facts: &RequestFacts<'_>,
    status: u16,
    stored: Fields<'_>,
    now: Time,
) -> Precondition {
    if !facts.is_conditional() || status != 200 {
        return Precondition::Send;
    }
    let stored_tag = stored.get("etag").and_then(EntityTag::parse);
    let strongly = |tag: EntityTag<'_>| stored_tag.is_some_and(|stored| stored.strong_eq(tag));
    let weakly = |tag: EntityTag<'_>| stored_tag.is_some_and(|stored| stored.weak_eq(tag));

    let unmodified = match any_tag(request, "if-match", strongly) {
        Some(matches) => matches,
        None => unmodified_since(request, stored, now),
    };
    if !unmodified {
        return Precondition::Failed;
    }
    let known = match any_tag(request, "if-none-match", weakly) {
        Some(matches) => matches,
        None => !modified_since(request, stored, now),
    };
    if known {
        Precondition::NotModified
    } else {
        Precondition::Send
    }
}

/// Which stored fields go into a 304: all but the metadata of a representation that is not sent (RFC 9110 §15.4.5).
/// `Content-Location` and `Last-Modified` stay, as guidance for the client's cache.
pub fn not_modified_keeps(name: &[u8]) -> bool {
    const REPRESENTATION: [&str; 13] = [
        "accept-ranges",
        "content-digest",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-length",
        "content-md5",
        "content-range",
        "content-type",
        "digest",
        "repr-digest",
        "trailer",
        "transfer-encoding",
    ];
    !REPRESENTATION
        .iter()
        .any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
}

/// Whether a list of entity tags holds one that `matches`, or `*`; `None` if there is no such field.
fn any_tag(
    request: Fields<'_>,
    name: &str,
    matches: impl Fn(EntityTag<'_>) -> bool,
) -> Option<bool> {
    request.contains(name).then(|| {
        request
            .all(name)
            .any(|line| line == b"*" || etag::list(line).any(&matches))
    })
}

/// True unless `If-Unmodified-Since` holds a date before the last modification.
fn unmodified_since(request: Fields<'_>, stored: Fields<'_>, now: Time) -> bool {
    let since = only_date(request, "if-unmodified-since", now);
    let modified = stored
        .get("last-modified")
        .and_then(|value| date::parse(value, now));
    since
        .zip(modified)
        .is_none_or(|(since, modified)| modified <= since)
}

/// True unless `If-Modified-Since` holds a date since which nothing changed. Without a modification date, what was made before is taken for
/// unchanged (RFC 9111 §4.3.2).
fn modified_since(request: Fields<'_>, stored: Fields<'_>, now: Time) -> bool {
    let since = only_date(request, "if-modified-since", now);
    let changed = stored.get("last-modified").or_else(|| stored.get("date"));
    let changed = changed.and_then(|value| date::parse(value, now));
    since
        .zip(changed)
        .is_none_or(|(since, changed)| changed > since)
}

/// The date in a field that must have exactly one line with a valid date to count (RFC 9110 §13.1.3).
fn only_date(request: Fields<'_>, name: &str, now: Time) -> Option<Time> {
    let mut lines = request.all(name);
    match (lines.next(), lines.next()) {
        (Some(value), None) => date::parse(value, now),
        _ => None,
    }
}
