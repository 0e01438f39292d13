//! The ten rules of `microcache http://localhost:3000`, with no flag at all.

use crate::support::{Gate, Origin, Proxy, Reply};

fn default(origin: &Origin) -> Proxy {
    Proxy::start(origin, &[])
}

/// Asks twice and says whether the origin was asked twice as well.
fn is_shared(request: &[&str], response: &[&str]) -> bool {
    let origin = Origin::start();
    let proxy = default(&origin);
    origin
        .on("/")
        .reply(Reply::new(200).with_all(response).body("x"));
    proxy.get_with("/", request).assert_is(200, "x");
    let second = proxy.get_with("/", request);
    second.assert_is(200, "x");
    assert_eq!(second.is_hit(), origin.count("/") == 1, "{second:?}");
    second.is_hit()
}

#[test]
fn rule_1_a_plain_page_is_kept_for_a_second() {
    let origin = Origin::start();
    let proxy = default(&origin);
    origin.on("/").reply(Reply::new(200).body("hello"));
    let first = proxy.get("/");
    first.assert_is(200, "hello");
    first.assert_forwarded("uri-miss");
    let second = proxy.get("/");
    second.assert_is(200, "hello");
    second.assert_hit();
    assert!(second.cache().ttl().unwrap() <= 1, "{second:?}");
    let head = proxy.send("HEAD", "/", &[]);
    head.assert_hit();
    assert_eq!(head.field("content-length"), Some("5"));
}

#[test]
fn rule_1_reasons_against_it() {
    assert!(is_shared(&[], &[]));
    for line in [
        "Cache-Control: private",
        "Cache-Control: no-store",
        "Cache-Control: no-cache",
        "Vary: *",
        "Set-Cookie: a=1",
        "Content-Type: text/event-stream",
        "Content-Type: text/event-stream; charset=utf-8",
    ] {
        assert!(!is_shared(&[], &[line]), "{line}");
    }
    assert!(!is_shared(&["Cookie: session=1"], &[]));
    assert!(!is_shared(&["Authorization: Basic dTpw"], &[]));
}

#[test]
fn rule_2_cookies_that_count() {
    for cookie in [
        "session=1",
        "_ga=1; session=2",
        "PHPSESSID=x",
        "a",
        "=x",
        "ga=1",
        "_g=1",
        "_gallery_session=alice",
        "_gateway_key=alice",
        "_ga_session=alice",
        "_hjort_session=alice",
        "_pk_session=alice",
        "ajs_user_id=alice",
        "_ga=1 session=alice",
        "_ga=1,session=alice",
        "_ga=1;session=alice",
        "_ga=\"1; session=alice\"",
        "_ga=1\tsession=alice",
        "$Version=1; _ga=1",
    ] {
        assert!(!is_shared(&[&format!("Cookie: {cookie}")], &[]), "{cookie}");
    }
    assert!(
        !is_shared(&["Cookie: _ga=1", "Cookie: session=1"], &[]),
        "in a second line"
    );
}

#[test]
fn rule_2_cookies_that_do_not_count_are_sent_by_requests_that_pass() {
    for cookie in [
        "_ga=GA1.2.3",
        "_ga_ABC=1; _gid=2",
        "_gcl_au=1",
        "_fbp=fb.1",
        "__utma=1; __utmz=2",
        "_ga=1;_gid=2",
    ] {
        assert!(is_shared(&[&format!("Cookie: {cookie}")], &[]), "{cookie}");
    }
    let origin = Origin::start();
    let proxy = default(&origin);
    origin.on("/").reply(Reply::new(200).body("x"));
    let cookie = "Cookie: _ga=GA1.2.3";
    proxy.get_with("/", &[cookie]);
    assert_eq!(origin.seen("/")[0].field("cookie"), None);
    proxy.send("POST", "/", &[cookie, "Content-Length: 0"]);
    assert_eq!(origin.seen("/")[1].field("cookie"), Some("_ga=GA1.2.3"));
}

#[test]
fn rule_2_one_users_page_is_not_anothers_with_any_session_name() {
    for name in [
        "_gallery_session",
        "_hjort_session",
        "_ga_key",
        "_ga=1,session",
    ] {
        let origin = Origin::start();
        let proxy = default(&origin);
        origin
            .on("/")
            .answer(|request| Reply::new(200).body(request.field("cookie").unwrap_or("nobody")));
        let [alice, bob] = ["alice", "bob"].map(|user| format!("{name}={user}"));
        for cookie in [&alice, &bob] {
            proxy
                .get_with("/", &[&format!("Cookie: {cookie}")])
                .assert_is(200, cookie);
        }
        proxy.get("/").assert_is(200, "nobody");
    }
}

#[test]
fn rule_2_must_revalidate_alone_shares_nothing_that_authorization_got() {
    let authorized = ["Authorization: Basic dTpw"];
    assert!(!is_shared(&authorized, &["Cache-Control: must-revalidate"]));
    assert!(is_shared(
        &authorized,
        &["Cache-Control: max-age=100, must-revalidate"]
    ));
    assert!(!is_shared(
        &["Cookie: session=1"],
        &["CDN-Cache-Control: must-revalidate"]
    ));
    let origin = Origin::start();
    let proxy = default(&origin);
    origin.on("/").answer(|request| {
        Reply::ok(
            &["Cache-Control: must-revalidate"],
            request.field("authorization").unwrap_or("nobody"),
        )
    });
    proxy
        .get_with("/", &["Authorization: alice"])
        .assert_is(200, "alice");
    proxy
        .get_with("/", &["Authorization: bob"])
        .assert_is(200, "bob");
    proxy.get("/").assert_is(200, "nobody");
    proxy
        .get_with("/", &["Authorization: bob"])
        .assert_is(200, "bob");
}

#[test]
fn rule_2_responses_marked_as_public() {
    let cookie = ["Cookie: session=1"];
    for line in [
        "Cache-Control: public, max-age=100",
        "Cache-Control: s-maxage=100",
        "CDN-Cache-Control: max-age=100",
    ] {
        assert!(is_shared(&cookie, &[line]), "{line}");
    }
    assert!(!is_shared(&cookie, &["Cache-Control: max-age=100"]));
}

#[test]
fn rule_2_personal_requests_are_never_collapsed() {
    for field in ["Cookie: session=1", "Authorization: Basic dTpw"] {
        let origin = Origin::start();
        let proxy = default(&origin);
        let gate = Gate::default();
        origin.on("/").reply(Reply::new(200).body("x").after(&gate));
        let mut clients: Vec<_> = (0..3).map(|_| proxy.ask_with("/", &[field])).collect();
        origin.wait_for("/", 3);
        gate.open();
        for client in &mut clients {
            let response = client.response();
            response.assert_is(200, "x");
            assert!(!response.cache().has("collapsed"), "{response:?}");
        }
    }
}

#[test]
fn rule_3_set_cookie_is_never_replayed() {
    let origin = Origin::start();
    let proxy = default(&origin);
    let mut count = 0;
    origin.on("/").answer(move |_| {
        count += 1;
        let cookie = format!("Set-Cookie: session={count}");
        Reply::ok(
            &[&cookie, "Cache-Control: public, max-age=100"],
            count.to_string(),
        )
    });
    for number in 1..=3 {
        let response = proxy.get("/");
        response.assert_is(200, &number.to_string());
        assert_eq!(
            response.head.all("set-cookie"),
            [format!("session={number}")]
        );
    }
}

/// The page may be asked about only (`no-cache`), and each confirmation is for one session.
#[test]
fn rule_3_a_304_with_a_cookie_leaves_nothing_for_others() {
    let origin = Origin::start();
    let proxy = default(&origin);
    let (gate, mut count) = (Gate::default(), 0);
    let opening = gate.clone();
    origin.on("/").answer(move |requested| {
        count += 1;
        let page = ["Cache-Control: public, no-cache", "ETag: \"a\""];
        if count == 1 {
            return Reply::new(200).with_all(&page).body("page");
        }
        let (cookie, csrf) = (
            format!("Set-Cookie: session={count}"),
            format!("X-Csrf: {count}"),
        );
        let own = [&cookie[..], &csrf];
        let reply = match requested.field("if-none-match") {
            Some(_) => Reply::new(304).with_all(&page).with_all(&own),
            None => Reply::new(200).with_all(&page).with_all(&own).body("page"),
        };
        reply.after(&opening)
    });
    proxy.get("/").assert_is(200, "page");
    let leader = proxy.ask("/");
    origin.wait_for("/", 2);
    let mut clients: Vec<_> = (0..5).map(|_| proxy.ask("/")).collect();
    clients.push(leader);
    proxy.settle();
    gate.open();
    let mut sessions = Vec::new();
    for client in &mut clients {
        let response = client.response();
        response.assert_is(200, "page");
        let [cookie] = response.head.all("set-cookie")[..] else {
            panic!("one cookie of its own: {response:?}");
        };
        let csrf = response.field("x-csrf").expect("its own token");
        assert_eq!(cookie, format!("session={csrf}"), "{response:?}");
        sessions.push(csrf.to_owned());
    }
    sessions.sort();
    assert_eq!(sessions, ["2", "3", "4", "5", "6", "7"]);
}

#[test]
fn rule_3_waiters_never_get_anothers_cookie() {
    let origin = Origin::start();
    let proxy = default(&origin);
    let gate = Gate::default();
    let (opening, mut count) = (gate.clone(), 0);
    origin.on("/").answer(move |_| {
        count += 1;
        Reply::ok(
            &[&format!("Set-Cookie: session={count}")],
            count.to_string(),
        )
        .after(&opening)
    });
    let leader = proxy.ask("/");
    origin.wait_for("/", 1);
    let mut clients: Vec<_> = (0..5).map(|_| proxy.ask("/")).collect();
    clients.push(leader);
    proxy.settle();
    gate.open();
    let mut cookies: Vec<String> = clients
        .iter_mut()
        .map(|client| {
            client
                .response()
                .field("set-cookie")
                .expect("one's own cookie")
                .to_owned()
        })
        .collect();
    cookies.sort();
    cookies.dedup();
    assert_eq!(cookies.len(), 6, "{cookies:?}");
}

#[test]
fn rule_4_the_host_is_part_of_the_key() {
    let origin = Origin::start();
    let proxy = default(&origin);
    origin.on("/").answer(|request| {
        Reply::ok(
            &["Cache-Control: max-age=100"],
            request.field("host").unwrap(),
        )
    });
    let ask = |host: &str| proxy.request(format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    for host in ["a.example", "b.example", "a.example:81", "a.example."] {
        assert_eq!(ask(host).text(), host);
    }
    for same in ["a.example", "A.Example", "a.example:80"] {
        let response = ask(same);
        response.assert_hit();
        assert_eq!(response.text(), "a.example");
    }
}

#[test]
fn rule_4_the_host_is_forwarded_as_it_is_keyed() {
    // An origin that knows its name in one spelling only answers the others with 404.
    for (line, host) in [
        ("GET / HTTP/1.1", "SITE.example"),
        ("GET / HTTP/1.1", "site.example:80"),
        ("GET / HTTP/1.1", "Site.Example:80"),
        ("GET http://SITE.example:80/ HTTP/1.1", "other.example"),
        ("GET HTTP://site.EXAMPLE HTTP/1.1", "SITE.EXAMPLE"),
    ] {
        let origin = Origin::start();
        let proxy = default(&origin);
        origin.on("/").answer(|request| {
            let known = request.field("host") == Some("site.example");
            let status = if known { 200 } else { 404 };
            Reply::new(status)
                .with("Cache-Control: max-age=100")
                .body("x")
        });
        let first = proxy.request(format!("{line}\r\nHost: {host}\r\n\r\n"));
        first.assert_is(200, "x");
        let honest = proxy.request("GET / HTTP/1.1\r\nHost: site.example\r\n\r\n");
        honest.assert_is(200, "x");
        honest.assert_hit();
        let seen = &origin.seen("/")[0];
        for name in ["host", "x-forwarded-host"] {
            assert_eq!(seen.head.all(name), ["site.example"], "{line} {host}");
        }
        let forwarded = seen.field("forwarded").unwrap();
        assert!(forwarded.contains("host=\"site.example\""), "{forwarded}");
    }
}

#[test]
fn rule_4_no_web_cache_deception() {
    let origin = Origin::start();
    let proxy = default(&origin);
    for target in [
        "/account",
        "/account/x.css",
        "/account;x.css",
        "/account%2fx.css",
        "/account?x.css",
    ] {
        origin
            .on(target)
            .reply(Reply::new(200).with("Cache-Control: private").body(target));
        for _ in 0..2 {
            let response = proxy.get(target);
            response.assert_is(200, target);
            assert!(!response.is_hit(), "{response:?}");
        }
    }
}

#[test]
fn rule_4_tracking_parameters_count_by_default() {
    let origin = Origin::start();
    let proxy = default(&origin);
    for target in ["/?a=1", "/?a=1&utm_source=x", "/?a=1&fbclid=y"] {
        origin
            .on(target)
            .reply(Reply::ok(&["Cache-Control: max-age=100"], target));
        proxy.get(target).assert_is(200, target);
    }
}

#[test]
fn rule_5_forwarding_fields_of_clients_are_not_trusted() {
    let origin = Origin::start();
    let proxy = default(&origin);
    origin.on("/").reply(Reply::new(200).body("x"));
    let forged = [
        "X-Forwarded-For: 1.2.3.4",
        "X-Forwarded-Proto: https",
        "X-Forwarded-Host: evil.example",
        "X-Forwarded-Port: 666",
        "X-Forwarded-Prefix: /evil",
        "X-Forwarded-Scheme: nothttps",
        "X-Real-IP: 1.2.3.4",
        "Forwarded: for=1.2.3.4;host=evil.example",
        "X-Original-URL: /admin",
        "X-Rewrite-URL: /admin",
        "X-HTTP-Method-Override: DELETE",
        "X-HTTP-Method: DELETE",
        "X-Method-Override: DELETE",
        "x_forwarded_host: evil.example",
        "x.forwarded.host: evil.example",
        "X-Forwarded: for=1.2.3.4",
        "Proxy: http://evil.example",
        "X-Original-URI: /admin",
        "X-Scheme: nothttps",
        "Front-End-Https: nothttps",
        "X-Client-IP: 1.2.3.4",
        "True-Client-IP: 1.2.3.4",
        "Client-IP: 1.2.3.4",
        "CF-Connecting-IP: 1.2.3.4",
        "X-Cluster-Client-IP: 1.2.3.4",
        "X-Accel-Redirect: /admin",
        "X-Invoke-Path: /admin",
        "x-middleware-subrequest: evil",
        "X-Remote-User: evil",
        "accept_language: evil",
        "content_length: 666",
        "HTTP_HOST: evil.example",
    ];
    proxy.get_with("/", &forged).assert_is(200, "x");
    let seen = &origin.seen("/")[0];
    for (name, value) in &seen.head.fields {
        for word in ["1.2.3.4", "evil", "666", "nothttps", "/admin", "DELETE"] {
            assert!(!value.contains(word), "{name}: {value}");
        }
    }
    assert_eq!(seen.head.all("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.head.all("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.head.all("x-forwarded-host"), ["example.com"]);
}

#[test]
fn rule_5_a_field_with_an_underscore_does_not_choose_anothers_page() {
    // To a WSGI or PHP application, `Accept_Language` is `Accept-Language`.
    let origin = Origin::start();
    let proxy = default(&origin);
    origin.on("/").answer(|request| {
        let said = request
            .field("accept_language")
            .or(request.field("accept-language"));
        Reply::ok(
            &["Vary: Accept-Language", "Cache-Control: max-age=100"],
            said.unwrap_or("default"),
        )
    });
    proxy
        .get_with("/", &["Accept_Language: evil"])
        .assert_is(200, "default");
    proxy.get("/").assert_is(200, "default");
}

#[test]
fn rule_5_a_trusted_proxys_word_is_passed_on_and_keyed() {
    let origin = Origin::start();
    let listed = "X-Scheme,X-Remote-User,X_Lang,True-Client-IP";
    let trusts = ["--trusted-proxies", "127.0.0.1"];
    let proxy = Proxy::start(
        &origin,
        &[&trusts[..], &["--trusted-headers", listed]].concat(),
    );
    origin.on("/").answer(|request| {
        let said = |name| request.field(name).unwrap_or("-");
        Reply::ok(
            &["Cache-Control: max-age=100"],
            format!(
                "{} {} {}",
                said("x-scheme"),
                said("x-remote-user"),
                said("x_lang")
            ),
        )
    });
    for round in 0..2 {
        for (field, body) in [
            ("X-Scheme: https", "https - -"),
            ("X-Remote-User: alice", "- alice -"),
            ("X-Remote-User: bob", "- bob -"),
            ("X_Lang: de", "- - de"),
            ("True-Client-IP: 1.2.3.4", "- - -"),
        ] {
            let response = proxy.get_with("/", &[field]);
            response.assert_is(200, body);
            assert_eq!(response.is_hit(), round == 1, "{response:?}");
        }
    }
    proxy
        .get_with("/", &["True-Client-IP: 5.6.7.8"])
        .assert_hit();
    // A visitor may have said what the operator does not list.
    let wary = Proxy::start(&origin, &trusts);
    for field in ["X-Scheme: https", "X-Remote-User: alice", "X_Lang: de"] {
        wary.get_with("/", &[field]).assert_is(200, "- - -");
    }
}

#[test]
fn rule_5_trailers_are_no_fields() {
    let origin = Origin::start();
    let proxy = default(&origin);
    origin.on("/").reply(Reply::new(200).body("x"));
    let forged = "X-Forwarded-For: 1.2.3.4\r\nX-Forwarded-Proto: https\r\nForwarded: for=1.2.3.4\r\n\
                  X-Real-IP: 1.2.3.4\r\nX-Original-URL: /admin\r\nX-HTTP-Method-Override: DELETE\r\n\
                  x_forwarded_host: evil\r\nProxy: evil\r\nHost: evil\r\nContent-Location: /evil\r\n\
                  Authorization: evil\r\nCookie: evil=1\r\nTE: trailers\r\nX-Accel-Redirect: /x\r\n";
    let response = proxy.request(format!(
        "POST / HTTP/1.1\r\nHost: example.com\r\nTransfer-Encoding: chunked\r\n\r\n\
         5\r\nhello\r\n0\r\n{forged}X-Sum: 42\r\n\r\n"
    ));
    response.assert_is(200, "x");
    let seen = &origin.seen("/")[0];
    assert_eq!(seen.body(), b"hello");
    assert_eq!(seen.trailers(), [("X-Sum".to_owned(), "42".to_owned())]);
}

#[test]
fn rule_5_a_get_with_a_body_passes_uncached() {
    let origin = Origin::start();
    let proxy = default(&origin);
    origin
        .on("/")
        .reply(Reply::new(200).with("Cache-Control: max-age=100").body("x"));
    for expected in 1..=2 {
        let response =
            proxy.request("GET / HTTP/1.1\r\nHost: example.com\r\nContent-Length: 5\r\n\r\nhello");
        response.assert_is(200, "x");
        assert!(
            !response.is_hit() && !response.cache().has("stored"),
            "{response:?}"
        );
        assert_eq!(origin.seen("/")[expected - 1].body(), b"hello");
    }
    assert!(
        !proxy.get("/").is_hit(),
        "what answered a body answers no GET without one"
    );
}

#[test]
fn rule_6_errors_are_not_kept() {
    let origin = Origin::start();
    let proxy = default(&origin);
    for status in [400, 405, 413, 414, 431, 500, 502, 503, 504] {
        let target = format!("/{status}");
        origin.on(&target).reply(Reply::new(status).body("x"));
        for expected in 1..=2 {
            proxy.get(&target).assert_is(status, "x");
            assert_eq!(origin.count(&target), expected, "{status}");
        }
    }
}

#[test]
fn rule_7_a_client_can_neither_ask_for_stale_nor_force_a_reload() {
    for line in [
        "Cache-Control: no-cache",
        "Cache-Control: max-age=0",
        "Pragma: no-cache",
        "Cache-Control: max-stale=1000",
    ] {
        assert!(
            is_shared(&[line], &["Cache-Control: max-age=100"]),
            "{line}"
        );
    }
}

#[test]
fn rule_8_above_the_cap_the_least_recently_used_variant_leaves() {
    let origin = Origin::start();
    let proxy = default(&origin);
    origin.on("/").answer(|request| {
        let agent = request.field("user-agent").unwrap().to_owned();
        Reply::ok(&["Vary: User-Agent", "Cache-Control: max-age=100"], agent)
    });
    let get = |number: usize| {
        let response = proxy.get_with("/", &[&format!("User-Agent: {number}")]);
        response.assert_is(200, &number.to_string());
        response.is_hit()
    };
    for number in 0..12 {
        assert!(!get(number));
    }
    for number in 4..12 {
        assert!(get(number), "{number}");
    }
    assert!(!get(0));
    assert_eq!((4..12).filter(|&number| get(number)).count(), 7);
}

#[test]
fn rule_8_waiters_above_the_cap_are_refused() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--max-waiters", "1", "--threads", "1"]);
    let gate = Gate::default();
    origin.on("/").reply(Reply::new(200).body("x").after(&gate));
    // One leads, one waits, two must not do either.
    let mut clients: Vec<_> = (0..2)
        .map(|_| {
            let client = proxy.ask("/");
            proxy.settle();
            client
        })
        .collect();
    origin.wait_for("/", 1);
    for _ in 0..2 {
        let refused = proxy.get("/");
        assert_eq!(refused.status, 503);
        assert_eq!(refused.field("retry-after"), Some("1"));
        assert_eq!(refused.cache().get("detail"), Some("too-many-wait"));
    }
    gate.open();
    for client in &mut clients {
        client.response().assert_is(200, "x");
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn rule_9_a_range_is_cut_from_the_whole() {
    let origin = Origin::start();
    let proxy = default(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=100"], "0123456789"));
    for _ in 0..2 {
        proxy
            .get_with("/", &["Range: bytes=2-4"])
            .assert_is(206, "234");
    }
    assert_eq!(origin.count("/"), 1);
    assert_eq!(origin.seen("/")[0].field("range"), None);
}

#[test]
fn rule_10_event_streams_are_neither_kept_nor_shared() {
    let origin = Origin::start();
    let proxy = default(&origin);
    let gate = Gate::default();
    origin.on("/").reply(
        Reply::new(200)
            .with_all(&[
                "Content-Type: text/event-stream",
                "Transfer-Encoding: chunked",
            ])
            .chunk("data: 1\n\n")
            .pause(&gate)
            .chunk("data: 2\n\n")
            .send("0\r\n\r\n"),
    );
    let mut clients: Vec<_> = (0..2).map(|_| proxy.ask("/")).collect();
    for client in &mut clients {
        assert_eq!(
            client.head().field("content-type"),
            Some("text/event-stream")
        );
        assert_eq!(client.chunk(), "data: 1\n\n");
    }
    assert_eq!(origin.count("/"), 2);
    gate.open();
    for client in &mut clients {
        assert_eq!(client.chunk(), "data: 2\n\n");
    }
}
