//! The route of a request.
//!
//! It is chosen by the raw path. If an application may decode the path differently, and that reading takes
//! another route, the rules of one must not apply to pages of the other.

use http::Method;
use microcache_engine::{Bypass, Request, RouteMatch};
use microcache_policy::key::split_query;
use microcache_policy::readings::{is_plain, readings};

use crate::config::{Config, GoesTo, Route};

/// The routes of a configuration.
#[derive(Debug)]
pub(crate) struct Routing {
    routes: Vec<Route>,
    /// Some routes take some paths only.
    by_path: bool,
}

/// A path with several readings that take different routes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AmbiguousPath {
    /// Routes of all readings, that of the raw path first.
    pub(crate) routes: Vec<usize>,
    /// One of the routes controls access or removes fields, so the request is refused.
    pub(crate) is_refused: bool,
}

impl Routing {
    pub(crate) fn of(config: &Config) -> Self {
        let by_path = config.routes.iter().any(|it| it.matcher.goes_by_path());
        Self {
            routes: config.routes.clone(),
            by_path,
        }
    }

    /// Finds the route of a request. With a single route this costs almost nothing.
    pub(crate) fn find(&self, request: &Request<'_>) -> RouteMatch {
        let (method, host, target) = (request.method, request.host, request.target);
        let route = self.first(|route| route.matcher.matches(method, host, target));
        let bypass = if self.is_ambiguous(method, host, target) {
            Some(Bypass::Path)
        } else {
            let holds = self.routes[route].bypasses(request.fields, target);
            holds.then_some(Bypass::Condition)
        };
        RouteMatch { route, bypass }
    }

    #[inline]
    fn is_ambiguous(&self, method: &Method, host: &[u8], target: &[u8]) -> bool {
        self.by_path
            && !is_plain(split_query(target).0)
            && self.ambiguous(method, host, target).is_some()
    }

    /// Returns the routes of a request whose path is ambiguous, or contains a NUL.
    #[cold]
    pub(crate) fn ambiguous(
        &self,
        method: &Method,
        host: &[u8],
        target: &[u8],
    ) -> Option<AmbiguousPath> {
        let raw = self.first(|route| route.matcher.matches(method, host, target));
        let mut routes = vec![raw];
        let Some(readings) = readings(split_query(target).0) else {
            // Such a path is never meant, and the rules that apply are unknown.
            let is_refused = true;
            return Some(AmbiguousPath { routes, is_refused });
        };
        for reading in &readings[1..] {
            let route = self.first(|it| it.matcher.matches_reading(method, host, reading));
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
        let has_nul = readings.iter().any(|reading| reading.contains(&0));
        let is_refused = routes.iter().any(|&other| self.guards(other, raw));
        (has_nul || routes.len() > 1).then_some(AmbiguousPath { routes, is_refused })
    }

    /// Returns true if a route controls access, or its rules about request fields differ from those of the
    /// raw path's route.
    fn guards(&self, route: usize, raw: usize) -> bool {
        let (route, raw) = (&self.routes[route], &self.routes[raw]);
        let (rules, raw) = (&route.rules.request, &raw.rules.request);
        matches!(
            route.goes_to,
            GoesTo::Push | GoesTo::Watch | GoesTo::Mercure
        ) || rules.kept_fields != raw.kept_fields
            || rules.removed_fields != raw.removed_fields
    }

    /// The last route takes everything, so there always is one.
    fn first(&self, takes: impl Fn(&Route) -> bool) -> usize {
        let found = self.routes.iter().position(takes);
        found.unwrap_or(self.routes.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::Scheme;

    use super::*;
    use crate::config::Input;

    const ROUTES: &str = r#"
        origin = "http://127.0.0.1:3000"
        push = "/live/"
        routes = [
            { name = "static", match = { path = "/static/*" }, ignore_cookies = "*" },
            { name = "login", match = { path = "/login" }, rate = "5/m" },
            { name = "hook", match = { path = "/hook/*" }, keep_headers = ["X-Remote-User"] },
            { match = { path = "/caf%C3%A9/*" } },
            { name = "css", match = { path = "*.css" } },
        ]
    "#;

    fn routing(toml: &str) -> Routing {
        let input = Input {
            file: Some(("microcache.toml", toml)),
            ..Input::default()
        };
        Routing::of(&Config::read(input).expect("a configuration"))
    }

    /// The names of the routes of a GET, with `400` behind them where it is refused; nothing where the path is clear.
    fn check(routing: &Routing, target: &str) -> String {
        let request = Request::of_url(Scheme::Http, b"a", target.as_bytes());
        let ambiguous = routing.ambiguous(request.method, request.host, request.target);
        let found = routing.find(&request);
        assert_eq!(found.bypass.is_some(), ambiguous.is_some(), "{target}");
        let Some(ambiguous) = ambiguous else {
            return String::new();
        };
        assert_eq!(ambiguous.routes[0], found.route);
        let names = ambiguous
            .routes
            .iter()
            .map(|&route| &*routing.routes[route].name);
        let names: Vec<_> = names.chain(ambiguous.is_refused.then_some("400")).collect();
        names.join(" ")
    }

    #[test]
    fn a_path_that_another_route_would_take_by_another_reading_is_ambiguous() {
        let routing = routing(ROUTES);
        for (target, routes) in [
            ("/static/a", ""),
            ("/static/a%2fb/.c//d;e", ""),
            ("/static/a%20b?x=/../y", ""),
            ("/api/v4/projects/a%2Fb", ""),
            ("/@scope%2fpkg", ""),
            ("/caf%C3%A9/a%20b", ""),
            ("/static/..%2faccount", "static default"),
            ("/static/%2e%2e/account", "static default"),
            ("/static/..;/account", "static default"),
            ("/static/..%5caccount", "static default"),
            ("/static/%252e%252e%252faccount", "static default"),
            ("/static//../account", "static default"),
            ("/static/..%2flogin", "static login"),
            ("/x/..%2fstatic/a", "default static"),
            ("/%6cogin", "default login"),
            ("//login", "default login"),
            ("/./login", "default login"),
            ("/login;a", "default login"),
            ("/account;a.css", "css default"),
            ("/a%00b", "default"),
            ("/static/..%2flive/a", "static push /live/ 400"),
            ("//live/a", "default push /live/ 400"),
            ("/hook/..%2faccount", "hook default 400"),
            ("/x/..%2fhook/a", "default hook 400"),
        ] {
            assert_eq!(check(&routing, target), routes, "{target}");
        }
        let odd = "/a;%3f/%2e%2e/%255c;%252f//..%5c%3b//%2523/./x%25%32%65".repeat(3);
        assert_eq!(check(&routing, &odd), "default 400");
    }

    #[test]
    fn without_routes_by_path_no_path_is_ambiguous() {
        let routing = routing("origin = \"http://127.0.0.1:3000\"");
        let request = Request::of_url(Scheme::Http, b"a", b"/..%2f%00");
        assert_eq!(routing.find(&request).bypass, None);
    }
}
