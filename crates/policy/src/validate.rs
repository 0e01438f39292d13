//! Validation with the origin: conditional requests, and updates of the stored response (RFC 9111 §3.2, §4.3).

use crate::etag::EntityTag;
use crate::fields::{Fields, FieldsBuf, is_one_of};
use crate::hop;
use crate::request::RequestFacts;
use crate::response::ResponseFacts;
use crate::rules::Rules;
use crate::storable::{Storable, storable};
use crate::stored_fields::fields_to_store;
use crate::time::Times;

pub use crate::origin_view::{is_conditional_field, is_conditional_or_partial};
pub use crate::precondition::{Precondition, not_modified_keeps, precondition};

/// Adds the stored validators to a request as conditions (§4.3.1). Returns true if there are any.
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

/// Returns true if a 304 confirms this stored response. One without validators confirms the response of our condition.
///
/// By §4.3.4 a strong tag confirms only a response with the same strong tag. But [`add_validators`] sends one tag, so
/// its opaque value identifies the stored response: nginx weakens it to `W/"x"` when it compresses, and confirms it as
/// `"x"`.
pub fn same_representation(stored: Fields<'_>, fresh: Fields<'_>) -> bool {
    let (stored_tag, fresh_tag) = (stored.get("etag"), fresh.get("etag"));
    if let (Some(stored), Some(fresh)) = (stored_tag, fresh_tag) {
        return match (EntityTag::parse(stored), EntityTag::parse(fresh)) {
            (Some(stored), Some(fresh)) => stored.weak_eq(fresh),
            _ => stored == fresh,
        };
    }
    match fresh.get("last-modified") {
        Some(fresh) => stored.get("last-modified") == Some(fresh),
        None => fresh_tag.is_none(),
    }
}

/// The stored fields after a 304, to be stored (§3.2): each field of `fresh` replaces the stored ones of that name,
/// except those that describe the framing of the stored body.
pub(crate) fn merge_not_modified(
    stored: Fields<'_>,
    fresh: Fields<'_>,
    rules: &Rules,
) -> FieldsBuf {
    let merged = merge(stored, fresh);
    fields_to_store(&ResponseFacts::read(merged.fields(), rules))
}

/// The update of a stored response by a 304.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refreshed {
    /// The fields to store.
    pub fields: FieldsBuf,
    /// The fields for the client of this request, with cookies and others that are not stored.
    pub for_one: FieldsBuf,
    /// The decision on keeping it, with its new lifetime.
    pub storable: Storable,
}

/// Merges a 304 into a stored response of `status` and decides on the result, with the age of the 304.
pub fn refreshed(
    request: &RequestFacts,
    status: u16,
    stored: Fields<'_>,
    fresh: Fields<'_>,
    times: Times,
    rules: &Rules,
) -> Refreshed {
    let merged = merge(stored, fresh);
    let facts = ResponseFacts::read(merged.fields(), rules);
    let mut for_one = merged.clone();
    for_one.remove("age");
    Refreshed {
        storable: storable(request, status, &facts, times),
        fields: fields_to_store(&facts),
        for_one,
    }
}

/// The update of a stored response to GET by a response to HEAD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadUpdate {
    /// It describes the stored response: the fields to store.
    Freshen(FieldsBuf),
    /// It describes another one: the stored response is stale.
    Invalidate,
}

/// Compares every validator of a response to HEAD, and its length, with the stored response (§4.3.5).
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

/// Merges stored and fresh fields, with the fresh `Age`. A stored `Date` is not kept without a fresh one. A stored tag
/// is kept: the stored bytes are those it was assigned to.
fn merge(stored: Fields<'_>, fresh: Fields<'_>) -> FieldsBuf {
    let fresh = hop::end_to_end(fresh);
    let fresh = fresh.fields();
    let has_tag = stored.contains("etag");
    let stays = |name: &[u8]| has_tag && name.eq_ignore_ascii_case(b"etag");
    let updates = |name: &[u8]| !(describes_framing(name) || stays(name));
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

/// Returns true for fields that describe the framing of the stored body; replacing them would corrupt it.
fn describes_framing(name: &[u8]) -> bool {
    const FRAMING: [&str; 4] = [
        "content-encoding",
        "content-length",
        "content-range",
        "transfer-encoding",
    ];
    is_one_of(name, &FRAMING)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::field_name::FieldName;
    use crate::rules::SetCookie;
    use crate::storable::NotStorable;
    use crate::testing::{RECEIVED, fields, get};

    const MODIFIED: &str = "Last-Modified: Sun, 06 Nov 1994 08:00:00 GMT";

    fn check_merge(rules: &Rules, stored: &str, fresh: &str, expected: &str) {
        let merged = merge_not_modified(fields(stored).fields(), fields(fresh).fields(), rules);
        assert_eq!(merged, fields(expected), "{stored:?} {fresh:?}");
    }

    #[test]
    fn both_validators_are_sent_as_they_are_stored() {
        for (stored, expected) in [
            ("ETag: W/\"a\"", "If-None-Match: W/\"a\""),
            ("ETag: unquoted", "If-None-Match: unquoted"),
            (MODIFIED, "If-Modified-Since: Sun, 06 Nov 1994 08:00:00 GMT"),
            (
                "Last-Modified: x\netag: \"a\"",
                "If-None-Match: \"a\"\nIf-Modified-Since: x",
            ),
            ("ETag:\nLast-Modified:", ""),
            ("", ""),
        ] {
            let mut out = FieldsBuf::new();
            let any = add_validators(fields(stored).fields(), &mut out);
            assert_eq!(
                (any, out),
                (!expected.is_empty(), fields(expected)),
                "{stored}"
            );
        }
    }

    #[test]
    fn conditions_and_ranges_do_not_go_with_a_fill() {
        for name in [
            "If-Match",
            "if-none-match",
            "If-Modified-Since",
            "If-Unmodified-Since",
            "If-Range",
            "Range",
        ] {
            assert!(
                is_conditional_field(FieldName::of(name.as_bytes())),
                "{name}"
            );
        }
        assert!(!is_conditional_field(FieldName::of(b"If")));
        assert!(!is_conditional_field(FieldName::of(b"Accept-Ranges")));
    }

    #[test]
    fn a_304_updates_all_fields_except_framing() {
        check_merge(
            &Rules::default(),
            "A: 1\nContent-Type: text/plain\nContent-Encoding: gzip\nB: 1\na: 2\nETag: \"a\"\nDate: x",
            "Date: y\na: 3\nA: 4\nContent-Type: text/html\nContent-Encoding: br\n\
             Content-Length: 0\nContent-Range: z\nC: 1\nAge: 5\nTransfer-Encoding: chunked\nCache-Control: max-age=9",
            "Content-Encoding: gzip\nB: 1\nETag: \"a\"\nDate: y\na: 3\nA: 4\n\
             Content-Type: text/html\nC: 1\nCache-Control: max-age=9",
        );
    }

    /// A weak tag that a strong one confirms stays weak: no range may be served from it.
    #[test]
    fn the_stored_tag_is_kept() {
        for (stored, fresh, expected) in [
            ("ETag: W/\"a\"", "ETag: \"a\"", "ETag: W/\"a\""),
            ("ETag: \"a\"", "ETag: W/\"a\"", "ETag: \"a\""),
            (MODIFIED, "ETag: \"a\"", "MODIFIED\nETag: \"a\""),
        ] {
            let expected = expected.replace("MODIFIED", MODIFIED);
            check_merge(&Rules::default(), stored, fresh, &expected);
        }
    }

    #[test]
    fn fields_of_the_304s_connection_are_not_taken_over() {
        check_merge(
            &Rules::default(),
            "X-A: 1\nX-B: 1",
            "Connection: X-A\nX-A: 2\nX-B: 2",
            "X-A: 1\nX-B: 2",
        );
    }

    #[test]
    fn a_cookie_in_a_304_is_for_one_client() {
        let replaying = Rules {
            set_cookie: SetCookie::Store,
            ..Rules::default()
        };
        check_merge(&Rules::default(), "X-A: 1", "Set-Cookie: a=b", "X-A: 1");
        check_merge(
            &replaying,
            "Set-Cookie: a=a",
            "Set-Cookie: a=b",
            "Set-Cookie: a=b",
        );
    }

    #[test]
    fn fields_that_the_304_calls_private_are_dropped() {
        check_merge(
            &Rules::default(),
            "X-A: 1\nX-B: 1",
            "Cache-Control: private=x-a",
            "X-B: 1\nCache-Control: private=x-a",
        );
    }

    #[test]
    fn a_304_gives_a_new_lifetime_or_ends_it() {
        let rules = Rules::default();
        let request = fields("");
        let facts = get(&request, &rules);
        for (stored, fresh, expected) in [
            (
                "Cache-Control: max-age=60\nDate: Sun, 06 Nov 1994 07:00:00 GMT",
                "",
                Ok(60_000),
            ),
            (
                "Cache-Control: max-age=60",
                "Cache-Control: max-age=5",
                Ok(5_000),
            ),
            ("Cache-Control: max-age=60", "Age: 20", Ok(40_000)),
            (
                "Cache-Control: max-age=60",
                "Date: Sun, 06 Nov 1994 08:49:27 GMT",
                Ok(50_000),
            ),
            (
                "Cache-Control: max-age=60",
                "Cache-Control: no-store",
                Err(NotStorable::NoStore),
            ),
            (
                "Cache-Control: max-age=60",
                "CDN-Cache-Control: private",
                Err(NotStorable::Private),
            ),
            (
                "Cache-Control: max-age=60",
                "Vary: *",
                Err(NotStorable::VaryAny),
            ),
            (
                "Cache-Control: max-age=60",
                "Set-Cookie: a=b\nX-A: 1",
                Err(NotStorable::SetCookie),
            ),
        ] {
            let (stored, fresh) = (fields(stored), fields(fresh));
            let refreshed = refreshed(
                &facts,
                200,
                stored.fields(),
                fresh.fields(),
                Times::at(RECEIVED),
                &rules,
            );
            let verdict = match refreshed.storable {
                Storable::Yes(lifetime) => Ok(lifetime.ttl(RECEIVED)),
                Storable::No(reason) => Err(reason),
            };
            assert_eq!(verdict, expected, "{stored:?} {fresh:?}");
            assert!(!refreshed.fields.fields().contains("age"));
            assert!(!refreshed.fields.fields().contains("set-cookie"));
        }
    }

    /// With any `SetCookie` rule, the client that asked gets its own cookie.
    #[test]
    fn fields_of_a_304_for_one_client_reach_that_client_only() {
        const FRESH: &str = "Age: 5\nSet-Cookie: a=b\nX-Csrf: 1\nX-User: 2\nCache-Control: private=x-user, max-age=60";
        const FOR_ONE: &str = "X-Page: 1\nSet-Cookie: a=b\nX-Csrf: 1\nX-User: 2\nCache-Control: private=x-user, max-age=60";
        const STRIPPED: &str = "X-Page: 1\nX-Csrf: 1\nCache-Control: private=x-user, max-age=60";
        const REPLAYED: &str =
            "X-Page: 1\nSet-Cookie: a=b\nX-Csrf: 1\nCache-Control: private=x-user, max-age=60";
        for (set_cookie, stored, why) in [
            (SetCookie::Refuse, STRIPPED, Some(NotStorable::SetCookie)),
            (SetCookie::Strip, STRIPPED, None),
            (SetCookie::Store, REPLAYED, None),
        ] {
            let rules = Rules {
                set_cookie,
                ..Rules::default()
            };
            let (request, page, fresh) = (fields(""), fields("X-Page: 1"), fields(FRESH));
            let facts = get(&request, &rules);
            let refreshed = refreshed(
                &facts,
                200,
                page.fields(),
                fresh.fields(),
                Times::at(RECEIVED),
                &rules,
            );
            assert_eq!(refreshed.for_one, fields(FOR_ONE));
            assert_eq!(refreshed.fields, fields(stored));
            let not_stored = match refreshed.storable {
                Storable::Yes(_) => None,
                Storable::No(why) => Some(why),
            };
            assert_eq!(not_stored, why);
        }
    }

    #[test]
    fn a_304_is_matched_by_its_validators() {
        const OTHER: &str = "Last-Modified: Sun, 06 Nov 1994 08:00:01 GMT";
        for (stored, fresh, same) in [
            ("ETag: \"a\"", "ETag: \"a\"", true),
            ("ETag: \"a\"", "ETag: \"b\"", false),
            ("ETag: W/\"a\"", "ETag: W/\"a\"", true),
            ("ETag: \"a\"", "ETag: W/\"a\"", true),
            ("ETag: W/\"a\"", "ETag: \"a\"", true),
            ("ETag: W/\"a\"", "ETag: \"b\"", false),
            ("ETag: W/\"a\"", "ETag: W/\"b\"", false),
            ("ETag: a", "ETag: a", true),
            ("ETag: a", "ETag: \"a\"", false),
            (MODIFIED, MODIFIED, true),
            (MODIFIED, OTHER, false),
            ("", MODIFIED, false),
            ("", "ETag: \"a\"", false),
            ("ETag: \"a\"", MODIFIED, false),
            ("ETag: \"a\"", "", true),
            (MODIFIED, "", true),
            ("", "", true),
        ] {
            assert_eq!(
                same_representation(fields(stored).fields(), fields(fresh).fields()),
                same,
                "{stored:?} {fresh:?}"
            );
        }
        let both = |date| format!("ETag: \"a\"\n{date}");
        assert!(same_representation(
            fields(&both(MODIFIED)).fields(),
            fields(&both(OTHER)).fields()
        ));
    }

    #[test]
    fn the_response_to_a_head_freshens_or_invalidates_the_entry() {
        let stored = fields(&format!("ETag: \"a\"\n{MODIFIED}\nX-A: 1"));
        let freshened = |head: &str| match head_update(
            stored.fields(),
            5,
            fields(head).fields(),
            &Rules::default(),
        ) {
            HeadUpdate::Freshen(fields) => Some(fields),
            HeadUpdate::Invalidate => None,
        };
        let updated = fields(&format!("ETag: \"a\"\n{MODIFIED}\nX-A: 2"));
        assert_eq!(freshened("X-A: 2"), Some(updated.clone()));
        assert_eq!(freshened("X-A: 2\nContent-Length: 5"), Some(updated));
        assert!(freshened("ETag: \"a\"").is_some());
        for other in [
            "ETag: \"b\"",
            "ETag: W/\"a\"",
            "Last-Modified: x",
            "Content-Length: 6",
            "Content-Length: x",
        ] {
            assert_eq!(freshened(other), None, "{other}");
        }
    }
}
