//! `microcache bench --subscribe N`: long-lived event streams and their delivery latency.
//!
//! [`run`] opens the streams, optionally publishes documents meanwhile, and reports the latency of each
//! delivery as well as skipped, lost, reordered and duplicate ones. Publisher and subscribers run in one
//! process so that both ends share a clock.

mod context;
mod document;
mod events;
mod formats;
mod order;
mod parse_output;
mod parser;
mod publisher;
mod report;
mod settings;
mod stream_tally;
#[cfg(test)]
mod tests;
mod websocket;
mod worker;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Instant, SystemTime};

use rustls::ClientConfig;

use super::error::LoadError;
use super::plan::{ServerEndpoint, part};
use super::run::allow_files;
use super::settings::Settings;
use super::trust;
use context::RunContext;
use document::RunIdentity;
use publisher::{PublishTally, Publisher};
use worker::{StreamResults, StreamWorker};

pub use context::SubscribeProgress;
pub use document::DocumentTemplate;
pub use report::{PublicationReport, SubscribeReport};
pub use settings::{PublishSettings, StreamKind, SubscribeSettings};
pub use stream_tally::{StreamFaults, StreamTally};

/// Opens the streams described by `subscribe` on the first target, and reports.
///
/// Of the other settings, those for connections, TLS and time apply; `requests` limits the number of
/// publications.
///
/// # Errors
///
/// [`LoadError`] if the settings are invalid, the server cannot be reached, the first publication is
/// rejected, or no stream could be opened.
pub fn run(
    settings: &Settings,
    subscribe: &SubscribeSettings,
    watch: &mut dyn FnMut(&SubscribeProgress),
) -> Result<SubscribeReport, LoadError> {
    allow_files(subscribe.streams)?;
    let Some(target) = settings.targets.first() else {
        return Err(LoadError::Settings("no URL given"));
    };
    let publish = subscribe.publish.as_ref();
    if settings.duration.is_none() && (settings.requests.is_none() || publish.is_none()) {
        return Err(LoadError::Settings(
            "a duration or a number of publications is required",
        ));
    }
    let is_secure = publish.is_some_and(|publish| publish.url.server.secure);
    let config = (target.url.server.secure || is_secure)
        .then(|| trust::config(settings))
        .transpose()?;
    let shared = RunContext {
        settings,
        subscribe,
        endpoint: ServerEndpoint::find(&target.url.server, settings, config.as_ref())?,
        run: RunIdentity::begin(),
        settled: AtomicUsize::new(0),
        opened: AtomicUsize::new(0),
        events: AtomicU64::new(0),
        newest: AtomicU64::new(0),
        sent: AtomicU64::new(0),
        doubtful: Mutex::default(),
        counts_from: AtomicU64::new(u64::MAX),
        is_over: AtomicBool::new(false),
    };
    let publisher = publisher(&shared, config.as_ref())?;
    let report = measure(&shared, publisher, watch)?;
    if report.streams.opened == 0 {
        return Err(LoadError::NoStream(formats::refusals(&report.streams)));
    }
    Ok(report)
}

/// Publishes once before any stream is opened, so that a configuration error is reported early and only
/// once.
fn publisher<'a>(
    shared: &'a RunContext<'a>,
    config: Option<&Arc<ClientConfig>>,
) -> Result<Option<Publisher<'a>>, LoadError> {
    let Some(publish) = &shared.subscribe.publish else {
        return Ok(None);
    };
    let endpoint = ServerEndpoint::find(&publish.url.server, shared.settings, config)?;
    let mut publisher = Publisher::new(shared, publish, endpoint);
    publisher.check()?;
    Ok(Some(publisher))
}

fn measure(
    shared: &RunContext<'_>,
    publisher: Option<Publisher<'_>>,
    watch: &mut dyn FnMut(&SubscribeProgress),
) -> Result<SubscribeReport, LoadError> {
    let threads = shared.settings.threads.clamp(1, shared.subscribe.streams);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|thread| {
                let count = part(shared.subscribe.streams as u64, thread, threads) as usize;
                let named = thread::Builder::new().name(format!("streams-{thread}"));
                named.spawn_scoped(scope, move || {
                    // A failed thread ends the run for all.
                    StreamWorker::new(shared, thread, threads, count)
                        .and_then(StreamWorker::run)
                        .inspect_err(|_| shared.end())
                })
            })
            .collect();
        let date = SystemTime::now();
        let clock = Instant::now();
        shared.wait(watch, || {
            shared.settled.load(Ordering::Relaxed) >= shared.subscribe.streams
        });
        let opened_within = clock.elapsed();
        let begin = Instant::now();
        let sent = publish(shared, publisher, begin, watch);
        shared.end();
        let mut results = StreamResults::default();
        for reader in readers {
            let reader = reader.map_err(|why| LoadError::system("a thread", why))?;
            results.add(joined(reader)?);
        }
        let counted = begin + shared.settings.warmup;
        Ok(report::report(
            shared,
            threads,
            (date, opened_within, counted.elapsed()),
            results,
            sent,
        ))
    })
}

fn joined(
    reader: ScopedJoinHandle<'_, Result<StreamResults, LoadError>>,
) -> Result<StreamResults, LoadError> {
    reader.join().expect("a thread does not panic")
}

/// Publishes, or just waits, until the end of the run.
fn publish(
    shared: &RunContext<'_>,
    publisher: Option<Publisher<'_>>,
    begin: Instant,
    watch: &mut dyn FnMut(&SubscribeProgress),
) -> Option<PublishTally> {
    let settings = shared.settings;
    let counted = begin + settings.warmup;
    let end = settings.duration.map(|duration| counted + duration);
    let since = counted.saturating_duration_since(shared.run.begin);
    let since = since.as_nanos() as u64;
    shared.counts_from.store(since, Ordering::Relaxed);
    let is_at_end = || end.is_some_and(|end| Instant::now() >= end);
    let Some(mut source) = publisher else {
        shared.wait(watch, is_at_end);
        return None;
    };
    thread::scope(|scope| {
        let publishing = scope.spawn(move || source.run(begin, end));
        let is_counted = settings.requests.is_some();
        shared.wait(watch, || {
            is_at_end() || is_counted && publishing.is_finished()
        });
        // Waits for the publication in flight.
        Some(publishing.join().expect("a thread does not panic"))
    })
}
