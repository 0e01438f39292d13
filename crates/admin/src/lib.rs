//! What operators reach: purges, what is stored, statistics, health, metrics, and a page that shows them.
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
mod named;
mod patient;
mod problem;
mod purges;
mod push;
mod server;
mod stats;
mod top;
mod windows;

pub use server::Admin;
