//! Benchmark of the eviction policy: misses, and seconds that the application needs for them, next to other policies.
//!
//!     cargo bench -p microcache-store --bench eviction -- [--seed NUMBER]
//!     cargo bench -p microcache-store --bench eviction -- --export FOLDER
//!     cargo bench -p microcache-store --bench eviction -- TRACE...
//!
//! Without arguments, it simulates seeded traces. `--export` writes them as files of the format oracleGeneral, which
//! other simulators read. Traces of that format are simulated instead of the seeded ones if their files are given; they
//! know no costs, so each object gets one from 1 ms to 2 s, by its id.

mod list;
mod oracle_general;
mod peers;
mod policy;
mod queue;
mod random;
mod report;
mod trace;

use std::path::Path;

use self::report::{Contest, Outcome};
use self::trace::{SPACE_ON_DISK, Trace};

const EXPONENTS: [f64; 4] = [0.8, 0.9, 1.0, 1.1];

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    arguments.retain(|argument| argument != "--bench");
    let mut take = |option: &str| {
        let at = arguments.iter().position(|argument| argument == option)?;
        arguments.remove(at);
        Some(arguments.remove(at))
    };
    let seed = take("--seed").map_or(7, |seed| seed.parse().expect("a number"));
    let seeded =
        || EXPONENTS.map(|exponent| (format!("Zipf {exponent}"), Trace::zipf(exponent, seed)));
    if let Some(folder) = take("--export") {
        for (name, trace) in seeded() {
            let file = Path::new(&folder).join(name.replace(' ', "-") + ".oracleGeneral");
            oracle_general::write(&file, &trace).expect("a writable folder");
        }
        return;
    }
    let traces: Vec<(String, Trace)> = if arguments.is_empty() {
        seeded().into()
    } else {
        let read = |file: &String| {
            (
                file.clone(),
                oracle_general::read(Path::new(file)).unwrap_or_else(|error| panic!("{error}")),
            )
        };
        arguments.iter().map(read).collect()
    };
    report::describe(&traces);
    let on_disk: Vec<(String, Trace)> = traces
        .iter()
        .map(|(name, trace)| (name.clone(), trace.on_disk(SPACE_ON_DISK)))
        .collect();
    for (place, traces) in [
        ("In memory", &traces),
        ("On disk, in blocks of 4 KiB", &on_disk),
    ] {
        println!("\n## {place}\n");
        let contests: Vec<Contest> = traces
            .iter()
            .flat_map(|(name, trace)| Contest::all(name, trace))
            .collect();
        report::table("Misses", &contests, |outcome: &Outcome| {
            outcome.misses as f64 / 1e3
        });
        report::table("Seconds", &contests, |outcome: &Outcome| outcome.seconds);
    }
}
