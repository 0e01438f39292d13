//! Routes of the cache with their origins, from the configuration.

use std::sync::Arc;

use microcache_engine::origin::BoxFuture;
use microcache_engine::{Origin, OriginError, OriginRequest, OriginResponse, Route};
use microcache_push::{FindPage, Hub, MercureOrigin, Push, WatchOrigin};

use super::routing::Routing;
use crate::config::page_edits::PageEdits;
use crate::config::{self, Config, ForwardAuth, GoesTo};
use crate::files::{DirectoryOrigin, FilesFirstOrigin, SendfileOrigin};
use crate::metrics::Metrics;
use crate::observe::Notices;
use crate::page_edits::{EditingOrigin, TokenPaths};
use crate::rewriting::RewritingOrigin;
use crate::upstream::settings::GroupSettings;

/// Builds the routes and the routing table. Bodies above `object` bytes are stored only if a route allows it.
pub(super) fn routes(
    config: &Config,
    behind: CacheOrigins<'_>,
    object: u64,
    metrics: &Metrics,
) -> (Vec<Route>, Arc<Routing>) {
    let edits = config.routes.iter().map(|route| &route.page_edits);
    let token_paths: TokenPaths = edits.flat_map(PageEdits::token_paths).collect();
    let routes = config
        .routes
        .iter()
        .map(|route| Route {
            name: route.name.clone(),
            id: metrics.route(&route.name),
            rules: route.rules.clone(),
            pass: route.pass,
            collapse: route.collapse,
            answers_at_once: route.goes_to == GoesTo::Push,
            max_object: route.max_object.unwrap_or(object),
            origin: behind.edited_origin_of(route, &config.upstreams, &token_paths),
        })
        .collect();
    let routing = Arc::new(Routing::of(config));
    (routes, routing)
}

/// Origin of a route that answers itself, so that nothing that bypasses the response reaches an application.
struct NoOrigin;

impl Origin for NoOrigin {
    fn fetch(&self, _: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        Box::pin(std::future::ready(Err(OriginError::Down)))
    }
}

/// Returns the authentication servers of all routes.
pub(super) fn authentication(
    config: &Config,
    origins: &[Arc<dyn Origin>],
) -> Box<[Option<Arc<dyn Origin>>]> {
    let auths = config
        .routes
        .iter()
        .map(|route| route.forward_auth.as_ref());
    let server = |auth: &ForwardAuth| origins.get(auth.group()).cloned();
    auths.map(|auth| auth.and_then(server)).collect()
}

/// Origins behind the cache.
#[derive(Clone, Copy)]
pub(super) struct CacheOrigins<'a> {
    pub(super) origins: &'a [Arc<dyn Origin>],
    pub(super) push: Option<&'a Arc<Push>>,
    pub(super) mercure: Option<&'a Arc<Hub>>,
    pub(super) find_page: &'a FindPage,
    pub(super) observers: (&'a Notices, &'a Arc<Metrics>),
}

impl CacheOrigins<'_> {
    /// Returns the origin of a route.
    fn origin_of(&self, route: &config::Route, groups: &[GroupSettings]) -> Arc<dyn Origin> {
        let application = |number| self.application(route, number, groups);
        let origin: Arc<dyn Origin> = match &route.goes_to {
            GoesTo::Upstream(number) => application(*number),
            GoesTo::Files(root) => Arc::new(DirectoryOrigin::new(root.clone())),
            GoesTo::FilesFirst(root, number) => {
                Arc::new(FilesFirstOrigin::new(root.clone(), application(*number)))
            }
            GoesTo::Push => Arc::clone(self.push()) as _,
            GoesTo::Mercure => self.mercure(),
            GoesTo::Watch => self.watch(),
            GoesTo::Redirect(_) | GoesTo::Respond(_) => Arc::new(NoOrigin),
        };
        RewritingOrigin::before(origin, route)
    }

    /// Returns the origin of a route, whose pages are changed by its edits.
    fn edited_origin_of(
        &self,
        route: &config::Route,
        groups: &[GroupSettings],
        token_paths: &TokenPaths,
    ) -> Arc<dyn Origin> {
        let origin = self.origin_of(route, groups);
        match route.goes_to {
            GoesTo::Upstream(_) | GoesTo::Files(_) | GoesTo::FilesFirst(..) => {
                let (notices, metrics) = self.observers;
                let observers = (notices, metrics, &*route.name);
                EditingOrigin::before(origin, &route.page_edits, token_paths, observers)
            }
            _ => origin,
        }
    }

    /// Returns the upstream group with this number under the path of its URLs, and the files that it may name.
    fn application(
        &self,
        route: &config::Route,
        number: usize,
        groups: &[GroupSettings],
    ) -> Arc<dyn Origin> {
        let group = Arc::clone(&self.origins[number]);
        let group = RewritingOrigin::before_servers(group, &groups[number].servers, route);
        if route.x_accel.is_empty() {
            return group;
        }
        Arc::new(SendfileOrigin::new(group, &route.x_accel))
    }

    /// Present if a route leads to it.
    fn push(&self) -> &Arc<Push> {
        self.push.expect("push is started if a route leads to it")
    }

    /// Present if a route leads to it.
    fn mercure(&self) -> Arc<dyn Origin> {
        let hub = self
            .mercure
            .expect("the hub is started if a route leads to it");
        Arc::new(MercureOrigin(Arc::clone(hub)))
    }

    fn watch(&self) -> Arc<dyn Origin> {
        let push = Arc::clone(self.push());
        Arc::new(WatchOrigin::new(push, Arc::clone(self.find_page)))
    }
}
