//! What is in force, and how something else takes its place while requests are served.
//!
//! A connection keeps what was in force when it last looked, and compares one number between two
//! requests. So a reload waits for nobody, and what it replaces lives as long as the last request that
//! began with it.

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
use crate::handover::Line;
use crate::notices::Notices;
use crate::predecessor::Predecessor;
use crate::shared::Shared;
use crate::upstream::Group;

/// A configuration, and what was made of it.
#[derive(Clone)]
pub(crate) struct InForce {
    pub(crate) shared: Arc<Shared>,
    pub(crate) groups: Arc<[Arc<Group>]>,
    pub(crate) config: Arc<Config>,
}

/// What of a server is the same from its start to its end.
#[derive(Default)]
pub(crate) struct Life {
    /// How many reloads there were.
    generation: AtomicU64,
    in_force: Mutex<Option<InForce>>,
    /// Readiness says no, and each response is the last on its connection.
    leaving: AtomicBool,
    /// When the server stopped accepting, in milliseconds; 0 before.
    draining: AtomicU64,
    stop: Notify,
    /// The sockets that listen, and what for: for a process that takes this one's place.
    sockets: Mutex<Vec<(String, OwnedFd)>>,
    /// Another process is about to take this one's place, or has.
    handing_over: AtomicBool,
    /// It has. It hears of this one's end by the line's.
    successor: Mutex<Option<Arc<Line>>>,
    replaced: watch::Sender<bool>,
    /// The process whose place this one has taken, while it finishes what it began.
    pub(crate) predecessor: Arc<Predecessor>,
}

impl InForce {
    /// Starts the upstream groups, on the current runtime, and puts everything together.
    pub(crate) fn start(
        config: &Config,
        tiers: Tiers,
        push: Option<Arc<Push>>,
        notices: Notices,
    ) -> (Shared, Arc<[Arc<Group>]>) {
        let figures = Arc::default();
        let groups: Arc<[_]> = config
            .upstreams
            .iter()
            .map(|settings| Group::start(settings.clone(), notices.clone(), &figures))
            .collect();
        let shared = Shared::before((&origins(&groups), push), config, tiers, notices, figures);
        (shared, groups)
    }

    /// The same with another configuration. Groups of which nothing is said anew go on as they are; the
    /// others are started, on the current runtime.
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
                        Group::start(settings.clone(), notices, &self.shared.figures)
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

impl Life {
    /// How many reloads there were.
    pub(crate) fn generation(&self) -> u64 {
        // Whoever sees another number takes the lock, and sees with it what the number stands for.
        self.generation.load(Ordering::Relaxed)
    }

    /// What is in force; `None` before the start.
    pub(crate) fn in_force(&self) -> Option<InForce> {
        self.in_force.lock().clone()
    }

    /// Puts this in force. Groups that are no part of it end with their last request.
    pub(crate) fn enter(&self, new: InForce) {
        let (generation, groups) = (new.shared.generation(), Arc::clone(&new.groups));
        let before = self.in_force.lock().replace(new);
        self.generation.store(generation, Ordering::Relaxed);
        for group in before.iter().flat_map(|before| before.groups.iter()) {
            if !groups.iter().any(|stays| Arc::ptr_eq(stays, group)) {
                group.retire();
            }
        }
    }

    /// Whether the server is about to end: it is not ready, and closes each connection after its next
    /// answer. It may still accept.
    pub(crate) fn is_leaving(&self) -> bool {
        self.leaving.load(Ordering::Relaxed)
    }

    pub(crate) fn leave(&self) {
        self.leaving.store(true, Ordering::Relaxed);
    }

    /// Since when nothing is accepted any more, if that is so.
    pub(crate) fn draining_since(&self) -> Option<Time> {
        let since = self.draining.load(Ordering::Relaxed);
        (since > 0).then(|| Time::from_millis(since))
    }

    /// Accepts nothing from now on, and keeps no socket open.
    pub(crate) fn drain(&self, now: Time) {
        self.leave();
        self.draining
            .store(now.as_millis().max(1), Ordering::Relaxed);
        self.sockets.lock().clear();
    }

    /// Remembers a socket that listens.
    pub(crate) fn listens(&self, label: String, socket: OwnedFd) {
        self.sockets.lock().push((label, socket));
    }

    /// The sockets that listen.
    pub(crate) fn sockets(&self) -> io::Result<Vec<(String, OwnedFd)>> {
        let sockets = self.sockets.lock();
        let copy = |(label, socket): &(String, OwnedFd)| Ok((label.clone(), socket.try_clone()?));
        sockets.iter().map(copy).collect()
    }

    /// From now on no purge is taken: the process that takes this one's place would not know of it.
    pub(crate) fn begin_handover(&self) {
        self.handing_over.store(true, Ordering::SeqCst);
    }

    pub(crate) fn end_handover(&self) {
        self.handing_over.store(false, Ordering::SeqCst);
    }

    pub(crate) fn is_handing_over(&self) -> bool {
        self.handing_over.load(Ordering::SeqCst)
    }

    /// Another process serves in this one's place, which is to stop.
    pub(crate) fn hand_over(&self, successor: Arc<Line>) {
        *self.successor.lock() = Some(successor);
        self.replaced.send_replace(true);
        self.ask_to_stop();
    }

    /// Whether another process has taken this one's place.
    pub(crate) fn is_replaced(&self) -> bool {
        *self.replaced.borrow()
    }

    /// Ready when another process has taken this one's place.
    pub(crate) async fn replaced(&self) {
        let mut replaced = self.replaced.subscribe();
        if replaced.wait_for(|&replaced| replaced).await.is_err() {
            pending::<()>().await;
        }
    }

    /// Has the server stop, as a signal does.
    pub(crate) fn ask_to_stop(&self) {
        self.stop.notify_one();
    }

    /// Ready when somebody asks the server to stop.
    pub(crate) async fn stop_asked(&self) {
        self.stop.notified().await;
    }
}
