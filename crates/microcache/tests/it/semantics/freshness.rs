//! How long a response stays fresh: RFC 9111 §4.2, RFC 9213.

use super::{EXACT, exact};
use crate::support::{Origin, Proxy, Reply, asctime, http_date, rfc850_date};

#[derive(Clone, Copy, Debug)]
enum Expect {
    /// Fresh, with about that many seconds left.
    Ttl(i64),
    /// Fresh, with at least that many seconds left.
    AtLeast(i64),
    /// The second request goes to the origin again.
    Stale,
}

use Expect::{AtLeast, Stale, Ttl};

/// The operator's ttl of these tests: what a response without explicit freshness gets.
const DEFAULT: Expect = Ttl(60);

fn check(rows: &[(&str, &[&str], Expect)]) {
    let origin = Origin::start();
    let proxy = exact(&origin);
    check_on(&proxy, &origin, rows);
}

fn check_on(proxy: &Proxy, origin: &Origin, rows: &[(&str, &[&str], Expect)]) {
    let mut wrong = Vec::new();
    for (number, (name, lines, expected)) in rows.iter().enumerate() {
        let target = format!("/{number}");
        origin
            .on(&target)
            .reply(Reply::new(200).with_all(lines).body("x"));
        proxy.get(&target).assert_is(200, "x");
        let second = proxy.get(&target);
        let ttl = second
            .is_hit()
            .then(|| second.cache().ttl().expect("a hit has a ttl"));
        let right = match (*expected, ttl) {
            // The machine may be slow; a ttl is never more than it should be.
            (Ttl(wanted), Some(ttl)) => (wanted - 5..=wanted).contains(&ttl),
            (AtLeast(wanted), Some(ttl)) => ttl >= wanted,
            (Stale, None) => true,
            _ => false,
        };
        if !right {
            wrong.push(format!(
                "{name}: wanted {expected:?}, got {:?}",
                second.field("cache-status")
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn precedence() {
    let later = format!("Expires: {}", http_date(200));
    let past = format!("Expires: {}", http_date(-200));
    check(&[
        ("nothing said: the operator's ttl", &[], DEFAULT),
        ("max-age", &["Cache-Control: max-age=100"], Ttl(100)),
        (
            "s-maxage before max-age",
            &["Cache-Control: max-age=100, s-maxage=200"],
            Ttl(200),
        ),
        (
            "s-maxage=0 before max-age",
            &["Cache-Control: max-age=100, s-maxage=0"],
            Stale,
        ),
        (
            "max-age before a past Expires",
            &["Cache-Control: max-age=100", &past],
            Ttl(100),
        ),
        (
            "max-age=0 before a future Expires",
            &["Cache-Control: max-age=0", &later],
            Stale,
        ),
        ("Expires", &[&later], Ttl(200)),
        (
            "public says nothing about time",
            &["Cache-Control: public"],
            DEFAULT,
        ),
        (
            "public with Expires",
            &["Cache-Control: public", &later],
            Ttl(200),
        ),
        (
            "two Cache-Control lines",
            &["Cache-Control: public", "Cache-Control: max-age=100"],
            Ttl(100),
        ),
        (
            "Pragma in a response means nothing",
            &["Pragma: no-cache", "Cache-Control: max-age=100"],
            Ttl(100),
        ),
    ]);
}

#[test]
fn syntax_of_max_age() {
    check(&[
        ("upper case", &["Cache-Control: MAX-AGE=100"], Ttl(100)),
        (
            "empty list members",
            &["Cache-Control: ,, max-age=100 ,"],
            Ttl(100),
        ),
        ("quoted", &["Cache-Control: max-age=\"100\""], Ttl(100)),
        (
            "a comma inside another's string",
            &["Cache-Control: x=\"a, no-store, max-age=5\", max-age=100"],
            Ttl(100),
        ),
        (
            "an escaped quote inside a string",
            &["Cache-Control: x=\"\\\", no-store\", max-age=100"],
            Ttl(100),
        ),
        (
            "unknown directives",
            &["Cache-Control: what, ever=7, max-age=100"],
            Ttl(100),
        ),
        (
            "not a directive of that name",
            &["Cache-Control: x-max-age=5, max-age-x=5"],
            DEFAULT,
        ),
        ("negative", &["Cache-Control: max-age=-1"], Stale),
        ("not a number", &["Cache-Control: max-age=abc"], Stale),
        (
            "a number and more",
            &["Cache-Control: max-age=100abc"],
            Stale,
        ),
        ("a fraction", &["Cache-Control: max-age=100.5"], Stale),
        ("no value", &["Cache-Control: max-age="], Stale),
        ("no argument", &["Cache-Control: max-age"], Stale),
        ("zero", &["Cache-Control: max-age=0"], Stale),
        ("zero with zeros", &["Cache-Control: max-age=000"], Stale),
        ("leading zeros", &["Cache-Control: max-age=0100"], Ttl(100)),
    ]);
}

#[test]
fn conflicting_duplicates_never_lengthen() {
    check(&[
        (
            "the shorter one last",
            &["Cache-Control: max-age=100, max-age=0"],
            Stale,
        ),
        (
            "the shorter one first",
            &["Cache-Control: max-age=0, max-age=100"],
            Stale,
        ),
        (
            "over two lines",
            &["Cache-Control: max-age=100", "Cache-Control: max-age=0"],
            Stale,
        ),
        (
            "no-store anywhere",
            &["Cache-Control: max-age=100", "Cache-Control: no-store"],
            Stale,
        ),
    ]);
}

#[test]
fn huge_values_saturate() {
    let year_long = 31_536_000;
    check(&[
        (
            "2^31 - 1",
            &["Cache-Control: max-age=2147483647"],
            AtLeast(year_long),
        ),
        (
            "2^31",
            &["Cache-Control: max-age=2147483648"],
            AtLeast(year_long),
        ),
        (
            "2^32",
            &["Cache-Control: max-age=4294967296"],
            AtLeast(year_long),
        ),
        (
            "2^63",
            &["Cache-Control: max-age=9223372036854775808"],
            AtLeast(year_long),
        ),
        (
            "2^64 + 1",
            &["Cache-Control: max-age=18446744073709551617"],
            AtLeast(year_long),
        ),
        (
            "forty digits",
            &["Cache-Control: s-maxage=9999999999999999999999999999999999999999"],
            AtLeast(year_long),
        ),
        (
            "an Age of 2^31",
            &["Cache-Control: max-age=100", "Age: 2147483648"],
            Stale,
        ),
        (
            "an Age of 2^64",
            &["Cache-Control: max-age=100", "Age: 18446744073709551616"],
            Stale,
        ),
    ]);
}

#[test]
fn age() {
    let old = format!("Date: {}", http_date(-30));
    let future = format!("Date: {}", http_date(1000));
    check(&[
        (
            "Age is taken off",
            &["Cache-Control: max-age=100", "Age: 40"],
            Ttl(60),
        ),
        (
            "the first of a list",
            &["Cache-Control: max-age=100", "Age: 40, 90"],
            Ttl(60),
        ),
        (
            "the first of two lines",
            &["Cache-Control: max-age=100", "Age: 40", "Age: 90"],
            Ttl(60),
        ),
        (
            "not a number: ignored",
            &["Cache-Control: max-age=100", "Age: old"],
            Ttl(100),
        ),
        (
            "negative: ignored",
            &["Cache-Control: max-age=100", "Age: -5"],
            Ttl(100),
        ),
        (
            "as old as max-age",
            &["Cache-Control: max-age=100", "Age: 100"],
            Stale,
        ),
        (
            "the apparent age",
            &["Cache-Control: max-age=100", &old],
            Ttl(70),
        ),
        (
            "the greater of both",
            &["Cache-Control: max-age=100", &old, "Age: 50"],
            Ttl(50),
        ),
        (
            "a Date to come",
            &["Cache-Control: max-age=100", &future],
            Ttl(100),
        ),
    ]);
}

#[test]
fn dates() {
    let expires = |value: &str| format!("Expires: {value}");
    let (imf, rfc850, ctime) = (
        expires(&http_date(100)),
        expires(&rfc850_date(100)),
        expires(&asctime(100)),
    );
    let same = [format!("Date: {}", http_date(0)), expires(&http_date(0))];
    let skewed = [
        format!("Date: {}", http_date(-1000)),
        expires(&http_date(-900)),
    ];
    check(&[
        ("IMF-fixdate", &[&imf], Ttl(100)),
        ("RFC 850", &[&rfc850], Ttl(100)),
        ("asctime", &[&ctime], Ttl(100)),
        ("zero", &["Expires: 0"], Stale),
        ("minus one", &["Expires: -1"], Stale),
        ("words", &["Expires: Thu, 99 Nov 2099 27:00:00 GMT"], Stale),
        (
            "no time zone",
            &["Expires: Fri, 01 Jan 2099 00:00:00"],
            Stale,
        ),
        (
            "another time zone",
            &["Expires: Thu, 01 Jan 2099 00:00:00 CET"],
            Stale,
        ),
        ("empty", &["Expires:"], Stale),
        ("the same as Date", &[&same[0], &same[1]], Stale),
        (
            "counted from Date, not from our clock",
            &[&skewed[0], &skewed[1]],
            Stale,
        ),
        ("1994", &["Expires: Sun, 06 Nov 1994 08:49:37 GMT"], Stale),
        ("1900", &["Expires: Mon, 01 Jan 1900 00:00:00 GMT"], Stale),
    ]);
}

#[test]
fn targeted_fields() {
    let later = format!("Expires: {}", http_date(200));
    check(&[
        (
            "overrides max-age",
            &[
                "CDN-Cache-Control: max-age=300",
                "Cache-Control: max-age=100",
            ],
            Ttl(300),
        ),
        (
            "overrides s-maxage",
            &[
                "CDN-Cache-Control: max-age=300",
                "Cache-Control: s-maxage=100",
            ],
            Ttl(300),
        ),
        (
            "overrides no-store",
            &["CDN-Cache-Control: max-age=300", "Cache-Control: no-store"],
            Ttl(300),
        ),
        (
            "overrides private",
            &["CDN-Cache-Control: max-age=300", "Cache-Control: private"],
            Ttl(300),
        ),
        (
            "overrides no-cache",
            &["CDN-Cache-Control: max-age=300", "Cache-Control: no-cache"],
            Ttl(300),
        ),
        (
            "overrides Expires",
            &["CDN-Cache-Control: max-age=300", &later],
            Ttl(300),
        ),
        (
            "its no-store",
            &["CDN-Cache-Control: no-store", "Cache-Control: max-age=100"],
            Stale,
        ),
        (
            "its private",
            &["CDN-Cache-Control: private", "Cache-Control: max-age=100"],
            Stale,
        ),
        (
            "its max-age=0",
            &["CDN-Cache-Control: max-age=0", "Cache-Control: max-age=100"],
            Stale,
        ),
        (
            "its last max-age counts",
            &["CDN-Cache-Control: max-age=5, max-age=300"],
            Ttl(300),
        ),
        (
            "over two lines",
            &["CDN-Cache-Control: foo", "CDN-Cache-Control: max-age=300"],
            Ttl(300),
        ),
        (
            "parameters are ignored",
            &["CDN-Cache-Control: max-age=300;x=1"],
            Ttl(300),
        ),
        (
            "not a structured field: ignored",
            &[
                "CDN-Cache-Control: max-age=300,,",
                "Cache-Control: max-age=100",
            ],
            Ttl(100),
        ),
        (
            "upper case is not a key: ignored",
            &[
                "CDN-Cache-Control: Max-Age=300",
                "Cache-Control: max-age=100",
            ],
            Ttl(100),
        ),
        (
            "empty: ignored",
            &["CDN-Cache-Control:", "Cache-Control: max-age=100"],
            Ttl(100),
        ),
        (
            "another one's field: ignored",
            &[
                "Other-Cache-Control: max-age=300",
                "Cache-Control: max-age=100",
            ],
            Ttl(100),
        ),
    ]);
}

#[test]
fn targeted_fields_are_forwarded_untouched() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(&["CDN-Cache-Control: max-age=300"], "x"));
    for response in [proxy.get("/"), proxy.get("/")] {
        assert_eq!(
            response.field("cdn-cache-control"),
            Some("max-age=300"),
            "{response:?}"
        );
    }
}

#[test]
fn the_heuristic_lifetime_is_off_by_default() {
    let long_ago = format!("Last-Modified: {}", http_date(-86_400 * 100));
    check(&[("a hundred days old", &[&long_ago], DEFAULT)]);
}

#[test]
fn a_ttl_of_zero_stores_nothing_that_is_not_explicit() {
    let origin = Origin::start();
    let mut flags = EXACT;
    flags[1] = "0s";
    let proxy = Proxy::start(&origin, &flags);
    check_on(
        &proxy,
        &origin,
        &[
            ("nothing said", &[], Stale),
            ("max-age", &["Cache-Control: max-age=100"], Ttl(100)),
        ],
    );
}

#[test]
fn a_hit_has_its_age() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    let date = http_date(-30);
    origin.on("/").reply(
        Reply::new(200)
            .with("Cache-Control: max-age=100")
            .with("Age: 40")
            .with(&format!("Date: {date}"))
            .body("x"),
    );
    proxy.get("/");
    let hit = proxy.get("/");
    hit.assert_hit();
    assert_eq!(hit.head.all("age").len(), 1, "{hit:?}");
    let age: u64 = hit.field("age").unwrap().parse().unwrap();
    assert!((40..46).contains(&age), "{hit:?}");
    assert_eq!(
        hit.head.all("date"),
        [date.as_str()],
        "the origin's Date is kept"
    );
}

#[test]
fn responses_from_another_cache_keep_their_age() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/kept")
        .reply(Reply::ok(&["Cache-Control: max-age=100", "Age: 40"], "x"));
    origin
        .on("/passed")
        .reply(Reply::ok(&["Cache-Control: private", "Age: 40"], "x"));
    for target in ["/kept", "/passed"] {
        let first = proxy.get(target);
        let ages = first.head.all("age");
        assert!(
            ages.len() == 1 && (40..45).contains(&ages[0].parse().unwrap()),
            "{first:?}"
        );
    }
}

#[test]
fn a_confirmed_response_is_young_again() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin
        .on("/")
        .reply(Reply::ok(
            &["Cache-Control: max-age=10", "Age: 50", "ETag: \"a\""],
            "x",
        ))
        .reply(Reply::new(304).with_all(&["Cache-Control: max-age=100", "ETag: \"a\""]));
    proxy.get("/");
    for response in [proxy.get("/"), proxy.get("/")] {
        response.assert_is(200, "x");
        let age: u64 = response.field("age").unwrap_or("0").parse().unwrap();
        assert!(age < 10, "{response:?}");
    }
    assert_eq!(origin.count("/"), 2);
}

#[test]
fn a_missing_date_is_added() {
    let origin = Origin::start();
    let proxy = exact(&origin);
    origin.on("/").reply(Reply::new(200).body("x"));
    for response in [proxy.get("/"), proxy.get("/")] {
        let dates = response.head.all("date");
        assert!(
            dates.len() == 1 && dates[0].ends_with(" GMT"),
            "{response:?}"
        );
    }
}
