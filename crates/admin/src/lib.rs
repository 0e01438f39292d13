//! What operators reach: purges, what is stored, statistics, health, metrics.
//!
//! It listens on an address of its own, on a thread of its own, and stands above the proxy, which does
//! not know that it exists. [`api`] has the list of all there is.

mod access;
mod api;
mod configuration;
mod entries;
mod health;
mod interface;
mod metrics;
mod named;
mod problem;
mod purges;
mod server;
mod stats;
mod top;

pub use access::{Token, TokenError};
pub use server::Admin;
