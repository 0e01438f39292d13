//! Which responses may be kept: RFC 9111 §3, and what may be shared.

use serde_json::json;

use super::{EXACT, check_reused, check_reused_with, exact};
use crate::operators::Operator;
use crate::support::{Origin, Proxy, Reply};

const FRESH: &[&str] = &["Cache-Control: max-age=100"];

#[test]
fn statuses_without_explicit_freshness() {
    let kept = [200, 203, 204, 300, 301, 308, 404, 410];
    let refused = [
        302, 303, 307, 400, 401, 403, 405, 413, 414, 429, 431, 500, 501, 502, 503, 504,
    ];
    let rows = |statuses: &[u16], reused: bool| {
        let row = |&status| ("by status", status, [].as_slice(), reused);
        statuses
            .iter()
            .map(row)
            .collect::<Vec<(&str, u16, &[&str], bool)>>()
    };
    check_reused(&rows(&kept, true));
    check_reused(&rows(&refused, false));
}

#[test]
fn any_final_status_with_explicit_freshness() {
    let statuses = [
        200, 203, 204, 300, 301, 302, 307, 308, 400, 404, 405, 410, 414, 418, 500, 501, 503, 299,
        599,
    ];
    let rows: Vec<_> = statuses
        .iter()
        .map(|&status| ("explicit", status, FRESH, true))
        .collect();
    check_reused(&rows);
}

#[test]
fn cache_control() {
    check_reused(&[
        (
            "no-store",
            200,
            &["Cache-Control: no-store, max-age=100"],
            false,
        ),
        (
            "NO-STORE",
            200,
            &["Cache-Control: NO-STORE, max-age=100"],
            false,
        ),
        (
            "no-store with an argument",
            200,
            &["Cache-Control: no-store=x, max-age=100"],
            false,
        ),
        (
            "private",
            200,
            &["Cache-Control: private, max-age=100"],
            false,
        ),
        (
            "private with s-maxage",
            200,
            &["Cache-Control: private, s-maxage=100"],
            false,
        ),
        (
            "private beside public",
            200,
            &["Cache-Control: public, private, max-age=100"],
            false,
        ),
        (
            "private in another line",
            200,
            &["Cache-Control: max-age=100", "Cache-Control: private"],
            false,
        ),
        (
            "no-cache is asked about",
            200,
            &["Cache-Control: no-cache, max-age=100"],
            false,
        ),
        (
            "no-cache is stronger than ttl",
            200,
            &["Cache-Control: no-cache"],
            false,
        ),
        (
            "must-revalidate while fresh",
            200,
            &["Cache-Control: must-revalidate, max-age=100"],
            true,
        ),
        (
            "proxy-revalidate while fresh",
            200,
            &["Cache-Control: proxy-revalidate, max-age=100"],
            true,
        ),
        (
            "immutable",
            200,
            &["Cache-Control: immutable, max-age=100"],
            true,
        ),
        (
            "no-transform",
            200,
            &["Cache-Control: no-transform, max-age=100"],
            true,
        ),
        (
            "Vary: *",
            200,
            &["Vary: *", "Cache-Control: max-age=100"],
            false,
        ),
        (
            "an event stream",
            200,
            &[
                "Content-Type: text/event-stream",
                "Cache-Control: max-age=100",
            ],
            false,
        ),
    ]);
}

#[test]
fn must_understand() {
    check_reused(&[
        (
            "known status",
            200,
            &["Cache-Control: must-understand, no-store, max-age=100"],
            true,
        ),
        (
            "unknown status",
            299,
            &["Cache-Control: must-understand, no-store, max-age=100"],
            false,
        ),
        (
            "unknown status without no-store",
            299,
            &["Cache-Control: must-understand, max-age=100"],
            false,
        ),
    ]);
}

#[test]
fn authorization() {
    check_reused_with(
        &["Authorization: Basic dTpw"],
        &[
            ("max-age alone", 200, FRESH, false),
            ("nothing", 200, &[], false),
            ("public", 200, &["Cache-Control: public, max-age=100"], true),
            ("s-maxage", 200, &["Cache-Control: s-maxage=100"], true),
            (
                "must-revalidate",
                200,
                &["Cache-Control: must-revalidate, max-age=100"],
                true,
            ),
            (
                "a targeted field",
                200,
                &["CDN-Cache-Control: public, max-age=100"],
                true,
            ),
            (
                "public but private",
                200,
                &["Cache-Control: public, private, max-age=100"],
                false,
            ),
        ],
    );
}

#[test]
fn a_response_without_public_is_not_given_to_the_authorized() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").answer(|request| {
        let body = request
            .field("authorization")
            .unwrap_or("nobody")
            .to_owned();
        Reply::ok(&["Cache-Control: max-age=100"], body)
    });
    assert_eq!(proxy.get("/").text(), "nobody");
    assert_eq!(
        proxy.get_with("/", &["Authorization: Basic a"]).text(),
        "Basic a"
    );
    assert_eq!(
        proxy.get_with("/", &["Authorization: Basic b"]).text(),
        "Basic b"
    );
    assert_eq!(proxy.get("/").text(), "nobody");
}

#[test]
fn fields_named_by_no_cache_and_private_are_not_replayed() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    for directive in ["no-cache", "private"] {
        let target = format!("/{directive}");
        origin.on(&target).reply(
            Reply::new(200)
                .with(&format!(
                    "Cache-Control: {directive}=\"X-Mine, x-yours\", max-age=100"
                ))
                .with("X-Mine: 1")
                .with("X-Yours: 2")
                .with("X-Ours: 3")
                .body("x"),
        );
        let first = proxy.get(&target);
        assert_eq!(first.field("x-mine"), Some("1"), "{first:?}");
        let second = proxy.get(&target);
        second.assert_hit();
        assert_eq!(second.field("x-mine"), None, "{second:?}");
        assert_eq!(second.field("x-yours"), None, "{second:?}");
        assert_eq!(second.field("x-ours"), Some("3"), "{second:?}");
    }
}

#[test]
fn an_unasked_206_or_304_is_not_a_whole_response() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/206").reply(
        Reply::new(206)
            .with("Cache-Control: max-age=100")
            .with("Content-Range: bytes 0-1/10")
            .body("ab"),
    );
    origin.on("/304").reply(
        Reply::new(304)
            .with("Cache-Control: max-age=100")
            .with("ETag: \"a\""),
    );
    for target in ["/206", "/304"] {
        proxy.get(target);
        assert!(!proxy.get(target).is_hit(), "{target}");
        assert!(origin.count(target) >= 2, "{target}");
    }
}

/// TYPO3 sends hundreds of tags, and Magento up to 160 KB.
#[test]
fn with_many_tags() {
    let origin = Origin::start();
    let (proxy, admin) = Proxy::operated(&origin, &EXACT);
    let operator = Operator::at(admin);
    for (name, count, hashed, every) in [
        ("few", 100, 0, false),
        ("typo3", 500, 500, false),
        ("magento", 4_000, 4_000, false),
        ("all", 4_100, 0, true),
    ] {
        let tags = (0..count).map(|i| format!("{name}-category-product-list-{i:016}"));
        let tags = tags.collect::<Vec<_>>().join(", ");
        let target = format!("/{name}");
        let reply = Reply::new(200).with("Cache-Control: max-age=100");
        origin
            .on(&target)
            .reply(reply.with(&format!("Cache-Tag: {tags}")).body("x"));
        let first = proxy.get(&target);
        assert_eq!(
            first.cache().get("detail"),
            every.then_some("too-many-tags")
        );
        let again = proxy.get(&target);
        again.assert_hit();
        let sent_on = (tags.len() < 8_000).then_some(&*tags);
        assert_eq!(
            (first.field("cache-tag"), again.field("cache-tag")),
            (sent_on, sent_on)
        );
        let asked = json!({"url": format!("http://example.com{target}")});
        let stored = &operator.post("/v1/explain", &asked)["stored"][0];
        assert_eq!(stored["hashed_tags"], hashed, "{name}");
        assert_eq!(stored["purged_by_every_tag"], every, "{name}");
    }
    operator.purge(&json!({"tag": format!("magento-category-product-list-{:016}", 3_999)}));
    for (target, is_hit) in [
        ("/few", true),
        ("/typo3", true),
        ("/magento", false),
        ("/all", false),
    ] {
        assert_eq!(proxy.get(target).is_hit(), is_hit, "{target}");
    }
    // Only tags make a head as large.
    for (field, length) in [("X-Other", 140_000), ("xkey", 270_000)] {
        let line = format!("{field}: {}", "x".repeat(length));
        origin
            .on("/large")
            .reply(Reply::new(200).with(&line).body("x"));
        assert_eq!(proxy.get("/large").status, 502, "{field}");
    }
}

#[test]
fn only_get_is_stored() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    for method in [
        "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND", "BREW",
    ] {
        let target = format!("/{method}");
        origin
            .on(&target)
            .reply(Reply::new(200).with("Cache-Control: max-age=100").body("x"));
        for expected in 1..=2 {
            let response = proxy.send(method, &target, &[]);
            response.assert_is(200, "x");
            response.assert_forwarded("method");
            assert_eq!(origin.count(&target), expected, "{method}");
        }
        assert!(
            !proxy.get(&target).is_hit(),
            "a response to {method} answers no GET"
        );
    }
}

#[test]
fn every_byte_of_the_url_counts() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let targets = [
        "/a", "/A", "/a/", "/a?", "/a?b", "/a?b=", "/%61", "/a%2F", "/a%2f", "/./a", "/a;b",
        "/a?b&c", "/a?c&b", "//a", "/a.css", "/a/x.css",
    ];
    for target in targets {
        origin
            .on(target)
            .reply(Reply::ok(&["Cache-Control: max-age=100"], target));
    }
    for target in targets {
        let first = proxy.get(target);
        first.assert_is(200, target);
        first.assert_forwarded("uri-miss");
    }
    for target in targets {
        let again = proxy.get(target);
        again.assert_is(200, target);
        again.assert_hit();
    }
}
