//! Property tests: laws that hold for every input.

use http::Method;
use proptest::collection::{btree_set, vec};
use proptest::option::of;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::date;
use crate::detail::Detail;
use crate::fields::{Fields, FieldsBuf};
use crate::hop::end_to_end;
use crate::invalidate::locations;
use crate::key::{self, KeyBuf, Scheme};
use crate::lifetime::Lifetime;
use crate::patterns::Patterns;
use crate::precondition::precondition;
use crate::range::{RangeVerdict, range};
use crate::request::RequestFacts;
use crate::response::ResponseFacts;
use crate::reuse::{Reuse, on_error, reuse};
use crate::rules::{KeyRules, Query, Rules};
use crate::status::{CacheStatus, Forward};
use crate::storable::{NotStorable, Storable, storable};
use crate::tags::{TagKind, Tags, invalidated_groups};
use crate::testing::{RECEIVED, fields, get, judge, to_store, view};
use crate::time::{Time, Times};
use crate::validate::{head_update, merge_not_modified, same_representation};
use crate::vary::{self, Selection, Vary, VaryNames};

/// Directives as origins send them, valid and malformed.
fn directive() -> impl Strategy<Value = String> {
    let number = prop_oneof![
        any::<u64>().prop_map(|n| n.to_string()),
        "[0-9]{1,3}",
        "-?[0-9.]{0,3}[a-z']?",
    ];
    let counted = select(vec![
        "max-age",
        "s-maxage",
        "stale-while-revalidate",
        "stale-if-error",
        "min-fresh",
    ]);
    let plain = select(vec![
        "public",
        "must-revalidate",
        "proxy-revalidate",
        "immutable",
        "must-understand",
        "no-cache",
        "no-cache=\"x-a\"",
        "private=\"x-b\"",
        "foo",
        "foo=\"a, b\"",
        "",
    ]);
    prop_oneof![
        (counted, number).prop_map(|(name, number)| format!("{name}={number}")),
        plain.prop_map(str::to_owned),
    ]
}

fn directives() -> impl Strategy<Value = Vec<String>> {
    vec(directive(), 0..5)
}

/// Lines with known names and any value that fits in a line.
fn any_fields() -> impl Strategy<Value = FieldsBuf> {
    let name = select(vec![
        "Accept",
        "Accept-Encoding",
        "Accept-Language",
        "Age",
        "Authorization",
        "Cache-Control",
        "Cache-Groups",
        "Cache-Tag",
        "CDN-Cache-Control",
        "Connection",
        "Content-Length",
        "Content-Location",
        "Content-Type",
        "Cookie",
        "Date",
        "ETag",
        "Expires",
        "If-Match",
        "If-Modified-Since",
        "If-None-Match",
        "If-Range",
        "If-Unmodified-Since",
        "Last-Modified",
        "Location",
        "Pragma",
        "Range",
        "Set-Cookie",
        "Surrogate-Key",
        "Upgrade",
        "Vary",
        "X-A",
    ]);
    let value = prop_oneof![
        directives().prop_map(|all| all.join(",").into_bytes()),
        "[ -~]{0,24}".prop_map(String::into_bytes),
        "(bytes=[0-9]{0,22}-[0-9]{0,22}|\"[a-c]\"|W/\"[a-c]\"|[a-z]+;q=[0-9.]{1,4})"
            .prop_map(String::into_bytes),
        vec(
            any::<u8>().prop_filter("no line ends", |b| !b"\r\n\0".contains(b)),
            0..16
        ),
    ];
    vec((name, value), 0..8).prop_map(|lines| {
        let mut all = FieldsBuf::new();
        for (name, value) in lines {
            all.push(name, value);
        }
        all
    })
}

fn time() -> impl Strategy<Value = Time> {
    any::<u64>().prop_map(Time::from_millis)
}

fn lifetimes() -> impl Strategy<Value = Lifetime> {
    (any::<[u64; 5]>(), 0_u8..128).prop_map(
        |(
            [
                response_time,
                initial_age,
                fresh_for,
                stale_while_revalidate,
                stale_if_error,
            ],
            flags,
        )| {
            Lifetime {
                response_time: Time::from_millis(response_time),
                initial_age,
                fresh_for,
                stale_while_revalidate,
                stale_if_error,
                flags,
            }
        },
    )
}

fn selection(names: &VaryNames, request: Fields<'_>) -> Selection {
    let mut out = Selection::new();
    vary::select(names, &view(request, &Rules::default()), &mut out);
    out
}

fn names(list: &str) -> VaryNames {
    match vary::of_response(fields(&format!("Vary: {list}")).fields(), &[]) {
        Vary::Names(names) => names,
        other => panic!("{list}: {other:?}"),
    }
}

/// A content coding and its weight.
fn coding() -> impl Strategy<Value = (&'static str, &'static str)> {
    let names = vec!["gzip", "br", "zstd", "deflate", "identity", "*", "foo"];
    (select(names), select(vec!["", ";q=0", ";q=1", ";q=0.5"]))
}

fn key_of(host: &str, target: &str, rules: &KeyRules) -> KeyBuf {
    let (host, target) = (host.as_bytes(), target.as_bytes());
    let rules = Rules {
        key: rules.clone(),
        ..Rules::default()
    };
    key::build(Scheme::Http, host, target, Fields::default(), false, &rules)
}

/// Inserts `member` into the list at any position.
fn insert(list: &[String], at: Index, member: &str) -> String {
    let mut list = list.to_vec();
    list.insert(at.index(list.len() + 1), member.to_owned());
    list.join(", ")
}

proptest! {
    #[test]
    fn no_store_is_never_stored(all in directives(), at: Index, status in 200_u16..600) {
        let all: Vec<String> = all.into_iter().filter(|one| one != "must-understand").collect();
        let said = insert(&all, at, "no-store");
        let response = format!("Cache-Control: {said}\nETag: \"a\"");
        for rules in [Rules::default(), Rules::private()] {
            prop_assert!(judge(&rules, "", status, &response).is_err(), "{said}");
        }
    }

    #[test]
    fn private_is_never_stored_in_a_shared_cache(
        all in directives(),
        at: Index,
        status in 200_u16..600,
        request in select(vec!["", "Cookie: a=b", "Authorization: x"]),
    ) {
        let said = insert(&all, at, "private");
        let response = format!("Cache-Control: {said}\nETag: \"a\"");
        let forced = Rules {
            forced_ttl: Some(1_000),
            status_ttl: vec![(status, 1_000)],
            ..Rules::default()
        };
        for rules in [Rules::default(), forced] {
            prop_assert!(judge(&rules, request, status, &response).is_err(), "{said}");
        }
    }

    #[test]
    fn requests_with_credentials_share_explicitly_shared_responses_only(all in directives(), at: Index) {
        let shares = |one: &String| one.starts_with("public") || one.starts_with("s-maxage");
        let silent: Vec<String> = all.into_iter().filter(|one| !shares(one)).collect();
        let response = format!("Cache-Control: {}", insert(&silent, at, "max-age=60"));
        prop_assert!(judge(&Rules::default(), "Cookie: session=1", 200, &response).is_err());
        if let Ok(stored) = judge(&Rules::default(), "", 200, &response) {
            let request = fields("Cookie: session=1");
            let facts = get(&request, &Rules::default());
            prop_assert_eq!(reuse(&stored, &facts, RECEIVED), Reuse::NotShareable);
            prop_assert!(!on_error(&stored, &facts, RECEIVED));
        }
    }

    #[test]
    fn directives_for_shared_caches_do_not_apply_to_private_ones(all in directives(), at: Index) {
        // Only an unqualified `private` counts.
        let private = Rules::private();
        let plain = format!("Cache-Control: {}\nETag: \"a\"", all.join(", "));
        let expected = judge(&private, "", 200, &plain);
        for directive in ["private", "s-maxage=9", "proxy-revalidate"] {
            let said = insert(&all, at, directive);
            let response = format!("Cache-Control: {said}\nETag: \"a\"");
            prop_assert_eq!(judge(&private, "", 200, &response), expected, "{}", said);
        }
        let response = format!("{plain}\nCDN-Cache-Control: no-store\nSet-Cookie: a=b");
        for request in ["", "Cookie: session=1", "Authorization: x"] {
            prop_assert_eq!(judge(&private, request, 200, &response), expected, "{}", request);
        }
    }

    #[test]
    fn max_stale_asks_for_nothing_that_is_forbidden(
        all in directives(),
        at: Index,
        after in 0_u64..1 << 43,
    ) {
        let private = Rules::private();
        let now = RECEIVED.plus(after);
        let facts = get(&fields("Cache-Control: max-stale"), &private);
        for directive in ["must-revalidate", "no-cache"] {
            let response = format!("Cache-Control: {}\nETag: \"a\"", insert(&all, at, directive));
            if let Ok(stored) = judge(&private, "", 200, &response)
                && stored.ttl(now) <= 0
            {
                prop_assert!(matches!(reuse(&stored, &facts, now), Reuse::Revalidate(_)));
            }
        }
        let shared = Rules::default();
        let plain = get(&fields(""), &shared);
        let greedy = get(&fields("Cache-Control: max-stale"), &shared);
        if let Ok(stored) = judge(&shared, "", 200, &format!("Cache-Control: {}", all.join(", "))) {
            prop_assert_eq!(reuse(&stored, &plain, now), reuse(&stored, &greedy, now));
        }
    }

    #[test]
    fn must_revalidate_is_never_served_stale(
        all in directives(),
        at: Index,
        after in 0_u64..1 << 43,
    ) {
        for directive in ["must-revalidate", "proxy-revalidate", "s-maxage=5", "no-cache"] {
            let response = format!("Cache-Control: {}\nETag: \"a\"", insert(&all, at, directive));
            if let Ok(stored) = judge(&Rules::default(), "", 200, &response) {
                let now = RECEIVED.plus(after);
                let request = fields("");
                let facts = get(&request, &Rules::default());
                prop_assert_ne!(reuse(&stored, &facts, now), Reuse::Stale);
                prop_assert!(stored.ttl(now) > 0 || !on_error(&stored, &facts, now));
            }
        }
    }

    #[test]
    fn age_never_falls_and_ttl_never_rises(stored in lifetimes(), a in time(), b in time()) {
        let (earlier, later) = (a.min(b), a.max(b));
        prop_assert!(stored.age(earlier) <= stored.age(later));
        prop_assert!(stored.ttl(earlier) >= stored.ttl(later));
    }

    #[test]
    fn an_expired_lifetime_is_not_fresh(
        stored in lifetimes(),
        now in time(),
        later in time(),
        stated in 0..1_000_000u64,
    ) {
        let mut expired = stored;
        expired.expire(now, stated);
        prop_assert!(expired.age(now) >= stored.age(now));
        prop_assert!(expired == stored || expired.age(now) >= stated);
        prop_assert!(expired.ttl(now) <= 0);
        prop_assert!(expired.ttl(later) <= stored.ttl(later));
        prop_assert!(expired.usable_until() <= stored.usable_until());
    }

    #[test]
    fn encoded_lifetimes_decode_to_themselves(stored in lifetimes()) {
        prop_assert_eq!(Lifetime::from_bytes(&stored.to_bytes()), Some(stored));
    }

    #[test]
    fn encoded_names_decode_to_themselves(list in vec("[A-Za-z0-9-]{1,8}", 1..6)) {
        let names = names(&list.join(", "));
        prop_assert_eq!(VaryNames::from_bytes(names.as_bytes()), Some(names.clone()));
        prop_assert_eq!(&self::names(&names.iter().collect::<Vec<_>>().join(",")), &names);
    }

    #[test]
    fn a_key_gives_its_url_back(
        host in "[a-z0-9.-]{1,12}(:[1-9][0-9]{3})?",
        path in "/[!-~&&[^?]]{0,24}",
        query in of("[!-~]{0,24}"),
    ) {
        let target = query.as_ref().map_or(path.clone(), |query| format!("{path}?{query}"));
        let built = key_of(&host.to_ascii_uppercase(), &target, &KeyRules::default());
        let query = query.as_deref().map(str::as_bytes);
        let url = (Scheme::Http, host.as_bytes(), path.as_bytes(), query);
        prop_assert_eq!(key::url_of(&built), Some(url));
    }

    #[test]
    fn equal_keys_mean_equal_urls(
        a in ("[ab/]{0,3}", "/[ab/?:&]{0,6}"),
        b in ("[ab/]{0,3}", "/[ab/?:&]{0,6}"),
    ) {
        let key = |(host, target): &(String, String)| key_of(host, target, &KeyRules::default());
        prop_assert_eq!(key(&a) == key(&b), a == b);
    }

    #[test]
    fn dropping_query_parameters_twice_is_dropping_them_once(query in "[abu_=&]{0,16}") {
        let rules = KeyRules {
            query: Query::Except(Patterns::from_iter(["u*", "a"])),
            ..KeyRules::default()
        };
        let once = key_of("a", &format!("/?{query}"), &rules);
        let (_, _, _, kept) = key::url_of(&once).expect("a key");
        let kept = kept.map(|kept| format!("/?{}", String::from_utf8_lossy(kept)));
        prop_assert_eq!(key_of("a", kept.as_deref().unwrap_or("/"), &rules), once);
    }

    #[test]
    fn order_case_and_space_of_accept_encoding_do_not_select(
        (codings, shuffled) in vec(coding(), 0..6)
            .prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        space in "[ \t]{0,3}",
    ) {
        let names = names("accept-encoding");
        let plain: Vec<String> = codings.iter().map(|(name, q)| format!("{name}{q}")).collect();
        let other: Vec<String> = shuffled
            .iter()
            .map(|(name, q)| {
                let q = q.replace(';', &format!("{space};{space}"));
                format!("{space}{}{q}{space}", name.to_uppercase())
            })
            .collect();
        let select = |list: &[String]| {
            let mut request = FieldsBuf::new();
            request.push("Accept-Encoding", list.join(","));
            selection(&names, request.fields())
        };
        prop_assert_eq!(select(&plain), select(&other));
    }

    #[test]
    fn selections_cannot_be_forged(a in vec("[xy, \x01]{0,5}", 2), b in vec("[xy, \x01]{0,5}", 2)) {
        let names = names("p, q");
        let request = |values: &[String]| {
            let mut request = FieldsBuf::new();
            request.push("p", &values[0]);
            request.push("q", &values[1]);
            request
        };
        let (a, b) = (request(&a), request(&b));
        let same = ["p", "q"].iter().all(|name| a.fields().get(name) == b.fields().get(name));
        prop_assert_eq!(selection(&names, a.fields()) == selection(&names, b.fields()), same);
    }

    #[test]
    fn tags_and_groups_are_read_as_they_were_written(
        tags in btree_set("[!-~&&[^,]]{1,12}", 0..8),
        groups in btree_set("[ -~]{0,12}", 0..8),
    ) {
        let escape = |name: &String| name.replace('\\', r"\\").replace('"', r#"\""#);
        let quote = |name| format!("\"{}\"", escape(name));
        let response = fields(&format!(
            "Cache-Tag: {}\nCache-Groups: {}",
            Vec::from_iter(tags.clone()).join(", "),
            groups.iter().map(quote).collect::<Vec<_>>().join(", "),
        ));
        let rules = Rules::default();
        let read = Tags::read(response.fields(), &rules);
        let of = |kind| {
            let names = read.iter().filter(|tag| tag.kind == kind);
            let names = names.map(|tag| String::from_utf8_lossy(&tag.name).into_owned());
            names.collect::<Vec<_>>()
        };
        prop_assert_eq!(of(TagKind::Tag), Vec::from_iter(tags));
        prop_assert_eq!(of(TagKind::Group), Vec::from_iter(groups));
    }

    #[test]
    fn dates_are_read_as_they_were_written(seconds in 0_u64..=253_402_300_799, now in time()) {
        let time = Time::from_secs(seconds);
        prop_assert_eq!(date::parse(&date::format(time), now), Some(time));
    }

    #[test]
    fn any_time_can_be_written(time in time()) {
        prop_assert!(date::parse(&date::format(time), time).is_some());
    }

    #[test]
    fn a_cache_status_is_a_valid_structured_field(
        hit: bool,
        fwd in of(select(vec![Forward::Bypass, Forward::UriMiss, Forward::Partial])),
        fwd_status: Option<u16>,
        ttl: Option<i64>,
        stored: bool,
        collapsed: bool,
        detail in of(select(Detail::ALL)),
    ) {
        let member = CacheStatus { hit, fwd, fwd_status, ttl, stored, collapsed, detail, coding: None, is_hidden: false };
        let mut out = Vec::new();
        member.write(&mut out);
        let list: sfv::List = sfv::Parser::new(&out).parse().expect("a list");
        let [sfv::ListEntry::Item(item)] = list.as_slice() else { panic!("one item expected") };
        prop_assert_eq!(item.params.contains_key("hit"), hit);
        prop_assert_eq!(item.params.contains_key("fwd"), !hit && fwd.is_some());
        prop_assert_eq!(item.params.contains_key("ttl"), hit && ttl.is_some());
        prop_assert_eq!(item.params.contains_key("detail"), detail.is_some());
    }

    #[test]
    fn a_part_lies_within_the_body(value in "bytes=[0-9]{0,21}-[0-9]{0,21}", length: u64) {
        let mut request = FieldsBuf::new();
        request.push("Range", value);
        let facts = get(&request, &Rules::default());
        let stored = Fields::default();
        let verdict = range(request.fields(), &facts, 200, stored, length, RECEIVED);
        if let RangeVerdict::Part { first, last } = verdict {
            prop_assert!(first <= last && last < length);
        }
    }

    #[test]
    fn stored_and_forwarded_fields_are_stable(response in any_fields()) {
        let rules = Rules::default();
        let stored = to_store(&response, &rules);
        prop_assert_eq!(to_store(&stored, &rules), stored);
        let forwarded = end_to_end(response.fields());
        prop_assert_eq!(end_to_end(forwarded.fields()), forwarded);
    }

    #[test]
    fn connection_never_removes_essential_fields(named in vec("[ -~]{0,16}", 0..3)) {
        let before = fields("Host: a\nContent-Length: 3\nCache-Control: x\nSet-Cookie: a\nCookie: c");
        let mut message = before.clone();
        for line in named {
            message.push("Connection", line);
        }
        message.push("Connection", "host, content-length, cache-control, set-cookie, cookie");
        prop_assert_eq!(end_to_end(message.fields()), before);
    }

    #[test]
    fn no_input_causes_a_panic(
        request in any_fields(),
        response in any_fields(),
        raw in vec(any::<u8>(), 0..64),
        status: u16,
        now in time(),
        length: u64,
    ) {
        for response in [response.fields(), Fields::new(&raw)] {
            judge_everything(request.fields(), response, status, now, length);
            judge_everything(response, request.fields(), status, now, length);
        }
        date::parse(&raw, now);
        key::url_of(&raw);
        VaryNames::from_bytes(&raw);
        Lifetime::from_bytes(&raw);
    }
}

/// Runs every parser of untrusted fields, and checks the invariants of each verdict.
fn judge_everything(
    request: Fields<'_>,
    response: Fields<'_>,
    status: u16,
    now: Time,
    length: u64,
) {
    let rules = Rules {
        heuristic: Some(10),
        ..Rules::default()
    };
    let facts = RequestFacts::read(&Method::GET, request, false, &rules);
    precondition(request, &facts, status, response, now);
    range(request, &facts, 200, response, length, now);
    locations(response, &[Scheme::Http], b"a", b"/b");
    same_representation(response, request);
    head_update(response, length, request, &rules);
    merge_not_modified(response, request, &rules);
    invalidated_groups(&Method::POST, status, response);
    if let Vary::Names(names) = vary::of_response(response, &rules.vary_ignored) {
        selection(&names, request);
    }
    let mut forwarded = FieldsBuf::from(request);
    vary::normalise(&mut forwarded, &rules);
    let read = ResponseFacts::read(response, &rules);
    match storable(&facts, status, &read, Times::at(now)) {
        Storable::Yes(stored) => {
            reuse(&stored, &facts, now);
            on_error(&stored, &facts, now);
            assert!(stored.is_shareable(facts.credentials()));
            assert!(!response.contains("set-cookie"));
        }
        Storable::No(reason) => {
            assert!(reason != NotStorable::Partial || matches!(status, 206 | 304));
        }
    }
}
