//! A simulation of fleets of up to a thousand nodes that share Valkey or a pool of memcached servers.
//!
//! ```sh
//! cargo run --release -p microcache-engine --example simulation -- --nodes 1000 --seed 7 --faults
//! ```
//!
//! What runs here is the code that runs in production: each node is an [`Engine`](microcache_engine::Engine) with its
//! memory, claims, promotion, purge rules and log of purges, and for memcached the pool itself (ring, claims, two copies
//! of the log, ejection, probes), for Valkey the announcements. Only three things are models: the servers ([`valkey`], [`pool`]), the network ([`network`])
//! and the application ([`world`]). Tokio's time is paused and moves when nothing else can, so an hour of a thousand
//! nodes takes minutes.
//!
//! The alternative was to take state machines without I/O out of the asynchronous code and to drive them by one heap of
//! events. Tokio's timers with paused time are that heap already: the seams are [`SharedTier`](microcache_store::SharedTier)
//! for Valkey, whose client is a library with sockets of its own, [`ServerLink`](microcache_store::memcached::ServerLink)
//! for memcached, [`Clock::simulated`](microcache_store::Clock::simulated) and
//! [`random::seed`](microcache_store::random::seed). Nothing was rewritten to be simulated, so nothing else is tested
//! than what is shipped. The price is a resolution of a millisecond, and about two microseconds per event.
//!
//! **One seed is one run**: all chance comes from it, on one thread. A run that fails prints its seed. During the run
//! ([`world`]): no node that has been connected for two seconds serves what was purged more than a second ago, nor does the
//! node that purged it; memory and fetches stay within bounds. At its end: fetches per page and lifetime, and the time
//! until all nodes were in step after each fault.
//!
//! It is an example of the engine, because paused time is a feature of tokio that must not get into a release.

#![cfg(not(shuttle))]

mod faults;
mod fleet;
mod network;
mod pool;
mod popularity;
#[expect(dead_code, reason = "each engine here has a clock of its own")]
#[path = "../../tests/support/mod.rs"]
mod support;
mod valkey;
mod world;

use std::time::Instant;

use faults::Kind;
use world::Counts;

/// The polls of a thousand nodes allocate much.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The date at the beginning, in milliseconds since 1970.
const DATE: u64 = 1_800_000_000_000;
/// Most fetches per page and lifetime, without and with faults, by nodes that reach the tier.
const MOST_FETCHES: [f64; 2] = [1.05, 1.25];

/// The shared tier of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TierName {
    Valkey,
    Memcached,
}

/// A run: fleet, tier, faults and visitors.
#[derive(Clone, Copy, Debug)]
struct Plan {
    nodes: usize,
    seed: u64,
    minutes: u64,
    tier: TierName,
    has_faults: bool,
    /// Milliseconds before each fault.
    calm: u64,
    /// The only kind of fault.
    only: Option<Kind>,
    /// A tenth of the nodes has a clock that is wrong by ten minutes.
    has_wrong_clocks: bool,
    pages: usize,
    /// Visits per second and node.
    visits: f64,
}

/// The figures that are printed, by name.
fn figures(
    plan: &Plan,
    counts: &Counts,
    [operations, bytes]: [u64; 2],
) -> Vec<(&'static str, String)> {
    let seconds = plan.minutes as f64 * 60.0;
    let per_node = |total: u64| format!("{:.1}", total as f64 / plan.nodes as f64 / seconds);
    let joins = |at: usize| {
        let joined = counts.joins.len().max(1) as f64;
        format!(
            "{:.1}",
            counts.joins.iter().map(|join| join[at] as f64).sum::<f64>() / joined
        )
    };
    let recovered = counts.recoveries.iter().map(|(_, took)| *took);
    let delay = |permille| percentile(&counts.purge_delays, permille).to_string();
    vec![
        ("tier", format!("{:?}", plan.tier)),
        ("nodes", plan.nodes.to_string()),
        ("seed", plan.seed.to_string()),
        ("minutes", plan.minutes.to_string()),
        ("faults", counts.recoveries.len().to_string()),
        ("served", counts.served.to_string()),
        (
            "hits_percent",
            format!("{:.2}", 100.0 * counts.hits as f64 / counts.served as f64),
        ),
        ("failed", counts.failed.to_string()),
        ("fetches", counts.fetches.to_string()),
        ("repeated", counts.repeated.to_string()),
        ("cut_off", counts.cut_off.to_string()),
        ("repeated_after", format!("{:?}", counts.repeated_after)),
        (
            "fetches_per_lifetime",
            format!("{:.4}", per_lifetime(counts)),
        ),
        ("operations_per_second_and_node", per_node(operations)),
        ("bytes_per_second_and_node", per_node(bytes)),
        ("purges", counts.purges.to_string()),
        ("unacknowledged", counts.unacknowledged.to_string()),
        ("purge_ms_p50", delay(500)),
        ("purge_ms_p99", delay(990)),
        ("purge_ms_max", delay(1000)),
        ("recovery_ms_max", recovered.max().unwrap_or(0).to_string()),
        ("recoveries", format!("{:?}", counts.recoveries)),
        ("joins", counts.joins.len().to_string()),
        ("join_operations", joins(0)),
        ("join_bytes", joins(1)),
        ("join_fetches", joins(2)),
        ("memory_max", counts.most_memory.to_string()),
        ("violations", counts.violations.len().to_string()),
        ("digest", format!("{:016x}", counts.digest)),
    ]
}

/// Fetches per page and lifetime by nodes that reach the tier: 1 is the least.
fn per_lifetime(counts: &Counts) -> f64 {
    let needed = (counts.fetches - counts.repeated) as f64;
    (counts.fetches - counts.cut_off) as f64 / needed
}

fn percentile(values: &[u64], permille: usize) -> u64 {
    let mut values = values.to_vec();
    values.sort_unstable();
    let at = (values.len() * permille).div_ceil(1000);
    values.get(at.saturating_sub(1)).copied().unwrap_or(0)
}

/// Faults of a run against what is promised.
fn broken(plan: &Plan, counts: &Counts) -> Vec<String> {
    let mut broken = counts.violations.clone();
    let most = MOST_FETCHES[usize::from(plan.has_faults)];
    // In a short run each fault weighs too much.
    let is_comparable = plan.minutes >= 60 || !plan.has_faults;
    if per_lifetime(counts) > most && is_comparable {
        broken.push(format!(
            "{:.3} fetches per lifetime, more than {most}",
            per_lifetime(counts)
        ));
    }
    if percentile(&counts.purge_delays, 1000) > 1000 {
        broken.push("a purge took longer than a second".to_owned());
    }
    if counts.failed > 0 {
        broken.push(format!("{} requests failed", counts.failed));
    }
    broken
}

/// The value of an option on the command line.
fn option<T: std::str::FromStr>(name: &str, default: T) -> T {
    let value = std::env::args().skip_while(|word| word != name).nth(1);
    match value.map(|value| value.parse()) {
        None => default,
        Some(Ok(value)) => value,
        Some(Err(_)) => panic!("{name} takes another value: see the documentation of this program"),
    }
}

/// Prints the figures of a run: `--nodes`, `--seed`, `--minutes`, `--tier valkey|memcached`, `--pages`, `--visits` per second
/// and node, `--faults` with `--calm` seconds before each and perhaps `--only` of one kind, `--wrong-clocks`. Ends with status 1 if a promise was broken.
fn main() {
    let plan = Plan {
        nodes: option("--nodes", 20),
        seed: option("--seed", 1),
        minutes: option("--minutes", 60),
        tier: match option("--tier", "valkey".to_owned()).as_str() {
            "memcached" => TierName::Memcached,
            _ => TierName::Valkey,
        },
        has_faults: std::env::args().any(|word| word == "--faults"),
        calm: option("--calm", 120) * 1000,
        only: Kind::from_name(&option("--only", String::new())),
        has_wrong_clocks: std::env::args().any(|word| word == "--wrong-clocks"),
        pages: option("--pages", 500),
        visits: option("--visits", 2.0),
    };
    let began = Instant::now();
    let (counts, traffic) = fleet::run(plan);
    for (name, value) in figures(&plan, &counts, traffic) {
        println!("{name}\t{value}");
    }
    println!("wall_seconds\t{}", began.elapsed().as_secs());
    let broken = broken(&plan, &counts);
    for promise in &broken {
        eprintln!("seed {}: {promise}", plan.seed);
    }
    std::process::exit(i32::from(!broken.is_empty()));
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Plan = Plan {
        nodes: 12,
        seed: 1,
        minutes: 3,
        tier: TierName::Valkey,
        has_faults: true,
        calm: 20_000,
        only: None,
        has_wrong_clocks: false,
        pages: 60,
        visits: 2.0,
    };

    /// Several seeds with and without faults, the last with wrong clocks, for each tier.
    fn run(tier: TierName) {
        for (seed, has_faults) in [(1, false), (2, true), (3, true), (4, true), (5, false)] {
            let plan = Plan {
                seed,
                tier,
                has_faults,
                has_wrong_clocks: seed >= 4,
                ..SMALL
            };
            let (counts, _) = fleet::run(plan);
            let broken = broken(&plan, &counts);
            assert!(broken.is_empty(), "{plan:?}: {broken:#?}");
        }
    }

    #[test]
    fn nodes_that_share_valkey_keep_what_is_promised() {
        run(TierName::Valkey);
    }

    #[test]
    fn nodes_that_share_memcached_keep_what_is_promised() {
        run(TierName::Memcached);
    }

    /// The replica lacks the newest purge, which most nodes have not read yet.
    #[test]
    fn a_purge_survives_a_replica_that_lags() {
        let plan = Plan {
            calm: 2000,
            only: Some(Kind::Failover),
            ..SMALL
        };
        let broken = broken(&plan, &fleet::run(plan).0);
        assert!(broken.is_empty(), "{plan:?}: {broken:#?}");
    }

    #[test]
    fn one_seed_is_one_run() {
        for tier in [TierName::Valkey, TierName::Memcached] {
            let plan = Plan {
                tier,
                minutes: 1,
                ..SMALL
            };
            assert_eq!(fleet::run(plan).0, fleet::run(plan).0, "{tier:?}");
        }
    }
}
