//! Two clients, an honest one and a hostile one, before an origin that follows RFC 9110, over real sockets:
//! whatever the second sends, the first gets what the origin would have given it, and its pages stay in the
//! cache. The engine's own test of that name, whose clients and pages these are, has more to say about time
//! and about waiting; here are the bytes.
//!
//! `ADVERSARY_SEED` begins elsewhere, `ADVERSARY_RUNS` goes on for longer.

#![expect(
    clippy::struct_excessive_bools,
    clippy::assigning_clones,
    clippy::format_push_string,
    clippy::similar_names,
    reason = "a page and a request are what chance made of them, one thing at a time"
)]

mod honest;
mod hostile;
mod site;

#[path = "../../../../engine/tests/adversary/model/mod.rs"]
#[allow(dead_code, reason = "the engine's test uses the rest")]
mod model;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::support::{Origin, Proxy, Seen};
use model::{Chance, HONEST_SECRET};
use site::Site;

/// Worlds, and requests of the hostile client in each.
const RUNS: u64 = 6;
const ATTACKS: usize = 300;
/// Honest requests for the front page that may reach the origin, whatever the hostile client does.
const MISSES: usize = 3;

#[test]
fn no_client_changes_the_response_of_another() {
    let first = number("ADVERSARY_SEED").unwrap_or(1);
    for seed in first..first + number("ADVERSARY_RUNS").unwrap_or(RUNS) {
        have_a_day(seed);
    }
}

fn have_a_day(seed: u64) {
    let origin = Origin::start();
    let proxy = Proxy::start(&origin, &["--threads", "2"]);
    let mut chance = Chance::new(seed);
    let site = Site::open(&origin, &mut chance);
    let over = AtomicBool::new(false);
    let visits = thread::scope(|scope| {
        let honest = scope.spawn(|| {
            let mut chance = Chance::new(seed ^ 1 << 40);
            let mut visits = 0;
            while visits < 20 || !over.load(Ordering::SeqCst) {
                honest::visit(&proxy, &site, &mut chance, visits, seed);
                visits += 1;
            }
            visits
        });
        // The honest client must not wait for an end that never comes.
        let end = End(&over);
        for _ in 0..ATTACKS {
            hostile::attack(&proxy, &site, &mut chance, seed);
        }
        drop(end);
        honest.join().expect("the honest client is content")
    });
    let front = site.front();
    let seen = origin.seen(&front.path);
    // Who has logged in is always the origin's to answer.
    let is_anonymous = |seen: &&Seen| {
        let cookie = seen.field("cookie").unwrap_or_default();
        seen.field("x-step").is_some() && !cookie.contains(HONEST_SECRET)
    };
    let misses = seen.iter().filter(is_anonymous).count();
    assert!(
        misses <= MISSES,
        "seed {seed}: {misses} of {visits} honest visits reached the origin for {front:?}"
    );
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
