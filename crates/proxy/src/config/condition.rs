//! Conditions on header fields, cookies, query parameters and paths.

use microcache_policy::key::split_query;
use microcache_policy::patterns::takes;
use microcache_policy::{Fields, cookies, glob, query};

/// A header field, cookie or parameter of a request, with any value or with one, or its path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub(super) part: Part,
    pub(super) name: String,
    pub(super) value: Option<String>,
}

/// The part of a request that a condition applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Header,
    Cookie,
    Query,
    /// The whole path, exactly.
    Path,
}

impl Condition {
    /// Returns the condition that a request has this path.
    pub(super) fn of_path(path: &[u8]) -> Self {
        Self {
            part: Part::Path,
            name: String::from_utf8_lossy(path).into_owned(),
            value: None,
        }
    }

    /// Returns whether it holds for a request.
    pub fn holds(&self, fields: Fields<'_>, path_and_query: &[u8]) -> bool {
        match self.part {
            Part::Header => match self.name.strip_suffix('*') {
                Some(beginning) => fields
                    .iter()
                    .any(|(name, value)| begins(name, beginning) && self.accepts(value)),
                None => fields.all(&self.name).any(|value| self.accepts(value)),
            },
            Part::Cookie => fields
                .all("cookie")
                .flat_map(cookies::in_any_reading)
                .any(|pair| self.is_cookie(pair.trim_ascii())),
            Part::Path => split_query(path_and_query).0 == self.name.as_bytes(),
            Part::Query => {
                let (_, query) = split_query(path_and_query);
                query
                    .into_iter()
                    .flat_map(query::parameters)
                    .flat_map(query::in_any_reading)
                    .any(|(name, value)| self.is_parameter(name, value))
            }
        }
    }

    /// Returns whether some program could read the pair as this cookie. Bypassing one request too many is the safe
    /// side.
    fn is_cookie(&self, pair: &[u8]) -> bool {
        let (name, value) = split_pair(pair);
        let wanted = self.name.as_bytes();
        (takes(wanted, name) || cookies::could_be_taken_by(wanted, name)) && self.accepts(value)
    }

    fn is_parameter(&self, name: &[u8], value: &[u8]) -> bool {
        let decoded = || query::decoded(value).collect::<Vec<u8>>();
        query::takes_decoded(self.name.as_bytes(), name)
            && (self.accepts(value) || self.accepts(&decoded()))
    }

    fn accepts(&self, value: &[u8]) -> bool {
        self.value
            .as_ref()
            .is_none_or(|wanted| glob::matches(wanted.as_bytes(), value))
    }
}

fn begins(name: &[u8], beginning: &str) -> bool {
    name.get(..beginning.len())
        .is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes()))
}

fn split_pair(pair: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b'=', pair) {
        Some(at) => (&pair[..at], &pair[at + 1..]),
        None => (pair, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(condition: &str, cookie: &str, target: &str) -> bool {
        let block = format!("Host: a\r\nX-Preview: yes\r\nCookie: {cookie}\r\n");
        Condition::parse(condition)
            .unwrap()
            .holds(Fields::new(block.as_bytes()), target.as_bytes())
    }

    #[test]
    fn conditions_look_at_headers_cookies_and_the_query() {
        assert!(check("header:x-preview", "", "/"));
        assert!(check("header:X-Preview=yes", "", "/"));
        assert!(!check("header:X-Preview=no", "", "/"));
        assert!(!check("header:X-Other", "", "/"));
        assert!(check("cookie:session", "a=1; session=x", "/"));
        assert!(check("cookie:a=1", "a=1; session=x", "/"));
        assert!(!check("cookie:a=2", "a=1; session=x", "/"));
        assert!(!check("cookie:sess", "a=1; session=x", "/"));
        assert!(check("query:draft", "", "/p?a=1&draft"));
        assert!(check("query:draft=1", "", "/p?draft=1"));
        assert!(!check("query:draft=1", "", "/p?draft=2"));
        assert!(!check("query:p", "", "/p"));
    }

    #[test]
    fn a_star_stands_for_any_rest() {
        assert!(check("header:X-Pre*", "", "/"));
        assert!(check("header:x-pre*=y*", "", "/"));
        assert!(!check("header:x-pre*=n*", "", "/"));
        assert!(!check("header:X-Preview-*", "", "/"));
        assert!(check("cookie:logged_in_*", "a=1; logged_in_0f=x", "/"));
        assert!(!check("cookie:logged_in_*", "a=1; logged_out=x", "/"));
        assert!(check("query:draft_*", "", "/p?a=1&draft_x=1"));
        assert!(check("query:draft=1*", "", "/p?draft=12"));
        assert!(check("query:*", "", "/p?a=1"));
        assert!(check("query:*", "", "/p?a"));
        assert!(!check("query:*", "a=1", "/p"));
        assert!(check("header:X-Preview=*e*", "", "/"));
        assert!(check("header:X-Preview=y*s", "", "/"));
        assert!(!check("header:X-Preview=*bot*", "", "/"));
        assert!(check("cookie:session=*x*", "session=axb", "/"));
        assert!(check("query:draft=*a b*", "", "/p?draft=1a%20b2"));
        for wrong in ["cookie:*", "header:*", "query:a*b", "header:a*b"] {
            assert!(Condition::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_condition_holds_in_any_reading_of_the_request() {
        for cookie in [
            "a=1,logged_in=x",
            "a=1 logged_in=x",
            "a=\"1; logged_in=x\"",
            "logged.in=x",
            "Logged_In=x",
            "logged%5fin=x",
            "logged_in[a]=x",
        ] {
            assert!(check("cookie:logged_in", cookie, "/"), "{cookie}");
        }
        assert!(!check(
            "cookie:logged_in",
            "not_logged_in=1; a=logged_in",
            "/"
        ));
        for target in ["/?dr%61ft=1", "/?a=1;draft=1", "/?draft=%31", "/?draft=1;a"] {
            assert!(check("query:draft=1", "", target), "{target}");
        }
        assert!(!check("query:draft", "", "/?a=draft"));
    }
}
