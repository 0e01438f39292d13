//! The active configuration, and its replacement while requests are served.
//!
//! A connection keeps the configuration that it last took up, and compares one generation number between two
//! requests. So a reload blocks nothing, and a replaced configuration lives until its last request ends.

use std::future::pending;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use microcache_engine::Origin;
use microcache_policy::Time;
use microcache_push::Push;
use microcache_store::Tiers;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use crate::config::Config;
use crate::handover::HandoverChannel;
use crate::notices::Notices;
use crate::predecessor::Predecessor;
use crate::shared::Shared;
use crate::upstream::Group;

/// A configuration with the objects built from it.
#[derive(Clone)]
pub(crate) struct ActiveConfig {
    pub(crate) shared: Arc<Shared>,
    pub(crate) groups: Arc<[Arc<Group>]>,
    pub(crate) config: Arc<Config>,
}

/// State of a server that survives reloads.
#[derive(Default)]
pub(crate) struct Lifecycle {
    /// Number of reloads.
    generation: AtomicU64,
    /// Wakes tasks that depend on the configuration between two requests.
    reloaded: watch::Sender<()>,
    active: Mutex<Option<ActiveConfig>>,
    /// Shutting down: readiness fails, and each response closes its connection.
    leaving: AtomicBool,
    /// Time when the server stopped accepting, in milliseconds; 0 before.
    draining: AtomicU64,
    stop: Notify,
    /// Listening sockets with their labels, for a handover.
    sockets: Mutex<Vec<(String, OwnedFd)>>,
    /// A handover is in progress, or complete.
    handing_over: AtomicBool,
    /// Line to the successor; closing it reports the end of this process.
    successor: Mutex<Option<Arc<HandoverChannel>>>,
    replaced: watch::Sender<bool>,
    /// The previous process, while it drains.
    pub(crate) predecessor: Arc<Predecessor>,
}

impl ActiveConfig {
    /// Starts the upstream groups on the current runtime, and builds the shared state.
    pub(crate) fn start(
        config: &Config,
        tiers: Tiers,
        push: Option<Arc<Push>>,
        notices: Notices,
    ) -> (Shared, Arc<[Arc<Group>]>) {
        let metrics = Arc::default();
        let groups: Arc<[_]> = config
            .upstreams
            .iter()
            .map(|settings| Group::start(settings.clone(), notices.clone(), &metrics))
            .collect();
        let shared = Shared::before((&origins(&groups), push), config, tiers, notices, metrics);
        (shared, groups)
    }

    /// Builds the successor for another configuration. Unchanged groups continue; the others are started on
    /// the current runtime.
    pub(crate) fn renewed(&self, config: Config) -> Self {
        let groups: Arc<[_]> = config
            .upstreams
            .iter()
            .map(|settings| {
                let before = self
                    .groups
                    .iter()
                    .find(|group| group.name() == settings.name);
                match before {
                    Some(before) if before.settings() == settings => Arc::clone(before),
                    Some(before) => before.succeeded_by(settings.clone()),
                    None => {
                        let notices = self.shared.notices.clone();
                        Group::start(settings.clone(), notices, &self.shared.metrics)
                    }
                }
            })
            .collect();
        Self {
            shared: Arc::new(self.shared.renewed(&origins(&groups), &config)),
            groups,
            config: Arc::new(config),
        }
    }
}

fn origins(groups: &[Arc<Group>]) -> Vec<Arc<dyn Origin>> {
    let origin = |group: &Arc<Group>| Arc::clone(group) as Arc<dyn Origin>;
    groups.iter().map(origin).collect()
}

impl Lifecycle {
    /// Number of reloads.
    pub(crate) fn generation(&self) -> u64 {
        // A reader that sees another number takes the lock, which orders the accesses.
        self.generation.load(Ordering::Relaxed)
    }

    /// Returns the active configuration; `None` before the start.
    pub(crate) fn active(&self) -> Option<ActiveConfig> {
        self.active.lock().clone()
    }

    /// Activates a configuration. Groups that are not part of it end with their last request.
    pub(crate) fn enter(&self, new: ActiveConfig) {
        let (generation, groups) = (new.shared.generation(), Arc::clone(&new.groups));
        let before = self.active.lock().replace(new);
        self.generation.store(generation, Ordering::Relaxed);
        self.reloaded.send_replace(());
        for group in before.iter().flat_map(|before| before.groups.iter()) {
            if !groups.iter().any(|stays| Arc::ptr_eq(stays, group)) {
                group.retire();
            }
        }
    }

    /// Returns a receiver that changes with each later reload.
    pub(crate) fn reloads(&self) -> watch::Receiver<()> {
        self.reloaded.subscribe()
    }

    /// Returns true if the server is shutting down: it is not ready, and closes each connection after its
    /// next response. It may still accept.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Time since which nothing is accepted, if the server drains.
    pub(crate) fn draining_since(&self) -> Option<Time> {
        let since = self.draining.load(Ordering::Relaxed);
        (since > 0).then(|| Time::from_millis(since))
    }

    /// Stops accepting, and closes the registered sockets.
    pub(crate) fn drain(&self, now: Time) {
        self.leave();
        self.draining
            .store(now.as_millis().max(1), Ordering::Relaxed);
        self.sockets.lock().clear();
    }

    /// Registers a listening socket.
    pub(crate) fn listens(&self, label: String, socket: OwnedFd) {
        self.sockets.lock().push((label, socket));
    }

    /// Copies of the listening sockets.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let sockets = self.sockets.lock();
        let copy = |(label, socket): &(String, OwnedFd)| Ok((label.clone(), socket.try_clone()?));
        sockets.iter().map(copy).collect()
    }

    /// Refuses purges from now on, because the successor would miss them.
    pub(crate) fn begin_handover(&self) {
        self.handing_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn end_handover(&self) {
        self.handing_over.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_handing_over(&self) -> bool {
        self.handing_over.load(Ordering::SeqCst)
    }

    /// Completes a handover, and stops this process.
    pub(crate) fn hand_over(&self, successor: Arc<HandoverChannel>) {
        *self.successor.lock() = Some(successor);
        self.replaced.send_replace(true);
        self.ask_to_stop();
    }

    /// Returns true if another process has taken over.
    pub(crate) fn is_replaced(&self) -> bool {
        *self.replaced.borrow()
    }

    /// Completes when another process has taken over.
    pub(crate) async fn replaced(&self) {
        let mut replaced = self.replaced.subscribe();
        if replaced.wait_for(|&replaced| replaced).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Stops the server, as a signal does.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.notify_one();
    }

    /// Completes when a stop is requested.
    pub(crate) async fn stop_asked(&self) {
        self.stop.notified().await;
    }
}
