//! `flight` under shuttle: every test runs some thousand times, each time with the threads
//! meeting in another order. `RUSTFLAGS="--cfg shuttle" cargo test -p microcache-engine --test shuttle`
#![cfg(shuttle)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use microcache_engine::flight::{Entry, Failure, FlightLimits, Flights, Leader, Progress, Purpose};
use microcache_store::Key;
use shuttle::sync::Mutex;
use shuttle::{future, thread};

const RUNS: usize = 3_000;
const KEY: &[u8] = b"key";

fn key() -> Key {
    KEY.into()
}

fn check(run: impl Fn(&Arc<Flights>) + Send + Sync + 'static) {
    let limits = FlightLimits {
        fetches: 1000,
        waiters: 1000,
    };
    let run = Arc::new(run);
    let run = move || {
        let flights = Flights::new(limits);
        run(&flights);
        assert_eq!(flights.under_way(), 0, "a fetch was left behind");
    };
    shuttle::check_pct(run, RUNS, 3);
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
    match flights.enter(&key(), b"", Purpose::Answer) {
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
        let Entry::Lead(leader) = flights.enter(&key(), b"", Purpose::Answer) else {
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
            match flights.enter(&key(), b"", Purpose::Answer) {
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
