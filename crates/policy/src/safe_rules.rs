//! Tests of the default rules, those of `microcache http://localhost:3000`: they must be safe without configuration.

use http::Method;

use crate::Fields;
use crate::field_name::FieldName;
use crate::key::{self, Scheme};
use crate::range::{RangeVerdict, range};
use crate::request::{Handling, PassReason, RequestFacts};
use crate::reuse::{Reuse, is_origin_failure, is_refusal, on_error, reuse};
use crate::rules::{KeyRules, Rules, SetCookie};
use crate::storable::NotStorable;
use crate::testing::{RECEIVED, fields, get, judge, lifetime, to_store, view};
use crate::trust::only_from_trusted_peers;
use crate::upgrade;
use crate::validate::is_conditional_field;
use crate::vary::{self, Selection, Vary};

fn handling(method: &Method, request: &str, has_body: bool) -> Handling {
    let request = fields(request);
    let facts = RequestFacts::read(method, request.fields(), has_body, &Rules::default());
    if upgrade::is_requested(request.fields()) {
        facts.upgrading().handling()
    } else {
        facts.handling()
    }
}

fn refused(request: &str, status: u16, response: &str) -> Option<NotStorable> {
    judge(&Rules::default(), request, status, response).err()
}

#[test]
fn rule_1_a_plain_response_without_a_lifetime_is_fresh_for_one_second() {
    for status in [200, 203, 204, 300, 301, 308, 404, 410] {
        let lifetime = judge(&Rules::default(), "", status, "").expect("storable");
        assert_eq!(lifetime.ttl(RECEIVED), 1_000, "{status}");
    }
    for (request, response, reason) in [
        ("Cookie: session=1", "", NotStorable::Credentials),
        ("Authorization: Basic x", "", NotStorable::Credentials),
        ("", "Set-Cookie: a=b", NotStorable::SetCookie),
        ("", "Cache-Control: private", NotStorable::Private),
        ("", "Cache-Control: no-store", NotStorable::NoStore),
        ("", "Cache-Control: no-cache", NotStorable::NoLifetime),
        ("", "Pragma: no-cache", NotStorable::NoLifetime),
        ("", "Vary: *", NotStorable::VaryAny),
        (
            "",
            "Content-Type: Text/Event-Stream; charset=utf-8",
            NotStorable::EventStream,
        ),
    ] {
        assert_eq!(
            refused(request, 200, response),
            Some(reason),
            "{request} {response}"
        );
    }
    assert_eq!(handling(&Method::GET, "", false), Handling::Cache);
    assert_eq!(handling(&Method::HEAD, "", false), Handling::Cache);
}

#[test]
fn rule_1_holds_in_every_spelling() {
    for response in [
        "cache-control: PRIVATE",
        "Cache-Control: max-age=60, Private",
        "Cache-Control: max-age=60\nCache-Control: private",
        "Cache-Control: public, s-maxage=60, private",
        "Cache-Control: private=",
        "Cache-Control: private=\"\"",
        "Cache-Control: foo=\"bar, private",
        "Cache-Control: private; max-age=60",
        "Cache-Control: max-age=60; private",
        "Cache-Control: private max-age=60",
        "Cache-Control: no-store=1",
        "Cache-Control: max-age=60,\tNo-Store",
        "Cache-Control: no-store no-cache",
        "SET-COOKIE: a=b",
        "Set-Cookie:",
        "vary: accept, *",
        "Vary: accept\nVARY: *",
        "Vary: \"*\"",
        "Vary: accept;q=1",
        "content-type: TEXT/EVENT-STREAM",
        "Content-Type: text/event-stream;",
    ] {
        for more in ["", "\nExpires: Fri, 31 Dec 2049 08:00:00 GMT"] {
            let response = format!("{response}{more}");
            assert!(refused("", 200, &response).is_some(), "{response}");
        }
    }
}

#[test]
fn rule_2_credentials_pass_unless_the_response_is_public() {
    assert_eq!(
        handling(&Method::GET, "Authorization: x", false),
        Handling::Credentialed
    );
    assert_eq!(
        handling(&Method::GET, "Cookie: session=1", false),
        Handling::Credentialed
    );
    assert_eq!(
        handling(&Method::GET, "Cookie: _ga=1; _gid=2; __utma=3", false),
        Handling::Cache
    );
    assert_eq!(
        handling(&Method::GET, "Cookie: _ga=1; session=2", false),
        Handling::Credentialed
    );
    assert_eq!(
        handling(&Method::GET, "Cookie: _ga=1\nCookie: a", false),
        Handling::Credentialed
    );

    let no = Some(NotStorable::Credentials);
    for (response, cookie, authorization) in [
        ("Cache-Control: max-age=60", no, no),
        ("Cache-Control: public, max-age=60", None, None),
        ("Cache-Control: s-maxage=60", None, None),
        ("Cache-Control: max-age=60, must-revalidate", no, None),
        ("Cache-Control: must-revalidate", no, no),
        ("Cache-Control: must-revalidate\nETag: \"a\"", no, no),
        ("CDN-Cache-Control: must-revalidate", no, no),
        (
            "Cache-Control: must-revalidate\nExpires: Sun, 06 Nov 1994 08:50:37 GMT",
            no,
            None,
        ),
        ("CDN-Cache-Control: max-age=60", None, no),
        ("CDN-Cache-Control: max-age=60, public", None, None),
        (
            "CDN-Cache-Control: max-age=60\nCache-Control: public",
            None,
            no,
        ),
        (
            "CDN-Cache-Control: malformed=\nCache-Control: max-age=60",
            no,
            no,
        ),
    ] {
        assert_eq!(
            refused("Cookie: session=1", 200, response),
            cookie,
            "{response}"
        );
        assert_eq!(
            refused("Authorization: x", 200, response),
            authorization,
            "{response}"
        );
        let stored = lifetime(response);
        for (request, expected) in [
            ("Cookie: session=1", cookie),
            ("Authorization: x", authorization),
        ] {
            let request = fields(request);
            let facts = get(&request, &Rules::default());
            let answer = if expected.is_some() {
                Reuse::NotShareable
            } else {
                Reuse::Fresh
            };
            assert_eq!(reuse(&stored, &facts, RECEIVED), answer, "{response}");
            assert_eq!(
                on_error(&stored, &facts, RECEIVED),
                expected.is_none(),
                "{response}"
            );
        }
    }
}

#[test]
fn rule_2_holds_in_every_spelling() {
    for request in [
        "AUTHORIZATION: x",
        "authorization:",
        "cookie: session=1",
        "Cookie: _ga=1;session=2",
        "Cookie: _ga=1; ; session=2",
        "Cookie: ;;=x",
        "Cookie: \tsession=1",
        "Cookie: _GA=1",
        "Cookie: _ga=1\ncookie: session=2",
        "Cookie: $Version=1; _ga=1",
        "Cookie: \"_ga\"=1",
        "Cookie: session",
        "X-Api-Key: x",
        "x-auth-token:",
        "Private-Token: x",
        "DPoP: x",
        "Host-Token: x",
        "User-Token: x",
        "Accept: */*\nX-Shop-Token: x",
    ] {
        assert_eq!(
            handling(&Method::GET, request, false),
            Handling::Credentialed,
            "{request}"
        );
    }
    for response in [
        "Cache-Control: max-age=60, public=1",
        "Cache-Control: public; max-age=60",
        "Cache-Control: max-age=60; public",
        "Cache-Control: max-age=60, x-public",
        "Cache-Control: max-age=60, foo=\"public, s-maxage=60\"",
        "Cache-Control: max-age=60; must-revalidate",
        "X-Cache-Control: public\nCache-Control: max-age=60",
        "Pragma: public\nCache-Control: max-age=60",
    ] {
        for request in ["Cookie: session=1", "Authorization: x"] {
            assert!(
                refused(request, 200, response).is_some(),
                "{request} {response}"
            );
        }
    }
}

#[test]
fn rule_3_set_cookie_is_neither_stored_nor_kept() {
    for response in [
        "Set-Cookie: a=b\nCache-Control: public, max-age=60",
        "Set-Cookie: a=b\nCDN-Cache-Control: max-age=60",
        "set-cookie: a=b\nCache-Control: no-cache=\"Set-Cookie\", max-age=60",
    ] {
        assert_eq!(
            refused("", 200, response),
            Some(NotStorable::SetCookie),
            "{response}"
        );
        let response = fields(response);
        let stored = to_store(&response, &Rules::default());
        assert!(!stored.fields().contains("set-cookie"));
    }
}

#[test]
fn rule_3_a_page_that_sets_a_cookie_of_the_key_is_stored_under_none() {
    for (set_cookie, response, is_refused) in [
        (SetCookie::Strip, "Set-Cookie: lang=de; Path=/", true),
        (SetCookie::Store, "Set-Cookie: lang=de", true),
        (
            SetCookie::Strip,
            "Set-Cookie: a=b\nSet-Cookie:  lang =de",
            true,
        ),
        (SetCookie::Strip, "Set-Cookie: shop_x=1", true),
        (SetCookie::Strip, "Set-Cookie: language=de", false),
        (SetCookie::Strip, "Set-Cookie: a=lang=de", false),
    ] {
        let rules = Rules {
            set_cookie,
            key: KeyRules {
                cookies: vec!["lang".to_owned(), "shop_*".to_owned()],
                ..KeyRules::default()
            },
            ..Rules::default()
        };
        let response = format!("{response}\nCache-Control: max-age=60");
        let refused = judge(&rules, "", 200, &response) == Err(NotStorable::SetCookie);
        assert_eq!(refused, is_refused, "{response:?}");
    }
}

#[test]
fn rule_4_the_key_is_the_raw_url_and_cannot_be_forged() {
    let key_of = |scheme, host: &str, target: &str| {
        let rules = Rules::default();
        let (host, target) = (host.as_bytes(), target.as_bytes());
        key::build(scheme, host, target, Fields::default(), false, &rules)
    };
    let key = key_of(Scheme::Http, "a", "/b");
    assert_eq!(key, key_of(Scheme::Http, "A:80", "/b"));
    for (scheme, host, target) in [
        (Scheme::Https, "a", "/b"),
        (Scheme::Http, "a:8080", "/b"),
        (Scheme::Http, "a/", "b"),
        (Scheme::Http, "a", "/B"),
        (Scheme::Http, "a", "/%62"),
        (Scheme::Http, "a", "//b"),
        (Scheme::Http, "a", "/b/"),
        (Scheme::Http, "a", "/b.css"),
        (Scheme::Http, "a", "/b;x.css"),
        (Scheme::Http, "a", "/b?"),
        (Scheme::Http, "a", "/b?utm_source=x"),
        (Scheme::Http, "a.", "/b"),
        (Scheme::Http, "a:443", "/b"),
        (Scheme::Http, "a:080", "/b"),
        (Scheme::Http, "a:8", "0/b"),
        (Scheme::Http, "a", "/b%20"),
        (Scheme::Http, "a", "/b%00"),
        (Scheme::Http, "a", "/./b"),
        (Scheme::Http, "a", "/x/../b"),
        (Scheme::Http, "a", "\\b"),
        (Scheme::Http, "a", "/b??"),
        (Scheme::Http, "a", "/b&"),
    ] {
        assert_ne!(key, key_of(scheme, host, target), "{host} {target}");
    }
}

#[test]
fn rule_5_unkeyed_fields_and_bodies_cannot_poison() {
    for name in [
        "X-Forwarded-Host",
        "x-forwarded-anything",
        "Forwarded",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-HTTP-Method-Override",
        "X-Forwarded",
        "Proxy",
        "X-Original-URI",
        "X-Scheme",
        "Front-End-Https",
        "X-Client-IP",
        "True-Client-IP",
        "X-Accel-Redirect",
        "X-Invoke-Path",
        "x-middleware-subrequest",
        "accept_language",
        "content_length",
        "x.forwarded.host",
    ] {
        assert!(
            only_from_trusted_peers(FieldName::of(name.as_bytes())),
            "{name}"
        );
    }
    for name in ["Host", "X-Forward", "X-Custom", "Proxying", ""] {
        assert!(
            !only_from_trusted_peers(FieldName::of(name.as_bytes())),
            "{name}"
        );
    }
    assert_eq!(
        handling(&Method::GET, "", true),
        Handling::Pass(PassReason::Body)
    );
    assert_eq!(
        handling(&Method::GET, "Connection: Accept-Language", false),
        Handling::Pass(PassReason::Connection)
    );
}

#[test]
fn rule_6_errors_are_stored_on_the_origins_word_only_and_answered_with_stale() {
    for status in [400, 405, 413, 414, 431, 500, 501, 502, 503, 504] {
        assert_eq!(
            refused("", status, ""),
            Some(NotStorable::Status),
            "{status}"
        );
        assert_eq!(
            refused("", status, "Cache-Control: max-age=5"),
            None,
            "{status}"
        );
    }
    let stored = lifetime("");
    let request = fields("");
    let facts = get(&request, &Rules::default());
    assert!(on_error(&stored, &facts, RECEIVED.plus(86_400_999)));
    assert!(!on_error(&stored, &facts, RECEIVED.plus(86_401_000)));
    let failures: Vec<u16> = (100..600)
        .filter(|status| is_origin_failure(*status))
        .collect();
    assert_eq!(failures, [500, 502, 503, 504]);
    let words_about_the_page: Vec<u16> = (400..500).filter(|&status| !is_refusal(status)).collect();
    assert_eq!(words_about_the_page, [404, 410]);
    assert!(!is_refusal(399) && !is_refusal(500));
}

#[test]
fn rule_7_clients_neither_reload_nor_accept_too_old_responses() {
    let stored = lifetime("");
    for request in [
        "Cache-Control: no-cache",
        "Pragma: no-cache",
        "Cache-Control: max-age=0",
        "Cache-Control: max-stale",
        "cache-control: NO-CACHE",
        "Cache-Control: no-cache=\"x\", max-stale=99999",
        "Cache-Control: foo\nCache-Control: max-age=00",
        "Cache-Control: max-age=\"0\"",
        "Cache-Control: max-age=-1",
        "Cache-Control: max-age=x",
        "Cache-Control: must-revalidate",
        "pragma: foo, NO-CACHE",
    ] {
        let request = fields(request);
        let facts = get(&request, &Rules::default());
        assert_eq!(
            reuse(&stored, &facts, RECEIVED),
            Reuse::Fresh,
            "{request:?}"
        );
        assert_eq!(
            reuse(&stored, &facts, RECEIVED.plus(1_000)),
            Reuse::Stale,
            "{request:?}"
        );
        assert!(
            matches!(
                reuse(&stored, &facts, RECEIVED.plus(11_000)),
                Reuse::Revalidate(_)
            ),
            "{request:?}"
        );
    }
}

#[test]
fn rule_8_requests_that_mean_the_same_share_a_variant() {
    let rules = Rules::default();
    let response = fields("Vary: Accept-Encoding");
    let Vary::Names(names) = vary::of_response(response.fields(), &[]) else {
        panic!("names expected");
    };
    let select = |request: &str| {
        let mut out = Selection::new();
        vary::select(&names, &view(fields(request).fields(), &rules), &mut out);
        out
    };
    let one = select("Accept-Encoding: gzip, deflate, br, zstd");
    for same in [
        "zstd,BR,gzip,deflate",
        "gzip;q=0.8 , deflate ; q=0.1,br, zstd, identity;q=0.5",
        "x-gzip, deflate, br, zstd, foo;q=0",
    ] {
        assert_eq!(select(&format!("Accept-Encoding: {same}")), one, "{same}");
    }
    assert_ne!(select("Accept-Encoding: gzip"), one);
}

#[test]
fn rule_9_a_range_is_answered_from_the_whole() {
    for name in ["Range", "RANGE", "Request-Range", "if-range"] {
        assert!(
            is_conditional_field(FieldName::of(name.as_bytes())),
            "{name}"
        );
    }
    for several in ["Range: bytes=2-4\nrange: bytes=5-6", "Range: bytes=2-4,5-6"] {
        let request = fields(several);
        let facts = get(&request, &Rules::default());
        let verdict = range(
            request.fields(),
            &facts,
            200,
            fields("").fields(),
            10,
            RECEIVED,
        );
        assert_eq!(verdict, RangeVerdict::Full, "{several}");
    }
    assert_eq!(
        handling(&Method::GET, "Range: bytes=0-1", false),
        Handling::Cache
    );
    assert_eq!(
        refused("Range: bytes=0-1", 206, "Cache-Control: max-age=60"),
        Some(NotStorable::Partial)
    );
    let request = fields("Range: bytes=2-4");
    let facts = get(&request, &Rules::default());
    let verdict = range(
        request.fields(),
        &facts,
        200,
        fields("").fields(),
        10,
        RECEIVED,
    );
    assert_eq!(verdict, RangeVerdict::Part { first: 2, last: 4 });
}

#[test]
fn rule_10_upgrades_and_event_streams_go_straight_through() {
    for (request, expected) in [
        (
            "Connection: Upgrade\nUpgrade: websocket",
            Handling::Pass(PassReason::Upgrade),
        ),
        (
            "Connection: keep-alive\nConnection: upgrade\nUpgrade: foo/2",
            Handling::Pass(PassReason::Upgrade),
        ),
        (
            "Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c",
            Handling::Cache,
        ),
        ("Connection: Upgrade\nUpgrade: h2c/1.0", Handling::Cache),
        (
            "Connection: Upgrade\nUpgrade: websocket\nUpgrade: h2c",
            Handling::Cache,
        ),
        ("Upgrade: websocket", Handling::Cache),
        (
            "Connection: upgrade\nUpgrade: WebSocket, h2c",
            Handling::Cache,
        ),
        (
            "Accept: text/event-stream",
            Handling::Pass(PassReason::EventStream),
        ),
        (
            "Accept: application/json, Text/Event-Stream;q=0.5",
            Handling::Pass(PassReason::EventStream),
        ),
        (
            "accept: text/html\nACCEPT: ,text/event-stream;x=\"y\"",
            Handling::Pass(PassReason::EventStream),
        ),
        (
            "connection: UPGRADE\nupgrade: WebSocket",
            Handling::Pass(PassReason::Upgrade),
        ),
        // The offer is removed as a whole, so the request is an ordinary one.
        (
            "connection: UPGRADE\nupgrade: WebSocket, h2c",
            Handling::Cache,
        ),
        ("Accept: text/html", Handling::Cache),
    ] {
        assert_eq!(
            handling(&Method::GET, request, false),
            expected,
            "{request}"
        );
    }
}
