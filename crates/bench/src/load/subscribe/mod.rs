//! `microcache bench --subscribe N`: streams that stay open, and what arrives on them.
//!
//! [`run`] opens the streams, publishes documents meanwhile if that is wanted, and says how long each took to arrive on each
//! stream, what was missing, and what came in another order or twice. It publishes itself so that one clock measures both ends.

mod document;
mod events;
mod formats;
mod order;
mod publisher;
mod reader;
mod report;
mod settings;
mod streams;
#[cfg(test)]
mod tests;
mod websocket;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime};

use rustls::ClientConfig;

use super::error::LoadError;
use super::plan::{Endpoint, part};
use super::run::allow_files;
use super::settings::Settings;
use super::trust;
use document::Run;
use publisher::{Published, Publisher};
use streams::{Seen, Streams};

pub use document::Document;
pub use report::{Publications, StreamFaults, StreamTally, Subscribed};
pub use settings::{Kind, Publish, Subscribe};

/// How often the run looks whether all streams are open, and whether it is over.
const LOOK: Duration = Duration::from_millis(5);

/// How a run stands.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Streams that are wanted.
    pub wanted: usize,
    /// Streams that were opened so far.
    pub opened: usize,
    /// Events so far.
    pub events: u64,
    /// Publications so far.
    pub published: u64,
}

/// What all threads share.
struct Shared<'a> {
    settings: &'a Settings,
    subscribe: &'a Subscribe,
    endpoint: Endpoint,
    run: Run,
    /// Streams of which it is known whether they are open.
    settled: AtomicUsize,
    opened: AtomicUsize,
    events: AtomicU64,
    /// The number of the newest publication that was accepted.
    newest: AtomicU64,
    /// The number of the last one that was sent: nobody has published what is further on.
    sent: AtomicU64,
    /// Numbers that were sent, and whose answers were lost: they may be published, and are not given again.
    doubtful: Mutex<Vec<u64>>,
    /// What was due before this is not in the report: nanoseconds since the beginning of the run.
    counts_from: AtomicU64,
    /// Whether the threads are to end as soon as everything has arrived.
    is_over: AtomicBool,
}

/// Opens the streams that `subscribe` describes on the first url of the settings, and reports. Of the other settings, those count that
/// are about connections and time; the number of requests is that of publications. An error means that nothing was measured at all.
pub fn run(
    settings: &Settings,
    subscribe: &Subscribe,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Subscribed, LoadError> {
    allow_files(subscribe.streams)?;
    let Some(target) = settings.targets.first() else {
        return Err(LoadError::Settings("no url is given"));
    };
    let publish = subscribe.publish.as_ref();
    if settings.duration.is_none() && (settings.requests.is_none() || publish.is_none()) {
        return Err(LoadError::Settings(
            "the run has no end: give it a duration, or a number of publications",
        ));
    }
    let is_secure = publish.is_some_and(|publish| publish.url.server.secure);
    let config = (target.url.server.secure || is_secure)
        .then(|| trust::config(settings))
        .transpose()?;
    let shared = Shared {
        settings,
        subscribe,
        endpoint: Endpoint::find(&target.url.server, settings, config.as_ref())?,
        run: Run::begin(),
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

/// Whoever publishes has published once before a stream is opened, so that what is wrong with that is told once, and early.
fn publisher<'a>(
    shared: &'a Shared<'a>,
    config: Option<&Arc<ClientConfig>>,
) -> Result<Option<Publisher<'a>>, LoadError> {
    let Some(publish) = &shared.subscribe.publish else {
        return Ok(None);
    };
    let endpoint = Endpoint::find(&publish.url.server, shared.settings, config)?;
    let mut publisher = Publisher::new(shared, publish, endpoint);
    publisher.try_out()?;
    Ok(Some(publisher))
}

fn measure(
    shared: &Shared<'_>,
    publisher: Option<Publisher<'_>>,
    watch: &mut dyn FnMut(&Progress),
) -> Result<Subscribed, LoadError> {
    let threads = shared.settings.threads.clamp(1, shared.subscribe.streams);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|thread| {
                let count = part(shared.subscribe.streams as u64, thread, threads) as usize;
                let named = thread::Builder::new().name(format!("streams-{thread}"));
                named.spawn_scoped(scope, move || {
                    // Whoever cannot go on lets nobody wait for it.
                    Streams::new(shared, thread, threads, count)
                        .and_then(Streams::run)
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
        let mut seen = Seen::default();
        for reader in readers {
            seen.add(joined(reader.map_err(|why| LoadError::System {
                what: "a thread",
                why,
            })?)?);
        }
        let counted = begin + shared.settings.warmup;
        Ok(report::report(
            shared,
            threads,
            (date, opened_within, counted.elapsed()),
            seen,
            sent,
        ))
    })
}

fn joined(reader: ScopedJoinHandle<'_, Result<Seen, LoadError>>) -> Result<Seen, LoadError> {
    reader.join().expect("a thread does not panic")
}

/// Publishes, or waits, for as long as the run is to last.
fn publish(
    shared: &Shared<'_>,
    publisher: Option<Publisher<'_>>,
    begin: Instant,
    watch: &mut dyn FnMut(&Progress),
) -> Option<Published> {
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
        // A publication that is under way is waited for.
        Some(publishing.join().expect("a thread does not panic"))
    })
}

impl Shared<'_> {
    fn end(&self) {
        self.is_over.store(true, Ordering::Release);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// Waits until something holds, or the run is over; tells how it stands meanwhile.
    fn wait(&self, watch: &mut dyn FnMut(&Progress), holds: impl Fn() -> bool) {
        let mut next = Instant::now() + self.settings.slice;
        while !holds() && !self.is_over() && !self.settings.stop.is_wanted() {
            thread::sleep(LOOK);
            if Instant::now() >= next {
                next += self.settings.slice;
                watch(&Progress {
                    wanted: self.subscribe.streams,
                    opened: self.opened.load(Ordering::Relaxed),
                    events: self.events.load(Ordering::Relaxed),
                    published: self.newest.load(Ordering::Relaxed),
                });
            }
        }
    }
}
