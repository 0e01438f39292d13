//! The result of a run with streams.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::Shared;
use super::publisher::Published;
use super::settings::Kind;
use super::streams::Seen;
use crate::load::outcome::Fault;
use crate::load::tally::Latency;
use crate::load::target::Url;

/// The result of a run with streams.
#[derive(Clone, Debug)]
pub struct Subscribed {
    /// When the first stream was opened.
    pub began: SystemTime,
    /// From then until it was known of each whether it is open.
    pub opened_within: Duration,
    /// How long it was warmed then.
    pub warmup: Duration,
    /// How long it was measured.
    pub elapsed: Duration,
    /// What was subscribed to.
    pub url: Url,
    /// What was spoken.
    pub kind: Kind,
    /// Threads.
    pub threads: usize,
    /// The streams.
    pub streams: StreamTally,
    /// How long it took until a stream was open.
    pub opening: Latency,
    /// All events, those that were there at first included.
    pub events: u64,
    /// Bytes that came in, heads included.
    pub bytes: u64,
    /// What was published, where that was wanted.
    pub publications: Option<Publications>,
    /// The share of a core that the busiest thread needed to read. Near 1, it is this program that was measured.
    pub busiest: f64,
    /// Whether somebody ended the run.
    pub interrupted: bool,
}

/// What was published, and what arrived of it.
#[derive(Clone, Debug)]
pub struct Publications {
    /// The time from one to the next.
    pub every: Duration,
    /// The bytes of each.
    pub size: usize,
    /// How long answers took, from when each publication was due.
    pub answered: Latency,
    /// Publications that were refused, by status.
    pub refused: BTreeMap<u16, u64>,
    /// Publications without an answer.
    pub failed: StreamFaults,
    /// Publications that were due and were not sent until the end.
    pub unsent: u64,
    /// How long they took to arrive, each on each stream.
    pub delivered: Latency,
    /// How long they took to arrive on the last of the streams.
    pub last: Latency,
    /// Publications that arrived on every stream that stayed open and was read.
    pub complete: u64,
    /// Publications that a stream did not see, but a later one.
    pub skipped: u64,
    /// Publications at the end that a stream did not see.
    pub lost: u64,
    /// Publications that a stream saw after a later one.
    pub disordered: u64,
    /// Publications that a stream saw again.
    pub duplicates: u64,
}

/// What became of the streams.
#[derive(Clone, Debug, Default)]
pub struct StreamTally {
    /// That were wanted.
    pub wanted: u64,
    /// That were open.
    pub opened: u64,
    /// That were open until the end, and read.
    pub healthy: u64,
    /// Requests that were answered otherwise, by status.
    pub statuses: BTreeMap<u16, u64>,
    /// Answers that were no event streams.
    pub without_events: u64,
    /// Requests without an answer.
    pub failed: StreamFaults,
    /// That the server ended as it should.
    pub ended: u64,
    /// That broke.
    pub broken: StreamFaults,
    /// That stopped reading, as was wanted.
    pub stalled: u64,
    /// Those of them that the server ended.
    pub stalled_ended: u64,
}

/// How often there was which fault.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamFaults([u64; Fault::COUNT]);

impl StreamFaults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    fn add_all(&mut self, other: &Self) {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine += theirs;
        }
    }

    /// How many there were in all.
    pub fn count(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Those that there were, and how many of each.
    pub fn each(&self) -> impl Iterator<Item = (Fault, u64)> {
        let counts = Fault::ALL.into_iter().zip(self.0);
        counts.filter(|(_, count)| *count > 0)
    }
}

impl StreamTally {
    pub(super) fn add(&mut self, other: &Self) {
        self.wanted += other.wanted;
        self.opened += other.opened;
        self.healthy += other.healthy;
        for (status, count) in &other.statuses {
            *self.statuses.entry(*status).or_default() += count;
        }
        self.without_events += other.without_events;
        self.failed.add_all(&other.failed);
        self.ended += other.ended;
        self.broken.add_all(&other.broken);
        self.stalled += other.stalled;
        self.stalled_ended += other.stalled_ended;
    }

    /// Streams that were not opened.
    pub fn refused(&self) -> u64 {
        self.wanted.saturating_sub(self.opened)
    }

    /// Streams that were open and are not any more, though nobody here wanted that.
    pub fn gone(&self) -> u64 {
        self.ended + self.broken.count() + self.stalled_ended
    }
}

impl Subscribed {
    /// Publications that arrived on a stream, per second.
    pub fn deliveries_per_second(&self) -> f64 {
        let count = self
            .publications
            .as_ref()
            .map_or(0, |published| published.delivered.count());
        count as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Puts together what all threads have seen. `times` are the beginning, how long opening took, and how long was measured.
pub(super) fn report(
    shared: &Shared<'_>,
    threads: usize,
    times: (SystemTime, Duration, Duration),
    seen: Seen,
    published: Option<Published>,
) -> Subscribed {
    let (began, opened_within, elapsed) = times;
    let mut streams = seen.streams.clone();
    streams.wanted = shared.subscribe.streams as u64;
    let whole = elapsed + shared.settings.warmup;
    Subscribed {
        began,
        opened_within,
        warmup: shared.settings.warmup,
        elapsed,
        url: shared.settings.targets[0].url.clone(),
        kind: shared.subscribe.kind,
        threads,
        streams,
        opening: seen.opening.clone(),
        events: seen.events,
        bytes: seen.bytes,
        busiest: seen.busiest.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE),
        publications: published.and_then(|published| publications(shared, seen, published)),
        interrupted: shared.settings.stop.is_wanted(),
    }
}

fn publications(shared: &Shared<'_>, seen: Seen, published: Published) -> Option<Publications> {
    let publish = shared.subscribe.publish.as_ref()?;
    let mut last = Latency::new();
    let mut complete = 0;
    let healthy = seen.streams.healthy;
    for reached in seen.reached.iter().filter(|reached| reached.streams > 0) {
        last.record(reached.last);
        complete += u64::from(reached.streams >= healthy);
    }
    Some(Publications {
        every: publish.every,
        size: publish.document.size(),
        answered: published.answered,
        refused: published.refused,
        failed: published.failed,
        unsent: published.unsent,
        delivered: seen.delivered,
        last,
        complete,
        skipped: seen.disorder.skipped,
        lost: seen.disorder.lost,
        disordered: seen.disorder.disordered,
        duplicates: seen.disorder.duplicates,
    })
}
