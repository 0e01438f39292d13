//! What an operator can say for some requests: `microcache --config FILE`.

use crate::support::{Origin, Proxy, Reply, http_date};

/// One origin, one route, with these lines.
fn one_route(origin: &Origin, lines: &str) -> Proxy {
    Proxy::with_config(&format!(
        "origin = \"{}\"\n[[routes]]\n{lines}\n",
        origin.url()
    ))
}

#[test]
fn the_first_route_that_matches_wins() {
    let (blog, shop, rest) = (Origin::start(), Origin::start(), Origin::start());
    let proxy = Proxy::with_config(&format!(
        r#"
[upstreams.blog]
servers = ["{}"]
[upstreams.shop]
servers = ["{}"]
[upstreams.rest]
servers = ["{}"]

[[routes]]
match = {{ path = "/blog/*" }}
upstream = "blog"
[[routes]]
match = {{ host = "*.shop.example" }}
upstream = "shop"
[[routes]]
match = {{ method = ["PUT", "DELETE"] }}
upstream = "shop"
[[routes]]
upstream = "rest"
"#,
        blog.url(),
        shop.url(),
        rest.url()
    ));
    for (origin, name) in [(&blog, "blog"), (&shop, "shop"), (&rest, "rest")] {
        for target in ["/", "/blog/a", "/blogs"] {
            origin.on(target).reply(Reply::new(200).body(name));
        }
    }
    let rows = [
        ("GET", "example.com", "/blog/a", "blog"),
        ("GET", "www.shop.example", "/blog/a", "blog"),
        ("GET", "WWW.Shop.Example:80", "/", "shop"),
        ("GET", "shop.example", "/", "rest"),
        ("GET", "example.com", "/blogs", "rest"),
        ("PUT", "example.com", "/", "shop"),
        ("POST", "example.com", "/", "rest"),
    ];
    for (method, host, target, expected) in rows {
        let response = proxy.request(format!(
            "{method} {target} HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"
        ));
        assert_eq!(response.text(), expected, "{method} {host} {target}");
    }
}

#[test]
fn pass() {
    let origin = Origin::start();
    let proxy = one_route(&origin, "pass = true");
    origin
        .on("/")
        .reply(Reply::new(200).with("Cache-Control: max-age=100").body("x"));
    for expected in 1..=2 {
        proxy.get("/").assert_forwarded("bypass");
        assert_eq!(origin.count("/"), expected);
    }
}

#[test]
fn passed_requests_keep_conditions_and_ranges() {
    let origin = Origin::start();
    let proxy = one_route(&origin, "pass = true");
    origin.on("/").reply(
        Reply::new(206)
            .with("Content-Range: bytes 0-1/4")
            .body("pa"),
    );
    let fields = [
        "Range: bytes=0-1",
        "If-Range: \"a\"",
        "If-None-Match: \"b\"",
        "Cache-Control: no-cache",
    ];
    proxy.get_with("/", &fields).assert_is(206, "pa");
    let seen = &origin.seen("/")[0];
    for (name, value) in [
        ("range", "bytes=0-1"),
        ("if-range", "\"a\""),
        ("if-none-match", "\"b\""),
    ] {
        assert_eq!(seen.field(name), Some(value));
    }
}

#[test]
fn bypass_conditions() {
    let origin = Origin::start();
    let proxy = one_route(&origin, r#"bypass = ["header:X-Debug", "query:draft=1"]"#);
    for target in ["/", "/?draft=1", "/?draft=2"] {
        origin
            .on(target)
            .reply(Reply::new(200).with("Cache-Control: max-age=100").body("x"));
        proxy.get(target);
    }
    assert!(proxy.get("/").is_hit());
    assert!(proxy.get("/?draft=2").is_hit());
    proxy
        .get_with("/", &["X-Debug: 1"])
        .assert_forwarded("bypass");
    proxy.get("/?draft=1").assert_forwarded("bypass");
}

#[test]
fn ttl_per_status() {
    let origin = Origin::start();
    let proxy = one_route(
        &origin,
        "ttl = \"100s\"\nstatus_ttl = { 404 = \"50s\", 503 = \"20s\", 301 = \"0s\" }\nstale_while_revalidate = \"0s\"",
    );
    for (status, ttl) in [
        (200, Some(100)),
        (404, Some(50)),
        (503, Some(20)),
        (301, None),
        (500, None),
    ] {
        let target = format!("/{status}");
        origin.on(&target).reply(Reply::new(status).body("x"));
        proxy.get(&target);
        let second = proxy.get(&target);
        assert_eq!(second.status, status);
        match ttl {
            Some(ttl) => assert!(
                (ttl - 5..=ttl).contains(&second.cache().ttl().unwrap()),
                "{second:?}"
            ),
            None => assert!(!second.is_hit(), "{second:?}"),
        }
    }
}

#[test]
fn a_forced_ttl_changes_how_long_and_not_whether() {
    let origin = Origin::start();
    let proxy = one_route(&origin, "forced_ttl = \"100s\"");
    let rows: [(&str, &[&str], bool); 6] = [
        ("/max-age", &["Cache-Control: max-age=5"], true),
        ("/expired", &["Expires: 0"], true),
        ("/nothing", &[], true),
        ("/private", &["Cache-Control: private"], false),
        ("/no-store", &["Cache-Control: no-store"], false),
        ("/set-cookie", &["Set-Cookie: a=1"], false),
    ];
    for (target, fields, kept) in rows {
        origin
            .on(target)
            .reply(Reply::new(200).with_all(fields).body("x"));
        proxy.get(target);
        let second = proxy.get(target);
        assert_eq!(second.is_hit(), kept, "{target}: {second:?}");
        if kept {
            assert!(
                (90..=100).contains(&second.cache().ttl().unwrap()),
                "{target}: {second:?}"
            );
        }
    }
}

#[test]
fn query_parameters_of_the_key() {
    let origin = Origin::start();
    let proxy = one_route(
        &origin,
        "ttl = \"100s\"\nkey = { query = { ignore = [\"utm_*\", \"fbclid\"] } }",
    );
    let targets = [
        "/?a=1&utm_source=x",
        "/?a=1",
        "/?fbclid=y&a=1",
        "/?utm_source=z&a=1&utm_medium=m",
        "/?a=2",
        "/?a=1&b=utm_",
    ];
    for target in targets {
        origin.on(target).reply(Reply::new(200).body(target));
    }
    for target in &targets[..4] {
        proxy.get(target).assert_is(200, "/?a=1");
    }
    for target in &targets[4..] {
        proxy.get(target).assert_is(200, target);
    }
    let sent: Vec<_> = origin
        .requests()
        .into_iter()
        .map(|seen| seen.target)
        .collect();
    assert_eq!(
        sent,
        ["/?a=1", "/?a=2", "/?a=1&b=utm_"],
        "the origin gets what is keyed"
    );
}

#[test]
fn no_spelling_of_a_parameter_fills_the_page_of_another() {
    const ONLY: &str = "only = [\"page\"]";
    const IGNORE: &str = "ignore = [\"utm_*\"]";
    for (key, honest, evil, sent) in [
        (ONLY, "/a", "/a?pag%65=EVIL", "/a?pag%65=EVIL"),
        (ONLY, "/a", "/a?x=1;page=EVIL", "/a?x=1;page=EVIL"),
        (ONLY, "/a", "/a?page[]=EVIL", "/a"),
        (ONLY, "/a?page=1", "/a?page=1&Page=EVIL", "/a?page=1"),
        (IGNORE, "/a", "/a?utm_x=1;id=EVIL", "/a?utm_x=1;id=EVIL"),
        (IGNORE, "/a", "/a?utm_x[id]=EVIL", "/a"),
        (IGNORE, "/a", "/a?utm_x=1&%69d=EVIL", "/a?%69d=EVIL"),
    ] {
        let origin = Origin::start();
        let proxy = one_route(
            &origin,
            &format!("ttl = \"100s\"\nkey = {{ query = {{ {key} }} }}"),
        );
        for target in [honest, sent] {
            origin.on(target).reply(Reply::new(200).body(target));
        }
        // Whatever the origin makes of the spelling, only who asks so gets it.
        proxy.get(evil).assert_is(200, sent);
        proxy.get(honest).assert_is(200, honest);
        proxy.get(evil).assert_hit();
    }
}

#[test]
fn uncached_requests_keep_their_query() {
    let origin = Origin::start();
    let rules =
        "ttl = \"100s\"\nbypass = \"cookie:preview\"\nkey = { query = { ignore = [\"utm_*\"] } }";
    let proxy = one_route(&origin, rules);
    let target = "/?utm_x=1&a=2";
    for of in [target, "/?a=2"] {
        origin.on(of).reply(Reply::new(200).body(of));
    }
    proxy.get("/?a=2").assert_is(200, "/?a=2");
    proxy
        .get_with(target, &["Cookie: preview=1"])
        .assert_is(200, target);
    // A form that succeeds takes away what is stored under its key.
    proxy.get(target).assert_hit();
    proxy
        .send("POST", target, &["Content-Length: 0"])
        .assert_is(200, target);
    assert!(!proxy.get("/?a=2").is_hit());
}

#[test]
fn the_whole_query_is_forwarded_where_configured() {
    let origin = Origin::start();
    let rules = "ttl = \"100s\"\nkey = { query = { ignore = [\"utm_*\"], forward = \"whole\" } }";
    let proxy = one_route(&origin, rules);
    origin.on("/?a=1&utm_x=2").reply(Reply::new(200).body("x"));
    proxy.get("/?a=1&utm_x=2").assert_is(200, "x");
    proxy.get("/?a=1").assert_hit();
}

#[test]
fn cookies_and_fields_that_the_origin_does_not_get() {
    let origin = Origin::start();
    let proxy = one_route(
        &origin,
        "ttl = \"100s\"\nremove_cookies = [\"_ga\", \"theme_*\"]\nremove_headers = [\"X-Spy-*\", \"Authorization\"]",
    );
    origin.on("/").reply(Reply::new(200).body("x"));
    let fields = [
        "Cookie: _ga=1; theme_x=2;theme_y=3",
        "X-Spy-1: a",
        "x-spy-two: b",
        "Authorization: Basic dTpw",
        "User-Agent: c",
    ];
    proxy.get_with("/", &fields).assert_is(200, "x");
    let seen = &origin.seen("/")[0];
    for gone in ["cookie", "x-spy-1", "x-spy-two", "authorization"] {
        assert_eq!(seen.field(gone), None, "{gone}");
    }
    assert_eq!(seen.field("user-agent"), Some("c"));
    proxy.get("/").assert_hit();
    proxy.get_with("/", &["Cookie: theme_z=5"]).assert_hit();
    let personal = proxy.get_with("/", &["Cookie: theme_x=2; session=1;_ga=3"]);
    assert!(!personal.is_hit());
    assert_eq!(origin.seen("/")[1].field("cookie"), Some("session=1"));
}

#[test]
fn fields_that_the_operator_lets_through() {
    let origin = Origin::start();
    let proxy = one_route(
        &origin,
        "ttl = \"100s\"\nkeep_headers = [\"api_key\", \"X-Original-*\"]",
    );
    origin.on("/").answer(|request| {
        let said = |name| request.field(name).unwrap_or("-");
        Reply::new(200).body(format!("{} {}", said("api_key"), said("x-original-url")))
    });
    // What is let through is part of the key.
    for round in 0..2 {
        for (fields, body) in [
            (&["api_key: 1"][..], "1 -"),
            (&["api_key: 2"], "2 -"),
            (&["X-Original-URL: /x"], "- /x"),
            (&["X-Rewrite-URL: /x", "other_key: 3"], "- -"),
        ] {
            let response = proxy.get_with("/", fields);
            response.assert_is(200, body);
            assert_eq!(response.is_hit(), round == 1, "{response:?}");
        }
    }
}

#[test]
fn patterns_in_bypass_and_key() {
    let origin = Origin::start();
    let proxy = one_route(
        &origin,
        "ttl = \"100s\"\nignore_cookies = \"*\"\nbypass = [\"cookie:wordpress_logged_in_*\", \"query:draft_*\"]\n\
         key = { cookies = [\"pref_*\"], headers = [\"X-Geo-*\"] }",
    );
    origin.on("/?draft_x").reply(Reply::new(200).body("draft"));
    origin.on("/").answer(|request| {
        let said = |name| request.field(name).unwrap_or("-");
        Reply::new(200).body(format!("{} {}", said("cookie"), said("x-geo-city")))
    });
    let member = "wordpress_logged_in_0f=alice";
    for cookie in [
        member.to_owned(),
        format!("a=1,{member}"),
        format!("a=\"1; {member}\""),
    ] {
        let response = proxy.get_with("/", &[&format!("Cookie: {cookie}")]);
        response.assert_is(200, &format!("{cookie} -"));
        response.assert_forwarded("bypass");
    }
    proxy.get("/?draft_x").assert_forwarded("bypass");
    for round in 0..2 {
        for (field, body) in [
            ("Cookie: pref_a=1", "pref_a=1 -"),
            ("Cookie: pref_b=1", "pref_b=1 -"),
            ("Cookie: pref_a=1; pref_b=2", "pref_a=1; pref_b=2 -"),
            ("X-Geo-City: Ulm", "- Ulm"),
            ("X-Other: 1", "- -"),
        ] {
            let response = proxy.get_with("/", &[field]);
            response.assert_is(200, body);
            assert_eq!(response.is_hit(), round == 1, "{response:?}");
        }
    }
    proxy
        .get_with("/", &["Cookie: pref_b=2; x=3; pref_a=1"])
        .assert_hit();
}

#[test]
fn only_some_query_parameters() {
    let origin = Origin::start();
    let proxy = one_route(
        &origin,
        "ttl = \"100s\"\nkey = { query = { only = [\"page\"] } }",
    );
    for target in ["/?page=1&x=1", "/?page=1&x=2", "/?page=2"] {
        origin.on(target).reply(Reply::new(200).body(target));
    }
    origin
        .on("/?page=1")
        .reply(Reply::new(200).body("/?page=1"));
    proxy.get("/?page=1&x=1").assert_is(200, "/?page=1");
    proxy.get("/?page=1&x=2").assert_hit();
    proxy.get("/?page=2").assert_is(200, "/?page=2");
}

#[test]
fn headers_and_cookies_of_the_key() {
    let origin = Origin::start();
    let proxy = one_route(
        &origin,
        "ttl = \"100s\"\nkey = { headers = [\"X-Country\"], cookies = [\"currency\"] }",
    );
    origin.on("/").answer(|request| {
        let country = request.field("x-country").unwrap_or("-");
        let cookie = request.field("cookie").unwrap_or("-");
        Reply::new(200).body(format!("{country} {cookie}"))
    });
    let requests: [(&[&str], &str); 4] = [
        (&["X-Country: DE"], "DE -"),
        (&["X-Country: FR"], "FR -"),
        (
            &["X-Country: DE", "Cookie: currency=EUR"],
            "DE currency=EUR",
        ),
        (
            &["X-Country: DE", "Cookie: currency=USD"],
            "DE currency=USD",
        ),
    ];
    for round in 0..2 {
        for (fields, body) in requests {
            let response = proxy.get_with("/", fields);
            response.assert_is(200, body);
            assert_eq!(response.is_hit(), round == 1, "{response:?}");
        }
    }
    let personal = proxy.get_with("/", &["X-Country: DE", "Cookie: currency=EUR; session=1"]);
    personal.assert_is(200, "DE currency=EUR; session=1");
}

#[test]
fn cookies_that_the_operator_ignores() {
    let origin = Origin::start();
    let proxy = one_route(
        &origin,
        "ttl = \"100s\"\nignore_cookies = [\"theme\", \"consent_*\"]",
    );
    origin.on("/").reply(Reply::new(200).body("x"));
    proxy.get_with("/", &["Cookie: theme=dark; consent_1=yes; _ga=1"]);
    proxy.get_with("/", &["Cookie: theme=light"]).assert_hit();
    assert!(
        !proxy
            .get_with("/", &["Cookie: theme=light; session=1"])
            .is_hit()
    );
}

#[test]
fn set_cookie_policies() {
    for (policy, kept, cookie) in [
        ("refuse", false, Some("a=1")),
        ("strip", true, None),
        ("store", true, Some("a=1")),
    ] {
        let origin = Origin::start();
        let proxy = one_route(
            &origin,
            &format!("ttl = \"100s\"\nset_cookie = \"{policy}\""),
        );
        origin
            .on("/")
            .reply(Reply::new(200).with("Set-Cookie: a=1").body("x"));
        proxy.get("/");
        let second = proxy.get("/");
        second.assert_is(200, "x");
        assert_eq!(second.is_hit(), kept, "{policy}: {second:?}");
        assert_eq!(second.field("set-cookie"), cookie, "{policy}: {second:?}");
    }
}

#[test]
fn heuristic_freshness_of_the_rfc() {
    let origin = Origin::start();
    let proxy = one_route(&origin, "ttl = \"5s\"\nheuristic = 10");
    let modified = format!("Last-Modified: {}", http_date(-1000));
    let date = format!("Date: {}", http_date(0));
    origin
        .on("/modified")
        .reply(Reply::new(200).with_all(&[&modified, &date]).body("x"));
    origin.on("/nothing").reply(Reply::new(200).body("x"));
    for (target, ttl) in [("/modified", 100), ("/nothing", 5)] {
        proxy.get(target);
        let second = proxy.get(target);
        assert!(
            (ttl - 5..=ttl).contains(&second.cache().ttl().unwrap()),
            "{second:?}"
        );
    }
}

#[test]
fn the_list_of_targeted_fields() {
    let origin = Origin::start();
    let proxy = one_route(
        &origin,
        "targeted = [\"My-Cache-Control\", \"CDN-Cache-Control\"]",
    );
    let rows: [(&str, &[&str], i64); 3] = [
        (
            "/mine",
            &[
                "My-Cache-Control: max-age=300",
                "CDN-Cache-Control: max-age=200",
            ],
            300,
        ),
        (
            "/cdn",
            &[
                "CDN-Cache-Control: max-age=200",
                "Cache-Control: max-age=100",
            ],
            200,
        ),
        (
            "/malformed",
            &["My-Cache-Control: ,", "CDN-Cache-Control: max-age=200"],
            200,
        ),
    ];
    for (target, fields, ttl) in rows {
        origin
            .on(target)
            .reply(Reply::new(200).with_all(fields).body("x"));
        proxy.get(target);
        let second = proxy.get(target);
        assert!(
            (ttl - 5..=ttl).contains(&second.cache().ttl().unwrap()),
            "{target}: {second:?}"
        );
    }
}

#[test]
fn reloads_where_the_operator_honours_them() {
    let origin = Origin::start();
    let proxy = one_route(&origin, "reload = \"honour\"");
    origin
        .on("/")
        .reply(Reply::new(200).with("Cache-Control: max-age=100").body("x"));
    proxy.get("/");
    proxy.get("/").assert_hit();
    proxy
        .get_with("/", &["Cache-Control: no-cache"])
        .assert_forwarded("request");
    proxy
        .get_with("/", &["Pragma: no-cache"])
        .assert_forwarded("request");
    assert_eq!(origin.count("/"), 3);
}

#[test]
fn a_status_excluded_from_storage_is_reported_as_such() {
    let origin = Origin::start();
    let proxy = one_route(&origin, "status_ttl = { 404 = \"0s\", 500 = \"0s\" }");
    for (status, why) in [(404, "status-ttl"), (500, "status-ttl"), (503, "status")] {
        let target = format!("/{status}");
        origin.on(&target).reply(Reply::new(status).body("x"));
        let answer = proxy.get(&target);
        answer.assert_is(status, "x");
        assert_eq!(answer.cache().get("detail"), Some(why), "{answer:?}");
        proxy.get(&target).assert_is(status, "x");
        assert_eq!(origin.count(&target), 2, "{status}");
    }
}

/// What docs/operations.md advises for files that every visitor gets alike.
#[test]
fn static_files_can_be_kept_for_visitors_with_a_session() {
    let origin = Origin::start();
    let route = "match = { path = [\"/static/*\", \"/media/*\"] }\nignore_cookies = \"*\"";
    let proxy = one_route(&origin, route);
    for target in ["/static/site.css", "/account"] {
        let reply = Reply::new(200).with("Cache-Control: max-age=100");
        origin.on(target).reply(reply.body(target));
    }
    let get = |target, session| proxy.get_with(target, &[&format!("Cookie: sessionid={session}")]);
    get("/static/site.css", 1).assert_is(200, "/static/site.css");
    get("/static/site.css", 2).assert_hit();
    for session in 1..=2 {
        let answer = get("/account", session);
        assert_eq!(
            answer.cache().get("detail"),
            Some("credentials"),
            "{answer:?}"
        );
        assert_eq!(origin.count("/account"), session);
    }
}
