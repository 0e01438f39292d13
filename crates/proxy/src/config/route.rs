//! Routes: match conditions, destinations and rules.

use http::Method;
use microcache_policy::key::split_query;
use microcache_policy::patterns::takes;
use microcache_policy::rules::Query;
use microcache_policy::{Fields, KeyRules, Rules, cookies, glob, query};

use super::pattern::{Glob, HostPattern};
use super::rate::Rate;
use crate::files::Root;

/// A route: its conditions, its destination, and its rules.
#[derive(Clone, Debug)]
pub struct Route {
    /// The match conditions.
    pub matcher: Matcher,
    /// The destination of its requests.
    pub goes_to: GoesTo,
    /// The caching rules.
    pub rules: Rules,
    /// Caching is off: everything goes to the origin.
    pub pass: bool,
    /// Simultaneous misses of an entry are coalesced to one fetch.
    pub collapse: bool,
    /// Change notifications for its pages.
    pub watch: Watching,
    /// Conditions under which a request bypasses the cache.
    pub bypass: Vec<Condition>,
    /// The maximum size of a stored body in bytes; by default a sixteenth of the memory.
    pub max_object: Option<u64>,
    /// The maximum size of a request body in bytes; no limit by default.
    pub max_body: Option<u64>,
    /// The rate limit.
    pub rate: Rate,
    /// The name in logs and metrics.
    pub name: String,
}

/// The change notifications of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watching {
    /// None.
    #[default]
    Off,
    /// Watches the stored response for changes.
    Stored,
    /// As above; and the page is revalidated as long as it has subscribers.
    Refresh,
}

/// The destination of requests that the cache does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoesTo {
    /// The upstream group with this index in the configuration.
    Upstream(usize),
    /// A directory of static files.
    Files(Root),
    /// Documents of the push cache.
    Push,
    /// Event streams about documents and pages.
    Watch,
    /// The Mercure hub.
    Mercure,
}

impl Route {
    /// Returns a route of this process, for one pattern of paths.
    pub(super) fn builtin(name: String, path: Glob, goes_to: GoesTo) -> Self {
        let mut rules = Rules {
            key: KeyRules {
                query: Query::Only(<_>::default()),
                ..KeyRules::default()
            },
            ..Rules::default()
        };
        // Documents do not depend on cookies and other fields of browsers.
        rules.cookies_ignored.push("*");
        Self {
            matcher: Matcher {
                paths: vec![path],
                ..Matcher::default()
            },
            goes_to,
            rules,
            pass: false,
            collapse: false,
            watch: Watching::Off,
            bypass: Vec::new(),
            max_object: None,
            max_body: None,
            rate: Rate::default(),
            name,
        }
    }

    /// Returns whether a bypass condition holds for a request.
    pub fn bypasses(&self, fields: Fields<'_>, path_and_query: &[u8]) -> bool {
        self.bypass
            .iter()
            .any(|condition| condition.holds(fields, path_and_query))
    }
}

/// The match conditions of a route. An empty list matches everything.
#[derive(Clone, Debug, Default)]
pub struct Matcher {
    pub(super) hosts: Vec<HostPattern>,
    pub(super) paths: Vec<Glob>,
    pub(super) methods: Vec<Method>,
}

impl Matcher {
    /// Returns whether a request matches. The host may be in any case and have a port.
    pub fn matches(&self, method: &Method, host: &[u8], path_and_query: &[u8]) -> bool {
        self.takes_method(method) && self.takes_host(host) && self.takes_path(path_and_query)
    }

    /// Returns whether a request matches with this reading of its path.
    pub(crate) fn matches_reading(&self, method: &Method, host: &[u8], reading: &[u8]) -> bool {
        let mut paths = self.paths.iter();
        self.takes_method(method)
            && self.takes_host(host)
            && (!self.goes_by_path() || paths.any(|pattern| pattern.matches_reading(reading)))
    }

    /// Returns whether it restricts the path.
    pub(crate) fn goes_by_path(&self) -> bool {
        !self.paths.is_empty()
    }

    /// Returns whether it matches every request.
    pub fn is_everything(&self) -> bool {
        self.covers(&Self::default())
    }

    /// Returns whether it matches every request that `other` matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        covers(&self.hosts, &other.hosts, HostPattern::covers)
            && covers(&self.paths, &other.paths, Glob::covers)
            && covers(&self.methods, &other.methods, |a, b| a == b)
    }

    /// Returns whether methods match. HEAD is served from stored GET responses, so it follows GET.
    fn takes_method(&self, method: &Method) -> bool {
        self.methods.is_empty()
            || self.methods.contains(method)
            || (*method == Method::HEAD && self.methods.contains(&Method::GET))
    }

    fn takes_host(&self, host: &[u8]) -> bool {
        self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host))
    }

    fn takes_path(&self, path_and_query: &[u8]) -> bool {
        if self.paths.is_empty() {
            return true;
        }
        let (path, _) = split_query(path_and_query);
        self.paths.iter().any(|pattern| pattern.matches(path))
    }
}

fn covers<T>(wide: &[T], narrow: &[T], one_covers: impl Fn(&T, &T) -> bool) -> bool {
    let covered = |n: &T| wide.iter().any(|w| one_covers(w, n));
    wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(covered))
}

/// A header field, cookie or parameter of a request, with any value or with one.
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
}

impl Condition {
    /// Returns whether it holds for a request.
    pub fn holds(&self, fields: Fields<'_>, path_and_query: &[u8]) -> bool {
        match self.part {
            Part::Header => fields
                .iter()
                .any(|(name, value)| self.is_field(name) && self.accepts(value)),
            Part::Cookie => fields
                .all("cookie")
                .flat_map(cookies::in_any_reading)
                .any(|pair| self.is_cookie(pair.trim_ascii())),
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

    fn is_field(&self, name: &[u8]) -> bool {
        match self.name.strip_suffix('*') {
            Some(beginning) => name
                .get(..beginning.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(beginning.as_bytes())),
            None => name.eq_ignore_ascii_case(self.name.as_bytes()),
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
