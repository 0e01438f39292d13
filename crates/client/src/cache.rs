//! The handle of a cache, and the state that its layers share.

use std::sync::Arc;

use microcache_engine::{Engine, Origin, Request, Route, RouteId, RouteMatch, Settings};
use microcache_policy::Rules;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::counts::OutcomeCounts;

/// Maximum size in bytes of a stored body, if a tier accepts larger ones than memory.
const MAX_OBJECT: u64 = 1 << 30;

/// A cache. Clones and layers share the stored responses.
#[derive(Clone)]
pub struct Cache {
    pub(crate) shared: Arc<CacheInner>,
}

impl Cache {
    pub(crate) const fn new(shared: Arc<CacheInner>) -> Self {
        Self { shared }
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

/// The state that handles and layers of one cache share.
pub(crate) struct CacheInner {
    /// The engine, without an origin.
    pub(crate) engine: Engine,
    settings: Settings,
    rules: Rules,
    pub(crate) counts: OutcomeCounts,
    tasks: [JoinHandle<()>; 2],
    /// The runtime that it was built on.
    #[cfg_attr(
        not(any(feature = "disk", feature = "memcached", feature = "redis")),
        expect(dead_code, reason = "only tiers are waited for")
    )]
    pub(crate) runtime: Handle,
}

impl CacheInner {
    pub(crate) async fn start(
        engine: Engine,
        settings: Settings,
        rules: Rules,
        handle: &Handle,
    ) -> Self {
        // Earlier purges still apply; if the rules cannot be read, responses that they cover may be served again.
        let _ = engine.cache.load_rules().await;
        let (swept, in_step) = (Arc::clone(&engine.cache), Arc::clone(&engine.cache));
        Self {
            tasks: [
                handle.spawn(async move { swept.keep_swept().await }),
                handle.spawn(async move { in_step.keep_in_step().await }),
            ],
            engine,
            settings,
            rules,
            counts: OutcomeCounts::default(),
            runtime: handle.clone(),
        }
    }

    /// An engine on this cache, in front of this origin.
    pub(crate) fn in_front_of(&self, origin: Arc<dyn Origin>) -> Arc<Engine> {
        let route = Route {
            name: String::new(),
            id: RouteId::default(),
            rules: self.rules.clone(),
            pass: false,
            answers_at_once: false,
            collapse: true,
            max_object: MAX_OBJECT,
            origin,
        };
        let engine = &self.engine;
        Arc::new(engine.reconfigured(self.settings, vec![route], Arc::new(only_route)))
    }
}

impl Drop for CacheInner {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// The one route of all requests of a layer.
pub(crate) fn only_route(_: &Request<'_>) -> RouteMatch {
    RouteMatch {
        route: 0,
        bypass: None,
    }
}
