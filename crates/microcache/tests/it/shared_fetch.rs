//! What a fetch for everyone sends of the request that it is made of: no client decides by a field of its own what
//! the others see.

use serde_json::{Value, json};

use crate::operators::Operator;
use crate::support::http2::Http2;
use crate::support::{Gate, Origin, Proxy, Reply, eventually};

const LONG: &str = "Cache-Control: max-age=100";

/// An origin that answers with what this field says, and does not name it in `Vary`.
fn reflects(origin: &Origin, name: &'static str) {
    origin.on("/").answer(move |request| {
        let value = request.field(name).unwrap_or("nothing").to_owned();
        Reply::new(200).with(LONG).body(value)
    });
}

#[test]
fn an_unknown_field_changes_nothing_for_others() {
    for name in [
        "Surrogate-Capability",
        "X-React-Router-SPA-Mode",
        "X-React-Router-Prerender-Data",
        "X-HTTP-Path-Override",
        "CloudFront-Forwarded-Proto",
        "Referer",
        "Sec-Purpose",
        "X-Request-ID<",
        "Origin",
    ] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &[]);
        let (name, value) = match name.strip_suffix('<') {
            Some(name) => (name, "<script>"),
            None => (name, "evil"),
        };
        reflects(&origin, Box::leak(name.to_owned().into_boxed_str()));
        let evil = format!("{name}: {value}");
        proxy.get_with("/", &[&evil]).assert_is(200, "nothing");
        let other = proxy.get("/");
        other.assert_is(200, "nothing");
        other.assert_hit();
    }
}

/// Fields by which one client could decide what the others see, as HTTP/2 has them.
const INVENTED: [&str; 8] = [
    "surrogate-capability",
    "x-react-router-spa-mode",
    "x-react-router-prerender-data",
    "x-http-path-override",
    "cloudfront-forwarded-proto",
    "sec-purpose",
    "origin",
    "x-request-id",
];
/// No id of a trace, and no value of another field.
const EVIL: &str = "<evil>";

#[test]
fn by_http2_a_field_decides_nothing_for_others_either() {
    for name in INVENTED {
        for line in [LONG, "Cache-Control: max-age=0, stale-while-revalidate=100"] {
            let origin = Origin::start();
            let proxy = Proxy::start(&origin, &[]);
            origin.on("/").answer(move |request| {
                let value = request.field(name).unwrap_or("nothing").to_owned();
                Reply::new(200).with(line).body(value)
            });
            let mut evil = Http2::connect(proxy.address());
            // A miss, and then a hit or one that has it refreshed.
            for _ in 0..2 {
                let stream = evil.ask("GET", "/", &[(name, EVIL)]);
                evil.answer(stream).assert_is(200, "nothing");
            }
            if line != LONG {
                origin.wait_for("/", 2);
                proxy.settle();
            }
            proxy.get("/").assert_is(200, "nothing");
            Http2::connect(proxy.address())
                .get("/")
                .assert_is(200, "nothing");
            let seen = origin.seen("/");
            assert!(seen.iter().all(|it| it.field(name).is_none()), "{name}");
        }
    }
}

#[test]
fn waiters_are_not_affected_by_fields_of_the_leader() {
    for name in INVENTED {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &[]);
        let gate = Gate::default();
        let behind = gate.clone();
        origin.on("/").answer(move |request| {
            let value = request.field(name).unwrap_or("nothing").to_owned();
            Reply::new(200).with(LONG).body(value).after(&behind)
        });
        let mut first = Http2::connect(proxy.address());
        let evil = first.ask("GET", "/", &[(name, EVIL)]);
        origin.wait_for("/", 1);
        let mut waiting = [
            proxy.ask("/"),
            proxy.ask_with("/", &[&format!("{name}: {EVIL}")]),
        ];
        let other = first.ask("GET", "/", &[]);
        gate.open();
        let answers = first.answers(&[evil, other]);
        for stream in [evil, other] {
            answers[&stream].assert_is(200, "nothing");
        }
        for client in &mut waiting {
            client.response().assert_is(200, "nothing");
        }
        assert_eq!(origin.count("/"), 1, "{name}");
    }
}

#[test]
fn a_range_requested_by_http2_is_for_one_client() {
    for name in [
        "hx-request",
        "turbo-frame",
        "rsc",
        "x-requested-with",
        "datastar-request",
    ] {
        for line in [LONG, "Cache-Control: max-age=0, stale-while-revalidate=100"] {
            let origin = Origin::start();
            let proxy = Proxy::start(&origin, &[]);
            origin.on("/").answer(move |request| {
                let is_part = request.field(name).is_some();
                let body = if is_part { "part" } else { "page" };
                Reply::new(200).with(line).body(body)
            });
            let mut client = Http2::connect(proxy.address());
            for _ in 0..3 {
                let stream = client.ask("GET", "/", &[(name, "true")]);
                client.answer(stream).assert_is(200, "part");
                proxy.settle();
                client.get("/").assert_is(200, "page");
            }
        }
    }
}

#[test]
fn a_refresh_has_no_field_of_its_client() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.on("/").answer(|request| {
        let value = request.field("X-Spa").unwrap_or("nothing").to_owned();
        Reply::ok(
            &["Cache-Control: max-age=0, stale-while-revalidate=100"],
            value,
        )
    });
    proxy.get("/").assert_is(200, "nothing");
    proxy
        .get_with("/", &["X-Spa: evil"])
        .assert_is(200, "nothing");
    origin.wait_for("/", 2);
    proxy.settle();
    proxy.get("/").assert_is(200, "nothing");
    assert!(
        origin
            .seen("/")
            .iter()
            .all(|seen| seen.field("x-spa").is_none())
    );
}

#[test]
fn a_client_with_a_withheld_field_gets_no_personal_response() {
    for (status, line) in [
        (200, "Cache-Control: private"),
        (200, "Cache-Control: no-store"),
        (200, "Set-Cookie: a=1"),
        (401, "X-Nothing: 1"),
        (400, "X-Nothing: 1"),
        (503, "X-Nothing: 1"),
    ] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &[]);
        origin
            .on("/")
            .answer(move |request| match request.field("X-Tenant") {
                Some(tenant) => Reply::new(200).with("Cache-Control: private").body(tenant),
                None => Reply::new(status).with(line).body("nobody's"),
            });
        let first = proxy.get_with("/", &["X-Tenant: a"]);
        first.assert_is(200, "a");
        assert_eq!(first.cache().get("detail"), Some("withheld"), "{first:?}");
        assert_eq!(origin.count("/"), 2);
        proxy.get_with("/", &["X-Tenant: b"]).assert_is(200, "b");
        let other = proxy.get("/");
        other.assert_is(status, "nobody's");
    }
}

#[test]
fn withheld_fields_are_reported_to_operators() {
    let origin = Origin::start();
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    origin.on("/").answer(|_| Reply::new(200).with(LONG));
    for n in 0..100 {
        let invented = format!("X-Invented-{n}: 1");
        proxy.get_with(&format!("/{n}"), &["X-Tenant: a", "Referer: b", &invented]);
    }
    proxy.get("/plain");
    let operator = Operator::at(admin);
    let metrics = operator.ask("GET", "/metrics", None).text();
    let counted = "microcache_route_withheld_requests_total{route=\"default\"} 100";
    assert!(metrics.contains(counted), "{metrics}");
    let log = proxy.output_with("x-invented-30");
    let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
    assert_eq!(lines("`x-tenant`"), 1, "{log}");
    assert_eq!(
        lines("a shared fetch omits the client's field"),
        32,
        "{log}"
    );
    assert_eq!(lines("referer"), 0, "{log}");
    let headers = ["X-Tenant: a", "Referer: b"];
    let imagined = json!({"url": "http://example.com/", "headers": headers});
    let reported = operator.ask("POST", "/v1/explain", Some(&imagined.to_string()));
    let reported: Value = serde_json::from_str(&reported.text()).expect("JSON");
    let left_out = json!({"withheld": ["x-tenant"], "dropped": ["referer"]});
    assert_eq!(reported["omitted_fields"], left_out, "{reported}");
    let step = "sent to the origin without `x-tenant`";
    assert!(reported["steps"].to_string().contains(step), "{reported}");
}

#[test]
fn for_a_while_such_requests_are_sent_whole_at_once() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.on("/").answer(|request| {
        let tenant = request.field("X-Tenant").unwrap_or("none").to_owned();
        Reply::new(200).with("Cache-Control: private").body(tenant)
    });
    proxy.get_with("/", &["X-Tenant: a"]).assert_is(200, "a");
    for tenant in ["b", "c"] {
        let request = format!("X-Tenant: {tenant}");
        proxy.get_with("/", &[&request]).assert_is(200, tenant);
    }
    assert_eq!(origin.count("/"), 4);
}

#[test]
fn waiters_get_no_personal_response_either() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    let gate = Gate::default();
    let behind = gate.clone();
    origin
        .on("/")
        .answer(move |request| match request.field("X-Tenant") {
            Some(tenant) => Reply::new(200).with("Cache-Control: private").body(tenant),
            None => Reply::ok(&["Cache-Control: private"], "nobody's").after(&behind),
        });
    let tenants = ["a", "b", "c"];
    let mut clients: Vec<_> = tenants
        .iter()
        .map(|tenant| proxy.ask_with("/", &[&format!("X-Tenant: {tenant}")]))
        .collect();
    origin.wait_for("/", 1);
    gate.open();
    for (client, tenant) in clients.iter_mut().zip(tenants) {
        client.response().assert_is(200, tenant);
    }
}

#[test]
fn a_request_with_an_identity_is_not_shared() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin
        .on("/")
        .answer(|request| match request.field("X-Shop-Token") {
            Some(token) => Reply::new(200).with(LONG).body(token),
            None => Reply::new(401).body("who are you?"),
        });
    proxy
        .get_with("/", &["X-Shop-Token: a"])
        .assert_is(200, "a");
    proxy
        .get_with("/", &["X-Shop-Token: b"])
        .assert_is(200, "b");
    proxy.get("/").assert_is(401, "who are you?");
}

#[test]
fn a_fragment_passes_until_the_application_names_its_field() {
    for (name, value) in [
        ("HX-Request", "true"),
        ("Turbo-Frame", "list"),
        ("RSC", "1"),
        ("X-Requested-With", "XMLHttpRequest"),
    ] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &[]);
        let answer = move |vary: Option<&'static str>| {
            move |request: &crate::support::Seen| {
                let form = if request.field(name).is_some() {
                    "part"
                } else {
                    "page"
                };
                let reply = Reply::new(200).with(LONG);
                let reply = vary.into_iter().fold(reply, Reply::with);
                reply.body(form)
            }
        };
        origin.on("/").answer(answer(None));
        let line = format!("{name}: {value}");
        let part = proxy.get_with("/", &[&line]);
        part.assert_is(200, "part");
        assert_eq!(part.cache().get("detail"), Some("fragment"), "{part:?}");
        proxy.get("/").assert_is(200, "page");
        proxy.get_with("/", &[&line]).assert_is(200, "part");

        let vary: &'static str = Box::leak(format!("Vary: {name}").into_boxed_str());
        origin.on("/told").answer(answer(Some(vary)));
        proxy.get("/told").assert_is(200, "page");
        proxy.get_with("/told", &[&line]).assert_is(200, "part");
        let again = proxy.get_with("/told", &[&line]);
        again.assert_is(200, "part");
        again.assert_hit();
        proxy.get("/told").assert_hit();
    }
}

#[test]
fn fields_in_vary_are_sent_and_select() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    origin.on("/").answer(|request| {
        let theme = request.field("X-Theme").unwrap_or("plain").to_owned();
        Reply::new(200).with(LONG).with("Vary: X-Theme").body(theme)
    });
    proxy
        .get_with("/", &["X-Theme: dark"])
        .assert_is(200, "dark");
    assert_eq!(
        origin.count("/"),
        2,
        "the first request was made without it"
    );
    proxy.get("/").assert_is(200, "plain");
    proxy
        .get_with("/", &["X-Theme: light"])
        .assert_is(200, "light");
    assert_eq!(origin.count("/"), 4, "it is known now");
    proxy.get_with("/", &["X-Theme: dark"]).assert_hit();
}

#[test]
fn json_and_a_page_are_entries_of_their_own() {
    let origin = Origin::start();
    let (proxy, operators) = Proxy::operated(&origin, &[]);
    origin.on("/").answer(|request| {
        let accept = request.field("accept").unwrap_or_default().to_owned();
        let json = accept.contains("json");
        let body = if json { "{}" } else { "<p>" };
        Reply::new(200).with(LONG).body(body)
    });
    let json = ["Accept: application/json, text/plain, */*"];
    proxy
        .get_with("/", &["Accept: text/html;q=1.0, application/json;q=0.1"])
        .assert_is(200, "<p>");
    proxy
        .get_with("/", &["Accept: text/html,*/*;q=0.5"])
        .assert_hit();
    proxy.get("/").assert_hit();
    proxy.get_with("/", &json).assert_is(200, "{}");
    proxy
        .get_with("/", &["Accept: application/json"])
        .assert_hit();
    proxy.get("/").assert_is(200, "<p>");
    assert_eq!(origin.count("/"), 2);
    proxy
        .send("POST", "/", &["Content-Length: 0"])
        .assert_is(200, "<p>");
    assert!(
        !proxy.get_with("/", &json).is_hit(),
        "a POST changes all of them"
    );
    let mut client = crate::support::Client::connect(operators);
    let url = "http://example.com/";
    let body = format!("{{\"url\":\"{url}\"}}");
    client.send(format!(
        "POST /v1/purges HTTP/1.1\r\nHost: {operators}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ));
    assert_eq!(client.response().status, 200);
    assert!(!proxy.get_with("/", &json).is_hit(), "and so does a purge");
}

#[test]
fn only_cookies_of_the_key_are_sent_on_shared_fetches() {
    let origin = Origin::start();
    let text = format!(
        "origin = \"{}\"\nignore_cookies = \"theme\"\nkey = {{ cookies = [\"lang\"] }}\n",
        origin.url()
    );
    let proxy = Proxy::with_config(&text);
    origin.on("/").answer(|request| {
        let cookie = request.field("cookie").unwrap_or("none").to_owned();
        Reply::new(200).with(LONG).with("Vary: Cookie").body(cookie)
    });
    proxy
        .get_with("/", &["Cookie: theme=dark; _ga=1; lang=de"])
        .assert_is(200, "lang=de");
    proxy
        .get_with("/", &["Cookie: lang=de; theme=light"])
        .assert_hit();
    proxy
        .get_with("/", &["Cookie: theme=dark"])
        .assert_is(200, "none");
}

#[test]
fn no_error_that_one_client_provokes_is_stored_for_others() {
    for status in [400, 413, 414, 417, 431] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &[]);
        origin.on("/").answer(move |request| {
            let lines = ["user-agent", "x-odd", "referer", "expect"];
            let provoked = lines.iter().any(|name| {
                request
                    .field(name)
                    .is_some_and(|value| value.len() > 1024 || value == "odd")
            });
            let status = if provoked { status } else { 200 };
            Reply::new(status).with(LONG).body(status.to_string())
        });
        let long = format!("User-Agent: {}", "x".repeat(1025));
        let passed = proxy.get_with("/", &[&long]);
        passed.assert_is(status, &status.to_string());
        assert_eq!(passed.cache().get("detail"), Some("long-fields"));
        for line in ["X-Odd: odd", "Referer: odd"] {
            proxy.get_with("/", &[line]).assert_is(200, "200");
        }
        proxy.get("/").assert_hit();
    }
}

#[test]
fn an_attacker_with_a_cookie_decides_nothing_for_others() {
    for line in ["X-Spa: evil", "Referer: evil"] {
        let origin = Origin::start();
        let proxy = Proxy::start(&origin, &[]);
        origin.on("/").answer(|request| {
            let value = request.field("X-Spa").or(request.field("referer"));
            let body = value.unwrap_or("page").to_owned();
            Reply::ok(&["Cache-Control: public, max-age=100"], body)
        });
        let own = proxy.get_with("/", &["Cookie: session=1", line]);
        own.assert_is(200, "evil");
        assert!(!own.cache().has("stored"), "{own:?}");
        proxy.get("/").assert_is(200, "page");
    }
}

#[test]
fn a_page_for_a_browser_with_a_session_is_stored_once_known_to_be_public() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &[]);
    let public = Reply::new(200).with("Cache-Control: public, max-age=100");
    origin.on("/").reply(public.body("page"));
    let browser = [
        "Cookie: session=1",
        "Referer: http://a/",
        "Sec-Fetch-Mode: navigate",
    ];
    assert!(!proxy.get_with("/", &browser).cache().has("stored"));
    assert!(proxy.get_with("/", &browser).cache().has("stored"));
    eventually("it is a hit", || {
        proxy.get_with("/", &browser).is_hit().then_some(())
    });
}

#[test]
fn forward_fields_sends_unknown_fields_for_all_clients() {
    let origin = Origin::start();
    let text = format!(
        "origin = \"{}\"\nforward_fields = [\"Req-*\"]\n",
        origin.url()
    );
    let proxy = Proxy::with_config(&text);
    reflects(&origin, "Req-Num");
    proxy
        .get_with("/", &["Req-Num: 1", "X-Other: 2"])
        .assert_is(200, "1");
    proxy.get_with("/", &["Req-Num: 2"]).assert_hit();
    assert_eq!(origin.seen("/")[0].field("x-other"), None);
}
