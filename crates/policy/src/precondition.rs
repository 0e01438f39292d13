//! Evaluation of conditional requests against a stored response (RFC 9111 §4.3.2, RFC 9110 §13).

use crate::date;
use crate::etag::{self, EntityTag};
use crate::fields::{Fields, is_one_of};
use crate::request::RequestFacts;
use crate::time::Time;

/// The result of a request's preconditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precondition {
    /// They hold: send the representation.
    Send,
    /// The client has the representation: 304.
    NotModified,
    /// The representation has changed: 412.
    Failed,
}

/// Evaluates the preconditions in the order of RFC 9110 §13.2.2. They apply to a stored 200 only.
pub fn precondition(
    request: Fields<'_>,
    facts: &RequestFacts,
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

/// Returns true if a stored field is sent in a 304: all but the metadata of the representation that is not sent (RFC
/// 9110 §15.4.5). `Content-Location` and `Last-Modified` stay, as guidance for the client's cache.
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
    !is_one_of(name, &REPRESENTATION)
}

/// Returns true if a list of entity tags contains `*`, or one that `matches`; `None` if the field is absent.
fn any_tag(
    request: Fields<'_>,
    name: &str,
    matches: impl Fn(EntityTag<'_>) -> bool,
) -> Option<bool> {
    let mut lines = request.all(name).peekable();
    lines.peek()?;
    Some(lines.any(|line| line == b"*" || etag::list(line).any(&matches)))
}

/// Returns true unless `If-Unmodified-Since` is before the last modification.
fn unmodified_since(request: Fields<'_>, stored: Fields<'_>, now: Time) -> bool {
    only_date(request, "if-unmodified-since", now).is_none_or(|since| {
        let modified = stored.get("last-modified");
        modified
            .and_then(|value| date::parse(value, now))
            .is_none_or(|modified| modified <= since)
    })
}

/// Returns true unless the representation is unmodified since `If-Modified-Since`. Without `Last-Modified`, `Date` is
/// used (RFC 9111 §4.3.2).
fn modified_since(request: Fields<'_>, stored: Fields<'_>, now: Time) -> bool {
    only_date(request, "if-modified-since", now).is_none_or(|since| {
        let changed = stored.get("last-modified").or_else(|| stored.get("date"));
        changed
            .and_then(|value| date::parse(value, now))
            .is_none_or(|changed| changed > since)
    })
}

/// The date in a field that must be exactly one line with a valid date to count (RFC 9110 §13.1.3).
fn only_date(request: Fields<'_>, name: &str, now: Time) -> Option<Time> {
    let mut lines = request.all(name);
    match (lines.next(), lines.next()) {
        (Some(value), None) => date::parse(value, now),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use Precondition::{Failed, NotModified, Send};

    use super::*;
    use crate::rules::Rules;
    use crate::testing::{RECEIVED, fields, get};

    const BEFORE: &str = "Sun, 06 Nov 1994 07:00:00 GMT";
    const MODIFIED: &str = "Sun, 06 Nov 1994 08:00:00 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 09:00:00 GMT";

    fn check(stored: &str, request: &str, expected: Precondition) {
        assert_eq!(
            verdict(200, stored, request),
            expected,
            "{stored:?} {request:?}"
        );
    }

    fn verdict(status: u16, stored: &str, request: &str) -> Precondition {
        let (stored, request) = (fields(stored), fields(request));
        let facts = get(&request, &Rules::default());
        precondition(request.fields(), &facts, status, stored.fields(), RECEIVED)
    }

    #[test]
    fn if_none_match_compares_weakly() {
        for (stored, request, expected) in [
            (r#""a""#, r#""a""#, NotModified),
            (r#"W/"a""#, r#""a""#, NotModified),
            (r#""a""#, r#"W/"a""#, NotModified),
            (r#""a""#, r#""x", W/"a" , "y""#, NotModified),
            (r#""a""#, r#""x", "y""#, Send),
            (r#""a""#, "*", NotModified),
            (r#""a""#, "a", Send),
            ("a", "a", Send),
            (r#""a,b""#, r#""a", "b""#, Send),
            (r#""a,b""#, r#""a,b""#, NotModified),
        ] {
            check(
                &format!("ETag: {stored}"),
                &format!("If-None-Match: {request}"),
                expected,
            );
        }
        check(
            "ETag: \"b\"",
            "If-None-Match: \"a\"\nif-none-match: \"b\"",
            NotModified,
        );
        check("", "If-None-Match: *", NotModified);
        check("", "If-None-Match: \"a\"", Send);
    }

    #[test]
    fn if_none_match_comes_before_if_modified_since() {
        let stored = format!("ETag: \"a\"\nLast-Modified: {MODIFIED}");
        check(
            &stored,
            &format!("If-None-Match: \"b\"\nIf-Modified-Since: {MODIFIED}"),
            Send,
        );
        check(
            &stored,
            &format!("If-None-Match: \"a\"\nIf-Modified-Since: {BEFORE}"),
            NotModified,
        );
    }

    #[test]
    fn if_modified_since_compares_dates() {
        let stored = format!("Last-Modified: {MODIFIED}");
        check(
            &stored,
            &format!("If-Modified-Since: {MODIFIED}"),
            NotModified,
        );
        check(&stored, &format!("If-Modified-Since: {AFTER}"), NotModified);
        check(&stored, &format!("If-Modified-Since: {BEFORE}"), Send);
        check(
            &stored,
            "If-Modified-Since: Sunday, 06-Nov-94 08:00:00 GMT",
            NotModified,
        );
        check(&stored, "If-Modified-Since: 0", Send);
        check(
            &stored,
            &format!("If-Modified-Since: {AFTER}\nIf-Modified-Since: {AFTER}"),
            Send,
        );
        check(
            &format!("Last-Modified: x\nDate: {MODIFIED}"),
            &format!("If-Modified-Since: {AFTER}"),
            Send,
        );
    }

    #[test]
    fn without_a_modification_date_the_date_counts() {
        let stored = format!("Date: {MODIFIED}");
        check(
            &stored,
            &format!("If-Modified-Since: {MODIFIED}"),
            NotModified,
        );
        check(&stored, &format!("If-Modified-Since: {BEFORE}"), Send);
        check("", &format!("If-Modified-Since: {AFTER}"), Send);
    }

    #[test]
    fn if_match_compares_strongly() {
        for (stored, request, expected) in [
            (r#"ETag: "a""#, r#""x", "a""#, Send),
            (r#"ETag: "a""#, r#""x""#, Failed),
            (r#"ETag: "a""#, r#"W/"a""#, Failed),
            (r#"ETag: W/"a""#, r#""a""#, Failed),
            (r#"ETag: "a""#, "*", Send),
            ("", r#""a""#, Failed),
            ("", "*", Send),
        ] {
            check(stored, &format!("If-Match: {request}"), expected);
        }
        check(
            "ETag: \"a\"",
            "If-Match: \"a\"\nIf-None-Match: \"a\"",
            NotModified,
        );
        check(
            "ETag: \"a\"",
            "If-Match: \"b\"\nIf-None-Match: \"a\"",
            Failed,
        );
    }

    #[test]
    fn if_unmodified_since_counts_where_if_match_is_silent() {
        let stored = format!("ETag: \"a\"\nLast-Modified: {MODIFIED}");
        check(&stored, &format!("If-Unmodified-Since: {BEFORE}"), Failed);
        check(&stored, &format!("If-Unmodified-Since: {MODIFIED}"), Send);
        check(
            &stored,
            &format!("If-Match: \"a\"\nIf-Unmodified-Since: {BEFORE}"),
            Send,
        );
        check(&stored, "If-Unmodified-Since: x", Send);
        check("", &format!("If-Unmodified-Since: {BEFORE}"), Send);
    }

    #[test]
    fn only_a_200_is_conditional() {
        for status in [204, 301, 404, 500] {
            assert_eq!(
                verdict(status, "ETag: \"a\"", "If-None-Match: \"a\""),
                Send,
                "{status}"
            );
            assert_eq!(
                verdict(status, "ETag: \"a\"", "If-Match: \"b\""),
                Send,
                "{status}"
            );
        }
    }

    #[test]
    fn a_304_omits_fields_that_describe_the_body() {
        for name in [
            "Cache-Control",
            "Content-Location",
            "Date",
            "ETag",
            "Expires",
            "Vary",
            "Last-Modified",
            "Content-Security-Policy",
            "X-A",
        ] {
            assert!(not_modified_keeps(name.as_bytes()), "{name}");
        }
        for name in [
            "Content-Type",
            "content-length",
            "Content-Encoding",
            "Content-Language",
            "Content-Range",
        ] {
            assert!(!not_modified_keeps(name.as_bytes()), "{name}");
        }
    }
}
