use bytes::Bytes;
use microcache_policy::tags::{Tag, TagKind};
use microcache_policy::{Scheme, Time, VaryNames};
use microcache_store::{Epoch, Key, LOG_COPIES, TagNumbers};

use super::super::logs::LogHistory;
use super::super::rule::{
    EntryNames, Rule, RuleSubject, Scope, Strength, tag_numbers, variant_number,
};
use super::super::testing::key_of;
use super::{Covered, LiveRule, MAX_RULES, PurgeRules, RuleNumber, RulePlaces, Since};

const NOW: Time = Time::from_secs(1_000);
const NOWHERE: RulePlaces = RulePlaces::new([None; LOG_COPIES]);

/// Places at these positions in the copies of the log.
fn places(positions: [Option<u64>; LOG_COPIES]) -> RulePlaces {
    let place = |position| LogHistory::default().place(position);
    RulePlaces::new(positions.map(|position| position.map(place)))
}

/// A place in a log kept in one copy.
fn at(position: u64) -> RulePlaces {
    places([Some(position), None])
}

/// The number of the newest of so many rules.
fn number(rules: usize) -> RuleNumber {
    (0..rules).fold(RuleNumber::NONE, |number, _| number.next())
}

fn text(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn url(host: &str, target: &str) -> Scope {
    Scope::Url {
        host: text(host),
        target: text(target),
    }
}

fn prefix(host: &str, path: &str) -> Scope {
    Scope::prefixed(text(host), text(path))
}

fn group(host: &str, name: &str) -> Scope {
    Scope::Group {
        scheme: Scheme::Http,
        host: text(host),
        name: text(name),
    }
}

fn rule(id: u64, scope: Scope, strength: Strength) -> Rule {
    let at = NOW;
    Rule {
        id,
        scope,
        strength,
        at,
    }
}

/// An entry of a url, with a tag and a group.
struct Page {
    key: Key,
    tags: TagNumbers,
}

fn page(host: &str, target: &str, tag: &str, group: &str) -> Page {
    let key = key_of(Scheme::Http, host, target);
    let tags = [
        Tag::new(TagKind::Tag, tag.as_bytes()),
        Tag::new(TagKind::Group, group.as_bytes()),
    ];
    let tags = tag_numbers(&key, tags.into_iter());
    Page { key, tags }
}

impl Page {
    fn covered(&self, rules: &PurgeRules, since: Since) -> Option<Covered> {
        rules.covers(
            &EntryNames::new(RuleSubject::fetch(&self.key, &self.tags)),
            since,
        )
    }

    fn is_covered(&self, rules: &PurgeRules) -> bool {
        self.covered(rules, Since::Rule(number(0))).is_some()
    }
}

#[test]
fn a_rule_covers_its_scope_only() {
    let news = page("a.example", "/news/1?x=y", "news", "front");
    let other = page("b.example", "/other", "other", "back");
    for (scope, names_news, names_other) in [
        (Scope::Everything, true, true),
        (Scope::Host(text("a.example")), true, false),
        (Scope::Host(text("a.exampl")), false, false),
        (url("a.example", "/news/1?x=y"), true, false),
        (url("a.example", "/news/1"), false, false),
        (url("a.example", "/news/1?x="), false, false),
        (prefix("a.example", "/"), true, false),
        (prefix("a.example", ""), true, false),
        (prefix("a.example", "/news"), true, false),
        (prefix("a.example", "/news/1?x"), true, false),
        (prefix("a.example", "/news/1?x=y"), true, false),
        (prefix("a.example", "/news/1?x=yz"), false, false),
        (prefix("b.example", "/news"), false, false),
        (prefix("b.example", "/other"), false, true),
        (Scope::Tag(text("news")), true, false),
        (Scope::Tag(text("New")), false, false),
        (Scope::Tag(text("front")), false, false),
        (group("a.example", "front"), true, false),
        (group("b.example", "front"), false, false),
        (group("a.example", "news"), false, false),
    ] {
        let rules = PurgeRules::default();
        let added = rules.add(rule(1, scope.clone(), Strength::Hard), NOW, NOWHERE);
        assert_eq!(added, Some(number(1)));
        assert_eq!(news.is_covered(&rules), names_news, "{scope:?}");
        assert_eq!(other.is_covered(&rules), names_other, "{scope:?}");
    }
}

#[test]
fn both_schemes_are_named_but_by_a_group() {
    let tags = TagNumbers::default();
    let secure = key_of(Scheme::Https, "a.example", "/x");
    for scope in [
        Scope::Host(text("a.example")),
        prefix("a.example", "/x"),
        url("a.example", "/x"),
    ] {
        let rules = PurgeRules::default();
        rules.add(rule(1, scope.clone(), Strength::Hard), NOW, NOWHERE);
        let covered = rules.covers(
            &EntryNames::new(RuleSubject::fetch(&secure, &tags)),
            Since::Rule(number(0)),
        );
        assert!(covered.is_some(), "{scope:?}");
    }
    // Groups belong to an origin, and so to a scheme (RFC 9875).
    let name = Tag::new(TagKind::Group, b"news");
    let tags = tag_numbers(&secure, std::iter::once(name));
    let rules = PurgeRules::default();
    rules.add(
        rule(1, group("a.example", "news"), Strength::Hard),
        NOW,
        NOWHERE,
    );
    let covered = rules.covers(
        &EntryNames::new(RuleSubject::fetch(&secure, &tags)),
        Since::Rule(number(0)),
    );
    assert!(covered.is_none());
}

#[test]
fn a_rule_for_a_variant_covers_its_entries_and_the_fetches_of_its_url() {
    let (key, tags) = (
        key_of(Scheme::Http, "a.example", "/x"),
        TagNumbers::default(),
    );
    let other = key_of(Scheme::Http, "a.example", "/y");
    let (vary, none) = (languages(), VaryNames::default());
    let german = variant_number(&key, &vary, b"de");
    let rules = PurgeRules::default();
    let scope = Scope::Variant {
        host: text("a.example"),
        target: text("/x"),
        variant: german,
    };
    rules.add(rule(1, scope, Strength::Hard), NOW, NOWHERE);
    let covers = |held| {
        rules
            .covers(&EntryNames::new(held), Since::Rule(number(0)))
            .is_some()
    };
    let stored =
        |key, vary, selection| covers(RuleSubject::of_variant(key, &tags, vary, selection));
    let are_right = || {
        assert!(stored(&key, &vary, b"de"));
        assert!(!stored(&key, &vary, b"en"));
        assert!(!stored(&key, &none, b""));
        assert!(!stored(&other, &vary, b"de"));
        assert!(covers(RuleSubject::fetch(&key, &tags)));
        assert!(!covers(RuleSubject::fetch(&other, &tags)));
    };
    are_right();
    // Merging it into a part costs little either.
    for number in 0..MAX_RULES as u64 {
        let tag = Scope::Tag(text(&number.to_string()));
        rules.add(rule(2 + number, tag, Strength::Hard), NOW, NOWHERE);
    }
    are_right();
    rules.drop_through(number(1));
    assert!(!stored(&key, &vary, b"de") && !covers(RuleSubject::fetch(&key, &tags)));
}

/// The `Vary` of a response in several languages.
fn languages() -> VaryNames {
    VaryNames::from_bytes(b"accept-language").expect("names")
}

#[test]
fn a_page_with_too_many_tags_is_covered_by_every_tag() {
    let key = key_of(Scheme::Http, "a.example", "/x");
    let long = "x".repeat(1025);
    let numbers_of = |names: &[&str]| {
        let tags = names
            .iter()
            .map(|name| Tag::new(TagKind::Tag, name.as_bytes()));
        tag_numbers(&key, tags)
    };
    let names: Vec<_> = (0..4097).map(|number| number.to_string()).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    assert!(!numbers_of(&names[1..]).are_every(), "4,096 are kept");
    assert!(!numbers_of(&[&names[1..], &names[1..]].concat()).are_every());
    assert!(!numbers_of(&[&long[1..]]).are_every());
    for tags in [numbers_of(&names), numbers_of(&["a", &long])] {
        let key = Key::clone(&key);
        let page = Page { key, tags };
        for (scope, is_covered) in [
            (Scope::Tag(text("another")), true),
            (group("b.example", "another"), true),
            (url("a.example", "/y"), false),
            (Scope::Host(text("b.example")), false),
        ] {
            let names = EntryNames::new(RuleSubject::fetch(&page.key, &page.tags));
            assert_eq!(names.is_in(&scope), is_covered);
            let rules = PurgeRules::default();
            rules.add(rule(1, scope.clone(), Strength::Hard), NOW, NOWHERE);
            assert_eq!(page.is_covered(&rules), is_covered);
            // It has a place in the log, as the name itself.
            rules.add(rule(1, scope, Strength::Hard), NOW, at(100));
            assert_eq!(page.covered(&rules, fetched(9, 99)).is_some(), is_covered);
            assert!(page.covered(&rules, fetched(0, 100)).is_none());
        }
    }
    // Merged into a part, a rule is not forgotten.
    let rules = PurgeRules::default();
    rules.add(rule(1, Scope::Tag(text("x")), Strength::Hard), NOW, NOWHERE);
    for number in 0..MAX_RULES as u64 {
        let host = Scope::Host(text(&number.to_string()));
        rules.add(rule(2 + number, host, Strength::Hard), NOW, NOWHERE);
    }
    let tags = numbers_of(&names);
    assert!(Page { key, tags }.is_covered(&rules));
}

#[test]
fn a_rule_covers_older_entries_only() {
    let rules = PurgeRules::default();
    let page = page("a.example", "/", "tag", "group");
    rules.add(rule(1, Scope::Everything, Strength::Soft), NOW, NOWHERE);
    rules.add(
        rule(2, Scope::Tag(text("tag")), Strength::Hard),
        NOW.plus(5),
        NOWHERE,
    );
    assert_eq!(
        rules.add(rule(2, Scope::Everything, Strength::Hard), NOW, NOWHERE),
        None
    );
    let covered = |since| page.covered(&rules, since);
    let hard = Some(Covered::Hard);
    assert_eq!(covered(Since::Rule(number(0))), hard);
    assert_eq!(covered(Since::Rule(number(1))), hard);
    assert_eq!(covered(Since::Rule(number(2))), None);
    assert_eq!(covered(fetched(5, 0)), hard);
    assert_eq!(covered(fetched(6, 0)), None);
}

/// An entry fetched this many milliseconds after [`NOW`], by a process that had read the log up to
/// there.
fn fetched(millis: u64, purges_known: u64) -> Since {
    Since::Fetch {
        at: NOW.plus(millis),
        purges_known: [purges_known, 0],
    }
}

#[test]
fn a_place_in_the_log_counts_and_not_the_time() {
    let (rules, page) = (
        PurgeRules::default(),
        page("a.example", "/", "tag", "group"),
    );
    let by_tag = |id| rule(id, Scope::Tag(text("tag")), Strength::Hard);
    rules.add(by_tag(1), NOW, at(100));
    let covered = |since| page.covered(&rules, since).is_some();
    assert!(covered(fetched(1_000_000, 99)), "another clock is ahead");
    assert!(!covered(fetched(0, 100)), "another clock is behind");
    // One that is not in the log yet counts by time, until it is.
    rules.add(by_tag(2), NOW.plus(5), NOWHERE);
    assert!(covered(fetched(5, 100)));
    assert!(!covered(fetched(6, 100)));
    assert_eq!(rules.add(by_tag(2), NOW.plus(9), at(101)), None);
    assert!(covered(fetched(6, 100)));
    assert!(!covered(fetched(5, 101)));
    assert!(rules.unplaced().is_empty());
}

#[test]
fn of_two_rules_of_a_name_both_places_count() {
    let (rules, page) = (
        PurgeRules::default(),
        page("a.example", "/", "tag", "group"),
    );
    let by_tag = |id| rule(id, Scope::Tag(text("tag")), Strength::Hard);
    // The one issued here first was logged last.
    rules.add(by_tag(1), NOW, NOWHERE);
    rules.add(by_tag(2), NOW, at(100));
    rules.add(by_tag(1), NOW, at(101));
    let covered = |since| page.covered(&rules, since).is_some();
    assert!(covered(fetched(1, 100)));
    assert!(!covered(fetched(1, 101)));
}

/// An entry fetched by a process that had read both copies of the log up to there.
fn known(first: u64, second: u64) -> Since {
    Since::Fetch {
        at: NOW.plus(1_000_000),
        purges_known: [first, second],
    }
}

#[test]
fn a_process_that_had_read_a_rule_in_one_copy_came_later() {
    let (rules, page) = (
        PurgeRules::default(),
        page("a.example", "/", "tag", "group"),
    );
    let by_tag = |id| rule(id, Scope::Tag(text("tag")), Strength::Hard);
    let covered = |since| page.covered(&rules, since).is_some();
    rules.add(by_tag(1), NOW, places([Some(10), Some(100)]));
    assert!(covered(known(9, 99)));
    assert!(!covered(known(10, 0)) && !covered(known(0, 100)));
    // The second copy lacks this one: nothing there dates it.
    rules.add(by_tag(2), NOW, places([Some(20), None]));
    assert!(covered(known(19, 1_000)));
    assert!(!covered(known(20, 0)));
    rules.add(by_tag(2), NOW, places([None, Some(110)]));
    assert!(covered(known(19, 109)));
    assert!(!covered(known(20, 0)) && !covered(known(0, 110)));
    // The copy it was found in first, and how often, does not matter either.
    rules.add(by_tag(3), NOW, places([None, Some(120)]));
    rules.add(by_tag(3), NOW, places([Some(30), None]));
    rules.add(by_tag(3), NOW, places([Some(31), Some(121)]));
    assert!(covered(known(29, 119)));
    assert!(!covered(known(30, 0)) && !covered(known(0, 120)));
}

#[test]
fn a_rule_missing_from_a_copy_is_older_than_the_next_one_in_it() {
    let (rules, page) = (
        PurgeRules::default(),
        page("a.example", "/", "tag", "group"),
    );
    let by_tag = |id| rule(id, Scope::Tag(text("tag")), Strength::Hard);
    let covered = |since| page.covered(&rules, since).is_some();
    for id in [1, 2] {
        rules.add(by_tag(id), NOW, places([Some(id), None]));
    }
    rules.add(rule(3, Scope::Everything, Strength::Hard), NOW, NOWHERE);
    rules.note_read_through(1, 100);
    rules.settle(1, number(2));
    assert!(covered(known(0, 1_000)), "one came while it was read");
    rules.add(
        rule(3, Scope::Everything, Strength::Hard),
        NOW,
        places([Some(3), None]),
    );
    rules.settle(1, rules.newest());
    assert!(covered(known(2, 100)));
    assert!(!covered(known(0, 101)) && !covered(known(3, 0)));
}

#[test]
fn a_purge_of_everything_keeps_the_rules_in_the_log() {
    let (rules, page) = (
        PurgeRules::default(),
        page("a.example", "/", "tag", "group"),
    );
    let by_tag = rule(1, Scope::Tag(text("tag")), Strength::Hard);
    rules.add(by_tag, NOW, places([Some(10), Some(100)]));
    // It arrived here later, and in the log earlier.
    let all = rule(2, Scope::Everything, Strength::Hard);
    rules.add(all, NOW, places([Some(9), Some(99)]));
    assert!(page.covered(&rules, known(9, 99)).is_some());
}

#[test]
fn before_the_log_was_read_nothing_behind_memory_is_good() {
    let (rules, page) = (
        PurgeRules::default(),
        page("a.example", "/", "tag", "group"),
    );
    rules.wait_for_log();
    assert!(page.covered(&rules, fetched(0, 7)).is_some());
    assert!(page.covered(&rules, Since::Rule(number(0))).is_none());
    rules.note_read_through(0, 7);
    assert!(
        page.covered(&rules, fetched(0, 7)).is_some(),
        "there is more"
    );
    rules.note_read_through(0, 9);
    rules.note_log_read();
    assert!(page.covered(&rules, fetched(0, 7)).is_none());
    assert_eq!(rules.known().positions, [9, 0]);
}

#[test]
fn a_forgotten_rule_covers_nothing_and_is_reported_as_forgotten() {
    let rules = PurgeRules::default();
    let page = page("a.example", "/", "tag", "group");
    for (id, scope) in [
        Scope::Tag(text("tag")),
        prefix("a.example", "/"),
        Scope::Host(text("a.example")),
    ]
    .into_iter()
    .enumerate()
    {
        rules.add(
            rule(id as u64, scope, Strength::Hard),
            NOW.plus(id as u64),
            NOWHERE,
        );
    }
    assert_eq!(rules.newest_at(NOW.plus(1)), Some(number(2)));
    rules.drop_through(number(2));
    assert!(page.is_covered(&rules), "by the third");
    assert!(rules.has_dropped_since(number(1)) && !rules.has_dropped_since(number(2)));
    assert!(!rules.is_empty() && rules.live_count() == 1);
    rules.drop_through(number(3));
    assert!(!page.is_covered(&rules) && rules.is_empty());
    assert!(!rules.has_dropped_since(rules.newest()));
}

#[test]
fn more_than_are_remembered_one_by_one_cost_the_others_little() {
    let rules = PurgeRules::default();
    let name = |number: usize| text(&format!("tag-{number}"));
    let count = MAX_RULES + 2_000;
    for number in 0..count {
        let scope = match number {
            7 => prefix("narrow.example", "/a"),
            number => Scope::Tag(name(number)),
        };
        rules.add(rule(number as u64, scope, Strength::Hard), NOW, NOWHERE);
    }
    assert_eq!(rules.live_count(), MAX_RULES);
    let tagged = |number: usize| {
        let tag = format!("tag-{number}");
        page("a.example", "/", &tag, "none")
    };
    for number in [0, 1, 1_999, 2_000, count - 1] {
        assert!(tagged(number).is_covered(&rules), "{number}");
    }
    let others = (count..count + 5_000).filter(|&number| tagged(number).is_covered(&rules));
    assert!(others.count() < 250, "the price");
    let widened = page("narrow.example", "/b", "none", "none");
    assert!(widened.is_covered(&rules), "the host of a prefix counts");
    rules.drop_through(rules.newest());
    assert!(rules.is_empty() && !tagged(0).is_covered(&rules));
}

#[test]
fn a_hard_purge_of_everything_includes_all_earlier_rules() {
    let rules = PurgeRules::default();
    rules.add(
        rule(1, Scope::Tag(text("tag")), Strength::Hard),
        NOW,
        NOWHERE,
    );
    rules.add(rule(2, Scope::Everything, Strength::Soft), NOW, NOWHERE);
    assert_eq!(rules.live_count(), 2);
    rules.add(rule(3, Scope::Everything, Strength::Hard), NOW, NOWHERE);
    assert_eq!(rules.live_count(), 1);
    assert!(page("a.example", "/", "x", "y").is_covered(&rules));
}

#[test]
fn rules_come_back_from_bytes() {
    let scopes = [
        Scope::Everything,
        Scope::Host(text("a.example")),
        url("a.example", "/x?y"),
        Scope::Variant {
            host: text("a.example"),
            target: text("/x?y"),
            variant: 0x0123_4567_89ab_cdef,
        },
        prefix("a.example", "/x"),
        Scope::Tag(text("tag")),
        Scope::Tag(text("")),
        group("a.example", "name"),
    ];
    let epoch = Epoch::now();
    for (id, scope) in scopes.into_iter().enumerate() {
        for strength in [Strength::Hard, Strength::Soft] {
            let rule = rule(id as u64, scope.clone(), strength);
            let bytes = rule.encode(&epoch);
            assert_eq!(Rule::decode(&bytes, &epoch), Some(rule));
            for length in 0..bytes.len() {
                let cut = Rule::decode(&bytes[..length], &epoch);
                assert!(
                    cut.is_none_or(|cut| cut.scope == Scope::Everything),
                    "{length}"
                );
            }
        }
    }
    assert_eq!(
        Rule::decode(b"\x03he\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", &epoch),
        None
    );
}

/// A rule of another process is dated by the machine's uptime, as records are, whatever its wall
/// clock showed.
#[test]
fn the_time_of_a_rule_is_read_as_the_time_of_a_record_is() {
    let epoch = Epoch::now();
    let rule = rule(1, url("a.example", "/"), Strength::Hard);
    let mut bytes = rule.encode(&epoch);
    let (version, id, date, boot) = (3, 8, 8, 8);
    let at = version + id + date + boot;
    let uptime = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    bytes[at..at + 8].copy_from_slice(&uptime.wrapping_add(5_000).to_le_bytes());
    let read = Rule::decode(&bytes, &epoch).unwrap();
    assert_eq!(read.at, rule.at.plus(5_000));
    // Other machines go by the date.
    let anywhere = epoch.anywhere();
    let read = Rule::decode(&rule.encode(&anywhere), &epoch);
    assert_eq!(read, Some(rule));
}

#[test]
fn long_names_take_no_more_memory_than_there_is_for_rules_and_none_is_lost() {
    const CAPACITY: usize = 1 << 20;
    let rules = PurgeRules::new(CAPACITY);
    let long = |number: u64| format!("/{number}/{}", "x".repeat(2000));
    for number in 1..=4_000 {
        let scope = Scope::Url {
            host: text("a.example"),
            target: Bytes::from(long(number)),
        };
        rules.add(rule(number, scope, Strength::Hard), NOW, NOWHERE);
    }
    let table = rules.table.read();
    assert!(table.held <= CAPACITY && table.live.len() > 100);
    assert_eq!(
        table.held,
        table.live.values().map(LiveRule::cost).sum::<usize>()
    );
    drop(table);
    for number in 1..=4_000 {
        let page = page("a.example", &long(number), "tag", "group");
        assert!(page.is_covered(&rules), "{number}");
    }
    rules.drop_through(rules.newest());
    assert_eq!(rules.table.read().held, 0);
}
