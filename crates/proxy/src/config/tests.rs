//! Whole files in, configurations or reports out.

use std::time::Duration;

use http::Method;
use microcache_engine::Request;
use microcache_policy::browser_cache::BrowserTtl;
use microcache_policy::rules::Query;
use microcache_policy::tracking::TRACKING_PARAMETERS;
use microcache_policy::{Coding, Patterns, Scheme, Separator};
use microcache_push::SyncPolicy;
use microcache_testkit::Folder;

use super::mistake::Mistakes;
use super::*;

const FILE: &str = "microcache.toml";

fn read(text: &str) -> Config {
    let input = Input {
        file: Some((FILE, text)),
        ..Input::default()
    };
    Config::read(input).unwrap_or_else(|report| panic!("{report}"))
}

/// Returns the index of the route that a request takes.
fn route_of(config: &Config, request: &Request<'_>) -> usize {
    let input = MatchInput::new(request, None);
    let mut routes = config.routes.iter();
    let found = routes.position(|route| route.matcher.matches(&input));
    found.expect("the last route takes everything")
}

/// Reads a file that names an origin at its end, and compares the first line of every mistake and
/// its remedy.
fn check(text: &str, expected: &[&str]) {
    let text = format!("{text}\n");
    let input = Input {
        file: Some((FILE, &text)),
        urls: &["http://o".to_owned()],
        flags: &[],
    };
    let report = match Config::read(input) {
        Ok(_) => String::new(),
        Err(report) => report.to_string(),
    };
    let messages: Vec<String> = report
        .lines()
        .filter_map(|line| match line.strip_prefix(FILE) {
            Some(mistake) => Some(mistake.trim_start_matches(':').to_owned()),
            None => line
                .trim_start()
                .strip_prefix("= ")
                .map(|remedy| format!("= {remedy}")),
        })
        .collect();
    assert_eq!(messages, expected, "of:\n{text}\nreport:\n{report}");
}

#[test]
fn one_url_is_enough() {
    let config = Config::read(Input {
        urls: &["http://localhost:3000".to_owned()],
        ..Input::default()
    })
    .unwrap();
    assert_eq!(config.listen, ["127.0.0.1:8080".parse().unwrap()]);
    assert!(config.threads >= 1);
    assert_eq!(config.memory, 256 << 20);
    assert_eq!(config.upstreams.len(), 1);
    let server = &config.upstreams[0].servers[0];
    assert_eq!(server.address.to_string(), "localhost:3000");
    assert_eq!(config.routes.len(), 1);
    assert!(config.routes[0].matcher.is_everything());
    assert_eq!(config.hit_for_miss, 2000);
    assert_eq!(config.stale_wait, 2000);
    assert_eq!(config.limits.head_bytes, 32 << 10);
    assert_eq!(config.limits.max_connections, None);
    assert_eq!(config.timeouts.idle, Duration::from_secs(75));
}

#[test]
fn the_tables_and_the_crates_agree_on_defaults() {
    let config = read("origin = \"http://a\"");
    assert_eq!(config.routes[0].rules, microcache_policy::Rules::default());
    let group = &config.upstreams[0];
    let expected = GroupSettings::new("origin", group.servers.clone());
    assert_eq!(group, &expected);
    let config = read("origin = \"http://a\"\nhealth_check = {}");
    let expected = crate::upstream::settings::HealthCheck::default();
    assert_eq!(config.upstreams[0].health, Some(expected));
}

#[test]
fn lists_on_the_command_line_take_commas() {
    let owned = |texts: &[&str]| {
        texts
            .iter()
            .map(|&text| text.to_owned())
            .collect::<Vec<_>>()
    };
    let config = Config::read(Input {
        urls: &owned(&["http://a,http://b:81", "http://c"]),
        flags: &[
            ("listen", owned(&["127.0.0.1:1, [::1]:2", "127.0.0.1:3"])),
            ("trusted_proxies", owned(&["10.0.0.0/8,::1"])),
            ("memcached", owned(&["a:11211,b:11211"])),
            ("ignore_cookies", owned(&["theme,b_*"])),
            ("targeted", owned(&["A-Control,B-Control"])),
            ("tag_fields", owned(&["X-A=space,X-B,XKEY"])),
            (
                "bypass",
                owned(&["header:Accept=a,b,cookie:c, query:d=e,f"]),
            ),
        ],
        ..Input::default()
    });
    let config = config.unwrap_or_else(|report| panic!("{report}"));
    assert_eq!(config.listen.len(), 3);
    assert_eq!(config.upstreams[0].servers.len(), 3);
    assert_eq!(config.trusted_proxies.len(), 2);
    assert_eq!(config.tiers.memcached.len(), 2);
    let rules = &config.routes[0].rules;
    let is_ignored = |name: &str| rules.cookies_ignored.matches(name.as_bytes());
    assert!(is_ignored("theme") && is_ignored("b_x"));
    assert_eq!(rules.targeted, ["A-Control", "B-Control"]);
    let tag_fields = rules.tag_fields.iter();
    let tag_fields = tag_fields.map(|field| (field.name.as_str(), field.separator));
    let expected = [
        ("X-A", Separator::Space),
        ("X-B", Separator::Comma),
        ("XKEY", Separator::CommaOrSpace),
    ];
    assert_eq!(tag_fields.collect::<Vec<_>>(), expected);
    let values: Vec<_> = config.routes[0]
        .bypass
        .iter()
        .map(|one| one.value.as_deref())
        .collect();
    assert_eq!(values, [Some("a,b"), None, Some("e,f")]);
    // A password may have a comma.
    let config = Config::read(Input {
        urls: &owned(&["http://a"]),
        flags: &[("redis", owned(&["redis://u:p,w@a,rediss://b,unix:///c,d"]))],
        ..Input::default()
    });
    let redis = config
        .unwrap_or_else(|report| panic!("{report}"))
        .tiers
        .redis;
    assert_eq!(redis, ["redis://u:p,w@a", "rediss://b", "unix:///c,d"]);
}

#[test]
fn an_option_in_the_wrong_table_is_reported_with_the_right_one() {
    check(
        "[[routes]]\nmatch = { path = \"/a\", ttl = \"1s\" }\nkey = { pass = true, query = { name = \"x\" } }",
        &[
            "2:24: unknown option `ttl`",
            "= it belongs to the route: next to `match`, not inside it",
            "3:9: unknown option `pass`",
            "= it belongs to the route: next to `key`, not inside it",
            "3:32: unknown option `name`",
            "= it belongs to the route: next to `key`, not inside it",
        ],
    );
    check(
        "[[routes]]\npath = \"/a\"\ncookies = \"a\"",
        &[
            "2:1: unknown option `path`",
            "= it belongs inside `match`: match = { path = [\"/blog/*\", \"*.css\"] }",
            "3:1: unknown option `cookies`",
            "= it belongs inside `key`: key = { cookies = [\"currency\"] }",
        ],
    );
}

#[test]
fn flags_override_the_file() {
    let input = Input {
        file: Some((
            FILE,
            "origin = \"http://a\"\nlisten = \"0.0.0.0:1\"\nttl = \"5s\"\nstale_if_error = \"1h\"\nthreads = 7\n\
             [[routes]]\nmatch = { path = \"/a\" }\nttl = \"7s\"",
        )),
        urls: &["http://b".to_owned(), "http://c:81".to_owned()],
        flags: &[
            ("ttl", vec!["3s".to_owned()]),
            (
                "listen",
                vec!["127.0.0.1:2".to_owned(), "127.0.0.1:3".to_owned()],
            ),
            ("threads", vec!["2".to_owned()]),
            ("max_concurrent", vec!["5".to_owned()]),
        ],
    };
    let config = Config::read(input).unwrap();
    let addresses: Vec<_> = config.upstreams[0]
        .servers
        .iter()
        .map(|server| server.address.to_string())
        .collect();
    assert_eq!(addresses, ["b:80", "c:81"]);
    assert_eq!(config.upstreams[0].max_concurrent, 5);
    assert_eq!(config.listen.len(), 2);
    assert_eq!(config.threads, 2);
    assert_eq!(
        config.routes[0].rules.ttl, 7000,
        "a route's own word is the nearest"
    );
    assert_eq!(config.routes[1].rules.ttl, 3000);
    assert_eq!(config.routes[1].rules.stale_if_error, 3_600_000);
}

#[test]
fn bad_flags_are_named() {
    let report = Config::read(Input {
        file: None,
        urls: &["localhost:3000".to_owned()],
        flags: &[
            ("ttl", vec!["1 sec".to_owned()]),
            ("threads", vec!["many".to_owned()]),
            ("listen", vec!["8080".to_owned()]),
        ],
    })
    .unwrap_err();
    assert_eq!(report.count(), 4);
    assert_eq!(
        report.to_string(),
        "--listen: cannot use \"8080\"; write an IP address and a port: 127.0.0.1:8080 for this machine only, \
         0.0.0.0:8080 for all\n\
         --threads: expected a number from 1 to 1024, found many\n\
         --ttl: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found \"1 sec\"\n\
         origin: cannot use \"localhost:3000\"; write http://localhost:3000"
    );
}

#[test]
fn with_acme_the_default_addresses_are_ports_80_and_443() {
    let of = |text: &str| {
        let config = read(&format!("origin = \"http://a\"\n{text}"));
        let ports = |all: &[SocketAddr]| all.iter().map(SocketAddr::port).collect::<Vec<_>>();
        let tls = &config.tls;
        (ports(&config.listen), ports(&tls.listen), tls.secure_port())
    };
    let (all, none) = (vec![80], Vec::new());
    assert_eq!(
        of("acme = \"a.example\""),
        (all.clone(), vec![443], Some(443))
    );
    let said = "acme = \"a.example\"\nredirect_http = false";
    assert_eq!(of(said), (all, vec![443], None));
    let said = "acme = \"a.example\"\nlisten = \"127.0.0.1:81\"";
    assert_eq!(of(said), (vec![81], vec![443], None));
    let said = "acme = \"a.example\"\ntls_listen = \"127.0.0.1:444\"";
    assert_eq!(of(said), (vec![8080], vec![444], None));
    assert_eq!(of("tls = \"a.pem\""), (vec![8080], vec![8443], None));
    assert_eq!(of(""), (vec![8080], none, None));
    let names =
        "acme = [\"Shop.Example.\", \"xn--bcher-kva.example\", \"192.0.2.1\", \"[2001:DB8::1]\"]";
    let read = read(&format!("origin = \"http://a\"\n{names}"));
    let names = [
        "shop.example",
        "xn--bcher-kva.example",
        "192.0.2.1",
        "2001:db8::1",
    ];
    assert_eq!(read.acme.names, names);
    assert!(read.acme.directory.starts_with("https://acme-v02."));
}

#[test]
fn names_and_authorities_that_cannot_be_used_are_refused() {
    check(
        "acme = [\"*.a.example\", \"b\u{fc}cher.example\", \"a_b\", \"http://a\", \"a.example\", \"A.example\"]\n\
         acme_email = \"me\"\nacme_directory = \"http://ca.example/dir\"\nacme_storage = \"acme\"\nacme_profile = \"a b\"",
        &[
            "1:9: cannot use \"*.a.example\"",
            "= wildcard certificates need a DNS challenge, which is not supported: list each host, or configure a certificate from elsewhere as `tls`",
            "1:24: cannot use \"b\u{fc}cher.example\"",
            "= write it in ASCII, as in DNS (`xn--…`)",
            "1:42: cannot use \"a_b\"",
            "= write a host name, such as example.org",
            "1:49: cannot use \"http://a\"",
            "= write a host name, such as example.org",
            "1:74: a.example is listed twice",
            "2:14: cannot use \"me\"",
            "= write one mail address, such as me@example.org",
            "3:18: cannot use \"http://ca.example/dir\"",
            "= write the https URL of its directory, such as https://acme-v02.api.letsencrypt.org/directory",
            "4:16: cannot use \"acme\"",
            "= write an absolute path",
            "5:16: cannot use \"a b\"",
            "= write the name of a profile, such as shortlived",
        ],
    );
    check(
        "acme_email = \"me@a.example\"",
        &[
            "1:14: `acme_email` has no effect without `acme`",
            "= add acme = \"HOST\", or remove it",
        ],
    );
}

#[test]
fn without_an_origin_the_error_has_a_remedy() {
    let report = Config::read(Input::default()).unwrap_err().to_string();
    assert_eq!(
        report,
        "origin: missing; type the URL of the application: microcache http://localhost:3000"
    );
    let report = Config::read(Input {
        file: Some((FILE, "ttl = \"1s\"")),
        ..Input::default()
    });
    let report = report.unwrap_err().to_string();
    assert!(
        report.contains("add origin = \"http://localhost:3000\""),
        "{report}"
    );
}

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
fn the_report_shows_the_line_and_a_caret() {
    let text =
        "origin = \"http://a\"\r\n\tttl = \"1 sec\" # ä\nthreads = [\n  1,\n]\n\"größe\" = 1\n";
    let report = Config::read(Input {
        file: Some((FILE, text)),
        ..Input::default()
    });
    assert_eq!(
        report.unwrap_err().to_string(),
        "microcache.toml:2:8: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found \"1 sec\"
  |
2 | \tttl = \"1 sec\" # ä
  | \t      ^^^^^^^
microcache.toml:3:11: expected a number from 1 to 1024, found a list
  |
3 | threads = [
  |           ^
microcache.toml:6:1: unknown option `größe`
  |
6 | \"größe\" = 1
  | ^^^^^^^
  = `microcache config --reference` lists all options"
    );
}

#[test]
fn unknown_names() {
    check(
        "memroy = \"1GB\"",
        &["1:1: unknown option `memroy`", "= did you mean `memory`?"],
    );
    check(
        "stale-if-error = \"1d\"",
        &[
            "1:1: unknown option `stale-if-error`",
            "= did you mean `stale_if_error`?",
        ],
    );
    check(
        "key = { header = [\"a\"] }",
        &["1:9: unknown option `header`", "= did you mean `headers`?"],
    );
    check(
        "key = { colour = 1 }",
        &[
            "1:9: unknown option `colour`",
            "= options here: query, headers, cookies",
        ],
    );
    check(
        "[[routes]]\nmatch = { path = \"/a\" }\nlisten = \"127.0.0.1:1\"",
        &[
            "3:1: unknown option `listen`",
            "= it belongs at the top of the file, above the first [table]",
        ],
    );
    check(
        "[upstreams.a]\nservers = [{ url = \"http://a\", wieght = 2 }]",
        &["2:32: unknown option `wieght`", "= did you mean `weight`?"],
    );
}

#[test]
fn impossible_values() {
    check(
        "threads = 0",
        &["1:11: expected a number from 1 to 1024, found 0"],
    );
    check(
        "threads = -1",
        &["1:11: expected a number from 1 to 1024, found -1"],
    );
    check(
        "threads = 1.5",
        &["1:11: expected a number from 1 to 1024, found 1.5"],
    );
    check(
        "threads = \"2\"",
        &["1:11: expected a number from 1 to 1024, found \"2\""],
    );
    check(
        "ttl = 1",
        &["1:7: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found 1"],
    );
    check(
        "ttl = \"400d\"",
        &["1:7: expected a duration from 0s to 365d, found \"400d\""],
    );
    check(
        "connect_timeout = \"0s\"",
        &["1:19: expected a duration from 1ms to 1d, found \"0s\""],
    );
    check(
        "memory = \"1KB\"",
        &["1:10: expected a size from 1MiB to 16384GiB, found \"1KB\""],
    );
    check(
        "memory = \"64M\"",
        &["1:10: expected \"64MiB\" or \"64MB\", found \"64M\""],
    );
    check(
        "memory = 1979-05-27",
        &[
            "1:10: expected a number and a unit, such as \"512KiB\", \"64MiB\", \"1GB\", found a date",
        ],
    );
    check(
        "pass = \"yes\"",
        &["1:8: expected true or false, found \"yes\""],
    );
    check(
        "set_cookie = \"yes\"",
        &["1:14: expected one of \"refuse\", \"strip\", \"store\", found \"yes\""],
    );
    check(
        "heuristic = 101",
        &["1:13: expected a number from 0 to 100, found 101"],
    );
    check(
        "key = \"a\"",
        &["1:7: expected a table of names and values, such as { name = value }, found \"a\""],
    );
    check(
        "max_object = \"1GiB\"",
        &[
            "1:14: `max_object` is larger than a quarter of `memory`",
            "= increase `memory`, or lower `max_object`",
        ],
    );
    check(
        "compress = [\"gzip\", \"deflate\"]",
        &["1:21: expected one of \"zstd\", \"br\", \"gzip\", found \"deflate\""],
    );
    check(
        "compress_types = [\"text/html; charset=utf-8\", \"html\"]",
        &[
            "1:19: cannot use \"text/html; charset=utf-8\"",
            "= write a media type, such as \"text/html\" or \"text/*\"",
            "1:47: cannot use \"html\"",
            "= write a media type, such as \"text/html\" or \"text/*\"",
        ],
    );
    check(
        "dictionaries = true",
        &[
            "1:16: `dictionaries` has no effect without `compress`",
            "= add compress = [\"zstd\", \"br\", \"gzip\"], for browsers without a version yet",
        ],
    );
    check(
        "purge_path = \"/purge\"",
        &[
            "1:14: `purge_path` has no effect without `purge_from`",
            "= add purge_from = [\"127.0.0.1\"], the address of the application",
        ],
    );
    for path in [
        "/", "purge", "/purge/", "/purge*", "/p?", "/%70urge", "/p urge",
    ] {
        let what = format!("2:14: cannot use \"{path}\"");
        let remedy = "= write a path without a slash at its end, such as \"/purge\"";
        let text = format!("purge_from = \"127.0.0.1\"\npurge_path = \"{path}\"");
        check(&text, &[&what, remedy]);
    }
    check(
        "compress_min = \"1MiB\"\ncompress_max = \"1KiB\"",
        &[
            "1:16: `compress_min` is more than `compress_max`",
            "= nothing would be compressed",
        ],
    );
    check(
        "max_target_size = \"64KiB\"",
        &[
            "1:19: `max_target_size` is larger than `max_head_size`",
            "= the target is a part of the head: make it smaller",
        ],
    );
}

#[test]
fn impossible_tables() {
    check(
        "status_ttl = { 404 = \"1s\", 206 = \"1s\", x = \"1s\", 500 = 1 }",
        &[
            "1:28: `206` is not a status that can be stored",
            "= write one from 200 to 599, except 206 and 304",
            "1:40: `x` is not a status that can be stored",
            "= write one from 200 to 599, except 206 and 304",
            "1:56: expected a number and a unit, such as \"500ms\", \"1s\", \"10m\", \"1d\", found 1",
        ],
    );
    check(
        "health_check = { interval = \"1s\", timeout = \"5s\", expect = \"2xx\", path = \"x\" }",
        &[
            "1:45: `timeout` is longer than `interval`",
            "1:60: cannot use \"2xx\"",
            "= write one status or a range, such as \"200\" or \"200-399\"",
            "1:74: cannot use \"x\"",
            "= write a path, such as \"/healthz\"",
        ],
    );
    check(
        "key = { query = { ignore = [\"a\"], only = [\"b*c\"] } }",
        &[
            "1:17: `ignore` and `only` exclude each other",
            "= remove one of them",
            "1:43: cannot use \"b*c\"",
            "= a `*` is allowed at the end only",
        ],
    );
    check(
        "trusted_proxies = \"10/8\"",
        &[
            "1:19: cannot use \"10/8\"",
            "= write an address such as \"10.0.0.1\" or a block such as \"10.0.0.0/8\"",
        ],
    );
}

#[test]
fn listeners() {
    check("listen = []", &["1:10: no address to listen on"]);
    check(
        "listen = [\"127.0.0.1:1\", \"127.0.0.1:1\"]",
        &["1:26: 127.0.0.1:1 is listed twice"],
    );
    check("listen = [\"127.0.0.1:0\", \"127.0.0.1:0\"]", &[]);
    check(
        "listen = \"localhost:80\"",
        &["1:10: cannot use \"localhost:80\"", "= write 127.0.0.1:80"],
    );
    check(
        "listen = \"here\"",
        &[
            "1:10: cannot use \"here\"",
            "= write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080",
        ],
    );
}

#[test]
fn upstreams() {
    check(
        "[upstreams.a]\nservers = [\"ftp://a.b\", \"http://c\", \"http://c:80\", {weight=0}]",
        &[
            "2:12: cannot use \"ftp://a.b\"",
            "= an origin must be http://, https:// or fastcgi://",
            "2:37: c:80 is listed twice",
            "= remove one, or give it a weight",
            "2:52: a server without `url`",
            "2:60: expected a number from 1 to 1000, found 0",
        ],
    );
    check(
        "[upstreams.a]",
        &[
            "1:12: the group `a` has no `servers`",
            "= add servers = [\"http://HOST:PORT\"]",
        ],
    );
    check(
        "[upstreams.a]\nservers = []",
        &["2:11: no server", "= list at least one URL"],
    );
    check(
        "[upstreams.a]\nservers = [{url = \"http://a\", backup = true}]",
        &["2:11: every server is a backup: at least one must not be"],
    );
    check(
        "[upstreams.origin]\nservers = \"http://a\"",
        &[
            "1:12: the group `origin` is defined twice",
            "= `origin` defines a group of that name: rename this one",
        ],
    );
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
fn faults_of_syntax_are_reported_beside_the_others() {
    check(
        "threads = 0\nttl = = 3\nmemory = \"x\nfoo\npass = 1\npass = true\n[[routes]",
        &[
            "1:11: expected a number from 1 to 1024, found 0",
            "2:7: extra `=`, expected nothing",
            "3:12: invalid basic string, expected `\"`",
            "4:4: key with no value, expected `=`",
            "5:8: expected true or false, found 1",
            "6:1: duplicate key",
            "7:10: unclosed array table, expected `]`",
        ],
    );
}

#[test]
fn any_text_is_read_without_panic() {
    for text in [
        "\u{feff}",
        "=",
        "[",
        "a",
        "\"",
        "'''",
        "a.b.c = 1\na.b = 2",
        "[[routes.x]]",
        "[upstreams]\na = 1",
        "\0",
        "é = 'ü",
    ] {
        let input = Input {
            file: Some((FILE, text)),
            ..Input::default()
        };
        assert!(Config::read(input).is_err(), "{text:?}");
    }
}

#[test]
fn the_sample_loads_as_it_is_and_with_every_setting_switched_on() {
    let sample = sample();
    read(&sample);
    let switched_on: String = sample
        .lines()
        .map(|line| match line.strip_prefix('#') {
            Some(setting) if !setting.starts_with(' ') => format!("{setting}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    // Of two such sets there can be one.
    let this_process = ["push_directory", "push_sync", "push_forward_auth"];
    let redis = [
        "push_redis",
        "push_redis_cluster",
        "push_redis_ca",
        "push_forward_auth",
    ];
    for (other, others) in [("memcached", &this_process[..]), ("redis", &redis)] {
        let is_other = |line: &&str| {
            let name = line.split(" = ").next().unwrap_or_default();
            name == other || others.contains(&name)
        };
        let without: Vec<&str> = switched_on.lines().filter(|line| !is_other(line)).collect();
        let without = without.join("\n");
        let config = read(&without);
        // One of them is the authentication server.
        assert_eq!(config.upstreams.len(), 3);
        // Six of them are those of the Mercure hub, the documents, the watch endpoint and the scripts.
        assert_eq!(config.routes.len(), 13);
    }
    for about in options::top_level() {
        let setting = format!("\n{} = ", about.name);
        assert!(
            switched_on.contains(&setting),
            "{} is not in the sample",
            about.name
        );
    }
}

fn mistakes(text: &str) -> String {
    let input = Input {
        file: Some((FILE, text)),
        ..Input::default()
    };
    Config::read(input)
        .expect_err("it has a mistake")
        .to_string()
}

#[test]
fn documents_have_one_keeper() {
    let shared = "origin = \"http://a\"\npush = \"/live/\"\npush_redis = \"redis://u:pw@a\"\n";
    let fleet = read(shared).push.redis;
    assert_eq!(fleet.urls, ["redis://u:pw@a"]);
    assert!(!format!("{fleet:?}").contains("pw"));
    for other in ["push_directory = \"none\"", "push_sync = \"never\""] {
        let name = other.split(' ').next().unwrap_or_default();
        let text = mistakes(&format!("{shared}{other}"));
        let expected = format!("`{name}` has no effect with `push_redis`");
        assert!(text.contains(&expected), "{text}");
    }
    let config = read(&format!("{shared}push_history = 1000"));
    assert_eq!(config.push.settings.history, 1000);
    let text = mistakes(&format!("{shared}push_history = 1001"));
    assert!(text.contains("at most 1000 with `push_redis`"), "{text}");
    let alone = "origin = \"http://a\"\npush = \"/live/\"\npush_directory = \"none\"\n";
    assert!(read(alone).push.redis.urls.is_empty());
    let text = mistakes(&format!("{alone}push_redis_cluster = true"));
    assert!(
        text.contains("`push_redis_cluster` has no effect without `push_redis`"),
        "{text}"
    );
}

#[test]
fn a_hub_keeps_its_history_where_a_directory_is_named_or_documents_are() {
    let folder = Folder::new();
    let key = folder.write("key", "a secret of thirty-two characters");
    let hub = format!("origin = \"http://a\"\nmercure_publisher_key_file = {key:?}\n");
    let of = |more: &str| {
        let text = format!("{hub}{more}");
        let (mut config, mut mistakes) = (read(&text), Mistakes::default());
        config.push.read_files(&mut mistakes);
        config
    };
    let kept = |more: &str| of(more).push.mercure.kept;
    let there = |sync| Some(UpdateStore::Directory(PathBuf::from("/a"), sync));
    assert_eq!(kept(""), None);
    assert_eq!(kept("push_directory = \"none\""), None);
    assert_eq!(kept("push_directory = \"/a\""), there(SyncPolicy::Always));
    assert_eq!(
        kept("push_directory = \"/a\"\npush_sync = \"never\""),
        there(SyncPolicy::Never)
    );
    assert_eq!(
        kept("push = \"/live/\"\npush_directory = \"/a\""),
        there(SyncPolicy::Always)
    );
    assert_eq!(kept("push = \"/live/\"\npush_directory = \"none\""), None);
    // Shared with other nodes, with documents or without.
    let shared = "push_redis = \"redis://a\"\n";
    for documents in ["", "push = \"/live/\"\n"] {
        let config = of(&format!("{documents}{shared}"));
        let is_shared = matches!(config.push.mercure.kept, Some(UpdateStore::Redis(_)));
        assert!(is_shared, "{documents}");
        assert_eq!(config.push.settings.fleet.is_some(), !documents.is_empty());
        let text = mistakes(&format!("{hub}{documents}{shared}push_directory = \"/a\""));
        let expected = "`push_directory` has no effect with `push_redis`";
        assert!(text.contains(expected), "{text}");
    }
    let text = mistakes(&format!("{hub}push_history = 2"));
    assert!(text.contains("`push_history` has no effect"), "{text}");
    // A hub begins to keep it, and ends, with the process.
    let (without, with) = (of(""), of("push_directory = \"/a\""));
    for (before, after) in [(&without, &with), (&with, &without)] {
        let report = before.needs_restart_for(after).expect("it does");
        assert!(report.to_string().contains("`push_directory`"), "{report}");
    }
    assert!(
        with.needs_restart_for(&of("push_directory = \"/a\"\nmercure_anonymous = true"))
            .is_none()
    );
}

/// Returns every option of every table.
fn all_options() -> Vec<option::About> {
    let mut all: Vec<_> = options::top_level().collect();
    all.extend(options::of_a_route());
    all.extend(options::abouts(options::ORIGIN));
    all.extend(options::abouts(options::SERVERS));
    all.extend(options::abouts(options::SERVER_ENTRY));
    all.extend(options::abouts(options::HEALTH_CHECK));
    all.extend(options::abouts(options::CERTIFICATE));
    all.extend(options::abouts(options::MATCH));
    all.extend(options::abouts(options::KEY));
    all.extend(options::abouts(options::QUERY));
    all.extend(options::abouts(options::REDIRECT));
    all.extend(options::abouts(options::RESPOND));
    all.extend(options::abouts(options::REWRITE));
    all
}

#[test]
fn every_help_is_a_short_noun_phrase_in_plain_words() {
    let starts = [
        "what", "who", "whose", "whom", "how", "where", "whether", "which", "why", "when", "those",
    ];
    let private = [
        "whoever",
        "nobody",
        "somebody",
        "anybody",
        "everybody",
        "told",
        "tells",
        "whom",
    ];
    let options = all_options();
    assert!(options.len() > 180, "{}", options.len());
    for about in options {
        let (name, help) = (about.name, about.help);
        assert!((1..=80).contains(&help.chars().count()), "{name}: {help}");
        assert!(!help.ends_with(['.', ':', ';']), "{name}: {help}");
        let lower = help.to_lowercase();
        let first = lower.split([' ', '-']).next().unwrap_or_default();
        assert!(!starts.contains(&first), "{name}: {help}");
        assert!(
            about.more.is_empty() || about.more.ends_with('.'),
            "{name}: {}",
            about.more
        );
        let texts = [help, about.more, about.unset.words()];
        let text = texts.join(" ").to_lowercase();
        assert!(!text.contains("those who"), "{name}: {text}");
        let mut words = text.split(|c: char| !c.is_alphanumeric());
        let found = words.find(|word| private.contains(word));
        assert_eq!(found, None, "{name}: {text}");
    }
}

#[test]
fn the_reference_has_the_words_that_operators_search_for() {
    let reference = super::reference().to_lowercase();
    for term in [
        "keep-alive",
        "read timeout",
        "write timeout",
        "connect timeout",
        "idle timeout",
        "retry",
        "retried",
        "backend",
        "origin",
        "evicted",
        "revalidate",
        "stale window",
        "back-pressure",
        "drain",
        "rate limit",
        "health check",
        "coalesc",
        "queue",
        "ttl",
    ] {
        assert!(reference.contains(term), "{term}");
    }
}

#[test]
fn every_example_and_default_is_read_by_its_option() {
    for about in options::top_level() {
        let mut values = vec![about.example_in_file()];
        if matches!(about.unset, option::Unset::Is(_)) {
            values.push(about.default_in_file());
        }
        // These mean nothing without a certificate.
        let is_about_tls = options::abouts(options::TLS)[1..]
            .iter()
            .any(|tls| tls.name == about.name);
        let is_about_acme = options::abouts(options::ACME)[1..]
            .iter()
            .any(|acme| acme.name == about.name);
        let is_about_push = options::abouts(options::PUSH)[1..]
            .iter()
            .any(|push| push.name == about.name);
        let is_about_mercure = options::abouts(options::MERCURE)[1..]
            .iter()
            .any(|mercure| mercure.name == about.name);
        let needed = match (is_about_tls, is_about_acme, is_about_push, is_about_mercure) {
            (true, ..) => "tls = \"a.pem\"",
            (_, true, ..) => "acme = \"a.example\"",
            (.., true, _) if about.name.starts_with("push_redis_") => {
                "push = \"/live/\"\npush_redis = \"rediss://a\""
            }
            (.., true, _) if about.name == "push_forward_auth" => {
                "push = \"/live/\"\npush_private = \"/live/\""
            }
            (.., true, _) => "push = \"/live/\"",
            (.., true) => "mercure_publisher_key_file = \"a\"",
            _ if about.name == "trusted_headers" => "trusted_proxies = \"127.0.0.1\"",
            _ if about.name == "purge_path" => "purge_from = \"127.0.0.1\"",
            _ if about.name == "client_certificate" => "tls = \"a.pem\"\nclient_ca = \"a.pem\"",
            _ => "",
        };
        for value in values {
            read(&format!(
                "origin = \"http://a\"\n{needed}\n{} = {value}\n",
                about.name
            ));
        }
    }
}

#[test]
fn the_committed_reference_is_the_printed_one() {
    let committed = include_str!("../../../../docs/configuration.md");
    assert!(
        committed == reference(),
        "print it again: cargo run -- config --reference > docs/configuration.md"
    );
}

fn warnings(text: &str) -> String {
    read(text).warnings.to_string()
}

#[test]
fn dangerous_options_are_warned_of_with_their_place() {
    let text = warnings("origin = \"http://a\"\nignore_cookies = [\"theme\", \"*\"]");
    assert_eq!(
        text.lines().next(),
        Some(
            "microcache.toml:2:28: warning: `*` ignores a cookie that identifies visitors, such as `PHPSESSID`"
        ),
        "{text}"
    );
    for harmless in [
        "ignore_cookies = [\"theme\", \"_ga*\", \"consent_*\", \"wordpress_test_cookie\"]",
        "remove_cookies = \"*\"",
        "set_cookie = \"strip\"",
        "trusted_proxies = [\"10.0.0.0/8\", \"::1\"]",
        "purge_from = [\"10.0.0.0/8\", \"::1\"]",
        "key = { cookies = \"*\" }",
    ] {
        assert_eq!(
            warnings(&format!("origin = \"http://a\"\n{harmless}")),
            "",
            "{harmless}"
        );
    }
    for dangerous in [
        "ignore_cookies = \"_*\"",
        "ignore_cookies = \"sess*\"",
        "ignore_cookies = \"JSESSIONID\"",
        "ignore_cookies = \"w*\"",
        "ignore_cookies = \"comment_author_*\"",
        "ignore_cookies = \"wp-postpass_*\"",
        "ignore_cookies = \"form_key\"",
        "set_cookie = \"store\"",
        "trusted_proxies = \"0.0.0.0/0\"",
        "trusted_proxies = \"::/0\"",
        "trusted_proxies = \"128.0.0.0/1\"",
        "trusted_proxies = \"2000::/3\"",
        "proxy_protocol = \"::/80\"",
        "purge_from = \"0.0.0.0/0\"",
        "forward_fields = \"X-Source\"",
    ] {
        let text = warnings(&format!("origin = \"http://a\"\n{dangerous}"));
        assert!(
            text.contains(":2:") && text.contains(": warning: "),
            "{text}"
        );
    }
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
fn options_without_effect_are_refused() {
    for (line, says) in [
        (
            "remove_headers = \"Host\"",
            "every request to the origin needs it",
        ),
        ("remove_headers = \"a*b\"", "at the end only"),
        ("keep_headers = \"*\"", "list the fields"),
        ("keep_headers = \"Accept\"", "it is forwarded anyway"),
        ("keep_headers = \"X-Forwarded-For\"", "trusted_proxies"),
        (
            "trusted_headers = \"X-Real-IP\"",
            "without `trusted_proxies`",
        ),
        ("trusted_headers = \"*\"", "list the fields"),
        ("trusted_headers = \"X-Forwarded-Host\"", "anyway"),
        ("trusted_headers = \"Accept\"", "is forwarded"),
        ("keep_headers = \"Connection\"", "Microcache writes it"),
        (
            "key = { headers = \"*\" }",
            "list those that pages depend on",
        ),
        ("key = { headers = \"cookie\" }", "cookies = [\"NAME\"]"),
        (
            "key = { headers = \"X-Forwarded-For\" }",
            "writes this field itself",
        ),
        ("key = { cookies = \"a*b\" }", "at the end only"),
        (
            "key = { query = { only = \"a\", forward = \"raw\" } }",
            "\"kept\", \"whole\"",
        ),
        ("bypass = \"cookie:*\"", "pass = true"),
        ("bypass = \"query:a*b\"", "at the end only"),
        (
            "remove_cookies = \"a*\"\nkey = { cookies = \"ab\" }",
            "removed by `remove_cookies`",
        ),
        (
            "remove_headers = \"x-a\"\nkey = { headers = \"X-A\" }",
            "removed by `remove_headers`",
        ),
    ] {
        let text = format!("origin = \"http://a\"\n{line}");
        let input = Input {
            file: Some((FILE, &text)),
            ..Input::default()
        };
        let report = Config::read(input).expect_err(line).to_string();
        assert!(report.contains(says), "{line}: {report}");
    }
}

#[test]
fn authentication_is_checked() {
    let check_top = |line: &str, says: &str| {
        let report = mistakes(&format!("origin = \"http://a\"\n{line}"));
        assert!(report.contains(says), "{line}: {report}");
    };
    check_top(
        "basic_auth = { realm = \"a\" }",
        "`basic_auth` has no `file`",
    );
    check_top("allow = []", "allow = \"all\" to admit every client");
    check_top("deny = \"any\"", "write an address such as");
    check_top("basic_auth = \"on\"", "expected a table");
    check_top(
        "basic_auth = { file = \"a\", realm = \"a\\\"b\" }",
        "use ASCII without quotes",
    );
    check_top("forward_auth = {}", "`forward_auth` has no `url`");
    check_top(
        "forward_auth = { url = \"127.0.0.1\" }",
        "write http://127.0.0.1",
    );
    check_top(
        "forward_auth = { url = \"http://127.0.0.1:8080/verify\" }",
        "is Microcache itself",
    );
    check_top(
        "forward_auth = { url = \"http://b/\", copy_headers = \"Cookie\" }",
        "one client's identity",
    );
    check_top(
        "forward_auth = { url = \"http://b/\", copy_headers = \"X-A\" }\nrequest_headers = { set = { x-a = \"b\" } }",
        "is set by `request_headers` and by `forward_auth`",
    );
    check_top(
        "forward_auth = { url = \"http://b/\" }\nbasic_auth = { file = \"a\" }",
        "exclude each other",
    );
}

#[test]
fn servers_of_authentication_are_groups_of_their_own() {
    let config = read(
        r#"
        origin = "http://a"
        forward_auth = { url = "http://b:9091/verify", session_cookie = "sid_*" }
        push = "/live/"
        [[routes]]
        match = { path = "/a" }
        forward_auth = { url = "http://b:9091/other", timeout = "1s" }
        [[routes]]
        match = { path = "/b" }
        forward_auth = { url = "http://b:9091/third" }
        [[routes]]
        match = { path = "/c" }
        basic_auth = { file = "users" }
        [[routes]]
        match = { path = "/d" }
        forward_auth = "off"
        "#,
    );
    let names: Vec<_> = config.upstreams.iter().map(|group| &*group.name).collect();
    assert_eq!(names, ["origin", "auth b:9091", "auth b:9091 2"]);
    let groups = config
        .routes
        .iter()
        .map(|route| route.forward_auth.as_ref());
    let groups: Vec<_> = groups
        .map(|auth| auth.map(super::ForwardAuth::group))
        .collect();
    let (first, second) = (Some(1), Some(2));
    assert_eq!(
        groups,
        [first, first, first, first, second, first, None, None, first]
    );
    assert_eq!(config.settings.upstreams.len(), 1);
    let default = config.routes.last().expect("a route");
    assert!(default.rules.request.removed_cookies.matches(b"sid_1"));
    assert_eq!(default.rules.key.route.as_deref(), Some("default"));
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
