//! The steps of a request, a file each. [`serve`] has them in order.

mod ahead;
mod application_page;
mod claim_wait;
mod coalesce;
mod direct;
pub(crate) mod divide;
pub(crate) mod encoded;
pub(crate) mod failure;
mod fetch;
mod invalidate;
mod lead;
pub(crate) mod plan;
mod query;
mod respond;
pub(crate) mod route;
pub(crate) mod serve;
mod stale;
mod store_response;
mod store_whole;
mod tags;
mod tier_lookup;
mod verdict;
mod whole_response;

pub use ahead::AheadResult;
pub use failure::NoResponse;
pub use plan::{FetchPlan, Refresh};
pub use route::{Bypass, Clients, FindRoute, Route, RouteMatch, Settings};
pub use serve::{Engine, Served};
