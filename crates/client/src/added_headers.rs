//! The headers that a reqwest client adds to each request behind the cache.
//!
//! reqwest has no accessor for them. Their values are only visible in the `Debug` output of a client, except sensitive
//! ones. A value that cannot be parsed there counts as credentials of this client alone: the cache then shares less,
//! never more.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;

use http::header::{AUTHORIZATION, COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use microcache_policy::{FieldsBuf, is_identity};

/// The headers that a client adds, as seen by the cache. It travels in the extensions of a request.
#[derive(Clone, Debug)]
pub(crate) struct AddedHeaders {
    lines: Arc<[(HeaderName, HeaderValue)]>,
    has_credentials: bool,
}

impl AddedHeaders {
    /// The headers of this client.
    pub(crate) fn of(client: &reqwest::Client) -> Self {
        Self::shown_in(&format!("{client:?}"))
    }

    fn shown_in(text: &str) -> Self {
        let own = own_value();
        let read = default_headers(text, &own);
        let mut lines = read.unwrap_or_else(|| vec![(AUTHORIZATION, own.clone())]);
        let has_credentials = lines.iter().any(|(name, _)| is_credential(name));
        if text.contains("cookie_store: true") {
            lines.push((COOKIE, own));
        }
        for (_, value) in lines.iter_mut().filter(|(name, _)| is_credential(name)) {
            value.set_sensitive(true);
        }
        Self {
            lines: lines.into(),
            has_credentials,
        }
    }

    /// Returns true if reqwest adds credentials to requests to any site.
    pub(crate) const fn have_credentials(&self) -> bool {
        self.has_credentials
    }

    /// Appends the headers that reqwest will add to a request with these headers.
    pub(crate) fn push_to(&self, fields: &mut FieldsBuf, headers: &HeaderMap) {
        for (name, value) in self.lines.iter() {
            if !headers.contains_key(name) {
                fields.push(name.as_str(), value);
            }
        }
    }
}

/// Returns true for a header that is removed when a redirect leads to another site.
pub(crate) fn is_credential(name: &HeaderName) -> bool {
    name == COOKIE || is_identity(name.as_str().as_bytes())
}

/// A value that no other client has, in this process or another.
fn own_value() -> HeaderValue {
    let half = || RandomState::new().hash_one("client");
    let text = format!("client {:016x}{:016x}", half(), half());
    HeaderValue::from_str(&text).expect("letters and digits")
}

/// Parses the default headers in the `Debug` output of a client, with `own` for hidden values. `None` if it contains a
/// `\`, which is ambiguous there, or anything unexpected.
fn default_headers(text: &str, own: &HeaderValue) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let (_, mut rest) = text.split_once("default_headers: {")?;
    let mut lines = Vec::new();
    if text.matches("default_headers: {").count() > 1 {
        return None;
    }
    if rest.starts_with('}') {
        return Some(lines);
    }
    loop {
        let (name, after) = rest.strip_prefix('"')?.split_once("\": ")?;
        let (value, after) = if let Some(after) = after.strip_prefix("Sensitive") {
            (own.clone(), after)
        } else {
            let (value, after) = after.strip_prefix('"')?.split_once('"')?;
            if value.contains('\\') {
                return None;
            }
            (value.parse().ok()?, after)
        };
        lines.push((name.parse().ok()?, value));
        rest = match after.strip_prefix(", ") {
            Some(rest) => rest,
            None => return after.starts_with('}').then_some(lines),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines added by a client with this `Debug` output, with `OWN` for hidden values.
    fn lines(text: &str) -> Vec<String> {
        let added = AddedHeaders::shown_in(text);
        let line = |(name, value): &(HeaderName, HeaderValue)| {
            let value = value.to_str().expect("text");
            let is_own = value.starts_with("client ");
            format!("{name}: {}", if is_own { "OWN" } else { value })
        };
        added.lines.iter().map(line).collect()
    }

    fn of(builder: reqwest::ClientBuilder) -> Vec<String> {
        lines(&format!("{:?}", builder.build().expect("a client")))
    }

    fn map(lines: &[(&'static str, HeaderValue)]) -> HeaderMap {
        let lines = lines.iter().cloned();
        let named = lines.map(|(name, value)| (HeaderName::from_static(name), value));
        named.collect()
    }

    #[test]
    fn default_headers_of_a_client_of_reqwest_are_read() {
        let _may_be_there = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let builder = reqwest::Client::builder;
        assert_eq!(of(builder()), ["accept: */*"]);
        let several = map(&[
            ("x-api-key", HeaderValue::from_static("a: {b}, c")),
            ("accept-language", HeaderValue::from_static("de")),
        ]);
        assert_eq!(
            of(builder().user_agent("me/1").default_headers(several)),
            [
                "accept: */*",
                "user-agent: me/1",
                "x-api-key: a: {b}, c",
                "accept-language: de"
            ]
        );
        let mut hidden = HeaderValue::from_static("Bearer a");
        hidden.set_sensitive(true);
        let hidden = map(&[("authorization", hidden)]);
        assert_eq!(
            of(builder().default_headers(hidden)),
            ["accept: */*", "authorization: OWN"]
        );
    }

    #[test]
    fn headers_that_cannot_be_read_are_credentials_of_one_client() {
        let _may_be_there = rustls::crypto::aws_lc_rs::default_provider().install_default();
        for value in [&b"a\\"[..], b"\"a\"", b"caf\xe9", b"\", \"b\": \""] {
            let value = HeaderValue::from_bytes(value).expect("a value");
            let headers = map(&[("x-odd", value)]);
            let builder = reqwest::Client::builder().default_headers(headers);
            assert_eq!(of(builder), ["authorization: OWN"]);
        }
        for text in [
            "Client",
            "Client { default_headers: [] }",
            "Client { default_headers: {\"a\": \"b\"",
            "Client { default_headers: {\"a\": b} }",
            "Client { default_headers: {}, default_headers: {} }",
        ] {
            assert_eq!(lines(text), ["authorization: OWN"], "{text}");
        }
        assert_eq!(
            lines("Client { cookie_store: true, default_headers: {} }"),
            ["cookie: OWN"]
        );
        let value = |added: AddedHeaders| added.lines[0].1.clone();
        let (one, other) = (AddedHeaders::shown_in(""), AddedHeaders::shown_in(""));
        assert_eq!(value(one.clone()), value(one.clone()));
        assert_ne!(value(one), value(other));
    }

    #[test]
    fn cookies_of_a_store_go_to_their_own_site_alone() {
        let store = "Client { cookie_store: true, default_headers: {\"accept\": \"*/*\"} }";
        assert!(!AddedHeaders::shown_in(store).have_credentials());
        for name in ["cookie", "x-api-key", "proxy-authorization"] {
            let text = format!("Client {{ default_headers: {{\"{name}\": \"a\"}} }}");
            assert!(AddedHeaders::shown_in(&text).have_credentials(), "{name}");
        }
        assert!(AddedHeaders::shown_in("").have_credentials());
    }
}
