//! Visitors without cookies share pages that their application marks as one client's (`anonymous_ttl`).

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::{Gate, Origin, Proxy, Reply, eventually};

const RAILS: [&str; 3] = [
    "Content-Type: text/html; charset=utf-8",
    "Cache-Control: max-age=0, private, must-revalidate",
    "Set-Cookie: _app_session=one; path=/; HttpOnly",
];

fn proxy(origin: &Origin, lines: &str) -> Proxy {
    Proxy::with_config(&format!(
        "origin = \"{}\"\nanonymous_ttl = \"100s\"\n{lines}\n",
        origin.url()
    ))
}

/// Has the origin answer each request with another page and another session.
fn numbered(origin: &Origin, target: &str, body: &'static str) {
    let asked = AtomicUsize::new(0);
    origin.on(target).answer(move |_| {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        Reply::new(200)
            .with_all(&RAILS[..2])
            .with(&format!("Set-Cookie: _app_session=s{number}"))
            .body(format!("{body}{number}"))
    });
}

#[test]
fn one_page_for_all_without_cookies_and_one_session_for_the_first() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    numbered(&origin, "/", "page");
    let first = proxy.get("/");
    first.assert_is(200, "page0");
    assert_eq!(first.field("set-cookie"), Some("_app_session=s0"));
    for fields in [&[][..], &["Cookie: _ga=1"], &["Accept-Language: de"]] {
        let next = proxy.get_with("/", fields);
        next.assert_is(200, "page0");
        next.assert_hit();
        assert_eq!(next.field("set-cookie"), None);
        assert_eq!(
            next.field("cache-control"),
            Some("max-age=0, private, must-revalidate")
        );
    }
    for fields in [
        "Cookie: _app_session=s0",
        "Cookie: remember_me=a",
        "Cookie: _ga=1; ab_test=b",
        "Authorization: Basic dTpw",
        "X-Api-Key: a",
    ] {
        let own = proxy.get_with("/", &[fields]);
        assert!(
            !own.is_hit() && own.field("set-cookie").is_some(),
            "{fields}: {own:?}"
        );
        assert_eq!(own.cache().get("detail"), Some("credentials"), "{fields}");
    }
    proxy.get("/").assert_is(200, "page0");
    let shared = &origin.seen("/")[0];
    assert_eq!(shared.field("cookie"), None);
    assert_eq!(shared.field("accept-encoding"), Some("identity"));
}

#[test]
fn what_may_be_one_clients_stays_one_clients() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    for (target, fields) in [
        ("/no-store", &["Cache-Control: private, no-store"][..]),
        ("/vary", &["Cache-Control: private", "Vary: *"]),
        ("/targeted", &["CDN-Cache-Control: private"]),
        (
            "/nonce",
            &[
                "Cache-Control: private",
                "Content-Security-Policy: script-src 'nonce-a'",
            ],
        ),
        ("/field", &["Cache-Control: private", "X-CSRF-Token: a"]),
        ("/search?q=a", &["Cache-Control: private"]),
        (
            "/encoded",
            &["Cache-Control: private", "Content-Encoding: br"],
        ),
    ] {
        origin.on(target).reply(Reply::ok(fields, "x"));
        for _ in 0..2 {
            assert!(!proxy.get(target).is_hit(), "{target}");
        }
        assert_eq!(origin.count(target), 2, "{target}");
    }
    numbered(&origin, "/host", "");
    proxy.get_with("/host", &[]).assert_is(200, "0");
    let other = proxy.request("GET /host HTTP/1.1\r\nHost: other.example\r\n\r\n");
    other.assert_is(200, "1");
    numbered(&origin, "/post", "");
    for _ in 0..2 {
        assert!(!proxy.send("POST", "/post", &[]).is_hit());
    }
}

#[test]
fn statuses_and_parameters_are_the_operators_choice() {
    let origin = Origin::start();
    let lines =
        "status_ttl = { 200 = \"0s\", 404 = \"100s\" }\nkey = { query = { only = [\"page\"] } }";
    let proxy = proxy(&origin, lines);
    for (target, status, is_stored) in [
        ("/missing", 404, true),
        ("/found", 200, false),
        ("/gone?page=2", 410, true),
        ("/refused", 403, false),
    ] {
        let fields = ["Cache-Control: no-cache, must-revalidate, max-age=0"];
        origin
            .on(target)
            .reply(Reply::new(status).with_all(&fields).body("x"));
        proxy.get(target);
        assert_eq!(proxy.get(target).is_hit(), is_stored, "{target}");
    }
}

#[test]
fn a_page_with_a_token_is_not_stored_wherever_its_body_is_split() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let page = "<html><form><input name=\"authenticity_token\" value=\"abc\"></form></html>";
    let (begin, end) = page.split_at(30);
    origin.on("/form").reply(Reply::ok(&RAILS, page));
    origin.on("/split").reply(
        Reply::new(200)
            .with_all(&RAILS)
            .with("Transfer-Encoding: chunked")
            .chunk(begin)
            .chunk(end)
            .send("0\r\n\r\n"),
    );
    for target in ["/form", "/split"] {
        let first = proxy.get(target);
        first.assert_is(200, page);
        assert!(!first.cache().has("stored"), "{first:?}");
        let second = proxy.get(target);
        second.assert_is(200, page);
        assert_eq!(
            second.cache().get("detail"),
            Some("form-token"),
            "{second:?}"
        );
        assert_eq!(origin.count(target), 2);
    }
}

#[test]
fn waiting_clients_get_the_whole_page_without_its_cookie() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let gate = Gate::default();
    let reply = Reply::new(200).with_all(&RAILS).with("Content-Length: 10");
    origin
        .on("/")
        .reply(reply.send("first").pause(&gate).send("after"));
    let mut first = proxy.ask("/");
    let head = first.head();
    assert!(head.field("set-cookie").is_some());
    assert_eq!(
        first.bytes(5),
        b"first",
        "the client of the fetch does not wait"
    );
    let mut waiting: Vec<_> = (0..20).map(|_| proxy.ask("/")).collect();
    proxy.settle();
    gate.open();
    assert_eq!(first.bytes(5), b"after");
    for client in &mut waiting {
        let response = client.response();
        response.assert_is(200, "firstafter");
        assert_eq!(response.field("set-cookie"), None);
    }
    assert_eq!(origin.count("/"), 1);
}

#[test]
fn no_other_client_gets_the_beginning_of_a_page_whose_end_has_a_token() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let gate = Gate::default();
    let asked = AtomicUsize::new(0);
    let held = gate.clone();
    origin.on("/").answer(move |_| {
        let number = asked.fetch_add(1, Ordering::SeqCst);
        let token = format!("<meta name=csrf-token content=t{number:04}>");
        let reply = Reply::new(200)
            .with_all(&RAILS[..2])
            .with(&format!("Set-Cookie: _app_session=s{number}"))
            .with(&format!("Content-Length: {}", 5 + token.len()))
            .send("begin");
        let reply = if number == 0 {
            reply.pause(&held)
        } else {
            reply
        };
        reply.send(token)
    });
    let mut first = proxy.ask("/");
    first.head();
    assert_eq!(first.bytes(5), b"begin");
    let mut waiting: Vec<_> = (0..10).map(|_| proxy.ask("/")).collect();
    proxy.settle();
    assert_eq!(origin.count("/"), 1);
    gate.open();
    let mut seen: Vec<_> = waiting
        .iter_mut()
        .map(|client| {
            let response = client.response();
            assert!(
                !response.is_hit() && !response.cache().has("collapsed"),
                "{response:?}"
            );
            (
                response.text(),
                response.field("set-cookie").map(str::to_owned),
            )
        })
        .collect();
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 10, "each has a token and a session of its own");
    assert_eq!(origin.count("/"), 11);
}

#[test]
fn a_body_that_breaks_off_is_given_to_no_other() {
    let origin = Origin::start();
    let proxy = proxy(&origin, "");
    let gate = Gate::default();
    let broken = Reply::new(200).with_all(&RAILS).with("Content-Length: 10");
    origin
        .on("/")
        .reply(broken.send("first").pause(&gate).close())
        .reply(Reply::ok(&RAILS, "whole"));
    let mut first = proxy.ask("/");
    first.head();
    let mut second = proxy.ask("/");
    proxy.settle();
    gate.open();
    second.response().assert_is(200, "whole");
}

#[test]
fn a_confirmed_page_is_scanned_too() {
    let origin = Origin::start();
    let proxy = Proxy::with_config(&format!(
        "origin = \"{}\"\nanonymous_ttl = \"100s\"\nstale_while_revalidate = \"0s\"",
        origin.url()
    ));
    let page = "<input name=_token value=abc>";
    for target in ["/plain", "/form"] {
        let body = if target == "/form" { page } else { "page" };
        let public = Reply::ok(
            &["Cache-Control: public, max-age=1", "Age: 1", "ETag: \"a\""],
            body,
        );
        let private = ["Cache-Control: private, max-age=0", "ETag: \"a\""];
        origin
            .on(target)
            .reply(public)
            .reply(Reply::new(304).with_all(&private))
            .reply(Reply::ok(&private, body));
        proxy.get(target).assert_is(200, body);
        let confirmed = eventually("a confirmation", || {
            let next = proxy.get(target);
            (next.cache().get("fwd-status") == Some("304")).then_some(next)
        });
        confirmed.assert_is(200, body);
        assert_eq!(proxy.get(target).is_hit(), target == "/plain", "{target}");
    }
}

#[test]
fn a_page_whose_token_is_removed_is_shared_and_no_session_is_replaced() {
    let origin = Origin::start();
    let tokens = r#"ignore_cookies = ["_app_session"]
[[routes]]
tokens = [
    { select = "input[name=_token]", from = "/token" }, { select = "meta[name=csrf-token]", attribute = "content", from = "/token" },
]"#;
    let proxy = proxy(&origin, tokens);
    numbered(
        &origin,
        "/form",
        "<meta name=csrf-param content=_token><meta name=csrf-token content=s3cret><input name=_token value=s3cret>",
    );
    let own = "Cookie: _app_session=own";
    let first = proxy.get_with("/form", &[own]);
    assert_eq!(first.field("set-cookie"), None, "the client keeps its own");
    for fields in [&[][..], &[own], &["Cookie: _app_session=other; _ga=1"]] {
        let hit = proxy.get_with("/form", fields);
        hit.assert_hit();
        assert_eq!(hit.text(), first.text());
        assert!(!hit.text().contains("s3cret"), "{}", hit.text());
    }
    assert_eq!(origin.seen("/form")[0].field("cookie"), None);
    // One without any begins a session.
    numbered(&origin, "/other", "");
    let stranger = proxy.get("/other");
    assert_eq!(stranger.field("set-cookie"), Some("_app_session=s0"));
    // A token that is left: the page is not stored, and the session stays, also where requests are not coalesced.
    numbered(&origin, "/left", "<input name=_wpnonce value=s3cret>");
    for _ in 0..2 {
        let response = proxy.get_with("/left", &[own]);
        assert!(!response.is_hit());
        assert_eq!(response.field("set-cookie"), None);
    }
    assert_eq!(proxy.get("/left").cache().get("detail"), Some("form-token"));
    // The token's own URL passes with all cookies, although its route ignores them.
    numbered(&origin, "/token", "token");
    for (fields, expected) in [(&[own][..], Some("_app_session=own")), (&[], None)] {
        let token = proxy.get_with("/token", fields);
        assert_eq!(token.field("cache-control"), Some("private, no-store"));
        assert!(token.field("set-cookie").is_some() && !token.cache().has("stored"));
        let seen = origin.seen("/token");
        assert_eq!(seen.last().and_then(|it| it.field("cookie")), expected);
    }
}

#[test]
fn it_is_explained() {
    let origin = Origin::start();
    let config = format!("origin = \"{}\"\nanonymous_ttl = \"100s\"\n", origin.url());
    let (proxy, admin) = Proxy::operated_by_file(&config);
    origin.on("/page").reply(Reply::ok(&RAILS, "page"));
    origin
        .on("/form")
        .reply(Reply::ok(&RAILS, "<input name=_token value=a>"));
    let explained = |path: &str| {
        let url = format!("http://{}{path}", proxy.address());
        let admin = admin.to_string();
        let out = std::process::Command::new(env!("CARGO_BIN_EXE_microcache"))
            .args(["explain", "--admin", &admin, "--fetch", &url])
            .output()
            .unwrap();
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let text = explained("/form");
    assert!(text.contains("token for one visitor"), "{text}");
    proxy.get("/page");
    let text = explained("/page");
    assert!(text.contains("`anonymous_ttl` of the route"), "{text}");
    assert!(
        text.contains("lifetime of 1m 40s") || text.contains("lifetime of 100"),
        "{text}"
    );
}
