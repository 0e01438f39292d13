//! Result of a subscription run.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::context::RunContext;
use super::publisher::PublishTally;
use super::settings::StreamKind;
use super::stream_tally::{StreamFaults, StreamTally};
use super::worker::StreamResults;
use crate::load::tally::Latency;
use crate::load::target::TargetUrl;

/// Result of a subscription run.
#[derive(Clone, Debug)]
pub struct SubscribeReport {
    /// Time at which the first stream was opened.
    pub began: SystemTime,
    /// Time from there until each stream was open or had failed.
    pub opened_within: Duration,
    /// Length of the warm-up that followed.
    pub warmup: Duration,
    /// Length of the measurement.
    pub elapsed: Duration,
    /// URL of the streams.
    pub url: TargetUrl,
    /// Protocol of the streams.
    pub kind: StreamKind,
    /// Number of threads.
    pub threads: usize,
    /// Counts of streams.
    pub streams: StreamTally,
    /// Time to open a stream.
    pub opening: Latency,
    /// Number of events, including those before the first publication.
    pub events: u64,
    /// Received bytes, including response heads.
    pub bytes: u64,
    /// Publications, unless the run only subscribes.
    pub publications: Option<PublicationReport>,
    /// CPU usage of the busiest thread, as a fraction of one core. Near 1, the figures show the limit of
    /// this program rather than that of the server.
    pub busiest: f64,
    /// `true` if a signal ended the run.
    pub interrupted: bool,
}

/// Publications and their deliveries.
#[derive(Clone, Debug)]
pub struct PublicationReport {
    /// Interval between publications.
    pub every: Duration,
    /// Size of each document, in bytes.
    pub size: usize,
    /// Latency of accepted publications, from their scheduled time to the response.
    pub answered: Latency,
    /// Rejected publications, by status.
    pub refused: BTreeMap<u16, u64>,
    /// Publications without a response.
    pub failed: StreamFaults,
    /// Publications that were due but not sent before the end of the run.
    pub unsent: u64,
    /// Delivery latency, for each publication and stream.
    pub delivered: Latency,
    /// Delivery latency on the last stream to receive each publication.
    pub last: Latency,
    /// Publications delivered on every healthy stream.
    pub complete: u64,
    /// Publications missing on a stream that received a later one.
    pub skipped: u64,
    /// Publications missing at the end of a stream.
    pub lost: u64,
    /// Publications received after a later one.
    pub disordered: u64,
    /// Publications received more than once.
    pub duplicates: u64,
}

impl SubscribeReport {
    /// Deliveries per second, over all streams.
    pub fn deliveries_per_second(&self) -> f64 {
        let count = self
            .publications
            .as_ref()
            .map_or(0, |published| published.delivered.count());
        count as f64 / self.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }
}

/// Builds the report from the results of all threads. `times` are the start, the time to open all streams,
/// and the measured time.
pub(super) fn report(
    shared: &RunContext<'_>,
    threads: usize,
    times: (SystemTime, Duration, Duration),
    results: StreamResults,
    published: Option<PublishTally>,
) -> SubscribeReport {
    let (began, opened_within, elapsed) = times;
    let mut streams = results.streams.clone();
    streams.wanted = shared.subscribe.streams as u64;
    let whole = elapsed + shared.settings.warmup;
    SubscribeReport {
        began,
        opened_within,
        warmup: shared.settings.warmup,
        elapsed,
        url: shared.settings.targets[0].url.clone(),
        kind: shared.subscribe.kind,
        threads,
        streams,
        opening: results.opening.clone(),
        events: results.events,
        bytes: results.bytes,
        busiest: results.busiest.as_secs_f64() / whole.as_secs_f64().max(f64::MIN_POSITIVE),
        publications: published.and_then(|published| publications(shared, results, published)),
        interrupted: shared.settings.stop.is_set(),
    }
}

fn publications(
    shared: &RunContext<'_>,
    results: StreamResults,
    published: PublishTally,
) -> Option<PublicationReport> {
    let publish = shared.subscribe.publish.as_ref()?;
    let mut last = Latency::new();
    let mut complete = 0;
    let healthy = results.streams.healthy;
    for reached in results.reached.iter().filter(|reached| reached.streams > 0) {
        last.record(reached.last);
        complete += u64::from(reached.streams >= healthy);
    }
    Some(PublicationReport {
        every: publish.every,
        size: publish.document.size(),
        answered: published.answered,
        refused: published.refused,
        failed: published.failed,
        unsent: published.unsent,
        delivered: results.delivered,
        last,
        complete,
        skipped: results.disorder.skipped,
        lost: results.disorder.lost,
        disordered: results.disorder.disordered,
        duplicates: results.disorder.duplicates,
    })
}
