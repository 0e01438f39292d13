//! Control of a running server: state, metrics, reload, upgrade, stop.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use microcache_engine::Engine;
use microcache_engine::cache::Rule;
use microcache_push::{FleetStats, Hub, MercureStats, Push, PushStats};
use tokio::sync::{mpsc, oneshot};

use crate::config::Config;
use crate::figures::{FiguresSnapshot, Measure, RecentError, TopUrls};
use crate::handover::admin_label;
use crate::in_force::{InForce, Life};
use crate::rates::Rates;
use crate::reload::{Asked, NotReloaded, Reloaded};
use crate::room::Taken;
use crate::session::explaining::{self, Imagined, Outlook, Refused};
use crate::tls::{CertificateReport, Issued};
use crate::traces::Traces;
use crate::upgrade::NotUpgraded;
use crate::upstream::GroupSnapshot;

/// A running server, as seen by its operator interfaces (admin API, signals, command line).
#[derive(Clone)]
pub struct Handle {
    life: Arc<Life>,
    asked: mpsc::Sender<Asked>,
}

impl Handle {
    /// Activates the initial configuration.
    pub(crate) fn new(first: InForce, asked: mpsc::Sender<Asked>) -> Self {
        let life = Arc::clone(&first.shared.life);
        life.enter(first);
        Self { life, asked }
    }

    pub(crate) const fn life(&self) -> &Arc<Life> {
        &self.life
    }

    pub(crate) fn in_force(&self) -> InForce {
        let in_force = self.life.in_force();
        in_force.expect("a handle comes with the first of them")
    }

    /// The cache, with the active routes.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.in_force().shared.engine)
    }

    /// The push documents, if any.
    pub(crate) fn push(&self) -> Option<Arc<Push>> {
        self.in_force().shared.push.clone()
    }

    /// The Mercure hub, if enabled.
    pub(crate) fn mercure(&self) -> Option<Arc<Hub>> {
        self.in_force().shared.mercure.clone()
    }

    /// Statistics of push documents, if any.
    pub fn push_stats(&self) -> Option<PushStats> {
        self.push().map(|push| push.stats())
    }

    /// Statistics of the document fleet, if documents are shared by several nodes.
    pub fn fleet_stats(&self) -> Option<FleetStats> {
        self.push().and_then(|push| push.fleet())
    }

    /// Statistics of the Mercure hub, if enabled.
    pub fn mercure_stats(&self) -> Option<MercureStats> {
        self.mercure().map(|hub| hub.stats())
    }

    /// The active configuration.
    pub fn config(&self) -> Arc<Config> {
        self.in_force().config
    }

    /// Explains the decisions for a hypothetical request. With `ask`, the request is sent to the origin, and
    /// the response is stored if it is storable.
    pub async fn explain(&self, imagined: &Imagined, ask: bool) -> Result<Outlook, Refused> {
        explaining::explain(self.in_force(), imagined, ask).await
    }

    /// Numbers of the variants that a hypothetical request selects: see [`Engine::variants_for`].
    pub async fn variants_for(&self, imagined: &Imagined) -> Result<Vec<u64>, Refused> {
        explaining::variants(self.in_force().shared, imagined).await
    }

    /// State of the upstream groups.
    pub fn upstreams(&self) -> Vec<GroupSnapshot> {
        let groups = self.in_force().groups;
        groups.iter().map(|group| group.snapshot()).collect()
    }

    /// Snapshot of all metrics.
    pub fn figures(&self) -> FiguresSnapshot {
        self.in_force().shared.figures.snapshot()
    }

    /// Top URLs by a measure.
    pub fn top(&self, measure: Measure, limit: usize) -> TopUrls {
        self.in_force().shared.figures.top(measure, limit)
    }

    /// Recent errors, the latest first.
    pub fn errors(&self, limit: usize) -> Vec<RecentError> {
        self.in_force().shared.figures.errors(limit)
    }

    /// Tracing, if enabled.
    pub fn traces(&self) -> Option<Arc<Traces>> {
        self.in_force().shared.figures.traces().map(Arc::clone)
    }

    /// Rate-limit keys evicted before their quota had recovered.
    pub fn rates_forgotten(&self) -> u64 {
        let shared = self.in_force().shared;
        shared.rates.as_deref().map_or(0, Rates::forgotten)
    }

    /// Certificates that clients may be shown.
    pub fn certificates(&self) -> Vec<CertificateReport> {
        let config = self.config();
        let issued = Issued::of_this_process();
        let names = config.acme.names.iter();
        let read = config.tls.read.iter().cloned();
        read.chain(names.map(|name| issued.report(name))).collect()
    }

    /// Connections in use, with their limits.
    pub fn connections(&self) -> Taken {
        self.in_force().shared.room.taken()
    }

    /// Returns true if the server is shutting down, and should get no new connections.
    pub fn is_leaving(&self) -> bool {
        self.life.is_leaving()
    }

    /// Reloads the configuration. It becomes active as a whole, or not at all.
    pub async fn reload(&self) -> Result<Reloaded, NotReloaded> {
        let (asked, done) = oneshot::channel();
        match self.asked.try_send(Asked::Reload(asked)) {
            Ok(()) => done.await.unwrap_or(Err(NotReloaded::Draining)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(NotReloaded::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(NotReloaded::Draining),
        }
    }

    /// Replaces the process by a new one with the present program and configuration. Returns the id of the
    /// new process once it serves; this one then drains and ends.
    pub async fn upgrade(&self) -> Result<u32, NotUpgraded> {
        let (asked, done) = oneshot::channel();
        match self.asked.try_send(Asked::Upgrade(asked)) {
            Ok(()) => done.await.unwrap_or(Err(NotUpgraded::Draining)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(NotUpgraded::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(NotUpgraded::Draining),
        }
    }

    /// Registers the admin socket, for the handover to a new process.
    pub fn operators_listen(&self, wanted: SocketAddr, socket: OwnedFd) {
        self.life.listens(admin_label(wanted), socket);
    }

    /// Completes when another process has taken over, with the sockets.
    pub async fn replaced(&self) {
        self.life.replaced().await;
    }

    /// Returns true if purges are refused because a handover is in progress.
    pub fn is_handing_over(&self) -> bool {
        self.life.is_handing_over()
    }

    /// Completes when these purges, which apply here, also apply in the predecessor process, if that still
    /// serves.
    pub async fn purged_before(&self, rules: &[Rule]) {
        self.life.predecessor.purge(rules).await;
    }

    /// Number of reloads that changed the configuration.
    pub fn generation(&self) -> u64 {
        self.life.generation()
    }

    /// Drains and stops the server, as SIGTERM does.
    pub fn stop(&self) {
        if !self.is_leaving() {
            self.life.ask_to_stop();
        }
    }
}
