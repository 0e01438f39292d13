//! What a request and a response say about caching: `Cache-Control` of both, targeted fields,
//! `Expires`, `Age`, `Vary`. Whatever they say, some things are never so.

#![no_main]

use libfuzzer_sys::fuzz_target;
use microcache_fuzz::fields::two_sections;
use microcache_policy::request::{Handling, PassReason};
use microcache_policy::rules::Reload;
use microcache_policy::{
    Fields, Lifetime, RequestFacts, ResponseFacts, Reuse, Rules, Storable, Time, Times, end_to_end,
    fields_to_store, on_error, refreshed, reuse, storable,
};

const RECEIVED: Time = Time::from_secs(784_111_777);

fuzz_target!(|input: &[u8]| {
    let (request, response) = two_sections(input);
    let (request, response) = (request.fields(), response.fields());
    for rules in all_rules() {
        let facts = RequestFacts::read(&http::Method::GET, request, false, &rules);
        if says_plainly(request, "no-store") {
            assert!(matches!(facts.handling(), Handling::Pass(_)));
        }
        if facts.handling() == Handling::Pass(PassReason::NoStore) {
            assert!(mentions(request, "no-store"));
        }
        for status in [200, 206, 302, 404, 503] {
            let read = ResponseFacts::read(response, &rules);
            let verdict = storable(&facts, status, &read, Times::at(RECEIVED));
            let Storable::Yes(lifetime) = verdict else {
                continue;
            };
            may_be_stored(request, &facts, response, &rules);
            a_lifetime_is_sound(&lifetime, &facts);
            let stored = fields_to_store(&read);
            let again = refreshed(
                &facts,
                status,
                stored.fields(),
                response,
                Times::at(RECEIVED),
                &rules,
            );
            is_end_to_end(again.fields.fields());
        }
    }
    for fields in [request, response] {
        let travelling = end_to_end(fields);
        is_end_to_end(travelling.fields());
        assert_eq!(end_to_end(travelling.fields()), travelling);
    }
});

fn all_rules() -> [Rules; 3] {
    let strict = Rules {
        ttl: 0,
        reload: Reload::Honour,
        ..Rules::default()
    };
    let heuristic = Rules {
        heuristic: Some(10),
        forced_ttl: None,
        targeted: vec![
            "Microcache-Control".to_owned(),
            "CDN-Cache-Control".to_owned(),
        ],
        ..Rules::default()
    };
    [Rules::default(), strict, heuristic]
}

/// Nothing that is private to someone, or forbidden to keep, is kept.
fn may_be_stored(request: Fields<'_>, facts: &RequestFacts, response: Fields<'_>, rules: &Rules) {
    assert!(!matches!(facts.handling(), Handling::Pass(_)));
    assert!(!response.contains("set-cookie"));
    let targeted = rules.targeted.iter().any(|name| response.contains(name));
    if !targeted {
        assert!(!says_plainly(response, "private"));
        assert!(!says_plainly(response, "no-store") || mentions(response, "must-understand"));
    }
    let shared = ["public", "s-maxage", "must-revalidate"];
    if request.contains("authorization") {
        assert!(shared.iter().any(|word| mentions(response, word)));
    }
    let to_store = |fields| fields_to_store(&ResponseFacts::read(fields, rules));
    let stored = to_store(response);
    is_end_to_end(stored.fields());
    assert_eq!(to_store(stored.fields()), stored);
}

fn a_lifetime_is_sound(lifetime: &Lifetime, facts: &RequestFacts) {
    assert_eq!(Lifetime::from_bytes(&lifetime.to_bytes()), Some(*lifetime));
    let ttl = lifetime.ttl(RECEIVED).unsigned_abs();
    let end = lifetime.usable_until();
    let moments = [0, 1, ttl.saturating_sub(1), ttl, ttl.saturating_add(1)]
        .map(|after| RECEIVED.plus(after))
        .into_iter()
        .chain([end, Time::from_millis(end.as_millis().saturating_sub(1))]);
    for now in moments {
        let verdict = reuse(lifetime, facts, now);
        if verdict == Reuse::Fresh {
            assert!(lifetime.ttl(now) > 0);
        }
        if matches!(verdict, Reuse::Fresh | Reuse::Stale) || on_error(lifetime, facts, now) {
            assert!(now < end, "usable after {end:?}, at {now:?}");
        }
    }
}

/// Whether a line of `Cache-Control` without quotes has this member.
fn says_plainly(fields: Fields<'_>, word: &str) -> bool {
    fields
        .all("cache-control")
        .filter(|line| !line.contains(&b'"'))
        .flat_map(|line| line.split(|&b| b == b','))
        .any(|member| member.trim_ascii().eq_ignore_ascii_case(word.as_bytes()))
}

fn mentions(fields: Fields<'_>, word: &str) -> bool {
    fields
        .as_block()
        .windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word.as_bytes()))
}

fn is_end_to_end(fields: Fields<'_>) {
    for name in [
        "connection",
        "keep-alive",
        "transfer-encoding",
        "upgrade",
        "te",
    ] {
        assert!(!fields.contains(name), "{name} travels");
    }
}
