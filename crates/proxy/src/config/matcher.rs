//! Match conditions of routes.

use std::net::IpAddr;

use http::Method;
use microcache_engine::Request;
use microcache_policy::Scheme;
use microcache_policy::key::split_query;

use super::cidr::Cidr;
use super::condition::Condition;
use super::pattern::{Glob, HostPattern};

/// A request, as match conditions see it.
#[derive(Clone, Copy)]
pub(crate) struct MatchInput<'a> {
    request: &'a Request<'a>,
    path: PathInput<'a>,
    /// The client's address, if a route asks for it and it is known.
    client: Option<IpAddr>,
}

#[derive(Clone, Copy)]
enum PathInput<'a> {
    /// As sent.
    Raw(&'a [u8]),
    /// A reading of it.
    Reading(&'a [u8]),
}

impl<'a> MatchInput<'a> {
    /// A request with its raw path.
    pub(crate) fn new(request: &'a Request<'a>, client: Option<IpAddr>) -> Self {
        Self {
            request,
            path: PathInput::Raw(split_query(request.target).0),
            client,
        }
    }

    /// The same request with this reading of its path.
    pub(crate) const fn reading(self, reading: &'a [u8]) -> Self {
        Self {
            path: PathInput::Reading(reading),
            ..self
        }
    }

    /// The raw path, if it is matched.
    pub(crate) const fn raw_path(&self) -> Option<&'a [u8]> {
        match self.path {
            PathInput::Raw(path) => Some(path),
            PathInput::Reading(_) => None,
        }
    }

    /// The host, in any case and with or without a port.
    pub(crate) const fn host(&self) -> &'a [u8] {
        self.request.host
    }
}

/// The match conditions of a route. All must hold; an empty list matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Matcher {
    pub(super) hosts: Vec<HostPattern>,
    pub(super) paths: Vec<Glob>,
    pub(super) methods: Vec<Method>,
    pub(super) headers: Vec<Condition>,
    pub(super) cookies: Vec<Condition>,
    pub(super) queries: Vec<Condition>,
    pub(super) clients: Vec<Cidr>,
    pub(super) scheme: Option<Scheme>,
    /// Alternatives, of which one must match.
    pub(super) any: Vec<Self>,
    /// Exceptions, of which none may match.
    pub(super) not: Vec<Self>,
}

impl Matcher {
    /// Returns whether a request matches.
    pub(crate) fn matches(&self, input: &MatchInput<'_>) -> bool {
        self.takes_method(input.request.method)
            && self.takes_host(input.request.host)
            && self.takes_path(input.path)
            && (self.has_no_rest() || self.takes_rest(input))
    }

    #[inline]
    fn has_no_rest(&self) -> bool {
        self.scheme.is_none()
            && self.clients.is_empty()
            && self.headers.is_empty()
            && self.cookies.is_empty()
            && self.queries.is_empty()
            && self.any.is_empty()
            && self.not.is_empty()
    }

    #[inline(never)]
    fn takes_rest(&self, input: &MatchInput<'_>) -> bool {
        let holds = |conditions: &[Condition]| {
            let (fields, target) = (input.request.fields, input.request.target);
            let mut each = conditions.iter();
            conditions.is_empty() || each.any(|condition| condition.holds(fields, target))
        };
        let is_in = |blocks: &[Cidr]| {
            let mut each = blocks.iter();
            blocks.is_empty()
                || input
                    .client
                    .is_some_and(|address| each.any(|block| block.contains(address)))
        };
        self.scheme
            .is_none_or(|scheme| scheme == input.request.scheme)
            && is_in(&self.clients)
            && holds(&self.headers)
            && holds(&self.cookies)
            && holds(&self.queries)
            && (self.any.is_empty() || self.any.iter().any(|it| it.matches(input)))
            && !self.not.iter().any(|it| it.matches(input))
    }

    /// Returns the text that the stars of the first pattern that matches a raw path stand for.
    pub(super) fn captures<'a>(&self, path: &'a [u8]) -> Vec<&'a [u8]> {
        let mut patterns = self.paths.iter();
        patterns
            .find_map(|pattern| pattern.captures(path))
            .unwrap_or_default()
    }

    /// Returns the number of stars that all path patterns have at least.
    pub(super) fn stars(&self) -> usize {
        self.paths.iter().map(Glob::stars).min().unwrap_or(0)
    }

    #[cfg(test)]
    pub(crate) fn set_for_test(&mut self, host: &str, path: &str) {
        self.hosts = HostPattern::parse(host).into_iter().collect();
        self.paths = Glob::parse(path).into_iter().collect();
    }

    /// Returns whether a request for the url of this one may match, with whatever other fields.
    pub(crate) fn may_match_url(&self, input: &MatchInput<'_>) -> bool {
        self.takes_method(input.request.method)
            && self.takes_host(input.request.host)
            && self.takes_path(input.path)
            && (self.any.is_empty() || self.any.iter().any(|it| it.may_match_url(input)))
            && !self
                .not
                .iter()
                .any(|it| !it.goes_by_more_than_url() && it.matches(input))
    }

    /// Returns the hosts that match, in lower case; `None` if there is a pattern.
    pub(super) fn exact_hosts(&self) -> Option<Vec<Vec<u8>>> {
        let exact = self.hosts.iter().map(HostPattern::exact);
        exact.map(|host| host.map(<[u8]>::to_vec)).collect()
    }

    /// Returns the first segments of the paths that match; `None` if there is a pattern in one.
    pub(super) fn path_segments(&self) -> Option<Vec<Vec<u8>>> {
        let segments = self.paths.iter().map(Glob::segment);
        segments
            .map(|segment| segment.map(<[u8]>::to_vec))
            .collect()
    }

    /// Returns the last bytes of the paths that match; `None` if one ends with a star.
    pub(super) fn path_ends(&self) -> Option<Vec<u8>> {
        self.paths.iter().map(Glob::end).collect()
    }

    /// Returns the texts of the first pattern for hosts and of the first for paths.
    pub(super) fn first_patterns(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        let host = self.hosts.first().map(HostPattern::as_bytes);
        (host, self.paths.first().map(Glob::as_bytes))
    }

    /// Returns whether it restricts the path.
    pub(crate) fn goes_by_path(&self) -> bool {
        !self.paths.is_empty() || self.parts().any(Self::goes_by_path)
    }

    /// Returns whether it asks for the client's address.
    pub(crate) fn goes_by_client(&self) -> bool {
        !self.clients.is_empty() || self.parts().any(Self::goes_by_client)
    }

    /// Returns whether requests for one url may match or not: its responses are stored apart from those of other
    /// routes.
    pub(crate) fn goes_by_more_than_url(&self) -> bool {
        self.goes_by_request()
            || self.scheme.is_some()
            || self.parts().any(Self::goes_by_more_than_url)
    }

    /// Returns whether it asks for a field, a cookie, a parameter or the client's address.
    pub(super) fn goes_by_request(&self) -> bool {
        let conditions = [&self.headers, &self.cookies, &self.queries];
        conditions.iter().any(|it| !it.is_empty())
            || !self.clients.is_empty()
            || self.parts().any(Self::goes_by_request)
    }

    /// Returns whether it has alternatives or exceptions.
    pub(super) fn has_parts(&self) -> bool {
        self.parts().next().is_some()
    }

    fn parts(&self) -> impl Iterator<Item = &Self> {
        self.any.iter().chain(&self.not)
    }

    /// Returns whether it matches every request.
    pub fn is_everything(&self) -> bool {
        self.covers(&Self::default())
    }

    /// Returns whether it certainly matches every request that `other` matches.
    pub(super) fn covers(&self, other: &Self) -> bool {
        covers(&self.hosts, &other.hosts, HostPattern::covers)
            && covers(&self.paths, &other.paths, Glob::covers)
            && covers(&self.methods, &other.methods, |a, b| a == b)
            && covers(&self.headers, &other.headers, |a, b| a == b)
            && covers(&self.cookies, &other.cookies, |a, b| a == b)
            && covers(&self.queries, &other.queries, |a, b| a == b)
            && covers(&self.clients, &other.clients, Cidr::covers)
            && (self.scheme.is_none() || self.scheme == other.scheme)
            && (self.any.is_empty()
                || self.any == other.any
                || self.any.iter().any(|it| it.covers(other)))
            && self.not.iter().all(|it| other.not.contains(it))
    }

    /// Returns whether no request can match, because an exception takes all that the other conditions take.
    pub(super) fn is_nothing(&self) -> bool {
        self.not.iter().any(|it| it.covers(self))
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

    fn takes_path(&self, path: PathInput<'_>) -> bool {
        let mut patterns = self.paths.iter();
        self.paths.is_empty()
            || match path {
                PathInput::Raw(path) => patterns.any(|pattern| pattern.matches(path)),
                PathInput::Reading(path) => patterns.any(|pattern| pattern.matches_reading(path)),
            }
    }
}

fn covers<T>(wide: &[T], narrow: &[T], one_covers: impl Fn(&T, &T) -> bool) -> bool {
    let covered = |n: &T| wide.iter().any(|w| one_covers(w, n));
    wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(covered))
}
