//! The engine: its cache, its routes, its settings and its clock.

use std::sync::Arc;

use microcache_policy::Rules;
use microcache_store::{Clock, Tiers};

use crate::cache::Cache;
use crate::content::ContentBudget;
use crate::fill::FillBudget;
use crate::message::Request;
use crate::origin::{Origin, RouteId};
use crate::request::route::{FindRoute, Route, RouteMatch, Settings};

/// The engine: policy, store and origins put together.
pub struct Engine {
    /// The cache: memory, tiers, fetches under way and purges.
    pub cache: Arc<Cache>,
    pub(crate) fill_budget: Arc<FillBudget>,
    pub(crate) content_budget: Arc<ContentBudget>,
    pub(crate) settings: Settings,
    pub(crate) routes: Vec<Route>,
    find: Arc<dyn FindRoute>,
    /// The clock of all ages and lifetimes; the same after a reconfiguration.
    pub clock: Clock,
}

impl Engine {
    /// An engine with an empty memory, these routes and these tiers.
    pub fn new(
        settings: Settings,
        routes: Vec<Route>,
        find: Arc<dyn FindRoute>,
        tiers: Tiers,
    ) -> Self {
        Self::with_clock(settings, routes, find, tiers, Clock::start())
    }

    /// An engine as by [`Self::new`], with a clock of its own.
    pub fn with_clock(
        settings: Settings,
        routes: Vec<Route>,
        find: Arc<dyn FindRoute>,
        tiers: Tiers,
        clock: Clock,
    ) -> Self {
        Self {
            cache: Arc::new(Cache::new(settings.memory, settings.flights, tiers, clock)),
            fill_budget: Arc::new(FillBudget::new(settings.fill_memory, settings.clients)),
            content_budget: Arc::default(),
            settings,
            routes: sealed(routes),
            find,
            clock,
        }
    }

    /// An engine with the same cache, and other routes and limits. The capacity of memory and its
    /// largest object stay unchanged. Requests under way finish with the engine they began with.
    #[must_use]
    pub fn reconfigured(
        &self,
        settings: Settings,
        routes: Vec<Route>,
        find: Arc<dyn FindRoute>,
    ) -> Self {
        self.cache
            .set_limits(settings.memory.variants, settings.flights);
        self.fill_budget.set_limit(settings.fill_memory);
        Self {
            cache: Arc::clone(&self.cache),
            fill_budget: Arc::clone(&self.fill_budget),
            content_budget: Arc::clone(&self.content_budget),
            settings,
            routes: sealed(routes),
            find,
            clock: self.clock,
        }
    }

    /// The route that a request takes.
    pub fn find(&self, request: &Request<'_>) -> RouteMatch {
        self.find.find(request)
    }

    /// A route's number in metrics.
    pub fn id_of(&self, found: RouteMatch) -> RouteId {
        self.routes[found.route].id
    }

    /// The numbers of all routes in metrics, by index.
    pub fn route_ids(&self) -> impl Iterator<Item = RouteId> {
        self.routes.iter().map(|route| route.id)
    }

    /// The rules of the route with this number.
    pub fn rules(&self, route: usize) -> &Rules {
        &self.routes[route].rules
    }

    /// The origin of the route with this number.
    pub fn origin(&self, route: usize) -> &Arc<dyn Origin> {
        &self.routes[route].origin
    }

    pub(crate) fn route(&self, request: &Request<'_>) -> &Route {
        &self.routes[self.find.find(request).route]
    }

    /// The routes that requests for the same url may take.
    pub(crate) fn routes_of_url(&self, request: &Request<'_>) -> impl Iterator<Item = &Route> {
        let indices = self.find.all_of_url(request).into_iter();
        indices.map(|index| &self.routes[index])
    }
}

/// Seals the rules of the routes: entries stored under other sharing rules are not found.
fn sealed(routes: Vec<Route>) -> Vec<Route> {
    let sealed = |route: Route| Route {
        rules: route.rules.sealed(),
        ..route
    };
    routes.into_iter().map(sealed).collect()
}
