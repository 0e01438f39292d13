//! A demonstration that needs nothing else: a slow page by itself, behind a plain cache, and behind Microcache as it is.
//!
//! The page is that of the simulated application, the load that of the load generator, and the caches are processes of
//! their own, started from the program's own file and reached over real sockets.

mod cache;
mod interrupt;
mod screen;
mod setup;
mod table;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::load::{self, LoadError, Report, Target, Url};
use crate::origin::{self, Origin, Running};

use cache::Cache;
use interrupt::Interrupt;
use setup::Setup;

pub use screen::Screen;

/// The application of the demonstration.
const LIKE: &str = "wordpress";

/// How long one request may take: ten that queue on a busy machine stay far below it.
const TIMEOUT: Duration = Duration::from_mins(1);

/// How long the application may take to finish what the end of a phase has left to it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The time between two looks at whether the application has come to rest.
const LOOK: Duration = Duration::from_millis(5);

/// What is demonstrated, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The program that is the cache.
    pub program: PathBuf,
    /// Where the application listens; port 0 takes a free one.
    pub origin_listen: SocketAddr,
    /// Where the cache listens, in the last phase and as long as it is kept.
    pub listen: SocketAddr,
    /// What a render costs.
    pub work: Duration,
    /// The length of each of the three phases.
    pub phase: Duration,
    /// How many connections ask for the page.
    pub connections: usize,
    /// Whether application and cache go on afterwards.
    pub keep: bool,
}

impl Settings {
    /// The defaults, with the cache that this program is.
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

/// Why there is no demonstration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The application has no address.
    #[error("the application {0}; choose another address with --origin-listen")]
    OriginAddress(origin::Error),
    /// The application could not be started.
    #[error("the application {0}")]
    Origin(origin::Error),
    /// The cache could not be started.
    #[error("the cache did not start: {0}; --listen gives it another address")]
    Cache(String),
    /// Nothing could be measured.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The system did not give what it needs.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl From<origin::Error> for Error {
    fn from(error: origin::Error) -> Self {
        match error {
            origin::Error::Listen(..) => Self::OriginAddress(error),
            origin::Error::Start(_) => Self::Origin(error),
        }
    }
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All was shown.
    Complete,
    /// Somebody ended it before that.
    Interrupted,
}

/// What one set-up did.
struct Measured {
    setup: Setup,
    report: Report,
    origin_requests: u64,
}

/// Shows all three set-ups, one after the other.
pub fn run(settings: &Settings, screen: &mut Screen) -> Result<Ending, Error> {
    let interrupt = Interrupt::watch()?;
    let mut application = origin::Settings::like(LIKE).expect("there is such an application");
    application.set_listen(settings.origin_listen);
    application.set_work(settings.work);
    let what = application.summary();
    let origin = Origin::bind(application)?.start()?;
    let url = format!("http://{}", origin.address());
    screen.note(&format!(
        "{} connections ask for one page, for {:?} each time.\nThe page: {what}.\n",
        settings.connections, settings.phase
    ));
    let mut measured = Vec::new();
    let mut kept = None;
    for setup in Setup::ALL {
        if interrupt.is_wanted() {
            break;
        }
        let listen = setup.listens_on(settings.listen);
        let cache = setup
            .flags()
            .map(|flags| Cache::start(&settings.program, &url, listen, flags))
            .transpose()?;
        let target = cache.as_ref().map_or(origin.address(), Cache::address);
        measured.push(measure(
            settings, setup, target, &origin, &interrupt, screen,
        )?);
        kept = cache;
        settle(&origin);
    }
    screen.result(&table::table(&measured));
    if interrupt.is_wanted() {
        screen.note("Interrupted: this is what there was until then.");
        return Ok(Ending::Interrupted);
    }
    if let Some(cache) = kept.filter(|_| settings.keep) {
        screen.note(&kept_running(&url, cache.address()));
        interrupt.wait();
    }
    Ok(Ending::Complete)
}

fn measure(
    settings: &Settings,
    setup: Setup,
    target: SocketAddr,
    origin: &Running,
    interrupt: &Interrupt,
    screen: &mut Screen,
) -> Result<Measured, Error> {
    let url = Url::parse(&format!("http://{target}/")).expect("an address makes a url");
    let load = load::Settings {
        connections: settings.connections,
        duration: Some(settings.phase),
        timeout: TIMEOUT,
        // Waiting for the last answers would count as time in which nobody asks.
        patience: Duration::ZERO,
        stop: interrupt.stop(),
        ..load::Settings::new(vec![Target::get(url)])
    };
    origin.counters().reset();
    let report = load::run(&load, &mut |progress| {
        let asked = origin.counters().totals().requests;
        screen.live(&table::live(setup, progress, asked));
    })?;
    let origin_requests = origin.counters().totals().requests;
    let measured = Measured {
        setup,
        report,
        origin_requests,
    };
    screen.done(&table::line(&measured));
    Ok(measured)
}

/// Lets the application finish what the last phase has left to it.
fn settle(origin: &Running) {
    let end = Instant::now() + PATIENCE;
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
        "\nThey go on until Ctrl-C. Reload each of these, and compare:\n  \
         the application  {origin}/\n  \
         the cache        http://{cache}/\n  \
         the counters     {origin}{}",
        origin::COUNTERS
    )
}
