//! The cache under shuttle: every test runs some thousand times, each time with another
//! interleaving of the threads. Run with `RUSTFLAGS="--cfg shuttle" cargo test -p microcache-engine
//! --lib`.

use std::sync::Arc;

use ::shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ::shuttle::{check_pct, future, thread};
use bytes::Bytes;
use microcache_policy::{Network, Rules, Scheme};
use microcache_store::{Key, Stored, Tiers};

use super::fetch_outcome::{Failure, FetchOutcome};
use super::flight::{Flights, Leader, Role};
use super::testing::{FLIGHTS, cache, key_of, stored, view};
use super::{Cache, ChangeKind, Scope, Strength};
use microcache_store::Clock;

const RUNS: usize = 3_000;
const KEY: &[u8] = b"key";

fn key() -> Key {
    KEY.into()
}

fn check(run: impl Fn(&Arc<Flights>) + Send + Sync + 'static) {
    let run = move || {
        let flights = Flights::new(FLIGHTS, Arc::default());
        run(&flights);
        assert_eq!(flights.under_way(), 0, "a fetch was left behind");
    };
    check_pct(run, RUNS, 3);
}

/// Runs the same work in three threads.
fn in_threads(flights: &Arc<Flights>, work: impl Fn(&Arc<Flights>) + Sync) {
    thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| work(flights));
        }
    });
}

/// Leads or waits; a waiter that is never notified hangs here, and shuttle reports it.
fn enter(flights: &Arc<Flights>, lead: impl FnOnce(Leader)) -> Option<FetchOutcome> {
    match flights.enter(&key(), b"", Some(Network::from_bits(1))) {
        Role::Lead(leader) => {
            lead(leader);
            None
        }
        Role::Join(ticket) => future::block_on(ticket),
        Role::Full => panic!("no bound is near"),
    }
}

#[test]
fn one_request_leads_at_a_time_and_all_waiters_get_an_outcome() {
    check(|flights| {
        let leading = AtomicUsize::new(0);
        in_threads(flights, |flights| {
            let outcome = enter(flights, |leader| {
                assert_eq!(leading.fetch_add(1, Ordering::SeqCst), 0, "two lead");
                thread::yield_now();
                leading.fetch_sub(1, Ordering::SeqCst);
                leader.publish(FetchOutcome::Released);
            });
            assert!(matches!(outcome, None | Some(FetchOutcome::Released)));
        });
    });
}

#[test]
fn after_a_failure_one_waiter_leads() {
    check(|flights| {
        let fetches = AtomicUsize::new(0);
        in_threads(flights, |flights| {
            let lead = |leader: Leader| {
                if fetches.fetch_add(1, Ordering::SeqCst) == 0 {
                    leader.publish(FetchOutcome::Failed(Failure::Abandoned, None));
                } else {
                    leader.publish(FetchOutcome::Released);
                }
            };
            if let Some(FetchOutcome::Failed(..)) = enter(flights, lead) {
                let outcome = enter(flights, lead);
                assert!(matches!(outcome, None | Some(FetchOutcome::Released)));
            }
        });
        assert!(fetches.load(Ordering::SeqCst) <= 3);
    });
}

#[test]
fn a_leader_that_vanishes_is_a_failure() {
    check(|flights| {
        in_threads(flights, |flights| {
            let outcome = enter(flights, drop);
            assert!(matches!(
                outcome,
                None | Some(FetchOutcome::Failed(Failure::Abandoned, None))
            ));
        });
    });
}

#[test]
fn a_purge_is_never_undone_by_a_fetch_that_began_before_it() {
    check(|flights| {
        let stored = AtomicBool::new(true);
        let leader = lead(flights, &key());
        thread::scope(|threads| {
            threads.spawn(|| {
                leader.finish(|| {
                    stored.store(true, Ordering::SeqCst);
                    true
                })
            });
            threads.spawn(|| flights.purge(KEY, |_| stored.store(false, Ordering::SeqCst)));
        });
        assert!(!stored.load(Ordering::SeqCst));
    });
}

#[test]
fn a_purge_is_never_undone_by_an_unshared_fetch() {
    check(|flights| {
        let stored = AtomicBool::new(true);
        let unshared = flights.begin_unshared(&key());
        thread::scope(|threads| {
            threads.spawn(|| {
                if let Some(leader) = unshared.lead() {
                    thread::yield_now();
                    leader.finish(|| {
                        stored.store(true, Ordering::SeqCst);
                        true
                    });
                }
            });
            threads.spawn(|| flights.purge(KEY, |_| stored.store(false, Ordering::SeqCst)));
        });
        assert!(!stored.load(Ordering::SeqCst));
    });
}

#[test]
fn a_lone_fetch_outlives_purges_of_other_keys() {
    check(|flights| {
        let unshared = flights.begin_unshared(&key());
        let other = flights.begin_unshared(&b"another"[..].into());
        let second = thread::scope(|threads| {
            threads.spawn(|| flights.purge(b"another", |_| {}));
            let second = flights.begin_unshared(&key());
            let leader = unshared.lead().expect("nobody purged it");
            assert!(leader.finish(|| true));
            second
        });
        assert!(second.lead().is_some());
        assert!(other.lead().is_none());
    });
}

#[test]
fn after_a_refusal_one_waiter_leads() {
    check(|flights| {
        in_threads(flights, |flights| {
            let outcome = enter(flights, |leader| leader.publish(FetchOutcome::Refused));
            if outcome.is_some() {
                assert!(matches!(outcome, Some(FetchOutcome::Refused)));
                let outcome = enter(flights, |leader| leader.publish(FetchOutcome::Released));
                assert!(matches!(
                    outcome,
                    None | Some(FetchOutcome::Refused | FetchOutcome::Released)
                ));
            }
        });
    });
}

#[test]
fn a_waiter_that_leaves_takes_nothing_along() {
    check(|flights| {
        in_threads(flights, |flights| {
            match flights.enter(&key(), b"", Some(Network::from_bits(1))) {
                Role::Lead(leader) => leader.publish(FetchOutcome::Released),
                Role::Join(ticket) => drop(ticket),
                Role::Full => panic!("no bound is near"),
            }
        });
    });
}

#[test]
fn a_tier_hit_does_not_outlive_a_purge_in_memory() {
    check(|flights| {
        let (tier, memory) = (AtomicBool::new(true), AtomicBool::new(false));
        thread::scope(|threads| {
            threads.spawn(|| {
                flights.purge(KEY, |_| {
                    memory.store(false, Ordering::SeqCst);
                    thread::yield_now();
                    tier.store(false, Ordering::SeqCst);
                });
            });
            let purges = flights.purges(KEY);
            if tier.load(Ordering::SeqCst) {
                flights.unless_purged(KEY, purges, || {
                    thread::yield_now();
                    memory.store(true, Ordering::SeqCst);
                });
            }
        });
        assert!(!memory.load(Ordering::SeqCst));
    });
}

/// A page of www.example.com with the tag `news`.
fn page() -> (Key, Stored) {
    let key = key_of(Scheme::Http, "www.example.com", "/blog/1");
    let lines = "Cache-Control: max-age=60\r\nCache-Tag: news\r\n";
    let stored = stored(&key, lines, Clock::start().now());
    (key, stored)
}

/// Checks a cache under many interleavings.
fn check_cache(run: impl Fn(&Cache) + Send + Sync + 'static) {
    let run = move || run(&cache(Tiers::default(), Clock::start()));
    check_pct(run, RUNS, 3);
}

fn commit(cache: &Cache, leader: &Leader, stored: Stored) {
    let rules = Rules::default();
    cache.commit(leader, stored, &view(&rules), None, ChangeKind::Stored);
}

/// Leads the fetch of a key that no other task leads.
fn lead(flights: &Arc<Flights>, key: &Key) -> Leader {
    match flights.enter(key, b"", Some(Network::from_bits(1))) {
        Role::Lead(leader) => leader,
        Role::Join(_) | Role::Full => panic!("nobody else is there"),
    }
}

fn is_there(cache: &Cache, key: &Key) -> bool {
    cache
        .response(key, &view(&Rules::default()), cache.clock.now())
        .is_some()
}

fn purges() -> [(Scope, Strength); 5] {
    let host = Bytes::from_static(b"www.example.com");
    [
        Scope::Everything,
        Scope::Host(host.clone()),
        Scope::prefixed(host.clone(), Bytes::from_static(b"/blog/")),
        Scope::Tag(Bytes::from_static(b"news")),
        Scope::Url {
            host,
            target: Bytes::from_static(b"/blog/1"),
        },
    ]
    .map(|scope| (scope, Strength::Hard))
}

#[test]
fn a_purge_by_rule_is_never_undone_by_a_fetch_that_began_before_it() {
    for (scope, strength) in purges() {
        check_cache(move |cache| {
            let (key, stored) = page();
            let leader = lead(&cache.flights, &key);
            thread::scope(|threads| {
                threads.spawn(|| commit(cache, &leader, stored));
                threads.spawn(|| cache.issue(scope.clone(), strength));
                threads.spawn(|| is_there(cache, &key));
            });
            assert!(!is_there(cache, &key));
        });
    }
}

#[test]
fn a_rule_that_is_swept_and_forgotten_is_not_undone_either() {
    check_cache(|cache| {
        let (key, stored) = page();
        let leader = lead(&cache.flights, &key);
        thread::scope(|threads| {
            threads.spawn(|| commit(cache, &leader, stored));
            threads.spawn(|| {
                cache.issue(Scope::Everything, Strength::Hard);
                let swept = cache.rules.newest();
                future::block_on(cache.sweep());
                cache.rules.drop_through(swept);
            });
        });
        assert!(!is_there(cache, &key));
    });
}

#[test]
fn a_request_after_a_purge_joins_no_earlier_fetch() {
    for (scope, strength) in purges() {
        if matches!(scope, Scope::Tag(_)) {
            // The tags of a fetched response are known once it has arrived.
            continue;
        }
        check_cache(move |cache| {
            let (key, _) = page();
            let before = lead(&cache.flights, &key);
            thread::scope(|threads| {
                threads.spawn(|| drop(cache.enter(&key, b"", Some(Network::from_bits(1)))));
                cache.issue(scope.clone(), strength);
                match cache.enter(&key, b"", Some(Network::from_bits(1))) {
                    Role::Lead(after) => drop(after),
                    Role::Join(ticket) => {
                        // The other one leads, and began after the purge.
                        drop(ticket);
                    }
                    Role::Full => panic!("no bound is near"),
                }
            });
            drop(before);
            assert_eq!(cache.flights.under_way(), 0);
        });
    }
}
