//! What whoever operates a server sees and changes of it while it runs.

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

/// A running server, for those who operate it. Serving knows nothing of them.
#[derive(Clone)]
pub struct Handle {
    life: Arc<Life>,
    asked: mpsc::Sender<Asked>,
}

impl Handle {
    /// Puts in force what a server starts with.
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

    /// The cache, with the routes that are in force.
    pub fn engine(&self) -> Arc<Engine> {
        Arc::clone(&self.in_force().shared.engine)
    }

    /// Documents that are put here, where there are any.
    pub(crate) fn push(&self) -> Option<Arc<Push>> {
        self.in_force().shared.push.clone()
    }

    /// The Mercure hub, where there is one.
    pub(crate) fn mercure(&self) -> Option<Arc<Hub>> {
        self.in_force().shared.mercure.clone()
    }

    /// How documents do, where there are any.
    pub fn push_stats(&self) -> Option<PushStats> {
        self.push().map(|push| push.stats())
    }

    /// How documents do that several nodes share, where they do.
    pub fn fleet_stats(&self) -> Option<FleetStats> {
        self.push().and_then(|push| push.fleet())
    }

    /// How the Mercure hub does, where there is one.
    pub fn mercure_stats(&self) -> Option<MercureStats> {
        self.mercure().map(|hub| hub.stats())
    }

    /// What it was told to do, last.
    pub fn config(&self) -> Arc<Config> {
        self.in_force().config
    }

    /// What would become of a request that nobody has sent. With `ask`, the origin is asked, and what it says
    /// is stored if it would be.
    pub async fn explain(&self, imagined: &Imagined, ask: bool) -> Result<Outlook, Refused> {
        explaining::explain(self.in_force(), imagined, ask).await
    }

    /// The numbers of the variants that a request stands for which nobody has sent: see
    /// [`Engine::variants_for`].
    pub async fn variants_for(&self, imagined: &Imagined) -> Result<Vec<u64>, Refused> {
        explaining::variants(self.in_force().shared, imagined).await
    }

    /// How the upstream groups do.
    pub fn upstreams(&self) -> Vec<GroupSnapshot> {
        let groups = self.in_force().groups;
        groups.iter().map(|group| group.snapshot()).collect()
    }

    /// What was done, in numbers.
    pub fn figures(&self) -> FiguresSnapshot {
        self.in_force().shared.figures.snapshot()
    }

    /// The urls that there is most of, by a measure.
    pub fn top(&self, measure: Measure, limit: usize) -> TopUrls {
        self.in_force().shared.figures.top(measure, limit)
    }

    /// What went wrong lately, the latest first.
    pub fn errors(&self, limit: usize) -> Vec<RecentError> {
        self.in_force().shared.figures.errors(limit)
    }

    /// What became of the spans of requests that are traced, if any are.
    pub fn traces(&self) -> Option<Arc<Traces>> {
        self.in_force().shared.figures.traces().map(Arc::clone)
    }

    /// Those of whom was forgotten how much they have asked, while it would still have mattered.
    pub fn rates_forgotten(&self) -> u64 {
        let shared = self.in_force().shared;
        shared.rates.as_deref().map_or(0, Rates::forgotten)
    }

    /// The certificates that clients may be shown.
    pub fn certificates(&self) -> Vec<CertificateReport> {
        let config = self.config();
        let issued = Issued::of_this_process();
        let names = config.acme.names.iter();
        let read = config.tls.read.iter().cloned();
        read.chain(names.map(|name| issued.report(name))).collect()
    }

    /// What clients have taken of the room there is for them.
    pub fn connections(&self) -> Taken {
        self.in_force().shared.room.taken()
    }

    /// Whether it is about to end, and should get no new connections.
    pub fn is_leaving(&self) -> bool {
        self.life.is_leaving()
    }

    /// Has it read its configuration again. What is in force is then another one, wholly, or the same.
    pub async fn reload(&self) -> Result<Reloaded, NotReloaded> {
        let (asked, done) = oneshot::channel();
        match self.asked.try_send(Asked::Reload(asked)) {
            Ok(()) => done.await.unwrap_or(Err(NotReloaded::Draining)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(NotReloaded::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(NotReloaded::Draining),
        }
    }

    /// Has another process take its place, with the program and the configuration as they are by now. Gives
    /// the id of that one when it serves; this one then ends as if it had been told to stop.
    pub async fn upgrade(&self) -> Result<u32, NotUpgraded> {
        let (asked, done) = oneshot::channel();
        match self.asked.try_send(Asked::Upgrade(asked)) {
            Ok(()) => done.await.unwrap_or(Err(NotUpgraded::Draining)),
            Err(mpsc::error::TrySendError::Full(_)) => Err(NotUpgraded::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(NotUpgraded::Draining),
        }
    }

    /// Remembers the socket of the interface for operators, for a process that takes this one's place.
    pub fn operators_listen(&self, wanted: SocketAddr, socket: OwnedFd) {
        self.life.listens(admin_label(wanted), socket);
    }

    /// Ready when another process has taken its place, and has the sockets.
    pub async fn replaced(&self) {
        self.life.replaced().await;
    }

    /// Whether it takes no purges, because another process takes its place.
    pub fn is_handing_over(&self) -> bool {
        self.life.is_handing_over()
    }

    /// Ready when these purges, which count in it, do so in the process whose place it has taken too, where that still
    /// serves.
    pub async fn purged_before(&self, rules: &[Rule]) {
        self.life.predecessor.purge(rules).await;
    }

    /// How many reloads have changed what is in force.
    pub fn generation(&self) -> u64 {
        self.life.generation()
    }

    /// Has it finish what is under way and end, as SIGTERM does.
    pub fn stop(&self) {
        if !self.is_leaving() {
            self.life.ask_to_stop();
        }
    }
}
