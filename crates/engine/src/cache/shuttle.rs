//! The cache under shuttle: every test runs some thousand times, each time with the threads
//! meeting in another order. `RUSTFLAGS="--cfg shuttle" cargo test -p microcache-engine --lib`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::shuttle::sync::Mutex;
use ::shuttle::{check_pct, future, thread};
use bytes::Bytes;
use http::Method;
use microcache_policy::{
    Fields, OriginView, RequestFacts, ResponseFacts, Rules, Storable, VaryNames, storable,
};
use microcache_store::{Key, MemoryLimits, Stored, Tiers};

use super::flight::{Entry, Failure, FlightLimits, Flights, Leader, Progress};
use super::{Cache, ChangeKind, Scope, Strength, tag_numbers};
use crate::clock::Clock;
use crate::origin::Urgency;

const RUNS: usize = 3_000;
const KEY: &[u8] = b"key";

fn key() -> Key {
    KEY.into()
}

const LIMITS: FlightLimits = FlightLimits {
    fetches: 1000,
    waiters: 1000,
};

fn check(run: impl Fn(&Arc<Flights>) + Send + Sync + 'static) {
    let run = Arc::new(run);
    let run = move || {
        let flights = Flights::new(LIMITS, Arc::default());
        run(&flights);
        assert_eq!(flights.under_way(), 0, "a fetch was left behind");
    };
    check_pct(run, RUNS, 3);
}

fn in_threads(
    flights: &Arc<Flights>,
    count: usize,
    work: impl Fn(&Arc<Flights>) + Send + Sync + 'static,
) {
    let work = Arc::new(work);
    let threads: Vec<_> = (0..count)
        .map(|_| {
            let (flights, work) = (Arc::clone(flights), Arc::clone(&work));
            thread::spawn(move || work(&flights))
        })
        .collect();
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}

/// Leads or waits; a joiner that never hears anything hangs here, and shuttle says so.
fn enter(flights: &Arc<Flights>, lead: impl FnOnce(Leader)) -> Option<Progress> {
    match flights.enter(&key(), b"", &Urgency::Client) {
        Entry::Lead(leader) => {
            lead(leader);
            None
        }
        Entry::Join(ticket) => Some(future::block_on(ticket)),
        Entry::Full => panic!("no bound is near"),
    }
}

#[test]
fn only_one_leads_at_a_time_and_everyone_is_told() {
    check(|flights| {
        let leading = Arc::new(AtomicUsize::new(0));
        in_threads(flights, 3, move |flights| {
            let told = enter(flights, |leader| {
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                thread::yield_now();
                leading.fetch_sub(1, Ordering::SeqCst);
                leader.tell(Progress::Released);
            });
            assert!(matches!(told, None | Some(Progress::Released)));
        });
    });
}

#[test]
fn after_a_failure_one_of_those_who_waited_leads() {
    check(|flights| {
        let fetches = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&fetches);
        in_threads(flights, 3, move |flights| {
            let lead = |leader: Leader| {
                if counted.fetch_add(1, Ordering::SeqCst) == 0 {
                    leader.tell(Progress::Failed(Failure::Abandoned, None));
                } else {
                    leader.tell(Progress::Released);
                }
            };
            if let Some(Progress::Failed(..)) = enter(flights, lead) {
                let told = enter(flights, lead);
                assert!(matches!(told, None | Some(Progress::Released)));
            }
        });
        assert!(fetches.load(Ordering::SeqCst) <= 3);
    });
}

#[test]
fn a_leader_that_vanishes_is_a_failure() {
    check(|flights| {
        in_threads(flights, 3, |flights| {
            let told = enter(flights, drop);
            assert!(matches!(
                told,
                None | Some(Progress::Failed(Failure::Abandoned, None))
            ));
        });
    });
}

#[test]
fn a_purge_is_never_undone_by_a_fetch_that_began_before_it() {
    check(|flights| {
        let stored = Arc::new(Mutex::new(true));
        let Entry::Lead(leader) = flights.enter(&key(), b"", &Urgency::Client) else {
            panic!("nobody else is there");
        };
        let keeps = Arc::clone(&stored);
        let fetch = thread::spawn(move || {
            leader.finish(|| *keeps.lock().unwrap() = true);
        });
        let flights = Arc::clone(flights);
        let removes = Arc::clone(&stored);
        let purge = thread::spawn(move || {
            flights.purge(KEY, |_| *removes.lock().unwrap() = false);
        });
        fetch.join().unwrap();
        purge.join().unwrap();
        assert!(!*stored.lock().unwrap());
    });
}

#[test]
fn a_purge_is_never_undone_by_a_fetch_that_nobody_could_join() {
    check(|flights| {
        let stored = Arc::new(Mutex::new(true));
        let lone = flights.begin_alone(&key());
        let keeps = Arc::clone(&stored);
        let fetch = thread::spawn(move || {
            if let Some(leader) = lone.lead() {
                thread::yield_now();
                leader.finish(|| *keeps.lock().unwrap() = true);
            }
        });
        let purge = {
            let (flights, removes) = (Arc::clone(flights), Arc::clone(&stored));
            thread::spawn(move || {
                flights.purge(KEY, |_| *removes.lock().unwrap() = false);
            })
        };
        fetch.join().unwrap();
        purge.join().unwrap();
        assert!(!*stored.lock().unwrap());
    });
}

#[test]
fn a_lone_fetch_outlives_purges_of_other_keys() {
    check(|flights| {
        let lone = flights.begin_alone(&key());
        let other = flights.begin_alone(&b"another"[..].into());
        let purge = {
            let flights = Arc::clone(flights);
            thread::spawn(move || flights.purge(b"another", |_| {}))
        };
        let second = flights.begin_alone(&key());
        let leader = lone.lead().expect("nobody purged it");
        assert_eq!(leader.finish(|| ()), Some(()));
        purge.join().unwrap();
        assert!(second.lead().is_some());
        assert!(other.lead().is_none());
    });
}

#[test]
fn after_a_refusal_one_of_those_who_waited_leads() {
    check(|flights| {
        in_threads(flights, 3, |flights| {
            let told = enter(flights, |leader| leader.tell(Progress::Refused));
            if told.is_some() {
                assert!(matches!(told, Some(Progress::Refused)));
                let told = enter(flights, |leader| leader.tell(Progress::Released));
                assert!(matches!(
                    told,
                    None | Some(Progress::Refused | Progress::Released)
                ));
            }
        });
    });
}

#[test]
fn a_waiter_that_leaves_takes_nothing_along() {
    check(|flights| {
        in_threads(flights, 3, |flights| {
            match flights.enter(&key(), b"", &Urgency::Client) {
                Entry::Lead(leader) => leader.tell(Progress::Released),
                Entry::Join(ticket) => drop(ticket),
                Entry::Full => panic!("no bound is near"),
            }
        });
    });
}

#[test]
fn what_a_tier_had_at_hand_does_not_outlive_a_purge_in_memory() {
    check(|flights| {
        let tier = Arc::new(Mutex::new(true));
        let memory = Arc::new(Mutex::new(false));
        let purge = {
            let (flights, tier) = (Arc::clone(flights), Arc::clone(&tier));
            let memory = Arc::clone(&memory);
            thread::spawn(move || {
                flights.purge(KEY, |_| {
                    *memory.lock().expect("no panic") = false;
                    thread::yield_now();
                    *tier.lock().expect("no panic") = false;
                });
            })
        };
        let purges = flights.purges(KEY);
        let at_hand = *tier.lock().expect("no panic");
        if at_hand {
            flights.unless_purged(KEY, purges, || {
                thread::yield_now();
                *memory.lock().expect("no panic") = true;
            });
        }
        purge.join().expect("no panic");
        assert!(!*memory.lock().expect("no panic"));
    });
}

/// A page of www.example.com with the tag `news`.
fn page() -> (Key, Stored) {
    let rules = Rules::default();
    let key: Key = microcache_policy::key::build(
        microcache_policy::Scheme::Http,
        b"www.example.com",
        b"/blog/1",
        Fields::default(),
        false,
        &rules,
    )[..]
        .into();
    let now = Clock::start().now();
    let fields = Fields::new(b"Cache-Control: max-age=60\r\nCache-Tag: news\r\n");
    let facts = RequestFacts::read(&Method::GET, Fields::default(), false, &rules);
    let read = ResponseFacts::read(fields, &rules);
    let Storable::Yes(lifetime) = storable(&facts, 200, &read, now, now) else {
        panic!("it can be stored")
    };
    let tags = read.tags().expect("one tag");
    let tags = tag_numbers(&key, tags.iter());
    let body = Bytes::from_static(b"body").into();
    let block = fields.as_block();
    let stored = Stored::new(200, block, body, lifetime, VaryNames::default(), b"", now);
    (key, stored.with_tags(tags))
}

fn view(rules: &Rules) -> OriginView<'_> {
    OriginView {
        fields: Fields::default(),
        rules,
        address: "192.0.2.1",
        vouched: false,
    }
}

/// A cache; many times, with threads meeting in many orders.
fn check_cache(run: impl Fn(&Arc<Cache>) + Send + Sync + 'static) {
    let run = Arc::new(run);
    let run = move || {
        let memory = MemoryLimits {
            capacity: 1 << 20,
            object: 1 << 16,
            variants: 8,
        };
        let cache = Cache::new(memory, LIMITS, Tiers::default(), Clock::start());
        run(&Arc::new(cache));
    };
    check_pct(run, RUNS, 3);
}

fn is_there(cache: &Cache, key: &Key) -> bool {
    cache.response(key, &view(&Rules::default())).is_some()
}

fn purges() -> [(Scope, Strength); 5] {
    let host = Bytes::from_static(b"www.example.com");
    [
        Scope::Everything,
        Scope::Host(host.clone()),
        Scope::prefixed(host, Bytes::from_static(b"/blog/")),
        Scope::Tag(Bytes::from_static(b"news")),
        Scope::Url(page().0.to_vec().into()),
    ]
    .map(|scope| (scope, Strength::Hard))
}

#[test]
fn a_purge_by_rule_is_never_undone_by_a_fetch_that_began_before_it() {
    for (scope, strength) in purges() {
        check_cache(move |cache| {
            let (key, stored) = page();
            let Entry::Lead(leader) = cache.enter(&key, b"", &Urgency::Client) else {
                panic!("nobody else is there")
            };
            let fetch = {
                let (cache, rules) = (Arc::clone(cache), Rules::default());
                thread::spawn(move || {
                    let kind = ChangeKind::Stored;
                    cache.commit(&leader, stored, &view(&rules), None, kind);
                })
            };
            let purge = {
                let (cache, scope) = (Arc::clone(cache), scope.clone());
                thread::spawn(move || cache.decide(scope, strength))
            };
            let look = {
                let (cache, key) = (Arc::clone(cache), Arc::clone(&key));
                thread::spawn(move || is_there(&cache, &key))
            };
            fetch.join().expect("no panic");
            purge.join().expect("no panic");
            look.join().expect("no panic");
            assert!(!is_there(cache, &key));
        });
    }
}

#[test]
fn a_rule_that_is_swept_and_forgotten_is_not_undone_either() {
    check_cache(|cache| {
        let (key, stored) = page();
        let Entry::Lead(leader) = cache.enter(&key, b"", &Urgency::Client) else {
            panic!("nobody else is there")
        };
        let fetch = {
            let (cache, rules) = (Arc::clone(cache), Rules::default());
            thread::spawn(move || {
                cache.commit(&leader, stored, &view(&rules), None, ChangeKind::Stored);
            })
        };
        let purge = {
            let cache = Arc::clone(cache);
            thread::spawn(move || {
                cache.decide(Scope::Everything, Strength::Hard);
                let swept = cache.rules.newest();
                future::block_on(cache.sweep());
                cache.rules.drop_through(swept);
            })
        };
        fetch.join().expect("no panic");
        purge.join().expect("no panic");
        assert!(!is_there(cache, &key));
    });
}

#[test]
fn who_comes_after_a_purge_joins_no_fetch_from_before_it() {
    for (scope, strength) in purges() {
        if matches!(scope, Scope::Tag(_)) {
            // What a fetch brings is known to have a tag when it is there.
            continue;
        }
        check_cache(move |cache| {
            let (key, _) = page();
            let Entry::Lead(before) = cache.enter(&key, b"", &Urgency::Client) else {
                panic!("nobody else is there")
            };
            let other = {
                let (cache, key) = (Arc::clone(cache), Arc::clone(&key));
                thread::spawn(move || drop(cache.enter(&key, b"", &Urgency::Client)))
            };
            cache.decide(scope.clone(), strength);
            match cache.enter(&key, b"", &Urgency::Client) {
                Entry::Lead(after) => drop(after),
                Entry::Join(ticket) => {
                    // The other one leads, and has begun after the purge.
                    drop(ticket);
                }
                Entry::Full => panic!("no bound is near"),
            }
            other.join().expect("no panic");
            drop(before);
            assert_eq!(cache.flights.under_way(), 0);
        });
    }
}
