//! What whoever operates a server sees and changes of it while it runs.

use std::sync::Arc;

use microcache_engine::Engine;

use crate::config::Config;
use crate::room::Taken;
use crate::shared::Shared;
use crate::upstream::{Group, GroupSnapshot};

/// A running server, for those who operate it. Serving knows nothing of them.
#[derive(Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    groups: Arc<[Arc<Group>]>,
    config: Arc<Config>,
}

impl Handle {
    pub(crate) fn new(shared: Arc<Shared>, groups: Vec<Arc<Group>>, config: Config) -> Self {
        Self {
            shared,
            groups: groups.into(),
            config: Arc::new(config),
        }
    }

    pub(crate) const fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// The cache.
    pub fn engine(&self) -> &Engine {
        &self.shared.engine
    }

    /// What it was told to do.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How the upstream groups do.
    pub fn upstreams(&self) -> Vec<GroupSnapshot> {
        self.groups.iter().map(|group| group.snapshot()).collect()
    }

    /// What clients have taken of the room there is for them.
    pub fn connections(&self) -> Taken {
        self.shared.room.taken()
    }

    /// Whether it finishes what is under way and takes nothing new.
    pub fn is_draining(&self) -> bool {
        self.shared.is_draining()
    }

    /// Has it finish what is under way and end, as SIGTERM does.
    pub fn stop(&self) {
        if !self.is_draining() {
            self.shared.ask_to_stop();
        }
    }
}
