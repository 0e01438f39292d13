//! What `--explain` says is what the next command finds.

use super::place::{Place, Printed};
use crate::support::{Origin, Reply};

/// What the first command says about storing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Said {
    /// It is stored, and fresh for a while.
    Fresh,
    /// It is stored, and stale at once.
    Stale,
    NotStored,
    /// Nothing: only a body is stored.
    Nothing,
}

impl Said {
    fn of(run: &Printed) -> Self {
        let says = |part| run.err.contains(part);
        if says("; it is not stored") || says("the cache was not used") {
            Self::NotStored
        } else if says("; it is stored, stale at once") {
            Self::Stale
        } else if says("; it is stored, fresh for 10 min") {
            Self::Fresh
        } else {
            Self::Nothing
        }
    }
}

/// Fields of an answer, flags of the first command, what it says, and a part of its reason.
type Row = (
    &'static [&'static str],
    &'static [&'static str],
    Said,
    &'static str,
);

const FRESH: &[&str] = &["Cache-Control: max-age=600"];
const ROWS: &[Row] = &[
    (FRESH, &[], Said::Fresh, ""),
    (
        &["Cache-Control: private, max-age=600"],
        &[],
        Said::Fresh,
        "",
    ),
    (FRESH, &["-H", "Authorization: Bearer a"], Said::Fresh, ""),
    (FRESH, &["-u", "a:b"], Said::Fresh, ""),
    (FRESH, &["-H", "X-Api-Key: a"], Said::Fresh, ""),
    (FRESH, &["-k"], Said::Fresh, ""),
    (FRESH, &["--reload"], Said::Fresh, ""),
    (FRESH, &["--no-cache"], Said::Fresh, ""),
    (FRESH, &["--no-store"], Said::NotStored, "--no-store"),
    (FRESH, &["-I"], Said::Nothing, ""),
    (FRESH, &["-H", "Range: bytes=0-3"], Said::NotStored, ""),
    (FRESH, &["-H", "If-None-Match: \"z\""], Said::NotStored, ""),
    (FRESH, &["-X", "POST"], Said::NotStored, "(POST)"),
    (
        FRESH,
        &["-H", "Cache-Control: no-store"],
        Said::NotStored,
        "no-store",
    ),
    (
        FRESH,
        &["-H", "Expect: 100-continue"],
        Said::NotStored,
        "was not used",
    ),
    (
        &["Cache-Control: no-store"],
        &[],
        Said::NotStored,
        "no-store",
    ),
    (
        &["Cache-Control: no-store"],
        &["--max-age", "10m"],
        Said::NotStored,
        "no-store",
    ),
    (
        &["Cache-Control: max-age=0"],
        &[],
        Said::NotStored,
        "never be reused",
    ),
    (
        &["Cache-Control: max-age=0"],
        &["--max-age", "10m"],
        Said::Fresh,
        "",
    ),
    (
        &["Cache-Control: max-age=0", "ETag: \"a\""],
        &[],
        Said::Stale,
        "",
    ),
    (
        &["Cache-Control: no-cache, max-age=600", "ETag: \"a\""],
        &[],
        Said::Stale,
        "",
    ),
    (
        &["Cache-Control: no-cache", "ETag: \"a\""],
        &["--max-age", "10m"],
        Said::Fresh,
        "",
    ),
    (
        &["Cache-Control: max-age=0, must-revalidate", "ETag: \"a\""],
        &[],
        Said::Stale,
        "",
    ),
    (
        &["Cache-Control: max-age=600, must-revalidate"],
        &[],
        Said::Fresh,
        "",
    ),
    (
        &["Cache-Control: max-age=0, stale-while-revalidate=600"],
        &[],
        Said::Stale,
        "",
    ),
    // Nothing says how long, and nothing when it changed.
    (&[], &[], Said::NotStored, "never be reused"),
    (&[], &["--max-age", "10m"], Said::Fresh, ""),
    (&["ETag: \"a\""], &[], Said::Stale, ""),
    (
        &["Vary: *", "Cache-Control: max-age=600"],
        &[],
        Said::NotStored,
        "Vary",
    ),
    (
        &["Vary: Accept-Language", "Cache-Control: max-age=600"],
        &["-H", "Accept-Language: de"],
        Said::Fresh,
        "",
    ),
    (
        &["Set-Cookie: a=b", "Cache-Control: max-age=600"],
        &[],
        Said::Fresh,
        "",
    ),
];

/// Flags that change what one command does, and not what it asks for.
fn lasting<'a>(flags: &'a [&'a str]) -> Vec<&'a str> {
    let mut lasting = Vec::new();
    let mut rest = flags.iter();
    while let Some(&flag) = rest.next() {
        match flag {
            "--reload" | "--no-cache" | "--no-store" => {}
            "--max-age" => {
                rest.next();
            }
            "-H" | "-u" | "-X" => {
                let value = rest.next().expect("a value");
                // The next one asks for all of it, and with what is stored.
                let is_of_one = ["Range", "If-None-Match", "Cache-Control", "Expect", "POST"];
                if !is_of_one.iter().any(|name| value.starts_with(name)) {
                    lasting.extend([flag, value]);
                }
            }
            flag => lasting.push(flag),
        }
    }
    lasting
}

#[test]
fn the_explanation_matches_the_next_command() {
    for (number, (fields, flags, said, reason)) in ROWS.iter().enumerate() {
        let origin = Origin::start();
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        origin.on("/page").answer(move |seen| {
            let is_known = seen.field("if-none-match") == Some("\"a\"");
            let reply = Reply::new(if is_known { 304 } else { 200 });
            let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
            let reply = reply.with_all(&fields);
            if is_known {
                reply
            } else {
                reply.body("the page")
            }
        });
        let place = Place::new();
        let url = format!("{}/page", origin.url());
        let row = format!("row {number}: {flags:?}");
        let run = |flags: &[&str]| place.run(&[flags, &["--explain", &url]].concat());
        let first = run(flags);
        assert_eq!(first.code, 0, "{row}: {}", first.err);
        assert_eq!(first.err.lines().count(), 1, "{row}: {}", first.err);
        assert_eq!(Said::of(&first), *said, "{row}: {}", first.err);
        assert!(first.err.contains(reason), "{row}: {}", first.err);

        // Without the server, what is stored is all there is. It may forbid to be used stale.
        let again = lasting(flags);
        let offline = run(&[&again[..], &["--offline"]].concat());
        let is_strict = origin_is_strict(number);
        let is_there = matches!(said, Said::Fresh) || matches!(said, Said::Stale) && !is_strict;
        let code = if is_there { 0 } else { 3 };
        assert_eq!(
            offline.code, code,
            "{row}: {} then {}",
            first.err, offline.err
        );
        assert_eq!(origin.count("/page"), 1, "{row}: {}", offline.err);
        let outcome = match said {
            Said::Fresh => "hit: stored",
            Said::Stale if is_there => "and no longer fresh",
            _ => "omit --offline",
        };
        assert!(offline.err.contains(outcome), "{row}: {}", offline.err);
        // The others are notes: of claims, and of what is not stored.
        let is_any_stored = place.files().iter().any(|name| name.len() == 32);
        let stores = matches!(said, Said::Fresh | Said::Stale);
        assert_eq!(is_any_stored, stores, "{row}: {}", first.err);

        // With the server, the same in other words.
        let second = run(&again);
        let is_asked = origin.count("/page") == 2;
        let says_asked = !second.err.contains("the server was not contacted");
        let is_refreshed = second.err.contains("stale: ");
        assert_eq!(is_asked, says_asked, "{row}: {}", second.err);
        assert_eq!(is_asked, *said != Said::Fresh, "{row}: {}", second.err);
        if is_asked && !is_refreshed {
            let condition = origin.seen("/page")[1].field("if-none-match").is_some();
            let is_confirmed = second.err.contains("the server confirmed");
            assert_eq!(condition, is_confirmed, "{row}: {}", second.err);
        }
    }
}

/// Whether the answer of that row may not be used stale.
fn origin_is_strict(row: usize) -> bool {
    let strict = ["no-cache", "must-revalidate"];
    let mut fields = ROWS[row].0.iter();
    fields.any(|field| strict.iter().any(|word| field.contains(word)))
}

#[test]
fn failures_and_redirects_are_explained() {
    let origin = Origin::start();
    let fresh = "Cache-Control: max-age=600";
    origin
        .on("/kept")
        .reply(Reply::new(503).with(fresh).body("no"));
    origin.on("/fails").reply(Reply::new(503).body("no"));
    origin
        .on("/none")
        .reply(Reply::new(404).with(fresh).body("none"));
    let away = Reply::new(302).with_all(&[fresh, "Location: /large"]);
    origin.on("/away").reply(away.body(""));
    let large = Reply::new(200).with_all(&[fresh, "Content-Length: 1000000"]);
    origin.on("/large").reply(large.flood(1_000_000));
    let place = Place::new();
    let run = |flags: &[&str], target: &str| {
        let url = format!("{}{target}", origin.url());
        place.run(&[flags, &["--explain", "--no-fail", &url]].concat())
    };
    let is_kept = |run: &Printed| run.err.contains("it is stored, fresh for 10 min");
    assert!(is_kept(&run(&[], "/kept")));
    assert!(run(&[], "/kept").err.contains("hit: "));
    let fails = run(&[], "/fails");
    assert!(!fails.err.contains("it is stored"), "{}", fails.err);
    assert_eq!(run(&["--offline"], "/fails").code, 3);
    assert!(is_kept(&run(&[], "/none")));
    assert!(run(&[], "/none").err.contains("hit: "));
    // A redirection that is written says nothing of what it leads to.
    let large = run(&["--cache-size", "1MiB"], "/away");
    assert!(large.err.contains("not stored after all"), "{}", large.err);
    assert_eq!(run(&["--offline"], "/large").code, 3);
}
