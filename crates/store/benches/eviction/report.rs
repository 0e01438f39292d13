//! Simulations, and their results as tables of Markdown.

use crate::peers::{Belady, Gdsf, Lru, S3Fifo, WTinyLfu};
use crate::policy::Policy;
use crate::queue::Microcache;
use crate::trace::{Catalogue, Trace};

/// Capacities, in thousandths of the size of all objects together.
const SHARES: [u32; 3] = [1, 10, 100];
/// Inverse share of the capacity that an object may take, as that of memory by default. Larger ones are misses for all.
const LARGEST: u64 = 16;
const POLICIES: [&str; 8] = [
    "Microcache",
    "LRU",
    "S3-FIFO",
    "no ghosts",
    "W-TinyLFU",
    "GDSF",
    "GDSF by time",
    "Belady",
];
/// Position of the policies that ours is compared with.
const MARKS: [usize; 2] = [2, 4];

/// Result of a policy.
pub(crate) struct Outcome {
    pub(crate) misses: usize,
    /// Time that the application needs for the misses.
    pub(crate) seconds: f64,
}

/// Results of all policies for a trace and a capacity.
pub(crate) struct Contest {
    name: String,
    share: u32,
    /// In the order of [`POLICIES`].
    outcomes: Vec<Outcome>,
}

impl Contest {
    /// Simulates each policy with each capacity.
    pub(crate) fn all(name: &str, trace: &Trace) -> Vec<Self> {
        let (next, footprint) = (trace.next_requests(), trace.summary().bytes);
        let of_share = |share| {
            let capacity = footprint * u64::from(share) / 1000;
            let simulate =
                |mut policy: Box<dyn Policy + '_>| simulate(&mut *policy, trace, &next, capacity);
            Self {
                name: name.to_owned(),
                share,
                outcomes: policies(&trace.catalogue, capacity)
                    .into_iter()
                    .map(simulate)
                    .collect(),
            }
        };
        SHARES.map(of_share).into()
    }

    /// The result ÷ the better one of S3-FIFO and W-TinyLFU.
    fn ratio(&self, measure: impl Fn(&Outcome) -> f64) -> f64 {
        let marks = MARKS.map(|mark| measure(&self.outcomes[mark]));
        measure(&self.outcomes[0]) / marks[0].min(marks[1])
    }
}

fn policies(catalogue: &Catalogue, capacity: u64) -> [Box<dyn Policy + '_>; POLICIES.len()] {
    [
        Box::new(Microcache::new(catalogue, capacity)),
        Box::new(Lru::new(catalogue, capacity)),
        Box::new(S3Fifo::new(catalogue, capacity)),
        Box::new(S3Fifo::without_ghosts(catalogue, capacity)),
        Box::new(WTinyLfu::new(catalogue, capacity)),
        Box::new(Gdsf::new(catalogue, capacity, false)),
        Box::new(Gdsf::new(catalogue, capacity, true)),
        Box::new(Belady::new(catalogue, capacity)),
    ]
}

fn simulate(policy: &mut dyn Policy, trace: &Trace, next: &[usize], capacity: u64) -> Outcome {
    let mut outcome = Outcome {
        misses: 0,
        seconds: 0.0,
    };
    for (&object, &next) in trace.requests.iter().zip(next) {
        let is_too_large = u64::from(trace.catalogue.sizes[object as usize]) > capacity / LARGEST;
        if is_too_large || !policy.request(object, next) {
            outcome.misses += 1;
            outcome.seconds += f64::from(trace.catalogue.costs[object as usize]) / 1e6;
        }
    }
    outcome
}

/// Prints the properties of traces.
pub(crate) fn describe(traces: &[(String, Trace)]) {
    println!("| trace | requests | objects | requested once | footprint | first requests, s |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, trace) in traces {
        let summary = trace.summary();
        println!(
            "| {name} | {} | {} | {:.0} % | {:.1} GB | {:.0} |",
            trace.requests.len(),
            summary.objects,
            summary.requested_once as f64 / summary.objects as f64 * 100.0,
            summary.bytes as f64 / 1e9,
            summary.seconds,
        );
    }
}

/// Prints a measure of all contests, and ours ÷ the better one of S3-FIFO and W-TinyLFU.
pub(crate) fn table(title: &str, contests: &[Contest], measure: impl Fn(&Outcome) -> f64) {
    println!("| {title} | space | {} | ratio |", POLICIES.join(" | "));
    println!("|---|---:|{}---:|", "---:|".repeat(POLICIES.len()));
    let mut logarithms = 0.0;
    for contest in contests {
        let ratio = contest.ratio(&measure);
        logarithms += ratio.ln();
        print!(
            "| {} | {} % |",
            contest.name,
            f64::from(contest.share) / 10.0
        );
        for outcome in &contest.outcomes {
            print!(" {:.0} |", measure(outcome));
        }
        println!(" {ratio:.3} |");
    }
    let mean = (logarithms / contests.len() as f64).exp();
    println!(
        "| geometric mean | {} **{mean:.3}** |\n",
        "| ".repeat(POLICIES.len() + 1)
    );
}
