//! The steps of a request, a file each. [`serve`] has them in order.

mod ahead;
mod application_page;
mod claim_wait;
mod coalesce;
mod direct;
pub(crate) mod divide;
pub(crate) mod encoded;
pub(crate) mod engine;
pub(crate) mod failure;
mod fetch;
pub(crate) mod hit_response;
mod invalidate;
mod lead;
pub(crate) mod lookup_context;
pub(crate) mod plan;
mod query;
pub(crate) mod request_facts;
pub(crate) mod request_key;
mod respond;
pub(crate) mod route;
pub(crate) mod serve;
mod stale;
mod store_response;
mod store_whole;
mod tags;
mod tier_lookup;
pub(crate) mod usability;
mod verdict;
mod whole_response;

pub use ahead::AheadResult;
pub use engine::Engine;
pub use failure::NoResponse;
pub use plan::{FetchPlan, Refresh};
pub use route::{Bypass, Clients, FindRoute, Route, RouteMatch, Settings};
pub use serve::Served;
