//! Reasons, key, variants and tiers in explanations, and what they leave out.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{explain, parameter};
use crate::operators::Operator;
use crate::support::{
    Client, Folder, Gate, Origin, Proxy, Reply, config_file, eventually, request,
};

/// The steps of an answer, as text.
fn steps(reported: &Value) -> String {
    reported["steps"].to_string()
}

fn with_config(origin: &Origin, config: &str) -> (Proxy, SocketAddr) {
    let file = config_file(config);
    Proxy::operated(origin, &["--config", file.to_str().expect("a path")])
}

#[test]
fn the_source_of_lifetime_and_storability_is_explained() {
    let origin = Origin::start();
    origin.on("/page?b=1").reply(Reply::ok(
        &[
            "Cache-Control: s-maxage=600, max-age=5",
            "Vary: Accept-Language",
            "Cache-Tag: news, front",
            "Cache-Groups: \"all\"",
            "ETag: \"x\"",
        ],
        "page",
    ));
    let key = "key = { query = { ignore = [\"utm_*\"] }, headers = [\"X-Country\"] }";
    let (proxy, admin) = with_config(&origin, key);
    let target = "/page?b=1&utm_source=mail";
    proxy.get_with(target, &["Accept-Language: de"]);
    let german = json!({"headers": ["Accept-Language: de"]});
    let reported = explain(admin, target, &german);
    assert_eq!(reported["verdict"], "hit");
    let sentence = reported["summary"].as_str().expect("a sentence");
    assert!(
        sentence.starts_with("Served from memory, fresh for another "),
        "{sentence}"
    );
    let key = json!({"url": "http://example.com/page?b=1", "ignored": ["utm_source"], "parts": ["X-Country"]});
    assert_eq!(reported["key"], key);
    let one = &reported["stored"][0];
    for (name, expected) in [
        ("tier", json!("memory")),
        ("selected", json!(true)),
        ("status", json!(200)),
        ("state", json!("fresh")),
        ("fresh_for_seconds", json!(600.0)),
        ("source", json!("s-maxage")),
        ("stale_while_revalidate_seconds", json!(0.0)),
        (
            "varies_on",
            json!([{"name": "accept-language", "value": "de,"}]),
        ),
        ("tags", json!(["news", "front"])),
        ("groups", json!(["all"])),
    ] {
        assert_eq!(one[name], expected, "{name}: {one}");
    }
    let steps = steps(&reported);
    for said in [
        "RFC 9111 §5.2.2.10",
        "a lifetime of 10 min",
        "`utm_source` of the query is ignored",
        "`news` and `front`",
    ] {
        assert!(steps.contains(said), "{said}: {reported:#}");
    }
    let english = explain(admin, target, &json!({"headers": ["Accept-Language: en"]}));
    assert_eq!(
        (&english["verdict"], &english["stored"][0]["selected"]),
        (&json!("miss"), &json!(false))
    );
    assert!(english.to_string().contains("RFC 9111 §4.1"), "{english:#}");
    // Explaining has changed nothing.
    let stats = Operator::at(admin).get("/v1/stats");
    assert_eq!(
        (&stats["requests"]["total"], &stats["origin"]["requests"]),
        (&json!(1), &json!(1))
    );
}

#[test]
fn no_secret_is_repeated() {
    let origin = Origin::start();
    origin.on("/").reply(Reply::ok(
        &[
            "Cache-Control: public, max-age=600",
            "Set-Cookie: answer=s3cret",
            "Vary: Cookie, Authorization, X-Api-Key",
        ],
        "page",
    ));
    let rules =
        "set_cookie = \"store\"\nkey = { cookies = [\"lang\"], headers = [\"Authorization\"] }";
    let (proxy, admin) = with_config(&origin, rules);
    let fields = [
        "Cookie: session=s3cret; lang=s3cret; s3cret",
        "Authorization: Bearer s3cret",
        "X-Api-Key: s3cret",
    ];
    for cookie in [fields[0], "Cookie: session=\"s3cret; more=s3cret"] {
        let fields = [cookie, fields[1], fields[2]];
        for fetch in [false, true] {
            proxy.get_with("/", &fields);
            let reported = explain(admin, "/", &json!({"headers": fields, "fetch": fetch}));
            assert!(!reported.to_string().contains("s3cret"), "{reported:#}");
            assert!(
                reported.to_string().contains("session"),
                "names are told: {reported:#}"
            );
        }
    }
}

#[test]
fn the_cookie_that_makes_a_request_personal_is_named() {
    let origin = Origin::start();
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    let reported = explain(
        admin,
        "/",
        &json!({"headers": ["Cookie: _ga=1; basket=2; theme=3"]}),
    );
    assert!(
        steps(&reported).contains("the cookies `basket` and `theme`"),
        "{reported:#}"
    );
    assert_eq!(
        (&reported["verdict"], &reported["cacheable"]),
        (&json!("miss"), &Value::Null)
    );
}

#[test]
fn an_unstorable_response_is_explained_when_the_origin_is_queried() {
    let origin = Origin::start();
    origin
        .on("/")
        .reply(Reply::new(200).with("Set-Cookie: a=b").body("page"));
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    let reported = explain(admin, "/", &json!({"fetch": true}));
    assert_eq!(
        (&reported["cacheable"], &reported["fetched"]["stored"]),
        (&json!(false), &json!(false))
    );
    let sentence = reported["summary"].as_str().expect("a sentence");
    assert!(
        sentence.contains("not stored: the response sets a cookie"),
        "{sentence}"
    );
    assert!(
        steps(&reported).contains("set_cookie = \\\"strip\\\""),
        "{reported:#}"
    );
    let stats = Operator::at(admin).get("/v1/stats");
    assert_eq!(
        (&stats["requests"]["total"], &stats["origin"]["requests"]),
        (&json!(0), &json!(1))
    );
}

#[test]
fn a_stored_response_stays_when_the_origin_is_queried() {
    let origin = Origin::start();
    let first = Reply::new(200).with("Cache-Control: max-age=600").body("1");
    let second = Reply::new(200).with("Cache-Control: no-store").body("2");
    origin.on("/").reply(first).reply(second);
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    proxy.get("/").assert_is(200, "1");
    let reported = explain(admin, "/", &json!({"fetch": true}));
    assert_eq!(
        (&reported["verdict"], &reported["cacheable"]),
        (&json!("hit"), &json!(false))
    );
    assert!(
        steps(&reported).contains("RFC 9111 §5.2.2.5"),
        "{reported:#}"
    );
    assert_eq!(reported["fetched"]["stored"], false);
    proxy.get("/").assert_is(200, "1");
    proxy.get("/").assert_hit();
}

#[test]
fn a_failing_origin_is_explained_with_its_substitute() {
    let origin = Origin::start();
    let page = Reply::ok(&["Cache-Control: max-age=0, stale-if-error=600"], "old");
    origin
        .on("/")
        .reply(page)
        .reply(Reply::new(503).body("down"));
    origin.on("/gone").reply(Reply::hang_up());
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    proxy.get("/").assert_is(200, "old");
    let reported = explain(admin, "/", &json!({"fetch": true}));
    assert_eq!(
        (&reported["verdict"], &reported["cacheable"]),
        (&json!("revalidate"), &json!(true))
    );
    let sentence = reported["summary"].as_str().expect("a sentence");
    assert!(
        sentence.contains("The stored response is served: the origin answered with an error"),
        "{sentence}"
    );
    let reported = explain(admin, "/gone", &json!({"fetch": true}));
    assert_eq!(reported["cacheable"], false);
    let sentence = reported["summary"].as_str().expect("a sentence");
    assert!(
        sentence.contains("No response from the origin: the origin closed the connection"),
        "{sentence}"
    );
}

#[test]
fn entries_on_disk_are_explained_as_such() {
    let origin = Origin::start();
    origin
        .on("/")
        .reply(Reply::ok(&["Cache-Control: max-age=600"], "page"));
    let folder = Folder::absent();
    let disk = format!("{},10MiB", folder.as_str());
    let (mut proxy, _) = Proxy::operated(&origin, &["--disk", &disk]);
    proxy.get("/").assert_is(200, "page");
    proxy.terminate();
    assert!(proxy.wait().success());
    let (proxy, admin) = Proxy::operated(&origin, &["--disk", &disk]);
    let reported = explain(admin, "/", &json!({}));
    assert_eq!(
        (&reported["verdict"], &reported["stored"][0]["tier"]),
        (&json!("hit"), &json!("disk"))
    );
    assert_eq!(
        reported["cache_status"]
            .as_str()
            .map(|said| said.ends_with("; detail=disk")),
        Some(true),
        "{reported:#}"
    );
    let made = proxy.get("/");
    made.assert_hit();
    assert_eq!(made.cache().get("detail"), Some("disk"));
    assert_eq!(
        explain(admin, "/", &json!({}))["stored"][0]["tier"],
        "memory"
    );
}

#[test]
fn a_purged_entry_is_not_explained_as_stored() {
    let origin = Origin::start();
    origin.on("/").reply(Reply::ok(
        &["Cache-Control: max-age=600", "Cache-Tag: a"],
        "page",
    ));
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    proxy.get("/");
    let operator = Operator::at(admin);
    operator.purge(&json!({"tag": "a", "soft": true}));
    let reported = explain(admin, "/", &json!({}));
    assert_eq!(
        (&reported["verdict"], &reported["stored"][0]["state"]),
        (&json!("stale"), &json!("stale"))
    );
    assert!(steps(&reported).contains("a soft purge"), "{reported:#}");
    operator.purge(&json!({"tag": "a"}));
    let reported = explain(admin, "/", &json!({}));
    assert_eq!(
        (&reported["verdict"], &reported["stored"]),
        (&json!("miss"), &json!([]))
    );
}

#[test]
fn purges_and_requests_from_a_terminator_are_explained_as_received() {
    let origin = Origin::start();
    let rules = "trusted_proxies = [\"192.0.2.0/24\"]\npurge_from = [\"127.0.0.1\"]";
    let (_proxy, admin) = with_config(&origin, rules);
    let reported = explain(admin, "/", &json!({"method": "PURGE"}));
    assert_eq!(
        (&reported["verdict"], &reported["cache_status"]),
        (&json!("own"), &json!("microcache; detail=purge"))
    );
    let secure = json!({"url": "https://example.com/"});
    let reported = explain(admin, "/", &secure);
    assert_eq!(reported["key"]["parts"], json!(["x-forwarded-proto"]));
    let stranger = json!({"url": "https://example.com/", "from": "198.51.100.1"});
    assert_eq!(explain(admin, "/", &stranger)["key"]["parts"], json!([]));
}

#[test]
fn an_invalid_request_is_refused_without_origin_request() {
    let origin = Origin::start();
    let (_proxy, admin) = Proxy::operated(&origin, &[]);
    let operator = Operator::at(admin);
    let long = format!("http://example.com/{}", "x".repeat(64 * 1024));
    for wrong in [
        json!({}),
        json!({"url": "/"}),
        json!({"url": long}),
        json!({"url": "http://a/", "headers": ["Host: a, b"]}),
        json!({"url": "http://a/", "headers": ["Transfer-Encoding: gzip"]}),
        json!({"url": "http://a/", "headers": ["Content-Length: 1", "Content-Length: 2"]}),
        json!({"url": "http://a/", "method": "CONNECT"}),
        json!({"url": "http://a/", "method": "DELETE", "fetch": true}),
        json!({"url": "http://a/", "header": "A: b"}),
    ] {
        let response = operator.ask("POST", "/v1/explain", Some(&wrong.to_string()));
        assert_eq!(response.status, 400, "{}", response.text());
        let reported: Value = serde_json::from_str(&response.text()).expect("JSON");
        assert!(
            reported["hint"].is_string()
                && reported["detail"]
                    .as_str()
                    .is_some_and(|text| text.len() < 500),
            "{reported}"
        );
    }
    for target in [
        "/v1/explain",
        "/v1/explain?url=x",
        "/v1/explain?url=http://a/&fetch=true",
    ] {
        assert_eq!(operator.ask("GET", target, None).status, 400, "{target}");
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn a_request_that_would_join_a_fetch_is_explained_as_such() {
    let origin = Origin::start();
    let gate = Gate::default();
    let page = Reply::new(200).with("Cache-Control: max-age=600");
    origin.on("/slow").reply(page.body("page").after(&gate));
    let (proxy, admin) = Proxy::operated(&origin, &[]);
    let reported = explain(admin, "/slow", &json!({}));
    assert_eq!(reported["verdict"], "miss");
    let mut waiting = [proxy.ask("/slow"), proxy.ask("/slow")];
    origin.wait_for("/slow", 1);
    let reported = eventually("the second one waits", || {
        let reported = explain(admin, "/slow", &json!({}));
        let sentence = reported["summary"].as_str()?.to_owned();
        sentence
            .contains("with 1 other request waiting")
            .then_some(reported)
    });
    assert_eq!(reported["verdict"], "collapsed");
    assert_eq!(reported["cacheable"], json!(null));
    let status = reported["cache_status"].as_str().expect("a status");
    assert_eq!(super::parameter(status, "collapsed"), Some("?1"));
    assert!(
        steps(&reported).contains("share one origin request"),
        "{reported:#}"
    );
    // It said the truth, and changed nothing.
    gate.open();
    let answers = waiting.each_mut().map(Client::response);
    let joined = |answer: &&crate::support::Response| answer.cache().has("collapsed");
    assert_eq!(answers.iter().filter(joined).count(), 1);
    assert_eq!(origin.count("/slow"), 1);
    assert_eq!(explain(admin, "/slow", &json!({}))["verdict"], "hit");
}

#[test]
fn a_document_is_a_hit_unless_its_request_passes() {
    const SECRET: &str = "a-secret-that-is-long-enough";
    let origin = Origin::start();
    let token = config_file(SECRET).display().to_string();
    let flags = ["--push", "/live/", "--push-token-file", &token];
    let (proxy, admin) = Proxy::operated(
        &origin,
        &[&flags[..], &["--push-directory", "none"]].concat(),
    );
    let check = |method: &str, fields: &[&str], verdict: &str, sentence: &str| {
        let reported = explain(
            admin,
            "/live/x",
            &json!({"method": method, "headers": fields}),
        );
        assert_eq!(reported["verdict"], verdict, "{reported:#}");
        let said = reported["summary"].as_str().expect("a sentence");
        assert!(said.contains(sentence), "{said}");
        let made = proxy.send(method, "/live/x", fields);
        let status = reported["cache_status"].as_str().expect("a status");
        let done = made.cache();
        for part in ["hit", "fwd", "detail"] {
            assert_eq!(
                parameter(status, part),
                done.get(part),
                "{part}: {reported:#}"
            );
        }
        // The second may change between the report and the response.
        let reported_ttl = parameter(status, "ttl").map(|ttl| ttl.parse::<i64>().expect("seconds"));
        assert_eq!(reported_ttl.is_some(), done.ttl().is_some(), "{reported:#}");
        let elapsed = reported_ttl.unwrap_or(0) - done.ttl().unwrap_or(0);
        assert!((0..60).contains(&elapsed), "{reported:#} {made:?}");
    };
    check("GET", &[], "pass", "404: there is no such document");
    let mut client = proxy.connect();
    let authorization = format!("Authorization: Bearer {SECRET}");
    client.send(request(
        "PUT",
        "/live/x",
        &[&authorization, "Content-Length: 2"],
    ));
    client.send("{}");
    assert_eq!(client.response().status, 201);
    check("GET", &[], "hit", "a document is fresh until it changes");
    check(
        "HEAD",
        &["Cookie: a=b"],
        "hit",
        "a document is fresh until it changes",
    );
    check("GET", &["Cache-Control: no-store"], "pass", "`no-store`");
    check("HEAD", &["Accept: text/event-stream"], "pass", "stream");
}

const WATCH: &str = "/.well-known/microcache/watch?url=/live/x";
const HUB: &str = "/.well-known/mercure?topic=a";
const ACTIVE: &str = "/.well-known/mercure/subscriptions/a";
const SCRIPT: &str = "/.well-known/microcache/live.js";

/// Whether there is a secret, the target, how it is asked for, whether the answer is at hand, and what is said.
type Row = (
    bool,
    &'static str,
    &'static str,
    bool,
    &'static str,
    &'static str,
);

#[rustfmt::skip]
const WITHOUT_APPLICATION: [Row; 23] = [
    (true, "/live/x?a=b", "GET", true, "never evicted", "host and query are ignored"),
    (true, "/live/x", "GET", true, "Served from memory", "changes require a secret"),
    (false, "/live/x", "GET", false, "404: there is no such", "changes are disabled"),
    (true, "/live/y", "GET", false, "404: there is no such", "was never published"),
    (true, "/live/x", "stream", false, "an event stream with the current document", "`Last-Event-ID`"),
    (true, "/live/", "stream", false, "404: there is no such", "answered with 404"),
    (true, "/live/", "socket", false, "Subscription by WebSocket", "a WebSocket, over which"),
    (true, "/live/x", "PATCH", false, "if the request has the secret", "persisted"),
    (false, "/live/x", "PATCH", false, "Answered with 403", "`push_token_file`"),
    (true, "/live/batch", "POST", false, "if the request has the secret", "persisted"),
    (true, "/live/x", "POST", false, "Answered with 405", "changed with PUT"),
    (true, WATCH, "stream", false, "event stream with changes", "watching documents and pages"),
    (true, WATCH, "GET", false, "as soon as one of", "up to 25 s"),
    (true, WATCH, "socket", false, "Subscription by WebSocket", "a WebSocket, over which"),
    (true, SCRIPT, "GET", true, "part of Microcache", "built into Microcache"),
    (true, "/live/p/x", "GET", false, "401 or 403", "`push_private`"),
    (true, "/live/p/x", "socket", false, "401 or 403", "`push_private`"),
    (true, "/live/p/x", "token", true, "Served from memory", "changes require a secret"),
    (true, HUB, "GET", false, "updates of the requested topics", "endpoint of the Mercure hub"),
    (true, HUB, "POST", false, "if the request has a valid token", "`mercure_publisher_key_file`"),
    (true, HUB, "PUT", false, "Answered with 405", "endpoint of the Mercure hub"),
    (true, ACTIVE, "GET", false, "Lists active subscriptions", "`mercure_subscriptions`"),
    (true, ACTIVE, "POST", false, "Answered with 405", "subscriptions API"),
];

#[test]
fn routes_without_application_explain_themselves() {
    const SECRET: &str = "a-secret-that-is-long-enough";
    let origin = Origin::start();
    let token = config_file(SECRET).display().to_string();
    let config = |more: &str| {
        let push = "push = [\"/live/\"]\npush_directory = \"none\"\nwatch = \"refresh\"\npush_private = [\"/live/p/\"]";
        with_config(&origin, &format!("{push}\n{more}"))
    };
    let (_closed, closed) = config("");
    let key = config_file(&SECRET.repeat(2)).display().to_string();
    let keys = format!(
        "push_token_file = {token:?}\nmercure_publisher_key_file = {key:?}\nmercure_subscriptions = true"
    );
    let (proxy, open) = config(&keys);
    let authorization = format!("Authorization: Bearer {SECRET}");
    let mut client = proxy.connect();
    for target in ["/live/x", "/live/p/x"] {
        let fields = [&*authorization, "Content-Length: 2"];
        client.send(request("PUT", target, &fields));
        client.send("{}");
        assert_eq!(client.response().status, 201);
    }
    for (has_secret, target, how, is_at_hand, sentence, step) in WITHOUT_APPLICATION {
        let requested = match how {
            "stream" => json!({"headers": ["Accept: text/html, text/event-stream"]}),
            "socket" => json!({"headers": ["Connection: upgrade", "Upgrade: websocket"]}),
            "token" => json!({"headers": [authorization]}),
            method => json!({ "method": method }),
        };
        // With others the application is not asked anyway.
        let may_fetch = matches!(how, "GET" | "stream");
        for fetch in [false, may_fetch] {
            let mut requested = requested.clone();
            requested["fetch"] = fetch.into();
            let reported = explain(if has_secret { open } else { closed }, target, &requested);
            let said = reported["summary"].as_str().expect("a sentence");
            assert!(said.contains(sentence), "{target}: {reported:#}");
            assert!(
                said.ends_with("The origin is not contacted."),
                "{reported:#}"
            );
            assert!(steps(&reported).contains(step), "{target}: {reported:#}");
            for wrong in ["passed to the origin", "RFC 9111 §4", "remove `pass` from"] {
                assert!(
                    !reported.to_string().contains(wrong),
                    "{wrong}: {reported:#}"
                );
            }
            assert_eq!(reported["cacheable"], is_at_hand, "{target}: {reported:#}");
            assert!(reported["fetched"].is_null() && reported["key"].is_null());
        }
    }
    assert!(origin.requests().is_empty());
}

#[test]
fn parameters_that_a_response_ignores_are_explained_and_any_of_their_urls_purges() {
    let origin = Origin::start();
    let fields = [
        "Cache-Control: max-age=600",
        "No-Vary-Search: params=(\"utm_source\")",
    ];
    let reply = || Reply::ok(&fields, "page");
    origin.on("/page?b=1").reply(reply()).reply(reply());
    let (proxy, admin) = with_config(&origin, "");
    proxy.get("/page?b=1");
    proxy.get("/page?utm_source=mail&b=1").assert_hit();
    let reported = explain(admin, "/page?utm_source=x&b=1", &json!({}));
    let key = json!({"url": "http://example.com/page?b=1", "ignored": ["utm_source"], "parts": []});
    assert_eq!(
        (&reported["verdict"], &reported["key"]),
        (&json!("hit"), &key)
    );
    let said = "`utm_source` of the query is ignored by No-Vary-Search of /page";
    assert!(steps(&reported).contains(said), "{reported:#}");
    let url = "http://example.com/page?b=1&utm_source=y";
    Operator::at(admin).purge(&json!({"url": url}));
    proxy.get("/page?b=1&utm_source=z");
    assert_eq!(origin.count("/page?b=1"), 2);
}
