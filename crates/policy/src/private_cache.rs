//! Tests of private caches ([`CacheKind::Private`]): a table for each difference from shared ones, with both results.

use crate::field_name::FieldName;
use crate::key::{self, KeyBuf, Scheme};
use crate::lifetime::Lifetime;
use crate::origin_view::goes_with_fill;
use crate::request::Handling;
use crate::reuse::{Reuse, RevalidationReason, on_error, reuse};
use crate::rules::{CacheKind, KeyRules, Rules};
use crate::storable::NotStorable;
use crate::testing::{RECEIVED, fields, get, judge, to_store, view};
use crate::vary::{self, Selection, Vary};

/// Checks that a response is stored or not: in a private cache, and in a shared one.
fn check_stored(
    request: &str,
    response: &str,
    private: Option<NotStorable>,
    shared: Option<NotStorable>,
) {
    for (rules, expected) in [(Rules::private(), private), (Rules::default(), shared)] {
        let verdict = judge(&rules, request, 200, response);
        let kind = rules.kind;
        assert_eq!(verdict.err(), expected, "{kind:?}: {request} {response}");
    }
}

/// The lifetime of a 200 in a private cache.
fn stored(response: &str) -> Lifetime {
    judge(&Rules::private(), "", 200, response).expect(response)
}

fn reuse_of(lifetime: &Lifetime, request: &str, after: u64) -> Reuse {
    let facts = get(&fields(request), &Rules::private());
    reuse(lifetime, &facts, RECEIVED.plus(after))
}

#[test]
fn a_response_for_one_user_is_stored() {
    let private = Some(NotStorable::Private);
    let lasting = "Cache-Control: private, max-age=60";
    check_stored("", lasting, None, private);
    let misspelt = "Cache-Control: private; foo, max-age=60";
    check_stored("", misspelt, None, private);
    check_stored("", &format!("{lasting}\nSet-Cookie: a=b"), None, private);
    let no_store = Some(NotStorable::NoStore);
    let both = "Cache-Control: private, no-store, max-age=60";
    check_stored("", both, no_store, no_store);
    let set_cookie = "Cache-Control: max-age=60\nSet-Cookie: a=b";
    check_stored("", set_cookie, None, Some(NotStorable::SetCookie));
}

#[test]
fn its_fields_are_stored_with_it() {
    let response =
        "Cache-Control: private=\"x-a\", no-cache=\"x-b\"\nX-A: 1\nX-B: 2\nSet-Cookie: a=b";
    for (rules, left) in [
        (Rules::private(), &["x-a", "set-cookie"][..]),
        (Rules::default(), &[]),
    ] {
        let kept = to_store(&fields(response), &rules);
        for name in ["x-a", "x-b", "set-cookie"] {
            let is_kept = kept.fields().contains(name);
            assert_eq!(is_kept, left.contains(&name), "{:?}: {name}", rules.kind);
        }
    }
}

#[test]
fn credentials_neither_limit_nor_pass() {
    for request in ["Authorization: Bearer x", "Cookie: session=1"] {
        let handling = |rules: Rules| get(&fields(request), &rules).handling();
        assert_eq!(handling(Rules::private()), Handling::Cache, "{request}");
        assert_eq!(handling(Rules::default()), Handling::Credentialed);
        let refused = Some(NotStorable::Credentials);
        check_stored(request, "Cache-Control: max-age=60", None, refused);
        let lifetime = stored("Cache-Control: max-age=60");
        assert_eq!(reuse_of(&lifetime, request, 0), Reuse::Fresh, "{request}");
        let signed_in = get(&fields(request), &Rules::private()).signed_in();
        assert_eq!(reuse(&lifetime, &signed_in, RECEIVED), Reuse::Fresh);
    }
}

#[test]
fn words_for_shared_caches_do_not_count() {
    for (response, seconds) in [
        ("Cache-Control: max-age=5, s-maxage=60", 5),
        ("Cache-Control: max-age=5\nCDN-Cache-Control: max-age=60", 5),
        ("Cache-Control: max-age=5\nCDN-Cache-Control: no-store", 5),
        ("Cache-Control: s-maxage=60\nETag: \"a\"", 0),
    ] {
        assert_eq!(
            stored(response).ttl(RECEIVED),
            seconds * 1_000,
            "{response}"
        );
    }
    let window = "max-age=5, stale-while-revalidate=60, stale-if-error=60";
    let request = get(&fields(""), &Rules::private());
    for (also, may) in [
        ("proxy-revalidate", true),
        ("s-maxage=9", true),
        ("must-revalidate", false),
        ("foo=1; must-revalidate", false),
    ] {
        let lifetime = stored(&format!("Cache-Control: {window}, {also}\nETag: \"a\""));
        let later = RECEIVED.plus(10_000);
        let is_served = reuse(&lifetime, &request, later) == Reuse::Stale;
        assert_eq!(is_served, may, "{also}");
        assert_eq!(on_error(&lifetime, &request, later), may, "{also}");
    }
}

#[test]
fn a_client_limits_the_staleness_on_errors() {
    for (response, request, after, may) in [
        ("max-age=5", "", 6_000, false),
        ("max-age=5", "stale-if-error=10", 14_999, true),
        ("max-age=5", "stale-if-error=10", 15_000, false),
        (
            "max-age=5",
            "stale-if-error=10, stale-if-error=2",
            8_000,
            false,
        ),
        ("max-age=5", "stale-if-error=x", 6_000, false),
        (
            "max-age=5, stale-if-error=60",
            "stale-if-error=10",
            30_000,
            true,
        ),
        (
            "max-age=5, must-revalidate",
            "stale-if-error=10",
            6_000,
            false,
        ),
        ("no-cache", "stale-if-error=10", 6_000, false),
    ] {
        let lifetime = stored(&format!("Cache-Control: {response}\nETag: \"a\""));
        let asks = fields(&format!("Cache-Control: {request}"));
        let own = get(&asks, &Rules::private());
        let later = RECEIVED.plus(after);
        assert_eq!(
            on_error(&lifetime, &own, later),
            may,
            "{response}; {request}"
        );
    }
    let shared = stored("Cache-Control: max-age=5");
    let asks = get(
        &fields("Cache-Control: stale-if-error=10"),
        &Rules::default(),
    );
    assert!(
        !on_error(&shared, &asks, RECEIVED.plus(6_000)),
        "visitors decide nothing"
    );
}

#[test]
fn a_reload_is_honoured() {
    for request in ["Cache-Control: no-cache", "Pragma: no-cache"] {
        let lifetime = stored("Cache-Control: max-age=60");
        let expected = Reuse::Revalidate(RevalidationReason::Reload);
        assert_eq!(reuse_of(&lifetime, request, 0), expected, "{request}");
        let insists = get(&fields(request), &Rules::private());
        assert!(!on_error(&lifetime, &insists, RECEIVED), "{request}");
        let shared = get(&fields(request), &Rules::default());
        assert_eq!(reuse(&lifetime, &shared, RECEIVED), Reuse::Fresh);
        assert!(on_error(&lifetime, &shared, RECEIVED), "{request}");
    }
    let lifetime = stored("Cache-Control: max-age=60");
    let expected = Reuse::Revalidate(RevalidationReason::MaxAge);
    assert_eq!(reuse_of(&lifetime, "Cache-Control: max-age=0", 1), expected);
}

#[test]
fn without_a_word_on_freshness_there_is_a_guess_and_no_stale_window() {
    let a_day_old = "Last-Modified: Sat, 05 Nov 1994 08:49:37 GMT";
    let lifetime = stored(a_day_old);
    assert_eq!(lifetime.ttl(RECEIVED), 8_640_000);
    let expired = Reuse::Revalidate(RevalidationReason::Expired);
    assert_eq!(reuse_of(&lifetime, "", 8_640_000), expired);
    let lifetime = stored("Cache-Control: max-age=60, stale-while-revalidate=5");
    assert_eq!(reuse_of(&lifetime, "", 60_000), Reuse::Stale);
    assert_eq!(reuse_of(&lifetime, "", 65_000), expired);
    let builders = Rules {
        stale_if_error: 5_000,
        ..Rules::private()
    };
    let lifetime = judge(&builders, "", 200, "Cache-Control: max-age=60").expect("storable");
    let request = get(&fields(""), &builders);
    assert!(on_error(&lifetime, &request, RECEIVED.plus(64_000)));
    assert!(!on_error(&lifetime, &request, RECEIVED.plus(65_000)));
}

#[test]
fn a_response_with_a_validator_is_stored_for_revalidation() {
    check_stored("", "", Some(NotStorable::NoLifetime), None);
    check_stored("", "ETag: \"a\"", None, None);
    let lifetime = stored("ETag: \"a\"");
    let expired = Reuse::Revalidate(RevalidationReason::Expired);
    assert_eq!(reuse_of(&lifetime, "", 0), expired);
    let forbidden = Rules {
        forced_ttl: Some(0),
        ..Rules::private()
    };
    let verdict = judge(&forbidden, "", 200, "ETag: \"a\"");
    assert_eq!(verdict.err(), Some(NotStorable::NoLifetime));
}

#[test]
fn the_client_may_accept_stale() {
    let expired = Reuse::Revalidate(RevalidationReason::Expired);
    for (response, accepts, after, expected) in [
        ("max-age=60", "max-stale", 9_999_000, Reuse::Fresh),
        ("max-age=60", "max-stale=5", 65_000, Reuse::Fresh),
        ("max-age=60", "max-stale=5", 65_001, expired),
        ("max-age=60", "max-stale=5, max-stale=2", 65_000, expired),
        ("max-age=60", "max-stale=x", 61_000, expired),
        (
            "max-age=60",
            "max-age=70, max-stale=20",
            65_000,
            Reuse::Fresh,
        ),
        (
            "max-age=60",
            "max-age=70, max-stale=20",
            71_000,
            Reuse::Revalidate(RevalidationReason::MaxAge),
        ),
        (
            "max-age=60",
            "max-stale, min-fresh=1",
            65_000,
            Reuse::Revalidate(RevalidationReason::MinFresh),
        ),
        ("max-age=60, must-revalidate", "max-stale", 61_000, expired),
        (
            "max-age=60, no-cache",
            "max-stale",
            1_000,
            Reuse::Revalidate(RevalidationReason::NoCache),
        ),
        ("max-age=60, s-maxage=9", "max-stale", 61_000, Reuse::Fresh),
        (
            "max-age=60, stale-while-revalidate=9",
            "max-stale",
            61_000,
            Reuse::Stale,
        ),
    ] {
        let lifetime = stored(&format!("Cache-Control: {response}\nETag: \"a\""));
        let request = format!("Cache-Control: {accepts}");
        let verdict = reuse_of(&lifetime, &request, after);
        assert_eq!(verdict, expected, "{response} {accepts} after {after}");
        let shared = get(&fields(&request), &Rules::default());
        assert_eq!(shared.max_stale(), None, "{accepts}");
    }
}

#[test]
fn cache_control_of_the_caller_is_forwarded_and_applied() {
    for (name, private, shared) in [
        ("Cache-Control", true, false),
        ("pragma", true, false),
        ("Accept", true, true),
        ("If-None-Match", false, false),
        ("Range", false, false),
        ("Expect", false, false),
    ] {
        let goes = |rules| goes_with_fill(FieldName::of(name.as_bytes()), &rules);
        assert_eq!(goes(Rules::private()), private, "{name}");
        assert_eq!(goes(Rules::default()), shared, "{name}");
    }
    let Vary::Names(names) = vary::of_response(fields("Vary: Cache-Control").fields(), &[]) else {
        panic!("it names a field")
    };
    for (rules, differ) in [(Rules::private(), true), (Rules::default(), false)] {
        let [one, other] = ["Cache-Control: max-age=1", ""].map(|request| {
            let (request, mut selection) = (fields(request), Selection::new());
            vary::select(&names, &view(request.fields(), &rules), &mut selection);
            selection
        });
        assert_eq!(one != other, differ, "{:?}", rules.kind);
    }
}

#[test]
fn identities_have_keys_of_their_own() {
    let key = |request: &str, partition: &[u8], kind| {
        let request = fields(request);
        let rules = Rules {
            kind,
            key: KeyRules {
                partition: partition.to_vec(),
                ..KeyRules::default()
            },
            ..Rules::private()
        };
        key::build(Scheme::Http, b"a", b"/b", request.fields(), false, &rules)
    };
    let private = |request, partition| key(request, partition, CacheKind::Private);
    let all: Vec<KeyBuf> = vec![
        private("", b""),
        private("", b"1"),
        private("Authorization:", b""),
        private("Authorization: Bearer 1", b""),
        private("Authorization: Bearer 2", b""),
        private("Authorization: Bearer 1", b"1"),
        private("Authorization: Bearer 1\nAuthorization: Bearer 1", b""),
    ];
    for (i, one) in all.iter().enumerate() {
        assert!(!all[..i].contains(one), "{i}");
        let url = (Scheme::Http, &b"a"[..], &b"/b"[..], None);
        assert_eq!(key::url_of(one), Some(url), "{i}");
    }
    let secret = private("Authorization: Bearer secret", b"");
    assert!(!secret.windows(6).any(|bytes| bytes == b"secret"));
    let shared = |request| key(request, b"1", CacheKind::Shared);
    assert_eq!(shared(""), shared("Authorization: Bearer 1"));
}
