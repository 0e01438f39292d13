//! A table of requests and responses. For each pair it is asked what would become of the request, then the
//! request is made, and again: what was said has to be what was done.

use std::net::SocketAddr;

use serde_json::{Value, json};

use super::{explain, parameter};
use crate::support::{Origin, Proxy, Reply, Response, config_file, eventually};

/// A request: its method and its fields.
type Asks = (&'static str, &'static [&'static str]);
/// A response: its status and its fields.
type Says = (u16, &'static [&'static str]);

/// What is set for all: a lifetime, and a memory for what is not storable, that outlast the test.
const LASTING: &str = "ttl = \"600s\"\nhit_for_miss = \"600s\"\nremember_too_large = \"600s\"\n";

const REQUESTS: [Asks; 24] = [
    ("GET", &[]),
    ("HEAD", &[]),
    ("POST", &["Content-Length: 0"]),
    ("FROBNICATE", &[]),
    ("OPTIONS", &["Max-Forwards: 0"]),
    ("GET", &["Authorization: Basic eDp5"]),
    ("GET", &["Cookie: session=1"]),
    ("GET", &["Cookie: _ga=1"]),
    ("GET", &["Cookie: lang=de"]),
    ("GET", &["Cookie: _ga=\"1; session=x\""]),
    ("GET", &["Cache-Control: no-store"]),
    ("GET", &["Cache-Control: no-cache"]),
    ("GET", &["Pragma: no-cache"]),
    ("GET", &["Cache-Control: max-age=0"]),
    ("GET", &["Cache-Control: max-age=1000"]),
    ("GET", &["Cache-Control: min-fresh=700"]),
    ("GET", &["Cache-Control: only-if-cached"]),
    ("GET", &["Accept: text/event-stream"]),
    ("GET", &["Connection: X-Mine", "X-Mine: 1"]),
    ("GET", &["Connection: upgrade", "Upgrade: websocket"]),
    ("GET", &["Range: bytes=0-1"]),
    ("GET", &["If-None-Match: \"a\""]),
    ("GET", &["Accept-Language: de", "Accept-Encoding: gzip"]),
    ("GET", &["X-Forwarded-Proto: https", "X-Bypass: 1"]),
];

const RESPONSES: [Says; 48] = [
    (200, &[]),
    (200, &["Cache-Control: max-age=900"]),
    (200, &["Cache-Control: s-maxage=900, max-age=0"]),
    (200, &["Cache-Control: public, max-age=900"]),
    (200, &["Cache-Control: public"]),
    (200, &["Cache-Control: max-age=900, must-revalidate"]),
    (200, &["Cache-Control: max-age=900, immutable"]),
    (200, &["Cache-Control: max-age=0"]),
    (
        200,
        &["Cache-Control: max-age=0, stale-while-revalidate=900"],
    ),
    (200, &["Cache-Control: max-age=0, stale-if-error=900"]),
    (200, &["Cache-Control: max-age=0", "ETag: \"a\""]),
    (200, &["Cache-Control: no-cache"]),
    (200, &["Cache-Control: no-cache", "ETag: \"a\""]),
    (200, &["Cache-Control: no-cache=\"x-a\", max-age=900"]),
    (200, &["Cache-Control: no-store"]),
    (
        200,
        &["Cache-Control: no-store, must-understand, max-age=900"],
    ),
    (200, &["Cache-Control: private"]),
    (200, &["Cache-Control: private=\"x-a\", max-age=900"]),
    (200, &["Cache-Control: private; max-age=900"]),
    (200, &["Cache-Control: max-age=x"]),
    (200, &["Cache-Control: max-age=900, max-age=901"]),
    (
        200,
        &["CDN-Cache-Control: max-age=900", "Cache-Control: no-store"],
    ),
    (
        200,
        &["CDN-Cache-Control: no-store", "Cache-Control: max-age=900"],
    ),
    (200, &["CDN-Cache-Control: &", "Cache-Control: max-age=900"]),
    (200, &["Pragma: no-cache"]),
    (200, &["Pragma: no-cache", "ETag: \"a\""]),
    (200, &["Expires: Thu, 01 Jan 2099 00:00:00 GMT"]),
    (200, &["Expires: 0"]),
    (
        200,
        &["Expires: 0", "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT"],
    ),
    (200, &["Cache-Control: max-age=900", "Age: 100"]),
    (200, &["Cache-Control: max-age=900", "Age: 905"]),
    (
        200,
        &["Cache-Control: max-age=900, must-revalidate", "Age: 905"],
    ),
    (200, &["Set-Cookie: a=b", "Cache-Control: max-age=900"]),
    (200, &["Vary: *", "Cache-Control: max-age=900"]),
    (200, &["Vary: a b", "Cache-Control: max-age=900"]),
    (
        200,
        &[
            "Vary: Accept-Language, Accept-Encoding",
            "Cache-Control: public, max-age=900",
        ],
    ),
    (200, &["Vary: Cookie", "Cache-Control: public, max-age=900"]),
    (
        200,
        &[
            "Content-Type: text/event-stream",
            "Cache-Control: max-age=900",
        ],
    ),
    (201, &[]),
    (301, &["Location: /x"]),
    (302, &["Location: /x"]),
    (302, &["Location: /x", "Cache-Control: max-age=900"]),
    (404, &[]),
    (403, &[]),
    (403, &["Cache-Control: max-age=900"]),
    (500, &[]),
    (503, &["Cache-Control: max-age=900"]),
    (599, &["Cache-Control: max-age=900"]),
];

/// Some of them, for the rules of a route: one of each kind.
const SOME_REQUESTS: [usize; 9] = [0, 1, 5, 6, 7, 8, 11, 16, 23];
const SOME_RESPONSES: [usize; 13] = [0, 1, 3, 7, 10, 14, 16, 28, 32, 35, 41, 42, 45];

/// A pair, in front of a proxy.
struct Row<'a> {
    origin: &'a Origin,
    proxy: &'a Proxy,
    admin: SocketAddr,
    asks: Asks,
    says: Says,
    target: String,
}

impl Row<'_> {
    fn script(&self, target: &str) {
        let (status, fields) = self.says;
        self.origin
            .on(target)
            .answer(move |_| Reply::new(status).with_all(fields).body("twelve bytes"));
    }

    fn explain(&self, target: &str, fetch: bool) -> Value {
        let (method, headers) = self.asks;
        let more = json!({"method": method, "headers": headers, "fetch": fetch});
        explain(self.admin, target, &more)
    }

    fn make(&self, target: &str) -> Response {
        self.proxy.send(self.asks.0, target, self.asks.1)
    }

    fn name(&self) -> String {
        format!("{:?} {:?}", self.asks, self.says)
    }

    /// What is done has to be what was said: hit or not, why the origin was asked, and the detail, unless
    /// only the response could say it.
    fn hold(&self, reported: &Value, made: &Response) {
        let said = reported["cache_status"].as_str().expect("a status");
        let done = made.cache();
        let name = self.name();
        for part in ["hit", "fwd"] {
            assert_eq!(
                parameter(said, part),
                done.get(part),
                "{part} of {name}: {reported:#} {made:?}"
            );
        }
        if parameter(said, "detail").is_some() || done.has("hit") {
            assert_eq!(
                parameter(said, "detail"),
                done.get("detail"),
                "{name}: {reported:#} {made:?}"
            );
        }
        if let (Some(said), Some(done)) = (parameter(said, "ttl"), done.ttl()) {
            let apart = said.parse::<i64>().expect("seconds") - done;
            assert!((0..60).contains(&apart), "{name}: {reported:#} {made:?}");
        }
        let verdicts: &[&str] = match (done.has("hit"), done.get("fwd")) {
            (true, _) if done.ttl() < Some(0) => &["stale"],
            (true, _) => &["hit", "stale"],
            (false, None) => &["own"],
            (false, Some("bypass" | "method")) => &["pass"],
            (false, Some(_)) => &["miss", "revalidate", "pass", "only-if-cached"],
        };
        let verdict = reported["verdict"].as_str().expect("a verdict");
        assert!(verdicts.contains(&verdict), "{name}: {reported:#} {made:?}");
        self.hold_together(reported);
    }

    /// One part of what is said does not speak against another.
    fn hold_together(&self, reported: &Value) {
        let name = self.name();
        let verdict = reported["verdict"].as_str().expect("a verdict");
        let cacheable = reported["cacheable"].as_bool();
        match verdict {
            "hit" | "stale" if reported["fetched"].is_null() => {
                assert_eq!(cacheable, Some(true), "{name}: {reported:#}");
            }
            "pass" | "own" => assert_eq!(cacheable, Some(false), "{name}: {reported:#}"),
            _ => {}
        }
        let looks = !matches!(verdict, "pass" | "own");
        assert_eq!(looks, reported["key"].is_object(), "{name}: {reported:#}");
        for step in reported["steps"].as_array().expect("steps") {
            for part in ["message", "reason"] {
                assert!(
                    step[part].as_str().is_some_and(|text| text.len() > 5),
                    "{name}: {step}"
                );
            }
        }
        // An explanation of an uncacheable response says what to change.
        if cacheable == Some(false) {
            let remedied = reported["steps"].as_array().expect("steps").iter();
            assert!(
                remedied.filter(|step| step["hint"].is_string()).count() > 0,
                "{name}: {reported:#}"
            );
        }
    }

    /// The stored response is there for the next request. It is stored although its client has left.
    fn settle(&self, target: &str, made: &Response) {
        if made.cache().has("stored") {
            eventually("what is stored", || {
                let reported = self.explain(target, false);
                let stored = reported["stored"].as_array().expect("a list");
                (!stored.is_empty()).then_some(())
            });
        }
    }

    /// Asks, makes, and does both again; then has the origin asked for another page, which has to come to
    /// the same as to make the request.
    fn check(&self) {
        let page = &self.target;
        self.script(page);
        let reported = self.explain(page, false);
        let first = self.make(page);
        self.hold(&reported, &first);
        self.settle(page, &first);
        let reported = self.explain(page, false);
        let second = self.make(page);
        self.hold(&reported, &second);
        if !matches!(self.asks.0, "GET" | "HEAD") || self.asks.1.contains(&"Upgrade: websocket") {
            return;
        }
        let other = format!("{page}-asked");
        self.script(&other);
        let reported = self.explain(&other, true);
        self.hold(&reported, &first);
        self.hold_fetched(&reported, &first);
        self.settle(&other, &first);
        let reported = self.explain(&other, false);
        let third = self.make(&other);
        self.hold(&reported, &third);
        self.same(&second, &third);
    }

    /// What the application's answer was said to come to is what the first request of a client came to.
    fn hold_fetched(&self, reported: &Value, made: &Response) {
        let name = self.name();
        if reported["verdict"] == "own" {
            return assert!(reported["fetched"].is_null(), "{name}: {reported:#}");
        }
        let fetched = &reported["fetched"];
        let is_aside = reported["verdict"] == "only-if-cached";
        if is_aside {
            assert_eq!(fetched["stored"], false, "{name}: {reported:#}");
            return assert!(fetched["cache_status"].is_null(), "{name}: {reported:#}");
        }
        let said = fetched["cache_status"].as_str().expect("a status");
        for part in ["hit", "fwd", "fwd-status", "stored", "detail"] {
            assert_eq!(
                parameter(said, part),
                made.cache().get(part),
                "{part} of {name}: {reported:#} {made:?}"
            );
        }
        let stored = made.cache().has("stored");
        assert_eq!(fetched["stored"], stored, "{name}: {reported:#} {made:?}");
        assert_eq!(
            reported["cacheable"], stored,
            "{name}: {reported:#} {made:?}"
        );
    }

    fn same(&self, one: &Response, other: &Response) {
        for part in ["hit", "fwd", "fwd-status", "stored", "detail"] {
            assert_eq!(
                one.cache().get(part),
                other.cache().get(part),
                "{part} of {}: {one:?} {other:?}",
                self.name()
            );
        }
    }
}

/// Checks these rows with a configuration.
fn check(config: &str, requests: &[Asks], responses: impl Iterator<Item = Says>) {
    let origin = Origin::start();
    let file = config_file(&format!("{LASTING}{config}"));
    let path = file.to_str().expect("a path");
    let (proxy, admin) = Proxy::operated(&origin, &["--config", path]);
    let mut rows = 0;
    for says in responses {
        for &asks in requests {
            rows += 1;
            let row = Row {
                origin: &origin,
                proxy: &proxy,
                admin,
                asks,
                says,
                target: format!("/{rows}?utm_source=x"),
            };
            row.check();
        }
    }
    assert!(rows > 0);
}

fn check_some(config: &str) {
    let requests = SOME_REQUESTS.map(|one| REQUESTS[one]);
    check(
        config,
        &requests,
        SOME_RESPONSES.into_iter().map(|one| RESPONSES[one]),
    );
}

#[test]
fn explanations_match_behaviour_first_half() {
    check("", &REQUESTS, RESPONSES[..24].iter().copied());
}

#[test]
fn explanations_match_behaviour_second_half() {
    check("", &REQUESTS, RESPONSES[24..].iter().copied());
}

#[test]
fn explanations_match_request_rules_of_a_route() {
    for config in [
        "pass = true",
        "collapse = false",
        "bypass = [\"header:X-Bypass\"]",
        "reload = \"honour\"",
        "ignore_cookies = [\"session\"]",
        "remove_cookies = [\"session\"]",
        "remove_headers = [\"authorization\"]",
        "key = { cookies = [\"lang\"], headers = [\"X-Bypass\"], query = { ignore = [\"utm_*\"] } }",
    ] {
        check_some(config);
    }
}

#[test]
fn explanations_match_response_rules_of_a_route() {
    for config in [
        "set_cookie = \"strip\"",
        "set_cookie = \"store\"",
        "forced_ttl = \"900s\"",
        "status_ttl = { 404 = \"0s\", 500 = \"900s\" }",
        "heuristic = 10",
        "stale_while_revalidate = \"0s\"\nstale_if_error = \"0s\"",
        "ignore_vary = [\"Accept-Language\"]",
        "max_object = \"5B\"",
        "languages = [\"de\"]\ntargeted = []",
    ] {
        check_some(config);
    }
}
