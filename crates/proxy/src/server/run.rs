//! The run of a started server, until it has drained.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use microcache_engine::Outcome;
use microcache_policy::Scheme;
use microcache_store::TierReport;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tokio::time::timeout;

use super::checks::keep_checking;
use super::error::ServerError;
use super::listener::BoundListener;
use super::serve_thread::serve_thread;
use super::signals::Signals;
use super::stop::wait_for_stop;
use super::threads::ServeThreads;
use crate::control::{Handle, OnStage, Reloader, ServerStage};
use crate::lifecycle::{InheritedSockets, Lifecycle};
use crate::observe::Kind;
use crate::shared::Shared;
use crate::warming::{keep_hottest, write_hottest};

/// Time at the end of the process for the response to the operator's upgrade request.
const LAST_ANSWER: Duration = Duration::from_millis(100);

/// Totals for the last lines of the log.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Requests by outcome.
    pub outcomes: Vec<(&'static str, u64)>,
    /// Requests sent to the origin.
    pub origin_requests: u64,
    /// Objects evicted from memory.
    pub evicted: u64,
    /// Responses that were not admitted to memory.
    pub refused: u64,
    /// Reports of the tiers behind memory.
    pub tiers: Vec<TierReport>,
}

/// A server with tiers and state loaded, which does not accept yet.
pub struct Started {
    pub(super) addresses: Vec<(Scheme, SocketAddr)>,
    pub(super) listeners: Vec<Vec<BoundListener>>,
    pub(super) handle: Handle,
    /// Runtime for signals, name resolution and health checks.
    pub(super) runtime: Runtime,
    pub(super) signals: Signals,
    pub(super) reloader: Reloader,
    pub(super) on_stage: Option<OnStage>,
    pub(super) inherited: InheritedSockets,
}

impl Started {
    /// Addresses it listens on, with their schemes.
    pub fn addresses(&self) -> &[(Scheme, SocketAddr)] {
        &self.addresses
    }

    /// Returns the handle that controls the server.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until SIGTERM, SIGINT or [`Handle::stop`], and for `drain_delay` more; then drains. Returns `None` if
    /// another signal has cut the drain short.
    pub fn run(self) -> Result<Option<Summary>, ServerError> {
        let Self {
            listeners,
            handle,
            runtime,
            signals,
            reloader,
            on_stage,
            mut inherited,
            ..
        } = self;
        let tell = |stage| on_stage.iter().for_each(|tell| tell(stage));
        let shared = &handle.active();
        let (stop, stopped) = watch::channel(false);
        let works = listeners.into_iter().map(|listeners| {
            let (shared, stopped) = (Arc::clone(shared), stopped.clone());
            move |start| serve_thread(listeners, &shared, start, stopped)
        });
        // The previous process stops accepting once this one reports readiness, so nothing may fail after that.
        let started = ServeThreads::start(works);
        let threads = started.inspect_err(|error| inherited.failed(&error.to_string()))?;
        drop(stopped);
        take_over(&mut inherited, handle.lifecycle())?;
        threads.accept();
        tell(ServerStage::Ready);
        let at_once = runtime.block_on(async {
            tokio::select! {
                at_once = wait_for_stop(&handle, &stop, signals, &threads, &tell) => at_once,
                () = keep_checking(&shared.engine, &shared.notices) => false,
                () = shared.engine.cache.keep_swept() => false,
                () = reloader.keep_reloading(&handle) => false,
                () = shared.engine.cache.keep_in_step() => false,
                () = keep_hottest(&shared.active) => false,
            }
        });
        if at_once {
            shared.notices.settle();
            runtime.shutdown_background();
            return Ok(None);
        }
        let ended = threads.join();
        let engine = &shared.engine;
        // Writes to the tiers are completed, so that a restart finds them.
        let time_limit = handle.config().timeouts.drain;
        // After a handover, the next process knows better what is requested.
        if !shared.lifecycle.is_replaced() {
            runtime.block_on(write_hottest(&handle.active()));
        }
        let settled = runtime.block_on(async { timeout(time_limit, engine.cache.settle()).await });
        if settled.is_err() {
            let line = "some entries were not written to the tiers before the timeout";
            shared.notices.say(Kind::Server, "", line);
        }
        if shared.lifecycle.is_replaced() {
            // The operator's upgrade request gets its response.
            thread::sleep(LAST_ANSWER);
        }
        shared.notices.settle();
        ended.map(|()| Some(summary(shared)))
    }
}

/// Reports readiness to the previous process, waits until it stops accepting, and follows it until it has drained.
fn take_over(
    inherited: &mut InheritedSockets,
    lifecycle: &Arc<Lifecycle>,
) -> Result<(), ServerError> {
    let Some(before) = inherited
        .ready(&lifecycle.maintenance)
        .map_err(ServerError::Handover)?
    else {
        return Ok(());
    };
    let predecessor = Arc::clone(&lifecycle.predecessor);
    let hears = thread::Builder::new()
        .name("before".to_owned())
        .spawn(move || predecessor.hear_until_end(before));
    if hears.is_err() {
        lifecycle.predecessor.set_serves(false);
    }
    Ok(())
}

fn summary(shared: &Shared) -> Summary {
    let (engine, metrics) = (&shared.engine, shared.metrics.snapshot());
    let memory = engine.cache.memory_stats();
    Summary {
        outcomes: Outcome::ALL
            .iter()
            .map(|&outcome| (outcome.as_str(), metrics.of(outcome)))
            .collect(),
        origin_requests: metrics.origin().requests,
        evicted: memory.evicted,
        refused: memory.refused,
        tiers: engine.cache.tier_reports(),
    }
}
