//! From settings to a report.

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
use super::plan::{Ended, Plan, Share};
use super::recorder::{Clock, Collector, PARTS_PER_THREAD, Part, Recorder};
use super::report::{OriginCount, Progress, Report, Slice};
use super::settings::{Pace, Protocol, Settings};

/// Makes the load, tells `watch` at the end of every slice how things stand, and reports. Returns early when
/// [`Settings::stop`] says so. An error means that nothing was measured at all.
pub fn run(settings: &Settings, watch: &mut dyn FnMut(&Progress<'_>)) -> Result<Report, LoadError> {
    allow_files(settings.connections)?;
    // Without warming the counter is read before the first request, else when the first is sent that counts.
    let before = match &settings.origin_counter {
        Some(url) if settings.warmup.is_zero() => Some(origin_counter::read(url)?),
        _ => None,
    };
    let plan = Arc::new(Plan::new(settings)?);
    let clock = Clock {
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
            threads.push(spawned.map_err(|why| LoadError::System {
                what: "a thread",
                why,
            })?);
        }
        // The channel ends with the last of the threads.
        drop(out);
        let seen = watch_over(&plan, clock, before, &parts, watch)?;
        let mut ended = Ended::default();
        for thread in threads {
            let one = thread.join().expect("a thread does not panic")?;
            ended.unfinished += one.unfinished;
            ended.unsent += one.unsent;
            ended.gave_up |= one.gave_up;
        }
        Ok(report(&plan, clock, seen, ended))
    })
}

fn work(plan: &Arc<Plan>, share: Share, recorder: Recorder) -> Result<Ended, LoadError> {
    // By default the kernel wakes a thread up to 50 µs late, which would be in the latency of an open loop.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    match plan.settings.protocol {
        Protocol::Http1 => http1::Worker::new(plan, share, recorder)?.run(),
        Protocol::Http2 { streams } => http2::run(plan, share, recorder, streams),
    }
}

/// What the collecting thread has in the end.
struct Seen {
    began: SystemTime,
    collector: Collector,
    origin: Option<OriginCount>,
}

fn watch_over(
    plan: &Plan,
    clock: Clock,
    before: Option<OriginCount>,
    parts: &Receiver<Part>,
    watch: &mut dyn FnMut(&Progress<'_>),
) -> Result<Seen, LoadError> {
    let stop = &plan.settings.stop;
    while Instant::now() < clock.begin && !stop.is_wanted() {
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
    Ok(Seen {
        began,
        collector,
        origin: before.zip(after).map(|(before, after)| after.since(before)),
    })
}

fn report(plan: &Plan, clock: Clock, seen: Seen, ended: Ended) -> Report {
    let settings = &plan.settings;
    let Seen {
        began,
        collector,
        origin,
    } = seen;
    let interrupted = settings.stop.is_wanted();
    let last = collector.last.unwrap_or(clock.begin);
    let elapsed = last.saturating_duration_since(clock.begin);
    let counted = settings.requests.is_some();
    let elapsed = match settings.duration {
        // Answers that were waited for count, and so does the time that they took.
        Some(duration) if !counted && !interrupted => elapsed.max(duration),
        _ => elapsed,
    };
    let time_line = trimmed(collector.time_line, elapsed);
    Report {
        began,
        elapsed,
        url: settings.targets[0].url.clone(),
        urls: settings.targets.iter().map(|t| t.url.count()).sum(),
        connections: settings.connections,
        threads: plan.threads,
        rate_wanted: match settings.pace {
            Pace::Rate(rate) => Some(rate),
            Pace::Closed | Pace::Think(..) => None,
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

/// The last slices are only as long as the run was.
fn trimmed(mut time_line: Vec<Slice>, elapsed: Duration) -> Vec<Slice> {
    for slice in &mut time_line {
        slice.length = slice.length.min(elapsed.saturating_sub(slice.start));
    }
    time_line.retain(|slice| !slice.length.is_zero() || slice.answers() + slice.faults > 0);
    time_line
}

/// Files that are open beside the connections.
const OTHER_FILES: u64 = 64;

/// Raises the limit of open files as far as connections need it.
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
