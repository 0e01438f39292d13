//! The server: threads, listeners, signals.

use std::future::pending;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use microcache_engine::Outcome;
use microcache_policy::Scheme;
use microcache_push::BackendError;
use microcache_store::TierReport;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;
use tokio::sync::watch as channel;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::commands::MAX_WAITING;
use crate::config::{Config, Source};
use crate::connections::ThreadConnections;
use crate::handle::Handle;
use crate::handover::{InheritedSockets, label};
use crate::lifecycle::Lifecycle;
use crate::listener::{BoundListener, accept, bind, is_taken};
use crate::notices::{Kind, Notices};
use crate::reload::{OnStage, Reloader, ServerStage};
use crate::session::FinishedRequest;
use crate::session::finished::OnFinished;
use crate::shared::{Shared, keep_updates, start_push};
use crate::signals::{OnReopen, Signals, StopSignal};
use crate::tiers::{self, TierStartError};
use crate::traces::Traces;
use crate::watch::watch;
use crate::watched::page_finder;

/// Reason for which the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {error}{}", remedy(*address, error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the system.
        error: io::Error,
    },
    /// The service manager passes a socket that the configuration does not use.
    #[error(
        "the socket listening on {0} was inherited at the start, but is neither in `listen` nor in `admin` (add it \
         to `listen`, or remove it from the .socket unit)"
    )]
    Unwanted(String),
    /// The storage of documents failed.
    #[error("{0}")]
    Push(#[from] BackendError),
    /// A tier cannot be started.
    #[error("{0}")]
    Tier(#[from] TierStartError),
    /// A thread or runtime could not be created.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Remedy for an address that cannot be bound.
fn remedy(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (is another server running there? choose another address with --listen)".to_owned()
        }
        // Ports below 1024 are reserved for root, unless configured otherwise.
        io::ErrorKind::PermissionDenied if address.port() < 1024 => {
            let program = std::env::current_exe();
            let program =
                program.map_or_else(|_| "microcache".into(), |path| path.display().to_string());
            format!(
                " (ports below 1024 need a capability: grant it with `sudo setcap cap_net_bind_service=+ep \
                 {program}`, or choose a higher port with --listen)"
            )
        }
        io::ErrorKind::AddrNotAvailable => format!(
            " (this machine has no such address; --listen 0.0.0.0:{} listens on all addresses)",
            address.port()
        ),
        _ => String::new(),
    }
}

/// Sockets for one address: the inherited ones, or a new one for each thread.
fn take(
    (scheme, wanted): (Scheme, SocketAddr),
    threads: usize,
    inherited: &mut InheritedSockets,
) -> io::Result<Vec<TcpListener>> {
    let handed = inherited.take(scheme, wanted);
    if !handed.is_empty() {
        for socket in &handed {
            socket.set_nonblocking(true)?;
        }
        return Ok(handed);
    }
    if is_taken(wanted)? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let mut address = wanted;
    let mut sockets = Vec::new();
    for _ in 0..threads {
        let socket = bind(address)?;
        // With port 0, the first thread's socket determines the port of the others.
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Distributes sockets so that every thread has one, and every socket is accepted from: each has a backlog of
/// its own.
fn shared_out(sockets: Vec<TcpListener>, threads: usize) -> io::Result<Vec<(usize, TcpListener)>> {
    let mut shared = Vec::new();
    for number in sockets.len()..threads {
        if let Some(socket) = sockets.get(number % sockets.len().max(1)) {
            shared.push((number, socket.try_clone()?));
        }
    }
    let own = sockets.into_iter().enumerate();
    shared.extend(own.map(|(number, socket)| (number % threads, socket)));
    Ok(shared)
}

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

/// A server with its sockets bound.
pub struct Server {
    addresses: Vec<(Scheme, SocketAddr)>,
    /// Listeners by thread.
    listeners: Vec<Vec<BoundListener>>,
    config: Config,
    notices: Notices,
    on_finished: Option<OnFinished>,
    traces: Option<Traces>,
    on_reopen: Option<OnReopen>,
    source: Source,
    on_stage: Option<OnStage>,
    inherited: InheritedSockets,
    /// Copies of the listening sockets with their labels, for a handover.
    sockets: Vec<(String, OwnedFd)>,
}

/// Addresses, listeners by thread, and copies of these with their labels.
type BoundSockets = (
    Vec<(Scheme, SocketAddr)>,
    Vec<Vec<BoundListener>>,
    Vec<(String, OwnedFd)>,
);

/// A server with tiers and state loaded, which does not accept yet.
pub struct Started {
    addresses: Vec<(Scheme, SocketAddr)>,
    listeners: Vec<Vec<BoundListener>>,
    handle: Handle,
    /// Runtime for signals, name resolution and health checks.
    runtime: Runtime,
    signals: Signals,
    reloader: Reloader,
    on_stage: Option<OnStage>,
    inherited: InheritedSockets,
}

impl Server {
    /// Binds the addresses, or takes the inherited sockets. Events are logged to `notices`.
    pub fn bind(
        config: Config,
        notices: Notices,
        mut inherited: InheritedSockets,
    ) -> Result<Self, ServerError> {
        let bound = Self::take_addresses(&config, &mut inherited);
        let (addresses, listeners, sockets) =
            bound.inspect_err(|error| inherited.failed(&error.to_string()))?;
        Ok(Self {
            addresses,
            listeners,
            config,
            notices,
            on_finished: None,
            traces: None,
            on_reopen: None,
            source: Source::default(),
            on_stage: None,
            inherited,
            sockets,
        })
    }

    /// Binds all addresses.
    fn take_addresses(
        config: &Config,
        inherited: &mut InheritedSockets,
    ) -> Result<BoundSockets, ServerError> {
        let threads = config.threads.max(1);
        let mut addresses = Vec::new();
        let mut listeners: Vec<Vec<BoundListener>> = Vec::new();
        listeners.resize_with(threads, Vec::new);
        let mut sockets = Vec::new();
        let plain = config.listen.iter().map(|&address| (Scheme::Http, address));
        let secure = config.tls.listen.iter();
        let secure = secure.map(|&address| (Scheme::Https, address));
        for (scheme, wanted) in plain.chain(secure) {
            let failed = |error| ServerError::Listen {
                address: wanted,
                error,
            };
            let taken = take((scheme, wanted), threads, inherited).map_err(failed)?;
            let first = taken.first().map(TcpListener::local_addr);
            let address = first.transpose().map_err(failed)?.unwrap_or(wanted);
            addresses.push((scheme, address));
            for socket in &taken {
                let copy = socket.try_clone().map_err(failed)?;
                sockets.push((label(scheme, wanted), copy.into()));
            }
            for (number, socket) in shared_out(taken, threads).map_err(failed)? {
                listeners[number].push(BoundListener { socket, scheme });
            }
        }
        if let ([address, ..], false) = (inherited.left().as_slice(), inherited.takes_over()) {
            return Err(ServerError::Unwanted((*address).to_owned()));
        }
        Ok((addresses, listeners, sockets))
    }

    /// Sets a callback for every finished request. It blocks the serving thread.
    #[must_use]
    pub fn on_finished(
        mut self,
        tell: impl Fn(&FinishedRequest<'_>) + Send + Sync + 'static,
    ) -> Self {
        self.on_finished = Some(Arc::new(tell));
        self
    }

    /// Enables tracing.
    #[must_use]
    pub fn traced(mut self, traces: Traces) -> Self {
        self.traces = Some(traces);
        self
    }

    /// Sets a callback for SIGUSR1, to reopen log files.
    #[must_use]
    pub fn on_reopen(mut self, reopen: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_reopen = Some(Box::new(reopen));
        self
    }

    /// Sets the source from which the configuration is reloaded.
    #[must_use]
    pub fn reloads_from(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// Sets a callback for the server's stages.
    #[must_use]
    pub fn on_stage(mut self, tell: impl Fn(ServerStage) + Send + Sync + 'static) -> Self {
        self.on_stage = Some(Arc::new(tell));
        self
    }

    /// Starts the tiers, and loads the purges of previous processes. Background tasks and signal handling run
    /// from now on.
    pub fn start(mut self) -> Result<Started, ServerError> {
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(ServerError::Thread)?;
        let _tasks_go_there = runtime.enter();
        let signals = Signals::listen(self.on_reopen.take()).map_err(ServerError::Thread)?;
        let push = &self.config.push;
        let keeps_documents = push.is_on() && push.settings.directory.is_some();
        if self.config.tiers.disk.is_some() || keeps_documents || push.mercure.kept.is_some() {
            let handed_over = self.inherited.ask_for_disk();
            handed_over.map_err(TierStartError::Handover)?;
        }
        let tiers = tiers::start(&self.config, runtime.handle(), &self.notices);
        let tiers = runtime.block_on(tiers);
        let tiers = tiers.inspect_err(|error| self.inherited.failed(&error.to_string()))?;
        let push = start_push(&self.config);
        let push = push.inspect_err(|error| self.inherited.failed(&error.to_string()))?;
        let config = Arc::new(self.config);
        let mut shared = Shared::start(config, push, tiers, self.notices, page_finder);
        let kept = keep_updates(&shared);
        kept.inspect_err(|error| self.inherited.failed(&error.to_string()))?;
        shared.on_finished = self.on_finished;
        if let Some(traces) = self.traces {
            shared.metrics.trace(traces);
        }
        runtime.block_on(load_rules(&shared));
        let (ask, commands) = mpsc::channel(MAX_WAITING);
        let reloader = Reloader::new(self.source, self.on_stage.clone(), commands)
            .map_err(ServerError::Thread)?;
        let lifecycle = &shared.lifecycle;
        lifecycle
            .predecessor
            .set_serves(self.inherited.takes_over());
        for (label, socket) in self.sockets {
            lifecycle.listens(label, socket);
        }
        Ok(Started {
            addresses: self.addresses,
            listeners: self.listeners,
            handle: Handle::new(Arc::new(shared), ask),
            reloader,
            on_stage: self.on_stage,
            inherited: self.inherited,
            signals,
            runtime,
        })
    }
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

    /// Serves until SIGTERM, SIGINT or [`Handle::stop`], and for `drain_delay` more; then drains. Another
    /// signal ends the server at once, without a summary.
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
        take_over(&mut inherited, handle.lifecycle());
        let (stop, stopped) = channel::channel(false);
        let mut threads = Vec::new();
        for (number, listeners) in listeners.into_iter().enumerate() {
            let (shared, stopped) = (Arc::clone(shared), stopped.clone());
            let thread = thread::Builder::new()
                .name(format!("serve-{number}"))
                .spawn(move || serve_thread(listeners, &shared, stopped))
                .map_err(ServerError::Thread)?;
            threads.push(thread);
        }
        drop(stopped);
        tell(ServerStage::Ready);
        let at_once = runtime.block_on(async {
            tokio::select! {
                at_once = wait_for_stop(&handle, &stop, signals, &tell) => at_once,
                () = watch(&shared.engine, &shared.notices) => false,
                () = shared.engine.cache.keep_swept() => false,
                () = reloader.keep_reloading(&handle) => false,
                () = shared.engine.cache.keep_in_step() => false,
            }
        });
        if at_once {
            shared.notices.settle();
            runtime.shutdown_background();
            return Ok(None);
        }
        for thread in threads {
            // A panic has been logged; the other threads still drain.
            if let Ok(result) = thread.join() {
                result.map_err(ServerError::Thread)?;
            }
        }
        let engine = &shared.engine;
        // Writes to the tiers are completed, so that a restart finds them.
        let patience = handle.config().timeouts.drain;
        let settled = runtime.block_on(async { timeout(patience, engine.cache.settle()).await });
        if settled.is_err() {
            let line = "some entries were not written to the tiers before the timeout";
            shared.notices.say(Kind::Server, "", line);
        }
        if shared.lifecycle.is_replaced() {
            // The operator's upgrade request gets its response.
            thread::sleep(LAST_ANSWER);
        }
        shared.notices.settle();
        Ok(Some(summary(shared)))
    }
}

/// Reports readiness to the previous process, and registers it for as long as it drains.
fn take_over(inherited: &mut InheritedSockets, lifecycle: &Arc<Lifecycle>) {
    let Some(before) = inherited.ready() else {
        return;
    };
    let predecessor = Arc::clone(&lifecycle.predecessor);
    let hears = thread::Builder::new()
        .name("before".to_owned())
        .spawn(move || predecessor.hear_until_end(before));
    if hears.is_err() {
        lifecycle.predecessor.set_serves(false);
    }
}

/// Applies the purge rules that previous processes recorded.
async fn load_rules(shared: &Shared) {
    let line = match shared.engine.cache.load_rules().await {
        Ok(loaded) if loaded.is_damaged => {
            "disk: the purge journal was damaged and has been set aside: entries purged shortly before the last \
             process ended may reappear; repeat those purges"
                .to_owned()
        }
        Ok(_) => return,
        Err(error) => format!(
            "disk: the purge journal cannot be read ({error}): entries purged shortly before the last process \
             ended may reappear; repeat those purges"
        ),
    };
    shared.notices.say(Kind::PurgesLost, "purges", line);
}

/// Progress of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ShutdownPhase {
    NotBegun,
    /// Not ready any more, but still serving until then.
    Delayed(Instant),
    /// Draining.
    Draining,
}

/// Waits for the signal to stop, or for the threads to end, and stops accepting after `drain_delay`. Returns
/// true after a second signal, which skips draining.
async fn wait_for_stop(
    handle: &Handle,
    stop: &channel::Sender<bool>,
    mut signals: Signals,
    tell: &impl Fn(ServerStage),
) -> bool {
    let shared = &handle.active();
    let mut ending = ShutdownPhase::NotBegun;
    loop {
        let delay_is_over = async {
            match ending {
                ShutdownPhase::Delayed(until) => sleep_until(until).await,
                ShutdownPhase::NotBegun | ShutdownPhase::Draining => pending().await,
            }
        };
        let signal = tokio::select! {
            signal = signals.next(&shared.notices) => Some(signal),
            () = shared.lifecycle.stop_requested() => None,
            () = delay_is_over => None,
            () = stop.closed() => return false,
        };
        if ending == ShutdownPhase::Draining {
            // An upgrade in progress at the first signal requests a stop, too.
            if signal.is_none() {
                continue;
            }
            shared.notices.say(Kind::Server, "", "stopped at once");
            return true;
        }
        let is_first = ending == ShutdownPhase::NotBegun;
        // After a handover the service continues in another process.
        if is_first && !shared.lifecycle.is_replaced() {
            tell(ServerStage::Stopping);
        }
        let delay = handle.config().timeouts.drain_delay;
        let is_delayed = is_first
            && !delay.is_zero()
            && !shared.lifecycle.is_replaced()
            && signal != Some(StopSignal::Interrupt);
        ending = if is_delayed {
            shared.lifecycle.leave();
            let line = format!(
                "no longer ready; new connections are accepted for another {delay:?} (drain_delay); a second \
                 signal ends the delay"
            );
            shared.notices.say(Kind::Server, "", line);
            ShutdownPhase::Delayed(Instant::now() + delay)
        } else {
            let line = "finishing the requests in progress; a second signal stops at once";
            shared.notices.say(Kind::Server, "", line);
            shared.lifecycle.drain(shared.engine.clock.now());
            stop.send_replace(true);
            ShutdownPhase::Draining
        };
    }
}

fn serve_thread(
    listeners: Vec<BoundListener>,
    shared: &Arc<Shared>,
    mut stopped: channel::Receiver<bool>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FILE_THREADS)
        .build()?;
    runtime.block_on(async {
        let connections = Arc::new(ThreadConnections::default());
        shared.connection_limits.add(&connections);
        let mut accepting = Vec::new();
        for listener in listeners {
            let socket = tokio::net::TcpListener::from_std(listener.socket)?;
            let (shared, connections) = (Arc::clone(shared), Arc::clone(&connections));
            let accept = accept(
                socket,
                listener.scheme,
                shared,
                connections,
                stopped.clone(),
            );
            accepting.push(tokio::spawn(accept));
        }
        let _ = stopped.wait_for(|&stopped| stopped).await;
        let timeouts = shared.latest().timeouts;
        let finished = async {
            for listener in accepting {
                // A panic logs itself; the connections still drain.
                let _ = listener.await;
            }
            let is_replaced = shared.lifecycle.is_replaced();
            let streams = timeouts.drain_streams + FAREWELL;
            let stopped = shared.lifecycle.draining_since().unwrap_or_default();
            connections.drain(streams, stopped, is_replaced).await;
        };
        let before_the_end = timeouts.drain.saturating_sub(FAREWELL);
        let farewell = end_sockets(shared, timeouts.drain_streams.min(before_the_end));
        let finished = async {
            tokio::select! {
                () = finished => {}
                () = farewell => {}
            }
        };
        // Connections that have not finished by then are closed with the runtime.
        let _ = timeout(timeouts.drain, finished).await;
        Ok(())
    })
}

/// Closes WebSocket subscriptions at the end, after a delay.
async fn end_sockets(shared: &Arc<Shared>, after: Duration) {
    sleep(after).await;
    // A reload may have enabled it.
    if let Some(push) = &shared.latest().push {
        push.close_sockets();
    }
    pending::<()>().await;
}

/// Time for clients to receive the close frame.
const FAREWELL: Duration = Duration::from_millis(100);
/// Time at the end of the process for the response to the operator's upgrade request.
const LAST_ANSWER: Duration = Duration::from_millis(100);
/// Blocking threads per serving thread, for the disk.
const FILE_THREADS: usize = 16;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unavailable_address_is_reported_with_cause_and_remedy() {
        let text = |address: &str, kind: io::ErrorKind| {
            let address = address.parse().expect("an address");
            let error = kind.into();
            ServerError::Listen { address, error }.to_string()
        };
        let taken = text("127.0.0.1:80", io::ErrorKind::AddrInUse);
        assert!(taken.contains("another server"), "{taken}");
        let denied = text("127.0.0.1:80", io::ErrorKind::PermissionDenied);
        assert!(
            denied.contains("permission denied (ports below 1024"),
            "{denied}"
        );
        assert!(
            denied.contains("setcap cap_net_bind_service=+ep /"),
            "{denied}"
        );
        assert!(
            denied.contains("--listen") && !denied.contains("another server"),
            "{denied}"
        );
        let denied = text("127.0.0.1:8080", io::ErrorKind::PermissionDenied);
        assert!(!denied.contains("setcap"), "{denied}");
        let absent = text("192.0.2.1:80", io::ErrorKind::AddrNotAvailable);
        assert!(
            absent.contains("no such address; --listen 0.0.0.0:80"),
            "{absent}"
        );
    }
}
