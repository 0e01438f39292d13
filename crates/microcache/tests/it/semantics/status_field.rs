//! `Cache-Status` (RFC 9211) and `Via` on every response.

use super::{EXACT, exact};
use crate::support::{Gate, Origin, Proxy, Reply};

const FRESH: &str = "Cache-Control: max-age=100";

#[test]
fn a_miss_that_is_stored() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    let status = proxy.get("/").cache();
    assert_eq!(status.get("fwd"), Some("uri-miss"), "{status:?}");
    assert!(status.has("stored") && !status.has("hit"), "{status:?}");
    assert!(
        matches!(status.get("fwd-status"), None | Some("200")),
        "{status:?}"
    );
}

#[test]
fn a_hit() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::new(200).with(FRESH).body("x"));
    proxy.get("/");
    let status = proxy.get("/").cache();
    assert!(status.has("hit"), "{status:?}");
    assert!(
        status.get("fwd").is_none() && !status.has("stored"),
        "{status:?}"
    );
    assert!((90..=100).contains(&status.ttl().unwrap()), "{status:?}");
}

#[test]
fn a_stale_hit_has_a_negative_ttl_or_none_left() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--stale-while-revalidate", "1h"]);
    let gate = Gate::default();
    let old = Reply::new(200)
        .with("Cache-Control: max-age=10")
        .with("Age: 20")
        .body("x");
    origin.on("/").reply(old.clone()).reply(old.after(&gate));
    proxy.get("/");
    let status = proxy.get("/").cache();
    assert!(
        status.has("hit") && status.ttl().unwrap() <= -10,
        "{status:?}"
    );
    gate.open();
}

#[test]
fn why_it_was_forwarded() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    for target in ["/", "/get"] {
        origin.on(target).reply(Reply::new(200).body("x"));
    }
    proxy
        .send("POST", "/", &["Content-Length: 0"])
        .assert_forwarded("method");
    for personal in ["Authorization: Basic x", "Cookie: session=1"] {
        let status = proxy.get_with("/get", &[personal]).cache();
        assert!(
            matches!(status.get("fwd"), Some("bypass" | "request")),
            "{status:?}"
        );
    }
}

#[test]
fn an_unstored_response_does_not_claim_to_be_stored() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let refused: [(&str, &[&str]); 4] = [
        ("/no-store", &["Cache-Control: no-store"]),
        ("/private", &["Cache-Control: private"]),
        ("/set-cookie", &["Set-Cookie: a=1", FRESH]),
        ("/vary", &["Vary: *", FRESH]),
    ];
    for (target, fields) in refused {
        origin
            .on(target)
            .reply(Reply::new(200).with_all(fields).body("x"));
        let response = proxy.get(target);
        assert!(!response.cache().has("stored"), "{response:?}");
        assert!(
            response.cache().get("detail").is_some(),
            "says why: {response:?}"
        );
    }
}

#[test]
fn members_of_earlier_caches_stay_in_front() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(
        Reply::new(200)
            .with(FRESH)
            .with("Cache-Status: inner; hit")
            .body("x"),
    );
    for response in [proxy.get("/"), proxy.get("/")] {
        let all = response.head.all("cache-status").join(", ");
        assert!(
            all.starts_with("inner; hit") && all.contains("microcache"),
            "{all}"
        );
    }
}

#[test]
fn generated_errors_have_the_field_too() {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &EXACT);
    origin.on("/").reply(Reply::hang_up());
    let response = proxy.get("/");
    assert_eq!(response.status, 502, "{response:?}");
    response.assert_forwarded("uri-miss");
    let response = proxy.get_with("/absent", &["Cache-Control: only-if-cached"]);
    assert_eq!(response.status, 504, "{response:?}");
    assert!(!response.is_hit());
}

#[test]
fn generated_pages_have_a_date() {
    // RFC 9110 §6.6.1: who makes a 4xx has to date it.
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::hang_up());
    let bad = "GET / HTTP/1.1\r\nHost: a b\r\n\r\n";
    for response in [
        proxy.get("/"),
        proxy.get_with("/absent", &["Cache-Control: only-if-cached"]),
        proxy.request(bad),
    ] {
        let date = response.field("date").unwrap_or_default();
        assert!(date.ends_with(" GMT"), "{response:?}");
    }
}

#[test]
fn via_on_both_sides() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).with("Via: 1.0 inner").body("x"));
    for response in [proxy.get_with("/", &["Via: 1.1 outer"]), proxy.get("/")] {
        let via = response.head.all("via").join(", ");
        assert_eq!(via, "1.0 inner, 1.1 microcache", "{response:?}");
    }
    let requested = origin.seen("/")[0].head.all("via").join(", ");
    let (outer, own) = requested.split_once(", ").expect("two members");
    assert_eq!(outer, "1.1 outer");
    assert!(own.starts_with("1.1 microcache-"), "{requested}");
}

#[test]
fn collapsed_requests_say_so() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let gate = Gate::default();
    origin
        .on("/")
        .reply(Reply::new(200).with(FRESH).body("x").after(&gate));
    let mut leader = proxy.ask("/");
    origin.wait_for("/", 1);
    let mut joiners: Vec<_> = (0..5).map(|_| proxy.ask("/")).collect();
    proxy.settle();
    gate.open();
    assert!(!leader.response().cache().has("collapsed"));
    for joiner in &mut joiners {
        let response = joiner.response();
        response.assert_is(200, "x");
        // One that came late may already have found the stored response.
        assert!(
            response.cache().has("collapsed") || response.is_hit(),
            "{response:?}"
        );
    }
    assert_eq!(origin.count("/"), 1);
}
