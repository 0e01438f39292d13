//! Two clients, an honest and a hostile one, before an origin that follows RFC 9110: whatever the
//! hostile one does, the honest one gets what the origin would have sent, and its pages stay in the
//! cache.
//!
//! Time is simulated, so hours pass in a blink. `ADVERSARY_SEED` chooses the first conversation and
//! `ADVERSARY_RUNS` their number; a failure prints the shortest conversation that shows it.

#![expect(
    clippy::struct_excessive_bools,
    clippy::assigning_clones,
    reason = "a page and a request are what chance made of them, one thing at a time"
)]
#![cfg(not(shuttle))]

mod checks;
mod model;
mod origin;
mod shrink;
#[path = "../support/mod.rs"]
mod support;
mod world;

use model::Chance;
use world::{Plan, run};

/// Conversations, each in a world of its own.
const RUNS: u64 = 600;

#[test]
fn no_client_changes_the_response_of_another() {
    let first = number("ADVERSARY_SEED").unwrap_or(1);
    for seed in first..first + number("ADVERSARY_RUNS").unwrap_or(RUNS) {
        let plan = Plan::from_chance(&mut Chance::new(seed));
        let faults = checks::faults(&plan, &run(&plan));
        if let Some(fault) = faults.first() {
            let shortest = shrink::shortest(&plan, fault.kind);
            let fault = checks::faults(&shortest, &run(&shortest))
                .into_iter()
                .find(|one| one.kind == fault.kind)
                .expect("the shortest shows it as well");
            panic!("seed {seed}: {fault}\n{shortest}");
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}
