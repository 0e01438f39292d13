//! Warming: pages are fetched before visitors ask for them, because an operator lists them, because a purge has removed
//! them, or because the process has just started.
//!
//! Each request is that of a visitor without cookies, so routes, keys, coalescing and purges apply, and only the origins of
//! the configuration are contacted. It is served after clients and refreshes, and `max_warming` limits how many are in
//! progress. Never an entry of its own: all is stored by the engine as for a visitor.

mod hottest;
pub(crate) mod jobs;
mod popularity;
mod sitemap;
#[cfg(test)]
mod tests;
mod visits;

pub(crate) use hottest::{keep_hottest, write_hottest};
pub use jobs::{TooManyJobs, WarmCounts, WarmProgress, WarmResult};
pub(crate) use popularity::popular;
pub(crate) use visits::start;
pub use visits::{WarmPage, WarmSource};
