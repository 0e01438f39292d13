//! The operators' interface: purges, entries, statistics, health, metrics, and a dashboard.
//!
//! It listens on an address of its own, on a thread of its own, and stands above the proxy, which does
//! not know that it exists. [`api`] has the list of all there is.

mod access;
mod api;
mod certificates;
mod configuration;
mod connections;
mod dashboard;
mod entries;
mod explain;
mod exposition;
mod health;
mod interface;
mod live;
mod mercure;
mod metrics;
mod patient;
mod problem;
mod purges;
mod push;
mod scopes;
mod server;
mod stats;
mod top;
mod windows;

pub use server::Admin;
