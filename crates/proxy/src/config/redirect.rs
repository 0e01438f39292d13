//! Redirects of routes.

use microcache_engine::Request;
use microcache_policy::key::split_query;
use microcache_policy::url_template::{UrlTemplate, UrlValues};

use super::matcher::Matcher;

/// A redirect: the target and the status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    pub(super) to: UrlTemplate,
    /// 301, 302, 303, 307 or 308.
    pub(crate) status: u16,
}

impl Redirect {
    /// Returns the `Location` for a request that these conditions matched, or `None` if its host or target admit none.
    pub(crate) fn location(&self, request: &Request<'_>, matcher: &Matcher) -> Option<Vec<u8>> {
        resolve(&self.to, request, matcher)
    }

    /// Returns true if the host of the request is a part of the target.
    pub(crate) fn has_host(&self) -> bool {
        self.to.has_host()
    }
}

/// Returns the URL that a template makes of a request.
pub(super) fn resolve(
    template: &UrlTemplate,
    request: &Request<'_>,
    matcher: &Matcher,
) -> Option<Vec<u8>> {
    let (path, query) = split_query(request.target);
    template.resolve(&UrlValues {
        scheme: request.scheme,
        host: request.host,
        path,
        query,
        captures: &matcher.captures(path),
    })
}
