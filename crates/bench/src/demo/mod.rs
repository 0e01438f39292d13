//! Self-contained demonstration: a slow page without a cache, behind a plain 1 s cache, and behind
//! Microcache with its defaults.
//!
//! The page comes from the simulated origin, the load from the load generator; each cache is a child process
//! of this executable, reached over real sockets.

mod cache_process;
mod error;
mod screen;
mod setup;
mod signals;
mod table;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::load::{self, BenchReport, LoadTarget, TargetUrl};
use crate::origin::{self, OriginServer, RunningOrigin};

use cache_process::CacheProcess;
use setup::Setup;
use signals::TerminationSignals;

pub use error::Error;
pub use screen::DemoScreen;

/// Preset of the simulated origin.
const LIKE: &str = "wordpress";

/// Request timeout; ten queued requests on a busy machine stay far below it.
const TIMEOUT: Duration = Duration::from_mins(1);

/// Time limit for the origin to finish the requests left over from a phase.
const TIME_LIMIT: Duration = Duration::from_secs(2);

/// Polling interval while waiting for the origin to become idle.
const LOOK: Duration = Duration::from_millis(5);

/// Parameters of a demonstration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Executable to start as the cache.
    pub program: PathBuf,
    /// Listen address of the origin; port 0 takes a free one.
    pub origin_listen: SocketAddr,
    /// Listen address of the cache in the last phase, and afterwards with `keep`.
    pub listen: SocketAddr,
    /// CPU or sleep time of one render.
    pub work: Duration,
    /// Length of each of the three phases.
    pub phase: Duration,
    /// Number of concurrent connections requesting the page.
    pub connections: usize,
    /// `true` if origin and cache keep running after the last phase.
    pub keep: bool,
}

impl Settings {
    /// Returns the defaults, with `program` as the cache.
    pub fn new(program: PathBuf) -> Self {
        let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            program,
            origin_listen: any_port,
            listen: any_port,
            work: Duration::from_millis(180),
            phase: Duration::from_secs(10),
            connections: 10,
            keep: false,
        }
    }
}

/// Outcome of a demonstration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DemoOutcome {
    /// All phases were shown.
    Complete,
    /// A signal ended it early.
    Interrupted,
}

/// Measurement of one set-up.
struct Measurement {
    setup: Setup,
    report: BenchReport,
    origin_requests: u64,
}

/// Runs the three set-ups one after the other and prints their comparison.
///
/// # Errors
///
/// See [`Error`]; nothing is retried.
pub fn run(settings: &Settings, screen: &mut DemoScreen) -> Result<DemoOutcome, Error> {
    let signals = TerminationSignals::watch()?;
    let mut application = origin::Settings::like(LIKE).expect("a preset of that name exists");
    application.set_listen(settings.origin_listen);
    application.set_work(settings.work);
    let what = application.summary();
    let origin = OriginServer::bind(application)?.start()?;
    let url = format!("http://{}", origin.address());
    screen.notice(&format!(
        "{} connections request one page, for {:?} per phase.\nThe page: {what}.\n",
        settings.connections, settings.phase
    ));
    let mut measured = Vec::new();
    let mut kept = None;
    for setup in Setup::ALL {
        if signals.is_set() {
            break;
        }
        let listen = setup.listens_on(settings.listen);
        let cache = setup
            .flags()
            .map(|flags| CacheProcess::start(&settings.program, &url, listen, flags))
            .transpose()?;
        let target = cache
            .as_ref()
            .map_or(origin.address(), CacheProcess::address);
        measured.push(measure(settings, setup, target, &origin, &signals, screen)?);
        kept = cache;
        settle(&origin);
    }
    screen.result(&table::table(&measured));
    if signals.is_set() {
        screen.notice("Interrupted: figures up to the interruption.");
        return Ok(DemoOutcome::Interrupted);
    }
    if let Some(cache) = kept.filter(|_| settings.keep) {
        screen.notice(&kept_running(&url, cache.address()));
        signals.wait();
    }
    Ok(DemoOutcome::Complete)
}

fn measure(
    settings: &Settings,
    setup: Setup,
    target: SocketAddr,
    origin: &RunningOrigin,
    signals: &TerminationSignals,
    screen: &mut DemoScreen,
) -> Result<Measurement, Error> {
    let url = TargetUrl::parse(&format!("http://{target}/")).expect("an address makes a url");
    let load = load::Settings {
        connections: settings.connections,
        duration: Some(settings.phase),
        timeout: TIMEOUT,
        // Waiting for the last responses would add time without load to the phase.
        grace_period: Duration::ZERO,
        stop: signals.stop(),
        ..load::Settings::new(vec![LoadTarget::get(url)])
    };
    origin.counters().reset();
    let report = load::run(&load, &mut |progress| {
        let origin_requests = origin.counters().totals().requests;
        screen.live(&table::live(setup, progress, origin_requests));
    })?;
    let origin_requests = origin.counters().totals().requests;
    let measured = Measurement {
        setup,
        report,
        origin_requests,
    };
    screen.done(&table::line(&measured));
    Ok(measured)
}

/// Waits until the origin has finished the requests left over from the last phase.
fn settle(origin: &RunningOrigin) {
    let end = Instant::now() + TIME_LIMIT;
    while Instant::now() < end {
        let totals = origin.counters().totals();
        if totals.in_flight + totals.rendering == 0 {
            break;
        }
        std::thread::sleep(LOOK);
    }
}

fn kept_running(origin: &str, cache: SocketAddr) -> String {
    format!(
        "\nApplication and cache run until Ctrl-C. Reload these pages and compare:\n  the application  {origin}/\n \
          the cache        http://{cache}/\n  the counters     {origin}{}",
        origin::COUNTERS
    )
}
