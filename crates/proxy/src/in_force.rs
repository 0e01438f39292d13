//! What is in force, and how something else takes its place while requests are served.
//!
//! A connection keeps what was in force when it last looked, and compares one number between two
//! requests. So a reload waits for nobody, and what it replaces lives as long as the last request that
//! began with it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use microcache_engine::Origin;
use microcache_store::Tiers;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::config::Config;
use crate::notices::Notices;
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
    draining: AtomicBool,
    stop: Notify,
}

impl InForce {
    /// Starts the upstream groups, on the current runtime, and puts everything together.
    pub(crate) fn start(
        config: &Config,
        tiers: Tiers,
        notices: Notices,
    ) -> (Shared, Arc<[Arc<Group>]>) {
        let figures = Arc::default();
        let groups: Arc<[_]> = config
            .upstreams
            .iter()
            .map(|settings| Group::start(settings.clone(), notices.clone(), &figures))
            .collect();
        let shared = Shared::before(&origins(&groups), config, tiers, notices, figures);
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

    /// Whether the server is told to stop: no connection takes another request.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// Says so to all connections.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
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
