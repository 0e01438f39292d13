//! Validators of a page, and conditional requests.

use std::time::{Duration, SystemTime};

use http::HeaderMap;
use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH};

/// Validators of one version of a page (RFC 9110 §8.8).
#[derive(Debug)]
pub(super) struct Validators {
    pub(super) etag: Option<String>,
    pub(super) last_modified: Option<SystemTime>,
}

impl Validators {
    /// Returns whether the request's preconditions match this version (RFC 9110 §13.2.2).
    pub(super) fn has(&self, request: &HeaderMap) -> bool {
        let tags: Vec<&str> = request
            .get_all(IF_NONE_MATCH)
            .iter()
            .filter_map(|tags| tags.to_str().ok())
            .collect();
        if !tags.is_empty() {
            return self
                .etag
                .as_deref()
                .is_some_and(|etag| matches_any(&tags, etag));
        }
        let since = request
            .get(IF_MODIFIED_SINCE)
            .and_then(|date| date.to_str().ok())
            .and_then(|date| httpdate::parse_http_date(date).ok());
        match (since, self.last_modified) {
            // HTTP dates have a resolution of one second.
            (Some(since), Some(modified)) => modified < since + Duration::from_secs(1),
            _ => false,
        }
    }
}

/// Weak comparison with a list of entity tags. Our own contain no comma, so the list may be split at commas.
fn matches_any(tags: &[&str], etag: &str) -> bool {
    tags.iter()
        .flat_map(|tags| tags.split(','))
        .map(|tag| tag.trim().trim_start_matches("W/"))
        .any(|tag| tag == "*" || tag == etag)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(field: &'static str, value: &str, has: bool) {
        let validators = Validators {
            etag: Some("\"a\"".to_owned()),
            last_modified: Some(SystemTime::UNIX_EPOCH + Duration::from_millis(10_500)),
        };
        let mut request = HeaderMap::new();
        request.insert(field, value.parse().expect("a field"));
        assert_eq!(validators.has(&request), has, "{field}: {value}");
    }

    #[test]
    fn requests_name_a_version() {
        check("if-none-match", "\"a\"", true);
        check("if-none-match", "\"b\", W/\"a\"", true);
        check("if-none-match", "*", true);
        check("if-none-match", "\"b\"", false);
        check("if-modified-since", "Thu, 01 Jan 1970 00:00:10 GMT", true);
        check("if-modified-since", "Thu, 01 Jan 1970 00:00:09 GMT", false);
        check("if-modified-since", "yesterday", false);
        check("accept", "*/*", false);
    }
}
