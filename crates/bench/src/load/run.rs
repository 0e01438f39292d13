//! Execution of a load, from settings to report.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::error::LoadError;
use super::http1;
use super::http2;
use super::origin_counter;
use super::plan::{LoadPlan, ThreadOutcome, ThreadShare};
use super::recorder::{Collector, PARTS_PER_THREAD, Recorder, SliceClock, ThreadSlice};
use super::report::{BenchReport, LoadProgress, OriginCount, Slice};
use super::settings::{LoadProtocol, RequestPace, Settings};

/// Generates the load, calls `watch` at the end of every slice, and returns the report. [`Settings::stop`]
/// ends it early.
///
/// # Errors
///
/// [`LoadError`] if nothing could be measured; failures of single requests are part of the report.
pub fn run(
    settings: &Settings,
    watch: &mut dyn FnMut(&LoadProgress<'_>),
) -> Result<BenchReport, LoadError> {
    allow_files(settings.connections)?;
    // Without a warm-up, the counter is read before the first request; otherwise when measuring starts.
    let before = match &settings.origin_counter {
        Some(url) if settings.warmup.is_zero() => Some(origin_counter::read(url)?),
        _ => None,
    };
    let plan = Arc::new(LoadPlan::new(settings)?);
    let clock = SliceClock {
        begin: plan.begin + settings.warmup,
        slice: settings.slice,
    };
    let (out, parts) = sync_channel(PARTS_PER_THREAD * plan.threads);
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for share in plan.shares() {
            let recorder = Recorder::new(share.thread, clock, out.clone());
            let plan = &plan;
            let name = format!("load-{}", share.thread);
            let spawned = thread::Builder::new()
                .name(name)
                .spawn_scoped(scope, move || work(plan, share, recorder));
            threads.push(spawned.map_err(|why| LoadError::system("a thread", why))?);
        }
        // The channel closes with the last of the threads.
        drop(out);
        let collected = watch_over(&plan, clock, before, &parts, watch)?;
        let mut ended = ThreadOutcome::default();
        for thread in threads {
            let one = thread.join().expect("a thread does not panic")?;
            ended.unfinished += one.unfinished;
            ended.unsent += one.unsent;
            ended.gave_up |= one.gave_up;
        }
        Ok(report(&plan, clock, collected, ended))
    })
}

fn work(
    plan: &Arc<LoadPlan>,
    share: ThreadShare,
    recorder: Recorder,
) -> Result<ThreadOutcome, LoadError> {
    // The default timer slack of 50 µs would be added to the latency of an open loop.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    match plan.settings.protocol {
        LoadProtocol::Http1 => http1::Http1Worker::new(plan, share, recorder)?.run(),
        LoadProtocol::Http2 { streams } => http2::run(plan, share, recorder, streams),
    }
}

/// Result of the collecting thread.
struct CollectedRun {
    began: SystemTime,
    collector: Collector,
    origin: Option<OriginCount>,
}

fn watch_over(
    plan: &LoadPlan,
    clock: SliceClock,
    before: Option<OriginCount>,
    parts: &Receiver<ThreadSlice>,
    watch: &mut dyn FnMut(&LoadProgress<'_>),
) -> Result<CollectedRun, LoadError> {
    let stop = &plan.settings.stop;
    while Instant::now() < clock.begin && !stop.is_set() {
        let left = clock.begin.saturating_duration_since(Instant::now());
        thread::sleep(left.min(clock.slice));
    }
    let counter = plan.settings.origin_counter.as_ref();
    let count = || counter.map(origin_counter::read).transpose();
    let began = SystemTime::now();
    let before = match before {
        Some(before) => Some(before),
        None => count().inspect_err(|_| stop.stop())?,
    };
    let mut collector = Collector::new(clock, plan.threads);
    collector.collect(parts, watch);
    let after = count()?;
    Ok(CollectedRun {
        began,
        collector,
        origin: before.zip(after).map(|(before, after)| after.since(before)),
    })
}

fn report(
    plan: &LoadPlan,
    clock: SliceClock,
    collected: CollectedRun,
    ended: ThreadOutcome,
) -> BenchReport {
    let settings = &plan.settings;
    let CollectedRun {
        began,
        collector,
        origin,
    } = collected;
    let interrupted = settings.stop.is_set();
    let last = collector.last.unwrap_or(clock.begin);
    let elapsed = last.saturating_duration_since(clock.begin);
    let counted = settings.requests.is_some();
    let elapsed = match settings.duration {
        // The time spent waiting for late responses counts, as do the responses.
        Some(duration) if !counted && !interrupted => elapsed.max(duration),
        _ => elapsed,
    };
    let time_line = trimmed(collector.time_line, elapsed);
    BenchReport {
        began,
        elapsed,
        url: settings.targets[0].url.clone(),
        urls: settings.targets.iter().map(|t| t.url.count()).sum(),
        connections: settings.connections,
        threads: plan.threads,
        rate_wanted: match settings.pace {
            RequestPace::Rate(rate) => Some(rate),
            RequestPace::Closed | RequestPace::Think(..) => None,
        },
        backlog: time_line
            .iter()
            .map(|slice| slice.backlog)
            .max()
            .unwrap_or(0),
        tally: collector.tally,
        unfinished: ended.unfinished,
        unsent: ended.unsent,
        time_line,
        origin,
        interrupted,
        gave_up: ended.gave_up,
    }
}

/// Shortens the last slices to the end of the run.
fn trimmed(mut time_line: Vec<Slice>, elapsed: Duration) -> Vec<Slice> {
    for slice in &mut time_line {
        slice.length = slice.length.min(elapsed.saturating_sub(slice.start));
    }
    time_line.retain(|slice| !slice.length.is_zero() || slice.answers() + slice.faults > 0);
    time_line
}

/// File descriptors reserved for other uses than connections.
const OTHER_FILES: u64 = 64;

/// Raises the soft limit of open files to the number of connections.
///
/// # Errors
///
/// [`LoadError::Files`] if the hard limit is lower.
pub(super) fn allow_files(connections: usize) -> Result<(), LoadError> {
    let needed = connections as u64 + OTHER_FILES;
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|now| now >= needed) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(needed),
        maximum: limit.maximum,
    };
    setrlimit(Resource::Nofile, raised).map_err(|_| LoadError::Files {
        wanted: connections,
        allowed: limit.maximum.or(limit.current).unwrap_or(0),
        needed,
    })
}
