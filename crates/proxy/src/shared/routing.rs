//! The route of a request.
//!
//! It is chosen by the raw path. If an application may decode the path differently, and that reading takes
//! another route, the rules of one must not apply to pages of the other.

use std::net::IpAddr;

use microcache_engine::{Bypass, FindRoute, Request, RouteMatch};
use microcache_policy::key::split_query;
use microcache_policy::readings::{is_plain, readings};

use crate::config::{Cidr, Config, GoesTo, MatchInput, Matcher, Route, RouteIndex};
use crate::session::forwarding::client_address;

/// The routes of a configuration.
#[derive(Debug)]
pub(crate) struct Routing {
    routes: Vec<Route>,
    index: RouteIndex,
    /// Some routes take some paths only.
    by_path: bool,
    /// Some routes take some clients only.
    by_client: bool,
    trusted_proxies: Vec<Cidr>,
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
        let mut matchers = config.routes.iter().map(|route| &route.matcher);
        Self {
            index: RouteIndex::of(matchers.clone()),
            by_path: matchers.clone().any(Matcher::goes_by_path),
            by_client: matchers.any(Matcher::goes_by_client),
            trusted_proxies: config.trusted_proxies.clone(),
            routes: config.routes.clone(),
        }
    }

    #[inline]
    fn is_ambiguous(&self, request: &Request<'_>, input: &MatchInput<'_>) -> bool {
        self.by_path
            && input.raw_path().is_some_and(|path| !is_plain(path))
            && self.ambiguous(request).is_some()
    }

    /// Returns the routes of a request whose path is ambiguous, or contains a NUL.
    #[cold]
    pub(crate) fn ambiguous(&self, request: &Request<'_>) -> Option<AmbiguousPath> {
        let input = self.input(request);
        let raw = self.first(&input);
        let mut routes = vec![raw];
        let Some(readings) = readings(split_query(request.target).0) else {
            // Such a path is never meant, and the rules that apply are unknown.
            let is_refused = true;
            return Some(AmbiguousPath { routes, is_refused });
        };
        for reading in &readings[1..] {
            let route = self.first(&input.reading(reading));
            if !routes.contains(&route) {
                routes.push(route);
            }
        }
        let has_nul = readings.iter().any(|reading| reading.contains(&0));
        let is_refused = routes.iter().any(|&other| self.guards(other, raw));
        (has_nul || routes.len() > 1).then_some(AmbiguousPath { routes, is_refused })
    }

    /// Returns true if a route controls access, or its rules about clients or request fields differ from those of the
    /// raw path's route.
    fn guards(&self, route: usize, raw: usize) -> bool {
        let (route, raw) = (&self.routes[route], &self.routes[raw]);
        let has_other_access = !route.has_access_of(raw);
        let (rules, raw) = (&route.rules.request, &raw.rules.request);
        matches!(
            route.goes_to,
            GoesTo::Push | GoesTo::Watch | GoesTo::Mercure
        ) || matches!(&route.goes_to, GoesTo::Respond(response) if response.is_refusal())
            || has_other_access
            || rules.kept_fields != raw.kept_fields
            || rules.removed_fields != raw.removed_fields
    }

    fn input<'a>(&self, request: &'a Request<'a>) -> MatchInput<'a> {
        MatchInput::new(request, self.client(request))
    }

    /// Returns the client's address, if a route asks for it.
    fn client(&self, request: &Request<'_>) -> Option<IpAddr> {
        let peer = self.by_client.then(|| request.address.parse().ok())??;
        Some(client_address(
            peer,
            request.is_trusted,
            request.fields,
            &self.trusted_proxies,
        ))
    }

    /// The last route takes everything, so there always is one.
    fn first(&self, input: &MatchInput<'_>) -> usize {
        let takes = |&route: &usize| self.routes[route].matcher.matches(input);
        let mut candidates = self.index.candidates(input);
        candidates.find(takes).unwrap_or(self.routes.len() - 1)
    }
}

impl FindRoute for Routing {
    fn find(&self, request: &Request<'_>) -> RouteMatch {
        // A single route takes everything, whatever the path is read as.
        let (route, is_ambiguous) = if self.routes.len() == 1 {
            (0, false)
        } else {
            let input = self.input(request);
            (self.first(&input), self.is_ambiguous(request, &input))
        };
        let bypass = if is_ambiguous {
            Some(Bypass::Path)
        } else {
            let holds = self.routes[route].bypasses(request.fields, request.target);
            holds.then_some(Bypass::Condition)
        };
        RouteMatch { route, bypass }
    }

    fn all_of_url(&self, request: &Request<'_>) -> Vec<usize> {
        let input = MatchInput::new(request, None);
        let mut all = Vec::new();
        for (index, route) in self.routes.iter().enumerate() {
            if route.matcher.may_match_url(&input) {
                all.push(index);
                if !route.matcher.goes_by_more_than_url() {
                    break;
                }
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use microcache_policy::{Fields, Scheme};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::config::Input;

    const ROUTES: &str = r#"
        origin = "http://127.0.0.1:3000"
        push = "/live/"
        routes = [
            { name = "static", match = { path = "/static/*" }, ignore_cookies = "*" },
            { name = "login", match = { path = "/login" }, rate = "5/m" },
            { name = "hook", match = { path = "/hook/*" }, keep_headers = ["X-Remote-User"] },
            { name = "admin", match = { path = "/admin/*" }, allow = "192.0.2.0/24" },
            { match = { path = "/caf%C3%A9/*" } },
            { name = "css", match = { path = "*.css" } },
            { name = "secret", match = { path = "*/.env*" }, respond = { status = 403 } },
            { name = "gone", match = { path = "/gone/*" }, redirect = { to = "/" } },
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
        let ambiguous = routing.ambiguous(&request);
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
            ("/%2eenv", "default secret 400"),
            ("/a/%252eenv.local", "default secret 400"),
            ("/.env/../account", "secret default 400"),
            ("/x/..%2fgone/a", "default gone"),
            ("/x/..%2fhook/a", "default hook 400"),
            ("/admin/a%20b", ""),
            ("/x/..%2fadmin/a", "default admin 400"),
            ("/admin/..%2faccount", "admin default 400"),
            ("//admin/a", "default admin 400"),
            ("/%61dmin/a", "default admin 400"),
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

    const CONDITIONS: &str = r#"
        origin = "http://127.0.0.1:3000"
        trusted_proxies = "10.0.0.0/8"
        routes = [
            { name = "beta", match = { cookie = "beta=1", path = "/app/*" } },
            { name = "mobile", match = { header = "User-Agent=*Mobile*", path = "/app/*" } },
            { name = "json", match = { query = "format=json" } },
            { name = "office", match = { client = ["192.0.2.0/24", "2001:db8::/32"], path = "/admin/*" } },
            { name = "plain", match = { scheme = "http", host = "secure.example" } },
            { name = "shop", match = { host = "shop.example", not = { path = ["/cart", "/account/*"] } } },
            { name = "either", match = { any = [{ host = "a.example" }, { path = "/a/*" }], method = "GET" } },
            { name = "exact", match = { path = "/login" } },
            { name = "deep", match = { path = ["/x/*", "/y/z"] } },
            { name = "wp", match = { path = "/wp-*" } },
        ]
    "#;

    #[test]
    fn all_conditions_must_hold() {
        let routing = routing(CONDITIONS);
        let take = |url: &str, fields: &str, address: &str, is_trusted: bool| {
            let (scheme, rest) = url.split_once("://").expect("a url");
            let (host, target) = rest.split_at(rest.find('/').expect("a path"));
            let scheme = if scheme == "https" {
                Scheme::Https
            } else {
                Scheme::Http
            };
            let request = Request {
                fields: Fields::new(fields.as_bytes()),
                address,
                is_trusted,
                ..Request::of_url(scheme, host.as_bytes(), target.as_bytes())
            };
            routing.routes[routing.find(&request).route].name.clone()
        };
        for (url, fields, expected) in [
            ("http://a/app/1", "Cookie: beta=1\r\n", "beta"),
            ("http://a/app/1", "Cookie: beta=2\r\n", "default"),
            ("http://a/app/1", "User-Agent: X (Mobile; 1)\r\n", "mobile"),
            ("http://a/", "User-Agent: X (Mobile; 1)\r\n", "default"),
            ("http://a/?a=1&format=json", "", "json"),
            ("http://secure.example/", "", "plain"),
            ("https://secure.example/", "", "default"),
            ("http://Shop.Example:8080/p", "", "shop"),
            ("http://shop.example./cart", "", "default"),
            ("http://shop.example/account/1", "", "default"),
            ("http://a.example/", "", "either"),
            ("http://b/a/1", "", "either"),
            ("http://b/a", "", "default"),
            ("http://b/login", "", "exact"),
            ("http://b/login/", "", "default"),
            ("http://b/x/1", "", "deep"),
            ("http://b/y/z", "", "deep"),
            ("http://b/y/z/", "", "default"),
            ("http://b/wp-admin/x", "", "wp"),
            ("http://b/wp-login.php", "", "wp"),
        ] {
            assert_eq!(
                take(url, fields, "203.0.113.1", false),
                expected,
                "{url} {fields}"
            );
        }
        let admin = |fields: &str, address, is_trusted| {
            take("http://a/admin/", fields, address, is_trusted)
        };
        assert_eq!(admin("", "192.0.2.9", false), "office");
        assert_eq!(admin("", "2001:db8::1", false), "office");
        assert_eq!(admin("", "unknown", false), "default");
        let named = "X-Forwarded-For: 198.51.100.1, 192.0.2.9\r\n";
        assert_eq!(admin(named, "10.0.0.1", true), "office");
        assert_eq!(admin(named, "203.0.113.1", false), "default");
        let claimed = "X-Forwarded-For: 192.0.2.9, 198.51.100.1\r\n";
        assert_eq!(admin(claimed, "10.0.0.1", true), "default");
    }

    #[test]
    fn a_url_has_all_routes_that_its_requests_may_take() {
        let routing = routing(CONDITIONS);
        let names = |host: &[u8], target: &[u8]| {
            let all = routing.all_of_url(&Request::of_url(Scheme::Http, host, target));
            let names = all.into_iter().map(|route| &*routing.routes[route].name);
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(b"b", b"/app/1"), "beta mobile json default");
        assert_eq!(names(b"shop.example", b"/p"), "json shop");
        assert_eq!(names(b"shop.example", b"/cart"), "json default");
    }

    #[test]
    fn requests_that_share_a_url_but_no_route_share_no_entry() {
        let routing = routing(CONDITIONS);
        let is_apart = |route: &&Route| route.rules.key.route.is_some();
        let apart = routing
            .routes
            .iter()
            .filter(is_apart)
            .map(|route| &*route.name);
        let apart: Vec<_> = apart.collect();
        assert_eq!(apart, ["beta", "mobile", "json", "office", "plain"]);
    }

    proptest! {
        /// The index leaves no route out.
        #[test]
        fn the_index_finds_the_same_route_as_a_walk(
            patterns in vec(("(|a|b|\\*\\.a)", "(|/|/\\*|\\*|/x|/x/\\*|/x/y|/x\\*|\\*y|/y/\\*|\\*x/\\*y)"), 0..70),
            host in "(a|b|c\\.a|A:80|a\\.)",
            path in "/(|x|y|x/|x/y|xy|y/x/y)",
        ) {
            let route = |(host, path): &(String, String)| {
                let mut matcher = Matcher::default();
                matcher.set_for_test(host, path);
                let config = Config::read(Input { urls: &["http://o".to_owned()], ..Input::default() }).unwrap();
                let mut route = config.routes[0].clone();
                route.matcher = matcher;
                route
            };
            let mut routes: Vec<_> = patterns.iter().map(route).collect();
            routes.push(route(&(String::new(), String::new())));
            let request = Request::of_url(Scheme::Http, host.as_bytes(), path.as_bytes());
            let input = MatchInput::new(&request, None);
            let walked = routes.iter().position(|route| route.matcher.matches(&input));
            let index = RouteIndex::of(routes.iter().map(|route| &route.matcher));
            let found = index.candidates(&input).find(|&it| routes[it].matcher.matches(&input));
            prop_assert_eq!(found, walked);
        }
    }
}
