//! Invalidation of stored responses by unsafe requests (RFC 9111 §4.4).

use smallvec::SmallVec;

use crate::fields::Fields;
use crate::key::Scheme;
use crate::reference::resolve;

/// Methods registered as safe. All others, also unknown ones, may change state.
const SAFE: [&str; 9] = [
    "GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY", "PRI",
];

/// Path and query of the urls that a response names.
pub type Locations = SmallVec<[Vec<u8>; 2]>;

/// Returns true if a response to this method invalidates the stored responses of its target URI. Error responses do
/// not.
pub fn invalidates(method: &http::Method, status: u16) -> bool {
    !SAFE.contains(&method.as_str()) && (200..400).contains(&status)
}

/// Path and query of `Location` and `Content-Location`, if they have the origin of the request; urls of other origins
/// must not be invalidated. Behind a TLS terminator a request has two `schemes`: the visitor's and the terminator's.
pub fn locations(
    response: Fields<'_>,
    schemes: &[Scheme],
    host: &[u8],
    base_path_and_query: &[u8],
) -> Locations {
    ["location", "content-location"]
        .into_iter()
        .filter_map(|name| response.get(name))
        .filter_map(|reference| resolve(reference, schemes, host, base_path_and_query))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::fields;

    #[test]
    fn unsafe_and_unknown_methods_invalidate_on_success() {
        for (method, status, expected) in [
            ("POST", 200, true),
            ("PUT", 204, true),
            ("DELETE", 301, true),
            ("PATCH", 399, true),
            ("FROBNICATE", 200, true),
            ("post", 200, true),
            ("POST", 199, false),
            ("POST", 400, false),
            ("POST", 500, false),
            ("GET", 200, false),
            ("HEAD", 200, false),
            ("OPTIONS", 200, false),
            ("PROPFIND", 207, false),
        ] {
            let method = http::Method::from_bytes(method.as_bytes()).expect("a method");
            assert_eq!(invalidates(&method, status), expected, "{method} {status}");
        }
    }

    #[test]
    fn both_fields_are_read() {
        let response = fields("Content-Location: /y\nLocation: /x");
        let found = locations(response.fields(), &[Scheme::Https], b"a", b"/");
        assert_eq!(found.as_slice(), [b"/x".to_vec(), b"/y".to_vec()]);
        assert!(locations(fields("").fields(), &[Scheme::Https], b"a", b"/").is_empty());
    }
}
