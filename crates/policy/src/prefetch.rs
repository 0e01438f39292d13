//! Prefetches: requests that browsers send before their user follows a link, by speculation rules or `<link>`.
//!
//! The Fetch Standard marks them with `Sec-Purpose`, and older browsers with `Purpose`. One that is denied does no harm: the
//! browser drops the response, and sends another request if the link is followed. That does not hold for the parts of a page
//! that is rendered in advance, which carry the same mark: such a page is shown with the parts that it got. Of those requests
//! only the one for the document may be denied.

use http::Method;

use crate::fields::Fields;
use crate::known_name::names;
use crate::rules::{Prefetch, Rules};

/// Returns true for a prefetch that must not cause a request to the origin on a route with these rules.
pub fn is_for_hits_only(method: &Method, fields: Fields<'_>, rules: &Rules) -> bool {
    rules.prefetch == Prefetch::Hits
        && (*method == Method::GET || *method == Method::HEAD)
        && is_dispensable(fields)
}

fn is_dispensable(fields: Fields<'_>) -> bool {
    let purpose = fields.value(names::SEC_PURPOSE);
    let Some(purpose) = purpose.or_else(|| fields.value(names::PURPOSE)) else {
        return false;
    };
    let mut parts = purpose.split(|&byte| byte == b';').map(<[u8]>::trim_ascii);
    let is_prefetch = parts.next() == Some(b"prefetch");
    let is_rendered = parts.any(|parameter| parameter == b"prerender");
    let is_document = || fields.value(names::SEC_FETCH_DEST) == Some(b"document");
    is_prefetch && (!is_rendered || is_document())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn only_requests_that_browsers_can_do_without_are_for_hits_only() {
        let rules = Rules {
            prefetch: Prefetch::Hits,
            ..Rules::default()
        };
        for (lines, expected) in [
            ("Sec-Purpose: prefetch", true),
            ("Sec-Purpose: prefetch;anonymous-client-ip", true),
            ("Purpose: prefetch", true),
            ("Purpose: prefetch\nSec-Fetch-Dest: empty", true),
            ("Sec-Purpose: prefetch\nSec-Fetch-Dest: document", true),
            (
                "Sec-Purpose: prefetch; prerender\nSec-Fetch-Dest: document",
                true,
            ),
            // Parts of a page that is rendered in advance. Chrome sends both fields.
            (
                "Sec-Purpose: prefetch;prerender\nSec-Fetch-Dest: empty",
                false,
            ),
            (
                "Sec-Purpose: prefetch;prerender\nSec-Fetch-Dest: iframe",
                false,
            ),
            (
                "Purpose: prefetch\nSec-Purpose: prefetch;prerender\nSec-Fetch-Dest: script",
                false,
            ),
            ("Sec-Purpose: prefetch;prerender", false),
            // Navigations, and unknown purposes.
            ("", false),
            ("Sec-Fetch-Mode: navigate\nSec-Fetch-Dest: document", false),
            ("Sec-Purpose: prefetched", false),
            ("Sec-Purpose: ", false),
            ("Purpose: preview", false),
        ] {
            let fields = fields(lines);
            let is_denied = |method, rules| is_for_hits_only(method, fields.fields(), rules);
            assert_eq!(is_denied(&Method::GET, &rules), expected, "{lines}");
            assert!(!is_denied(&Method::POST, &rules), "{lines}");
            assert!(!is_denied(&Method::GET, &Rules::default()), "{lines}");
        }
    }
}
