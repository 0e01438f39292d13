//! The handle: what all layers of a cache share.

use std::sync::Arc;

use microcache_engine::{Engine, Origin, Request, Route, RouteFound, RouteId, Settings};
use microcache_policy::Rules;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::builder::Builder;
use crate::counts::Counts;
use crate::layer::CacheLayer;

/// The largest body that is stored where a tier takes larger ones than memory does.
const MAX_OBJECT: u64 = 1 << 30;

/// A cache. Clones share what is stored, and so do all their layers.
#[derive(Clone)]
pub struct Cache {
    pub(crate) shared: Arc<Shared>,
}

impl Cache {
    /// A cache of one user's (RFC 9111 §1): what servers call `private` is stored, and what one
    /// `Authorization` was given is given to no other. Cookies tell nobody apart. The usual choice of a client.
    pub fn private() -> Builder {
        Builder::private()
    }

    /// A cache of everybody's, as a proxy is: for services that fetch the same for all their users. What is
    /// `private`, or was asked for with credentials, is stored only where the server says that it may be shared.
    pub fn shared() -> Builder {
        Builder::shared()
    }

    pub(crate) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// A layer that has requests answered by this cache.
    pub fn layer(&self) -> CacheLayer {
        CacheLayer::new(self.clone())
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").finish_non_exhaustive()
    }
}

/// What the handles and the layers of one cache share.
pub(crate) struct Shared {
    /// The cache, without anybody to ask.
    pub(crate) engine: Engine,
    settings: Settings,
    rules: Rules,
    pub(crate) counts: Counts,
    tasks: [JoinHandle<()>; 2],
    /// Where it was built.
    #[cfg_attr(
        not(any(feature = "disk", feature = "memcached", feature = "redis")),
        expect(dead_code, reason = "only tiers are waited for")
    )]
    pub(crate) runtime: Handle,
}

impl Shared {
    pub(crate) async fn start(
        engine: Engine,
        settings: Settings,
        rules: Rules,
        handle: &Handle,
    ) -> Self {
        // What was purged before counts on; where it cannot be read, what it covered is found again.
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
            counts: Counts::default(),
            runtime: handle.clone(),
        }
    }

    /// The same cache in front of this origin.
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
        Arc::new(engine.reconfigured(self.settings, vec![route], Box::new(only_route)))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// All requests of a layer take the same route.
pub(crate) fn only_route(_: &Request<'_>) -> RouteFound {
    RouteFound {
        route: 0,
        bypass: None,
    }
}
