use std::thread;
use std::time::Duration;

use microcache_policy::vary::of_response;
use microcache_policy::{Fields, Lifetime, Rules};

use super::*;
use crate::eviction::FetchCost;
use crate::stored::TablePlace;

const KEY: &[u8] = b"a page";

fn memory() -> Memory {
    Memory::new(MemoryLimits {
        capacity: 1 << 20,
        object: 1 << 14,
        variants: 3,
    })
}

fn view<'a>(fields: &'a [u8], rules: &'a Rules) -> OriginView<'a> {
    OriginView {
        fields: Fields::new(fields),
        rules,
        address: "",
        is_trusted: false,
    }
}

/// Stores a response that varies on the language, which is also its body.
fn put(memory: &Memory, language: &str, at: Time) -> Hit {
    let rules = Rules::default();
    let fields = Fields::new(b"Vary: Accept-Language\r\n");
    let mut lifetime = [0; Lifetime::ENCODED_LEN];
    lifetime[16..24].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let lifetime = Lifetime::from_bytes(&lifetime).expect("it is one");
    let body = Bytes::copy_from_slice(language.as_bytes()).into();
    let request = format!("Accept-Language: {language}\r\n");
    let request = view(request.as_bytes(), &rules);
    let names = of_response(fields, &rules.vary_ignored).names();
    let mut selection = microcache_policy::vary::Selection::new();
    microcache_policy::vary::select(&names, &request, &mut selection);
    let stored = Stored::new(KEY, 200, fields, body, lifetime, Time::default());
    let stored = stored.with_vary(names, &selection);
    let kept = memory.put(KEY, stored, &request, at);
    kept.expect("it is small")
}

fn get(memory: &Memory, language: &str, at: Time) -> Option<Hit> {
    let (rules, request) = (Rules::default(), format!("Accept-Language: {language}\r\n"));
    let object = memory.get(KEY)?;
    object.select(&view(request.as_bytes(), &rules), at).ok()
}

fn languages(memory: &Memory) -> Vec<String> {
    let object = memory.get(KEY);
    let variants = object.iter().flat_map(Object::variants);
    let bodies = variants.map(|one| one.body().expect("it is in memory"));
    bodies
        .map(|body| String::from_utf8_lossy(body).into_owned())
        .collect()
}

#[test]
fn the_variants_of_a_key_are_one_object() {
    let (memory, now) = (memory(), Time::from_secs(1));
    for language in ["de", "en", "fr"] {
        assert_eq!(
            put(&memory, language, now).body(),
            Some(language.as_bytes())
        );
    }
    assert_eq!(
        (languages(&memory), memory.stats().keys),
        (vec!["de".into(), "en".into(), "fr".into()], 1)
    );
    for language in ["fr", "de", "en"] {
        let hit = get(&memory, language, now).expect("it is stored");
        assert_eq!(hit.body(), Some(language.as_bytes()));
        assert_eq!(hit.object().variants().count(), 3);
    }
    assert!(get(&memory, "it", now).is_none());
    let weight = memory.stats().bytes;
    // A new response replaces its predecessor, and becomes the latest.
    let de = put(&memory, "de", now);
    assert_eq!(languages(&memory), ["en", "fr", "de"]);
    assert_eq!((memory.stats().bytes, de.last_use()), (weight, 62));
    // The one whose last use is longest ago makes room.
    let later = Time::from_secs(2);
    assert!(get(&memory, "en", later).is_some() && get(&memory, "de", later).is_some());
    put(&memory, "it", later);
    assert_eq!(languages(&memory), ["en", "de", "it"]);
    assert_eq!(memory.stats().bytes, weight);
}

#[test]
fn nothing_of_a_replaced_leader_is_kept() {
    let (memory, now) = (memory(), Time::from_secs(1));
    let held: Vec<Hit> = ["de", "en", "fr", "it", "pl"]
        .map(|language| put(&memory, language, now))
        .into();
    assert_eq!(languages(&memory), ["fr", "it", "pl"]);
    let object = memory.get(KEY).expect("it is stored");
    let leads = |one: &Stored| one.notes().is_some() || !one.others().is_empty();
    let leaders = object.variants().filter(|one| leads(one));
    assert_eq!(leaders.count(), 1, "the latest leads");
    assert_eq!(
        held[0].body(),
        Some(&b"de"[..]),
        "a hit outlives its eviction"
    );
}

#[test]
fn a_response_is_found_as_it_was_until_it_is_revised() {
    let (memory, now) = (memory(), Time::from_secs(1));
    put(&memory, "de", now);
    let found = || get(&memory, "de", now).expect("it is stored");
    let state = |one: &Stored| (one.lifetime().ttl(now) > 0, one.purges_checked());
    let revised = memory.revise(
        KEY,
        |_| Revision::Expire(now),
        |one| {
            one.set_purges_checked(7);
            assert_eq!((state(&found()), state(one)), ((true, 0), (false, 7)));
        },
    );
    assert_eq!((revised, state(&found())), (0, (false, 7)));
    memory.revise(KEY, |_| Revision::Keep, |one| one.set_purges_checked(8));
    assert_eq!(state(&found()), (false, 8));
}

/// Compares what is charged with the weights of all objects.
fn check_charges(memory: &Memory) {
    let charges: Vec<_> = memory
        .entries()
        .map(|object| (object.latest().place().charge(), object.weight()))
        .collect();
    for (charge, weight) in &charges {
        assert_eq!(*charge, TablePlace::rounded(*weight));
    }
    let sum: u64 = charges.iter().map(|(charge, _)| charge).sum();
    assert_eq!(memory.stats().bytes, sum);
}

#[test]
fn parts_that_a_response_gets_late_are_charged_when_they_are_created() {
    let (memory, now) = (memory(), Time::from_secs(1));
    put(&memory, "de", now);
    let charged = |part: &dyn Fn(&Hit)| {
        let (before, hit) = (memory.stats().bytes, get(&memory, "de", now));
        part(&hit.expect("it is stored"));
        memory.stats().bytes - before
    };
    let revalidation = |hit: &Hit| drop(Arc::clone(memory.demand(hit)));
    let encodings = |hit: &Hit| assert!(memory.encoded(hit, 1, |_| true).is_some());
    assert!(charged(&revalidation) > 200 && charged(&encodings) > 200);
    assert_eq!((charged(&revalidation), charged(&encodings)), (0, 0));
    check_charges(&memory);
    // Also those of a variant that does not lead the others.
    put(&memory, "de", now);
    put(&memory, "en", now);
    assert!(charged(&encodings) > 200 && charged(&revalidation) > 0);
    check_charges(&memory);
    assert!(memory.remove(KEY));
    assert_eq!(memory.stats().bytes, 0);
}

#[test]
fn late_parts_of_a_response_that_is_no_longer_stored_are_not_charged() {
    let (memory, now) = (memory(), Time::from_secs(1));
    let replaced = put(&memory, "de", now);
    let removed = put(&memory, "de", now);
    let before = memory.stats().bytes;
    assert!(memory.encoded(&replaced, 1, |_| true).is_some());
    assert!(memory.claim_refresh(&replaced, now, 1000));
    assert_eq!(memory.stats().bytes, before);
    assert!(memory.remove(KEY));
    assert!(memory.encoded(&removed, 1, |_| true).is_some());
    assert!(memory.claim_refresh(&removed, now, 1000));
    assert_eq!((memory.stats().bytes, memory.stats().keys), (0, 0));
}

#[test]
fn late_parts_are_charged_whatever_other_threads_change() {
    let (memory, now) = (memory(), Time::from_secs(1));
    let change = |random: u64| {
        let language = ["de", "en", "fr", "it"][(random >> 20) as usize % 4];
        let hit = get(&memory, language, now);
        match ((random >> 40) % 16, hit) {
            (0, _) => {
                memory.remove(KEY);
            }
            (1, _) => {
                memory.revise(KEY, |_| Revision::Expire(now), |_| ());
            }
            (2..4, _) | (_, None) => drop(put(&memory, language, now)),
            (4..10, Some(hit)) => drop(memory.encoded(&hit, 1, |_| true).cloned()),
            (_, Some(hit)) => drop(Arc::clone(memory.demand(&hit))),
        }
    };
    for round in 0..100 {
        thread::scope(|scope| {
            for thread in 0..4_u64 {
                let change = &change;
                scope.spawn(move || {
                    let mut random = 4 * round + thread + 1;
                    for _ in 0..100 {
                        random = random
                            .wrapping_mul(6_364_136_223_846_793_005)
                            .wrapping_add(1_442_695_040_888_963_407);
                        change(random);
                    }
                });
            }
        });
        check_charges(&memory);
    }
    memory.remove(KEY);
    assert_eq!(memory.stats().bytes, 0);
}

#[test]
fn a_key_without_responses_and_notes_is_removed() {
    let (memory, now, rules) = (memory(), Time::from_secs(1), Rules::default());
    let request = view(b"", &rules);
    let stored = || {
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
        Stored::new(
            KEY,
            200,
            Fields::default(),
            Bytes::new().into(),
            lifetime,
            Time::default(),
        )
    };
    assert!(memory.put(KEY, stored(), &request, now).is_ok());
    assert_eq!(memory.revise(KEY, |_| Revision::Drop, |_| ()), 1);
    let empty = MemoryStats {
        capacity: 1 << 20,
        ..MemoryStats::default()
    };
    assert_eq!(memory.stats(), empty);
    // A note is kept without a response.
    let why = (VaryNames::NONE, Detail::SetCookie);
    memory.mark_uncacheable(KEY, why, &request, now.plus(1000), now);
    let object = memory.get(KEY).expect("there is a note");
    assert_eq!(
        object.uncacheable(&object.selection(&request), now),
        Some(Detail::SetCookie)
    );
    assert_eq!((object.key(), object.variants().count()), (KEY, 0));
    assert!(object.select(&request, now).is_err());
    assert!(memory.put(KEY, stored(), &request, now).is_ok());
    assert!(memory.remove(KEY));
    assert_eq!(memory.stats(), empty);
}

#[test]
fn look_ups_before_and_after_a_first_response_are_no_uses_of_it() {
    let (memory, now, rules) = (memory(), Time::from_secs(1), Rules::default());
    let names = of_response(Fields::new(b"Vary: A\r\n"), &rules.vary_ignored).names();
    memory.learn_vary(KEY, &names, now.plus(1_000_000), now);
    let uses = || {
        let object = memory.get(KEY).expect("it is stored");
        object.latest().recent_uses().take()
    };
    assert_eq!(uses(), 0, "notes only");
    let hit = put(&memory, "de", now);
    assert!(get(&memory, "de", now).is_some());
    assert_eq!(uses(), 0, "it was looked up only");
    hit.count_use();
    assert_eq!((uses(), hit.uses()), (1, 1));
    // A use of a variant is one of its key.
    put(&memory, "en", now);
    let de = get(&memory, "de", now).expect("it is stored");
    de.count_use();
    assert_eq!((uses(), de.uses()), (1, 2));
}

#[test]
fn slow_requests_that_are_not_repeated_evict_no_page_with_hits() {
    const PAGES: usize = 4_000;
    let memory = Memory::new(MemoryLimits {
        capacity: 128 << 20,
        object: 8 << 20,
        variants: 3,
    });
    let (rules, now) = (Rules::default(), Time::default());
    let request = view(b"", &rules);
    let put = |key: &str, length: usize, seconds: u64| {
        let lifetime = Lifetime::from_bytes(&[0; Lifetime::ENCODED_LEN]).expect("zeros are one");
        let (fields, body) = (Fields::default(), Bytes::from(vec![b'x'; length]).into());
        let stored = Stored::new(key.as_bytes(), 200, fields, body, lifetime, now)
            .with_cost(FetchCost::of(Duration::from_secs(seconds)));
        assert!(memory.put(key.as_bytes(), stored, &request, now).is_ok());
    };
    // Small pages and heavy ones: three quarters of the memory.
    let page = |number: usize| format!("/page/{number}");
    for number in 0..PAGES {
        put(
            &page(number),
            if number % 8 == 0 { 170_000 } else { 3_000 },
            1,
        );
        let object = memory.get(page(number).as_bytes()).expect("it is stored");
        let hit = object.select(&request, now).expect("it is one");
        hit.count_use();
    }
    assert_eq!(memory.stats().evicted, 0);
    for number in 0..10_000 {
        let length = [2_000, 20_000, 200, 60_000, 5_000][number % 5];
        let length = if number % 50 == 0 { 1 << 20 } else { length };
        put(&format!("/search?q={number}"), length, 60);
    }
    let gone = (0..PAGES).filter(|&number| memory.get(page(number).as_bytes()).is_none());
    assert_eq!(gone.count(), 0);
    assert!(memory.stats().evicted > 5_000);
}
