//! The token of a request.

use microcache_policy::key::split_query;
use microcache_policy::query::{parameters, takes_decoded};
use microcache_policy::{Fields, cookies};

use crate::form::pairs;
use crate::paths::{MERCURE_PATH, WATCH_PATH};

const SCHEME: &[u8] = b"Bearer ";

/// Returns a request target as it may be logged: without its query if that contains a token.
pub fn redacted_target(target: &[u8]) -> &[u8] {
    let mut with_tokens = [MERCURE_PATH, WATCH_PATH].into_iter();
    if !with_tokens.any(|path| target.starts_with(path.as_bytes())) {
        return target;
    }
    let (path, query) = split_query(target);
    let is_token = |it: &[u8]| {
        let mut parts = it.splitn(2, |&byte| byte == b'=');
        let is_named = parts
            .next()
            .is_some_and(|name| takes_decoded(b"authorization", name));
        is_named && parts.next().is_some_and(|value| !value.is_empty())
    };
    if query.into_iter().flat_map(parameters).any(is_token) {
        path
    } else {
        target
    }
}

/// The token of a request.
pub(crate) struct RequestToken {
    pub(crate) token: Vec<u8>,
    /// True if the browser added it on its own (a cookie), so that it does not prove the intent of the page.
    pub(crate) is_ambient: bool,
}

impl RequestToken {
    /// Extracts the token from `Authorization: Bearer`, else from the `authorization` parameter of the
    /// target's query, else from a cookie with one of these names.
    pub(crate) fn from_request(fields: Fields<'_>, target: &[u8], names: &[&[u8]]) -> Option<Self> {
        let in_field = fields.get("authorization").and_then(|value| {
            let (scheme, token) = value.split_at_checked(SCHEME.len())?;
            scheme
                .eq_ignore_ascii_case(SCHEME)
                .then(|| token.trim_ascii().to_vec())
        });
        let explicit = |token| Self {
            token,
            is_ambient: false,
        };
        if let Some(token) = in_field {
            return Some(explicit(token));
        }
        let (_, query) = split_query(target);
        let mut parameters = pairs(query.unwrap_or_default()).flatten();
        if let Some((_, token)) = parameters.find(|(name, _)| name == "authorization") {
            return Some(explicit(token.into_bytes()));
        }
        let lines = fields.all("cookie");
        let mut pairs = lines
            .flat_map(|line| line.split(|&byte| byte == b';'))
            .map(|pair| cookies::split(pair.trim_ascii()));
        let (_, token) = pairs.find(|(name, _)| names.contains(name))?;
        Some(Self {
            token: token.to_vec(),
            is_ambient: true,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_written_down() {
        for (target, expected) in [
            (
                "/.well-known/mercure?topic=a",
                "/.well-known/mercure?topic=a",
            ),
            (
                "/.well-known/mercure?topic=a&authorization=x",
                "/.well-known/mercure",
            ),
            (
                "/.well-known/mercure?%61uthorization=x",
                "/.well-known/mercure",
            ),
            // The parameter without a value only makes cookies not count.
            (
                "/.well-known/mercure?authorization",
                "/.well-known/mercure?authorization",
            ),
            ("/other?authorization=x", "/other?authorization=x"),
            (
                "/.well-known/microcache/watch?url=/a&authorization=x",
                "/.well-known/microcache/watch",
            ),
            (
                "/.well-known/microcache/watch?url=/a",
                "/.well-known/microcache/watch?url=/a",
            ),
        ] {
            let redacted = redacted_target(target.as_bytes());
            assert_eq!(String::from_utf8_lossy(redacted), expected, "{target}");
        }
    }
}
