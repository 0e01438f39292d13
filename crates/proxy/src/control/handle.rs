//! Control of a running server: state, metrics, reload, upgrade, stop.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use microcache_engine::Engine;
use microcache_engine::cache::{Rule, Scope};
use microcache_push::{FleetStats, Hub, MercureStats, Push, PushStats};
use tokio::sync::{mpsc, oneshot};

use super::commands::{ReloadError, ReloadOutcome, ServerCommand, UpgradeError};
use crate::admission::ConnectionUsage;
use crate::config::Config;
use crate::lifecycle::{Lifecycle, Maintenance, admin_label};
use crate::metrics::{Measure, MetricsSnapshot, RecentError, TopUrls};
use crate::observe::{Kind, Traces};
use crate::rates::RateLimits;
use crate::session::explaining::{self, InvalidRequest, RequestExplanation, SimulatedRequest};
use crate::shared::{Active, Shared};
use crate::tls::{CertificateReport, IssuedCertificates};
use crate::upstream::GroupSnapshot;
use crate::warming::{self, TooManyJobs, WarmCounts, WarmPage, WarmProgress, WarmSource};

/// A running server, as seen by its operator interfaces (admin API, signals, command line).
#[derive(Clone)]
pub struct Handle {
    active: Arc<Active<Shared>>,
    lifecycle: Arc<Lifecycle>,
    commands: mpsc::Sender<ServerCommand>,
}

impl Handle {
    /// Activates the initial configuration.
    pub(crate) fn new(first: Arc<Shared>, commands: mpsc::Sender<ServerCommand>) -> Self {
        let handle = Self {
            active: Arc::clone(&first.active),
            lifecycle: Arc::clone(&first.lifecycle),
            commands,
        };
        first.activate();
        handle
    }

    pub(crate) const fn lifecycle(&self) -> &Arc<Lifecycle> {
        &self.lifecycle
    }

    pub(crate) fn active(&self) -> Arc<Shared> {
        let active = self.active.get();
        active.expect("a handle comes with the first of them")
    }

    /// The cache, with the active routes.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.active().engine)
    }

    /// The push documents, if any.
    pub(crate) fn push(&self) -> Option<Arc<Push>> {
        self.active().push.clone()
    }

    /// The Mercure hub, if enabled.
    pub(crate) fn mercure(&self) -> Option<Arc<Hub>> {
        self.active().mercure.clone()
    }

    /// Statistics of push documents, if any.
    pub fn push_stats(&self) -> Option<PushStats> {
        self.push().map(|push| push.stats())
    }

    /// Statistics of the document fleet, if documents are shared by several nodes.
    pub fn fleet_stats(&self) -> Option<FleetStats> {
        self.push().and_then(|push| push.fleet())
    }

    /// Statistics of the hub's fleet, if the hub is shared by several nodes.
    pub fn hub_fleet_stats(&self) -> Option<FleetStats> {
        self.mercure().and_then(|hub| hub.fleet())
    }

    /// Statistics of the Mercure hub, if enabled.
    pub fn mercure_stats(&self) -> Option<MercureStats> {
        self.mercure().map(|hub| hub.stats())
    }

    /// The active configuration.
    pub fn config(&self) -> Arc<Config> {
        Arc::clone(&self.active().config)
    }

    /// Explains the decisions for a hypothetical request. With `ask`, the request is sent to the origin, and
    /// the response is stored if it is storable.
    pub async fn explain(
        &self,
        imagined: &SimulatedRequest,
        ask: bool,
    ) -> Result<RequestExplanation, InvalidRequest> {
        explaining::explain(&self.active(), imagined, ask).await
    }

    /// Numbers of the variants that a hypothetical request selects: see [`Engine::variants_for`].
    pub async fn variants_for(
        &self,
        imagined: &SimulatedRequest,
    ) -> Result<Vec<u64>, InvalidRequest> {
        explaining::variants(&self.active(), imagined).await
    }

    /// State of the upstream groups.
    pub fn upstreams(&self) -> Vec<GroupSnapshot> {
        self.active().groups.snapshots()
    }

    /// Snapshot of all metrics.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.active().metrics.snapshot()
    }

    /// Top URLs by a measure.
    pub fn top(&self, measure: Measure, limit: usize) -> TopUrls {
        self.active().metrics.top(measure, limit)
    }

    /// Recent errors, the latest first.
    pub fn errors(&self, limit: usize) -> Vec<RecentError> {
        self.active().metrics.errors(limit)
    }

    /// Tracing, if enabled.
    pub fn traces(&self) -> Option<Arc<Traces>> {
        self.active().metrics.traces().map(Arc::clone)
    }

    /// Rate-limit keys evicted before their quota had recovered.
    pub fn rates_forgotten(&self) -> u64 {
        let shared = self.active();
        shared.rates.as_deref().map_or(0, RateLimits::forgotten)
    }

    /// Certificates that clients may be shown.
    pub fn certificates(&self) -> Vec<CertificateReport> {
        let config = self.config();
        let issued = IssuedCertificates::of_this_process();
        let names = config.acme.names.iter();
        let read = config.tls.read.iter().cloned();
        read.chain(names.map(|name| issued.report(name))).collect()
    }

    /// Connections in use, with their limits.
    pub fn connections(&self) -> ConnectionUsage {
        self.active().connection_limits.usage()
    }

    /// Returns true if the server is shutting down, and should get no new connections.
    pub fn is_leaving(&self) -> bool {
        self.lifecycle.is_leaving()
    }

    /// Reloads the configuration. It becomes active as a whole, or not at all.
    pub async fn reload(&self) -> Result<ReloadOutcome, ReloadError> {
        let (reply, done) = oneshot::channel();
        match self.commands.try_send(ServerCommand::Reload(reply)) {
            Ok(()) => done.await.unwrap_or(Err(ReloadError::Draining)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(ReloadError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(ReloadError::Draining),
        }
    }

    /// Replaces the process by a new one with the present program and configuration. Returns the id of the
    /// new process once it serves; this one then drains and ends.
    pub async fn upgrade(&self) -> Result<u32, UpgradeError> {
        let (reply, done) = oneshot::channel();
        match self.commands.try_send(ServerCommand::Upgrade(reply)) {
            Ok(()) => done.await.unwrap_or(Err(UpgradeError::Draining)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(UpgradeError::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(UpgradeError::Draining),
        }
    }

    /// Registers the admin socket, for the handover to a new process.
    pub fn operators_listen(&self, wanted: SocketAddr, socket: OwnedFd) {
        self.lifecycle.listens(admin_label(wanted), socket);
    }

    /// Completes when another process has taken over, with the sockets.
    pub async fn replaced(&self) {
        self.lifecycle.replaced().await;
    }

    /// Returns true if purges are refused because a handover is in progress.
    pub fn is_handing_over(&self) -> bool {
        self.lifecycle.is_handing_over()
    }

    /// Maintenance mode, if it is on.
    pub fn maintenance(&self) -> Option<Arc<Maintenance>> {
        self.lifecycle.maintenance.mode()
    }

    /// Switches maintenance mode on or off, and logs it as the effect of `command`. Returns `false` if nothing
    /// changed because a handover is in progress.
    pub fn maintain(&self, mode: Option<Maintenance>, command: &str) -> bool {
        let line = match &mode {
            Some(mode) if mode.keep_cached => {
                format!("maintenance mode is on ({command}): no request reaches an origin")
            }
            Some(_) => format!("maintenance mode is on ({command}): requests are answered 503"),
            None => format!("maintenance mode is off ({command})"),
        };
        let is_done = self.lifecycle.maintain(mode);
        if is_done {
            let notices = &self.active().notices;
            notices.say(Kind::Maintenance, "maintenance", line);
        }
        is_done
    }

    /// Starts to warm pages on the current runtime, with at most `rate` requests per second. Returns the id of the job,
    /// which the log calls `about`.
    pub fn warm(
        &self,
        about: String,
        source: WarmSource,
        rate: Option<f64>,
    ) -> Result<u64, TooManyJobs> {
        warming::start(&self.active(), about, source, rate)
    }

    /// Returns the pages in these scopes that visitors have requested lately, the most requested first, at most 1,000.
    pub async fn popular(&self, scopes: &[Scope]) -> Vec<WarmPage> {
        warming::popular(&self.engine().cache, scopes).await
    }

    /// Progress of warming, by the id of the job.
    pub fn warmed(&self, id: u64) -> Option<WarmProgress> {
        self.active().warming.progress(id)
    }

    /// Stops a job. Requests in progress are completed.
    pub fn stop_warming(&self, id: u64) {
        self.active().warming.stop(id);
    }

    /// Number of running jobs, and of URLs by result.
    pub fn warm_totals(&self) -> (usize, WarmCounts) {
        self.active().warming.totals()
    }

    /// Completes when these purges, which apply here, also apply in the predecessor process, if that still
    /// serves.
    pub async fn purged_before(&self, rules: &[Rule]) {
        self.lifecycle.predecessor.purge(rules).await;
    }

    /// Number of reloads that changed the configuration.
    pub fn generation(&self) -> u64 {
        self.active.generation()
    }

    /// Drains and stops the server, as SIGTERM does.
    pub fn stop(&self) {
        if !self.is_leaving() {
            self.lifecycle.ask_to_stop();
        }
    }
}
