//! A wall clock that is set while the program runs, or between two runs: ages do not notice, dates follow.

use std::fs;
use std::path::PathBuf;

use crate::fetch::place::{Place, printed};
use crate::support::{
    Origin, Proxy, Reply, Response, TierKind, TierServer, config_file, eventually, http_date,
    left_out,
};

const HOURS: i64 = 2 * 3600;
/// What a test may take at most.
const MINUTES: i64 = 600;

/// The wall clock of the programs that are started with it. The others of the machine stay as they are.
struct WallClock {
    library: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// One that is ahead by so many seconds.
    fn ahead(seconds: i64) -> Option<Self> {
        let mut folders = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
        let library = folders.find_map(|folder| {
            let library = folder.path().join("faketime/libfaketimeMT.so.1");
            library.exists().then_some(library)
        });
        let Some(library) = library else {
            left_out("a clock that is set, for faketime is not installed");
            return None;
        };
        let clock = Self {
            library,
            offset: config_file(""),
        };
        clock.set(seconds);
        Some(clock)
    }

    /// Sets it, in one go.
    fn set(&self, ahead: i64) {
        let new = self.offset.with_extension("new");
        fs::write(&new, format!("{ahead:+}\n")).expect("written");
        fs::rename(&new, &self.offset).expect("renamed");
    }

    fn environment(&self) -> [String; 4] {
        [
            format!("LD_PRELOAD={}", self.library.display()),
            format!("FAKETIME_TIMESTAMP_FILE={}", self.offset.display()),
            "FAKETIME_NO_CACHE=1".to_owned(),
            "DONT_FAKE_MONOTONIC=1".to_owned(),
        ]
    }
}

/// Whether a response says that it was made now, by a clock that is ahead by so many seconds.
fn is_of_now(response: &Response, ahead: i64) -> bool {
    let date = response.field("date").expect("a date");
    (-MINUTES..=MINUTES).any(|off| http_date(ahead + off) == date)
}

/// Holds a response against what was stored for an hour during the test.
fn assert_is_young(response: &Response) {
    response.assert_hit();
    let age: i64 = response
        .field("age")
        .map_or(0, |age| age.parse().expect("a number"));
    assert!((0..MINUTES).contains(&age), "{age}");
    let ttl = response.cache().ttl().expect("a lifetime");
    assert!((3600 - MINUTES..=3600).contains(&ttl), "{ttl}");
}

fn on(origin: &Origin, target: &str, fields: &[&str]) {
    origin
        .on(target)
        .reply(Reply::new(200).with_all(fields).body("x"));
}

/// The clock is ahead by `from` at the start, and by `to` later.
fn a_step(from: i64, to: i64) {
    let Some(clock) = WallClock::ahead(from) else {
        return;
    };
    let origin = Origin::start();
    let environment = clock.environment();
    let wrapper: Vec<_> = ["env"]
        .into_iter()
        .chain(environment.iter().map(String::as_str))
        .collect();
    let proxy = Proxy::through(&wrapper, &origin, &[]);
    let dated = |ahead: i64| format!("Date: {}", http_date(ahead));
    let expires = |ahead: i64| format!("Expires: {}", http_date(ahead + 3600));
    for target in ["/before", "/after"] {
        on(&origin, target, &["Cache-Control: max-age=3600"]);
    }
    on(&origin, "/brief", &["Cache-Control: max-age=1"]);
    on(
        &origin,
        "/dated-before",
        &["Cache-Control: max-age=3600", &dated(from)],
    );
    on(&origin, "/expires-before", &[&expires(from), &dated(from)]);
    on(
        &origin,
        "/dated-after",
        &["Cache-Control: max-age=3600", &dated(to)],
    );
    on(&origin, "/expires-after", &[&expires(to), &dated(to)]);
    let before = ["/before", "/dated-before", "/expires-before"];
    for target in before {
        assert!(is_of_now(&proxy.get(target), from), "{target}");
        assert_is_young(&proxy.get(target));
    }
    proxy.get("/brief");

    clock.set(to);
    eventually("the new time", || {
        is_of_now(&proxy.get_with("/none", &["Cookie: session=1"]), to).then_some(())
    });
    for target in before {
        assert_is_young(&proxy.get(target));
        assert_eq!(origin.count(target), 1, "{target}");
    }
    for target in ["/after", "/dated-after", "/expires-after"] {
        assert!(is_of_now(&proxy.get(target), to), "{target}");
        assert_is_young(&proxy.get(target));
        assert_eq!(origin.count(target), 1, "{target}");
    }
    eventually("a second to pass", || {
        proxy.get("/brief");
        (origin.count("/brief") > 1).then_some(())
    });
}

/// The nodes agree on ages by the clock of the server, once they know it.
#[test]
fn a_page_of_a_node_whose_clock_is_wrong_is_shared() {
    for (kind, ahead) in [(TierKind::Redis, 300), (TierKind::Memcached, -300)] {
        let Some(clock) = WallClock::ahead(ahead) else {
            return;
        };
        let (origin, server) = (Origin::start(), TierServer::start(kind));
        let environment = clock.environment();
        let wrapper: Vec<_> = ["env"]
            .into_iter()
            .chain(environment.iter().map(String::as_str))
            .collect();
        let [flag, address] = server.flags();
        let [wrong, right] = [&wrapper[..], &["env"]]
            .map(|wrapper| Proxy::through(wrapper, &origin, &[&flag, &address]));
        let mut targets = (0..).map(|number| format!("/{number}"));
        eventually("a page is shared both ways", || {
            let (first, second) = (targets.next()?, targets.next()?);
            for target in [&first, &second] {
                on(&origin, target, &["Cache-Control: max-age=60"]);
            }
            wrong.get(&first);
            right.get(&second);
            let [there, here] = [right.get(&first), wrong.get(&second)];
            let are_shared = origin.count(&first) == 1 && origin.count(&second) == 1;
            are_shared.then(|| {
                for response in [there, here] {
                    let age = response.field("age").unwrap_or("0");
                    assert!(age.parse::<u64>().expect("a number") < 60, "{age}");
                }
            })
        });
    }
}

#[test]
fn a_program_that_was_started_ahead_of_time_is_right_once_the_clock_is() {
    a_step(HOURS, 0);
}

#[test]
fn a_clock_that_is_set_forward_makes_nothing_stale() {
    a_step(0, HOURS);
}

#[test]
fn a_step_of_the_clock_between_two_runs_of_fetch_changes_no_age() {
    for (from, to) in [(HOURS, 0), (0, HOURS)] {
        let Some(clock) = WallClock::ahead(from) else {
            return;
        };
        let origin = Origin::start();
        let place = Place::new();
        for (target, fields) in [
            ("/page", vec!["Cache-Control: max-age=3600".to_owned()]),
            (
                "/dated",
                vec![
                    format!("Expires: {}", http_date(from + 3600)),
                    format!("Date: {}", http_date(from)),
                ],
            ),
        ] {
            let fields: Vec<_> = fields.iter().map(String::as_str).collect();
            on(&origin, target, &fields);
            let url = format!("{}{target}", origin.url());
            for ahead in [from, from, to, to] {
                clock.set(ahead);
                let mut command = place.command(&["--explain", &url]);
                let environment = clock.environment();
                command.envs(environment.iter().filter_map(|it| it.split_once('=')));
                let fetched = printed(command.output().expect("it runs"));
                assert_eq!((fetched.code, &*fetched.out), (0, "x"), "{}", fetched.err);
                assert_eq!(origin.count(target), 1, "{target}: {}", fetched.err);
            }
        }
    }
}
