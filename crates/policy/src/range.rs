//! Range requests to a stored body (RFC 9110 §14).

use crate::date;
use crate::etag::EntityTag;
use crate::fields::Fields;
use crate::request::RequestFacts;
use crate::time::Time;

pub use crate::byte_range::RequestedRange;

/// The part of a stored body that a request gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeVerdict {
    /// All of it, as a 200: `Range` is absent or ignored.
    Full,
    /// The bytes from `first` to `last` inclusive, as a 206.
    Part {
        /// The first byte.
        first: u64,
        /// The last byte.
        last: u64,
    },
    /// None, as a 416.
    Unsatisfiable,
}

/// Evaluates `Range`. Several ranges, other units and malformed values are ignored, as §14.2 permits. Preconditions are
/// evaluated before.
pub fn range(
    request: Fields<'_>,
    facts: &RequestFacts,
    status: u16,
    stored: Fields<'_>,
    length: u64,
    now: Time,
) -> RangeVerdict {
    match facts.range() {
        Some(wanted)
            if status == 200 && !facts.is_head() && if_range_holds(request, stored, now) =>
        {
            wanted.within(length)
        }
        _ => RangeVerdict::Full,
    }
}

impl RequestedRange {
    const fn within(self, length: u64) -> RangeVerdict {
        match self {
            Self::Suffix(0) => RangeVerdict::Unsatisfiable,
            // An empty body has no last bytes, and is sent as a whole instead of a 416.
            Self::Suffix(_) if length == 0 => RangeVerdict::Full,
            Self::Suffix(count) => RangeVerdict::Part {
                first: length.saturating_sub(count),
                last: length - 1,
            },
            Self::From { first, .. } if first >= length => RangeVerdict::Unsatisfiable,
            Self::From {
                first,
                last: Some(last),
            } if last < length => RangeVerdict::Part { first, last },
            Self::From { first, .. } => RangeVerdict::Part {
                first,
                last: length - 1,
            },
        }
    }
}

/// Returns true if `If-Range` matches: a strong entity tag, or a strong date (RFC 9110 §13.1.5).
fn if_range_holds(request: Fields<'_>, stored: Fields<'_>, now: Time) -> bool {
    let mut lines = request.all("if-range");
    match (lines.next(), lines.next()) {
        (None, _) => true,
        (Some(_), Some(_)) => false,
        (Some(wanted), None) => match EntityTag::parse(wanted) {
            Some(wanted) => stored
                .get("etag")
                .and_then(EntityTag::parse)
                .is_some_and(|tag| tag.strong_eq(wanted)),
            None => same_strong_date(wanted, stored, now),
        },
    }
}

/// Returns true if the dates match and are strong: the response was generated at least a second after its modification
/// (RFC 9110 §8.8.2.2).
fn same_strong_date(wanted: &[u8], stored: Fields<'_>, now: Time) -> bool {
    let date_in = |name| stored.get(name).and_then(|value| date::parse(value, now));
    let (Some(modified), Some(made)) = (date_in("last-modified"), date_in("date")) else {
        return false;
    };
    date::parse(wanted, now) == Some(modified) && made.since(modified) >= 1_000
}

#[cfg(test)]
mod tests {
    use RangeVerdict::{Full, Part, Unsatisfiable};

    use super::*;
    use crate::rules::Rules;
    use crate::testing::{RECEIVED, fields};

    fn verdict(
        method: &http::Method,
        request: &str,
        status: u16,
        stored: &str,
        length: u64,
    ) -> RangeVerdict {
        let (request, stored) = (fields(request), fields(stored));
        let facts = RequestFacts::read(method, request.fields(), false, &Rules::default());
        range(
            request.fields(),
            &facts,
            status,
            stored.fields(),
            length,
            RECEIVED,
        )
    }

    fn check(value: &str, length: u64, expected: RangeVerdict) {
        let request = format!("Range: {value}");
        assert_eq!(
            verdict(&http::Method::GET, &request, 200, "", length),
            expected,
            "{value} of {length}"
        );
    }

    #[test]
    fn single_suffix_and_open_ranges() {
        check("bytes=0-0", 10, Part { first: 0, last: 0 });
        check("bytes=2-4", 10, Part { first: 2, last: 4 });
        check("Bytes= 2-4 ,", 10, Part { first: 2, last: 4 });
        check("bytes=2-", 10, Part { first: 2, last: 9 });
        check("bytes=2-99", 10, Part { first: 2, last: 9 });
        check("bytes=0-", 10, Part { first: 0, last: 9 });
        check("bytes=-3", 10, Part { first: 7, last: 9 });
        check("bytes=-99", 10, Part { first: 0, last: 9 });
    }

    #[test]
    fn a_range_beyond_the_end_is_unsatisfiable() {
        check("bytes=10-", 10, Unsatisfiable);
        check("bytes=10-12", 10, Unsatisfiable);
        check("bytes=-0", 10, Unsatisfiable);
        check("bytes=0-", 0, Unsatisfiable);
        check("bytes=-5", 0, Full);
    }

    #[test]
    fn huge_numbers_do_not_overflow() {
        const HUGE: &str = "99999999999999999999999999";
        check(&format!("bytes=0-{HUGE}"), 10, Part { first: 0, last: 9 });
        check(&format!("bytes=-{HUGE}"), 10, Part { first: 0, last: 9 });
        check(&format!("bytes={HUGE}-{HUGE}"), 10, Unsatisfiable);
        check(&format!("bytes={HUGE}-"), u64::MAX, Unsatisfiable);
        check(
            "bytes=0-18446744073709551615",
            u64::MAX,
            Part {
                first: 0,
                last: u64::MAX - 1,
            },
        );
    }

    #[test]
    fn anything_but_one_byte_range_is_ignored() {
        for value in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "bytes=a-b",
            "bytes=1-a",
            "bytes=4-2",
            "bytes=1",
            "bytes=+1-2",
            "bytes=1--2",
            "bytes=0-1,3-4",
            "items=0-1",
            "bytes 0-1",
            "bytes=0x1-2",
            "bytes=1 - 2",
        ] {
            check(value, 10, Full);
        }
        assert_eq!(
            verdict(
                &http::Method::GET,
                "Range: bytes=0-1\nRange: bytes=3-4",
                200,
                "",
                10
            ),
            Full
        );
        assert_eq!(
            verdict(&http::Method::HEAD, "Range: bytes=0-1", 200, "", 10),
            Full
        );
        assert_eq!(
            verdict(&http::Method::GET, "Range: bytes=0-1", 404, "", 10),
            Full
        );
        assert_eq!(verdict(&http::Method::GET, "", 200, "", 10), Full);
    }

    #[test]
    fn if_range_compares_strongly() {
        const STORED: &str = "ETag: \"a\"\n\
            Last-Modified: Sun, 06 Nov 1994 08:00:00 GMT\nDate: Sun, 06 Nov 1994 08:00:01 GMT";
        const HASTY: &str =
            "Last-Modified: Sun, 06 Nov 1994 08:00:00 GMT\nDate: Sun, 06 Nov 1994 08:00:00 GMT";
        for (stored, if_range, holds) in [
            (STORED, "\"a\"", true),
            (STORED, "\"b\"", false),
            (STORED, "W/\"a\"", false),
            (STORED, "a", false),
            (STORED, "\"a\", \"b\"", false),
            (STORED, "\"b\"\nIf-Range: \"a\"", false),
            ("ETag: W/\"a\"", "W/\"a\"", false),
            ("", "\"a\"", false),
            (STORED, "Sun, 06 Nov 1994 08:00:00 GMT", true),
            (STORED, "Sun, 06 Nov 1994 08:00:01 GMT", false),
            (STORED, "0", false),
            (HASTY, "Sun, 06 Nov 1994 08:00:00 GMT", false),
            ("", "0", false),
        ] {
            let request = format!("Range: bytes=0-1\nIf-Range: {if_range}");
            let expected = if holds {
                Part { first: 0, last: 1 }
            } else {
                Full
            };
            assert_eq!(
                verdict(&http::Method::GET, &request, 200, stored, 10),
                expected,
                "{stored} {if_range}"
            );
        }
        assert_eq!(
            verdict(&http::Method::GET, "If-Range: \"a\"", 200, STORED, 10),
            Full
        );
    }
}
