//! Routes: order, inheritance, conditions.

use http::Method;
use microcache_engine::Request;
use microcache_policy::browser_cache::BrowserTtl;
use microcache_policy::rules::Query;
use microcache_policy::tracking::TRACKING_PARAMETERS;
use microcache_policy::{Coding, Patterns, Scheme};

use super::super::*;
use super::{FILE, check, read, route_of};

#[test]
fn routes_match_in_order_and_inherit() {
    let config = read(
        r#"
        ttl = "5s"
        max_concurrent = 9
        ignore_cookies = ["theme"]
        [upstreams.app]
        servers = ["http://a:1", { url = "http://b:2", weight = 3, backup = true }]
        [upstreams.blog]
        servers = "http://c:3"
        max_concurrent = 2
        [[routes]]
        name = "css"
        match = { path = ["*.css", "*.js"], method = "GET" }
        upstream = "app"
        forced_ttl = "1h"
        [[routes]]
        match = { host = "*.blog.com", path = "/*" }
        upstream = "blog"
        set_cookie = "strip"
        key = { query = { ignore = ["utm_*"] }, cookies = ["lang"] }
        status_ttl = { 404 = "10s" }
        [[routes]]
        name = "rest"
        upstream = "app"
        pass = true
        "#,
    );
    let name = |method: Method, host: &str, target: &str| {
        let url = Request::of_url(Scheme::Http, host.as_bytes(), target.as_bytes());
        let request = Request {
            method: &method,
            ..url
        };
        config.routes[route_of(&config, &request)].name.as_str()
    };
    assert_eq!(name(Method::GET, "www.blog.com", "/a.css?x=/y"), "css");
    assert_eq!(name(Method::HEAD, "www.blog.com", "/a.css"), "css");
    assert_eq!(name(Method::POST, "WWW.blog.com:8080", "/a.css"), "route 2");
    assert_eq!(name(Method::GET, "www.blog.com", "/a?b=.css"), "route 2");
    assert_eq!(name(Method::GET, "blog.com", "/"), "rest");
    assert_eq!(name(Method::OPTIONS, "blog.com", "*"), "rest");

    let [css, blog, rest] = &config.routes[..] else {
        panic!("three routes, and no default: {:?}", config.routes);
    };
    assert_eq!(css.rules.forced_ttl, Some(3_600_000));
    assert_eq!((css.rules.ttl, blog.rules.ttl), (5000, 5000));
    assert_eq!(blog.rules.set_cookie, microcache_policy::SetCookie::Strip);
    assert_eq!(blog.rules.status_ttl, [(404, 10_000)]);
    assert_eq!(blog.rules.key.cookies, ["lang"]);
    assert!(blog.rules.cookies_ignored.matches(b"theme"));
    assert!(rest.pass && !css.pass);
    let goes_to = [css, blog, rest].map(|route| route.goes_to.clone());
    assert_eq!(goes_to, [0, 1, 0].map(GoesTo::Upstream));
    assert_eq!(config.upstreams[0].max_concurrent, 9);
    assert_eq!(config.upstreams[1].max_concurrent, 2);
    assert!(config.upstreams[0].servers[1].backup);
    assert_eq!(config.upstreams[0].servers[1].weight, 3);
}

#[test]
fn a_route_may_omit_forced_values_of_the_top_level() {
    let config = read(
        r#"
        origin = "http://a:1"
        forced_ttl = "1h"
        [[routes]]
        match = { path = "/news/*" }
        forced_ttl = "origin"
        "#,
    );
    let forced: Vec<_> = config.routes.iter().map(|r| r.rules.forced_ttl).collect();
    assert_eq!(forced, [None, Some(3_600_000)]);
}

#[test]
fn a_default_route_takes_the_rest() {
    let config = read(
        "origin = \"http://a\"\nttl = \"4s\"\n[[routes]]\nmatch = { host = \"x.com\" }\npass = true",
    );
    let route = &config.routes[route_of(&config, &Request::of_url(Scheme::Http, b"y.com", b"/"))];
    assert_eq!(
        (route.name.as_str(), route.rules.ttl, route.pass),
        ("default", 4000, false)
    );
}

#[test]
fn several_groups_need_a_route_for_the_rest() {
    let groups = "[upstreams]\na = { servers = \"http://a\" }\nb = { servers = \"http://b\" }\n";
    let read = |routes: &str| {
        let text = format!("{groups}{routes}");
        let result = Config::read(Input {
            file: Some((FILE, &text)),
            ..Input::default()
        });
        result.map_err(|report| report.to_string())
    };
    let route = "[[routes]]\nmatch = { host = \"a.com\" }\nupstream = \"a\"\n";
    let rest = "[[routes]]\nupstream = \"b\"\n";
    for routes in ["", route] {
        let report = read(routes).unwrap_err();
        assert!(
            report.contains("no route matches all other requests"),
            "{report}"
        );
    }
    let config = read(&format!("{route}{rest}")).unwrap();
    let upstream = |host: &[u8]| {
        let number = route_of(&config, &Request::of_url(Scheme::Http, host, b"/"));
        config.routes[number].goes_to.clone()
    };
    let expected = [0, 1].map(GoesTo::Upstream);
    assert_eq!([upstream(b"a.com"), upstream(b"c.com")], expected);
}

#[test]
fn a_route_inherits_compression_except_with_precompressed_files() {
    let folder = std::env::temp_dir();
    let text = format!(
        "compress = [\"br\", \"gzip\", \"br\"]\ncompress_min = \"2KiB\"\norigin = \"http://a\"\n\
         [[routes]]\nmatch = {{ path = \"/a\" }}\ncompress = []\n\
         [[routes]]\nmatch = {{ path = \"/b\" }}\nroot = {folder:?}\nprecompressed = true\n"
    );
    let config = read(&text);
    let compress = |number: usize| &config.routes[number].rules.compress;
    assert!(!compress(0).is_on() && !compress(1).is_on());
    assert_eq!(compress(2).codings, [Coding::Brotli, Coding::Gzip]);
    assert_eq!(compress(0).smallest, 2048);
}

#[test]
fn a_route_may_have_a_directory_instead_of_an_upstream_group() {
    let folder = std::env::temp_dir();
    let root = format!("root = {folder:?}");
    let text = format!("[[routes]]\n{root}\nindex = \"home.html\"\nprecompressed = true\n");
    let config = read(&text);
    let expected = GoesTo::Files(crate::files::Root {
        folder,
        index: "home.html".to_owned(),
        precompressed: true,
    });
    assert_eq!(config.routes[0].goes_to, expected);
    // By default the query is not part of a file's key, so that a file is stored once; `key = {}` includes it.
    let query = |text: &str| read(text).routes[0].rules.key.query.clone();
    assert_ne!(query(&text), Query::All);
    assert_eq!(query(&format!("{text}key = {{}}\n")), Query::All);
    let refused = |text: &str| {
        let input = Input {
            file: Some((FILE, text)),
            ..Input::default()
        };
        Config::read(input).expect_err("a mistake").to_string()
    };
    for (text, expected) in [
        (
            format!("[[routes]]\n{root}\nmatch = {{ path = \"/a/*\" }}\n"),
            "no route matches all other requests",
        ),
        (
            format!(
                "origin = \"http://o\"\n[[routes]]\nmatch = {{ path = \"/a/*\" }}\n{root}\nupstream = \"origin\"\n"
            ),
            "exclude each other",
        ),
        (
            "origin = \"http://o\"\n[[routes]]\nindex = \"a.html\"\n".to_owned(),
            "has no effect without `root`",
        ),
        (
            "[[routes]]\nroot = \"/no/such/directory\"\n".to_owned(),
            "cannot use the directory",
        ),
        (
            format!("[[routes]]\n{root}\nindex = \"../secret\"\n"),
            "write a file name",
        ),
    ] {
        let report = refused(&text);
        assert!(report.contains(expected), "{text}: {report}");
    }
}

#[test]
fn routes() {
    check(
        "[upstreams.app]\nservers = \"http://a\"\n[[routes]]\nupstream = \"ap\"",
        &[
            "4:12: no upstream group is named \"ap\"",
            "= did you mean \"app\"?",
        ],
    );
    check(
        "[[routes]]\nname = \"x\"\nmatch = { path = \"/a\" }\n[[routes]]\nname = \"x\"\nmatch = { path = \"/b\" }",
        &["5:8: the name \"x\" is used by an earlier route"],
    );
    check(
        "[[routes]]\nmatch = { path = \"/a/*\" }\n[[routes]]\nmatch = { host = \"a.com\", path = [\"/a/b\", \"/a/*.css\"] }",
        &[
            "4:9: this route is never reached: \"route 1\" above matches all of its requests",
            "= move it up",
        ],
    );
    check(
        "[[routes]]\n[[routes]]\nmatch = { method = \"POST\" }",
        &[
            "3:9: this route is never reached: \"route 1\" above matches all of its requests",
            "= move it up",
        ],
    );
    check(
        "[[routes]]\nmatch = { path = \"/a\" }\n[[routes]]\nmatch = { path = [\"/a\", \"/b\"] }",
        &[],
    );
    check(
        "[[routes]]\nmatch = { host = \"a b\", path = \"x\", method = \"get\" }\n[[routes]]\nmatch = { path = \"/a\" }",
        &[
            "2:18: cannot use \"a b\"",
            "= not a host name: write \"example.com\" or \"*.example.com\"",
            "2:32: cannot use \"x\"",
            "= a path must begin with `/` or `*`: write \"/x\" or \"*x\"",
            "2:46: cannot use \"get\"",
            "= methods are case-sensitive: write \"GET\"",
        ],
    );
    check(
        "[[routes]]\nmatch = { host = \"a.com:80\" }",
        &[
            "2:18: cannot use \"a.com:80\"",
            "= remove the port: routes match the name only",
        ],
    );
    check(
        "[[routes]]\nmatch = { path = [] }",
        &["2:18: the list is empty", "= remove it to match all"],
    );
    check(
        "[[routes]]\nmatch = { path = \"/a?b\" }",
        &[
            "2:18: cannot use \"/a?b\"",
            "= a route matches the path only: remove `?`, `#` and the text after it",
        ],
    );
    check(
        "[[routes]]\npass = true\nttl = \"1s\"",
        &["3:7: `ttl` has no effect with `pass = true`"],
    );
    check(
        "bypass = \"session\"",
        &[
            "1:10: cannot use \"session\"",
            "= write \"cookie:NAME\", \"header:NAME\" or \"query:NAME\", with =VALUE if it must be equal",
        ],
    );
    check(
        "routes = 3",
        &["1:10: expected a table of names and values, such as { name = value }, found 3"],
    );
}

#[test]
fn options_of_a_route_about_requests() {
    let config = read(
        "origin = \"http://a\"\nremove_cookies = [\"_ga\", \"t_*\"]\nremove_headers = [\"X-Spy-*\", \"From\"]\n\
         keep_headers = [\"api_key\", \"x-original-*\"]\n\
         key = { query = { only = \"a\", forward = \"whole\" }, headers = \"X-Geo-*\", cookies = \"*\" }",
    );
    let rules = &config.routes[0].rules;
    assert!(rules.request.removed_cookies.matches(b"t_1"));
    assert!(rules.request.removed_fields.matches(b"from"));
    assert!(rules.request.kept_fields.matches(b"API_KEY"));
    assert!(rules.key.whole_query && !rules.key.sort);
    assert_eq!(rules.key.headers, ["X-Geo-*"]);
    assert_eq!(rules.key.cookies, ["*"]);
    let query = |of: &str| {
        read(&format!(
            "origin = \"http://a\"\nkey = {{ query = {{ {of} }} }}"
        ))
        .routes[0]
            .rules
            .key
            .clone()
    };
    let tracking: Patterns = TRACKING_PARAMETERS.iter().collect();
    let key = query("ignore = \"tracking\", sort = true");
    assert_eq!((key.query, key.sort), (Query::Except(tracking), true));
    let Query::Except(patterns) = query("ignore = [\"a\", \"tracking\"]").query else {
        panic!("there are exceptions");
    };
    for (name, expected) in [
        ("a", true),
        ("utm_x", true),
        ("gclid", true),
        ("tracking", false),
        ("b", false),
    ] {
        assert_eq!(patterns.matches(name.as_bytes()), expected, "{name}");
    }
}

#[test]
fn match_conditions_that_contradict_are_mistakes() {
    let check_match = |conditions: &str, expected: &[&str]| {
        check(&format!("[[routes]]\nmatch = {{ {conditions} }}"), expected);
    };
    check_match(
        r#"path = "/a/*", not = { path = "/a/*" }"#,
        &[
            "2:9: no request can match: `not` excludes all that the other conditions take",
            "= remove a condition, or the route",
        ],
    );
    check_match(
        r#"not = { not = { path = "/a" } }"#,
        &[
            "2:17: `any` and `not` cannot stand inside `not`",
            "= write two routes",
        ],
    );
    check_match(
        "any = [{}]",
        &[
            "2:18: a table without a condition in `any`",
            "= add one, such as path = \"/a/*\"",
        ],
    );
    check_match(
        r#"header = { X-A = "1" }"#,
        &[
            "2:20: expected text in quotes, found a table",
            "= write header = \"X-A=1\"",
        ],
    );
    check_match(
        r#"cookie = { a = "1*", b = true }"#,
        &[
            "2:20: expected text in quotes, found a table",
            "= write cookie = [\"a=1*\", \"b\"], of which one must hold",
        ],
    );
    check_match(
        r#"scheme = "ftp""#,
        &[r#"2:20: expected one of "http", "https", found "ftp""#],
    );
}

#[test]
fn header_rules_are_inherited_by_name() {
    let config = read(
        r#"
        origin = "http://a"
        response_headers = { set = { X-Frame-Options = "DENY", X-A = "1" }, remove = ["Server"] }
        request_headers = { set = { X-Real-IP = "{client_address}", X-Env = "live" } }
        browser_ttl = "1m"
        routes = [
            { match = { path = "/a/*" }, response_headers = { set = { x-frame-options = "SAMEORIGIN" } }, request_headers = { set = { x-env = "a" } }, browser_ttl = "origin" },
        ]
        "#,
    );
    let names = |route: &Route| {
        let edits = route.response_headers.iter();
        let set = edits.flat_map(|edits| edits.set.iter().map(|edit| edit.name.clone()));
        set.collect::<Vec<_>>().join(" ")
    };
    let [own, rest] = &config.routes[..] else {
        panic!("two routes");
    };
    assert_eq!(names(own), "X-A x-frame-options");
    assert_eq!(names(rest), "X-Frame-Options X-A");
    assert!(own.response_headers[0].removed.matches(b"server"));
    let sent = |route: &Route| route.rules.request.set_fields.len();
    assert_eq!((sent(own), sent(rest)), (2, 2));
    let ttls = (own.browser.ttl, rest.browser.ttl);
    assert_eq!(ttls, (BrowserTtl::Origin, BrowserTtl::Seconds(60)));
}

#[test]
fn header_rules_that_would_change_the_message_are_mistakes() {
    check(
        "response_headers = { set = { Cache-Control = \"public\" } }",
        &[
            "1:30: `Cache-Control` cannot be set",
            "= it decides about caching: see `browser_ttl` and `ttl`",
        ],
    );
    check(
        "response_headers = { remove = [\"Content-Length\"] }",
        &[
            "1:32: cannot use \"Content-Length\"",
            "= it describes the message itself",
        ],
    );
    check(
        "response_headers = { add = { X-A = \"{clock}\" } }",
        &[
            "1:36: cannot use \"{clock}\"",
            "= placeholders are {client_address}, {host}, {scheme}, {request_id}, \
             {client_certificate_subject}, {client_certificate_fingerprint}",
        ],
    );
    check(
        "request_headers = { set = { Cookie = \"a=1\" } }",
        &[
            "1:29: `Cookie` cannot be set",
            "= it would make one client's identity that of all",
        ],
    );
}
