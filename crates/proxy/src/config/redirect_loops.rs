//! Redirects that lead back to themselves, found by following each for an example of its requests.

use microcache_engine::Request;
use microcache_policy::Scheme;
use microcache_policy::key::split_query;

use super::matcher::MatchInput;
use super::route::{GoesTo, Route};

/// The most redirects that browsers follow.
const MOST_FOLLOWED: usize = 20;

/// Text for the stars of patterns.
const STAR: &str = "x~";

/// A URL in its parts.
#[derive(Clone)]
struct FollowedUrl {
    scheme: Scheme,
    host: String,
    target: String,
}

/// Returns a URL of this route that is redirected over and over, if one certainly is: neither request fields nor the
/// client's address, nor another server, could end it.
pub(super) fn looping_url(routes: &[Route], route: usize, has_tls: bool) -> Option<String> {
    let matcher = &routes[route].matcher;
    let scheme = matcher.scheme.unwrap_or(Scheme::Http);
    let host = match matcher.hosts.first() {
        Some(host) => host.example("sub"),
        None => "host.invalid".to_owned(),
    };
    let mut examples: Vec<_> = matcher
        .paths
        .iter()
        .map(|path| path.example(STAR))
        .collect();
    if examples.is_empty() {
        examples.push(format!("/{STAR}"));
    }
    let looping = examples.into_iter().find(|path| {
        let (host, target) = (host.clone(), path.clone());
        let mut url = FollowedUrl {
            scheme,
            host,
            target,
        };
        // The first request may have taken an earlier route.
        (0..MOST_FOLLOWED).all(|_| match follow(routes, &url, has_tls) {
            Some(next) => {
                url = next;
                true
            }
            None => false,
        })
    });
    looping.map(|path| format!("{}://{host}{path}", scheme.as_str()))
}

/// Returns the target of a redirect, if this URL certainly has one that is certainly served here.
fn follow(routes: &[Route], url: &FollowedUrl, has_tls: bool) -> Option<FollowedUrl> {
    let (host, target) = (url.host.as_bytes(), url.target.as_bytes());
    let request = Request::of_url(url.scheme, host, target);
    let input = MatchInput::new(&request, None);
    let mut routes_of_url = routes.iter().filter(|it| it.matcher.may_match_url(&input));
    let route = routes_of_url
        .find(|it| it.matcher.goes_by_request() || it.matcher.matches(&input))
        .filter(|it| !it.matcher.goes_by_request())?;
    let GoesTo::Redirect(redirect) = &route.goes_to else {
        return None;
    };
    let location = String::from_utf8(redirect.location(&request, &route.matcher)?).ok()?;
    let location = location.split('#').next().unwrap_or_default();
    if location.starts_with('/') {
        let target = location.to_owned();
        return Some(FollowedUrl {
            target,
            ..url.clone()
        });
    }
    let (scheme, rest) = location.split_once("://")?;
    let scheme = match scheme {
        "https" => Scheme::Https,
        _ => Scheme::Http,
    };
    let (host, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let is_same = host == url.host;
    let is_named = || {
        let mut hosts = routes.iter().flat_map(|it| &it.matcher.hosts);
        hosts.any(|pattern| pattern.matches(host.as_bytes()))
    };
    let is_served_here = (scheme == url.scheme || has_tls) && (is_same || is_named());
    let target = match split_query(target.as_bytes()) {
        (b"", _) => format!("/{target}"),
        _ => target.to_owned(),
    };
    is_served_here.then(|| FollowedUrl {
        scheme,
        host: host.to_owned(),
        target,
    })
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Input};

    fn check(routes: &str, expected: &[&str]) {
        let text = format!("origin = \"http://o:3000\"\nroutes = [\n{routes}\n]\n");
        let input = Input {
            file: Some(("f", &text)),
            ..Input::default()
        };
        let report =
            Config::read(input).map_or_else(|report| report.to_string(), |_| String::new());
        let found = report.lines().filter(|line| line.contains("over and over"));
        let urls: Vec<_> = found.filter_map(|line| line.split('`').nth(1)).collect();
        assert_eq!(urls, expected, "{routes}\n{report}");
    }

    #[test]
    fn a_redirect_that_certainly_comes_back_is_found() {
        for (routes, url) in [
            (r#"{ redirect = { to = "/" } }"#, "http://host.invalid/x~"),
            (
                r#"{ match = { path = "/a/*" }, redirect = { to = "/a/b/{1}" } }"#,
                "http://host.invalid/a/x~",
            ),
            (
                r#"{ match = { path = "/a" }, redirect = { to = "{path}?b" } }"#,
                "http://host.invalid/a",
            ),
            (
                r#"{ match = { host = "a.example" }, redirect = { to = "http://a.example{path}" } }"#,
                "http://a.example/x~",
            ),
            (
                r#"{ match = { host = "*.a.example" }, redirect = { to = "{scheme}://www.{host}{path}" } }"#,
                "http://sub.a.example/x~",
            ),
            (
                r#"{ redirect = { to = "http://{host}{path}" } }"#,
                "http://host.invalid/x~",
            ),
        ] {
            check(routes, &[url]);
        }
        let two = r#"{ match = { path = "/a" }, redirect = { to = "/b" } },
            { match = { path = "/b" }, redirect = { to = "/a" } }"#;
        check(two, &["http://host.invalid/a", "http://host.invalid/b"]);
    }

    #[test]
    fn a_redirect_that_may_end_is_allowed() {
        for routes in [
            r#"{ redirect = { to = "https://{host}{path}" } }"#,
            r#"{ redirect = { to = "https://new.example{path}" } }"#,
            r#"{ match = { host = "a.example" }, redirect = { to = "{scheme}://www.{host}{path}" } }"#,
            r#"{ match = { host = "www.a.example" }, redirect = { to = "https://a.example{path}" } }"#,
            r#"{ match = { path = "/a/*" }, redirect = { to = "/b/{1}" } }"#,
            r#"{ match = { path = "*.html" }, redirect = { to = "/{1}" } }"#,
            r#"{ match = { cookie = "beta" }, redirect = { to = "/beta" } }"#,
            r#"{ match = { path = "/beta" }, ttl = "1s" }, { redirect = { to = "/beta" } }"#,
            r#"{ match = { not = { path = "/soon" } }, redirect = { to = "/soon" } }"#,
        ] {
            check(routes, &[]);
        }
    }
}
