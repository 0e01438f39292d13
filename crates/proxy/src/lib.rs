//! The server around the engine: configuration, listeners, client connections, upstreams.

pub mod config;
mod connection;
mod connections;
mod descriptors;
mod forwarding;
pub mod h1;
mod last_hop;
mod lent;
mod listener;
mod notices;
mod pseudonym;
mod room;
mod server;
mod shared;
mod tiers;
pub mod upstream;
mod watch;

pub use microcache_store::TierReport;
pub use notices::Notices;
pub use server::{Server, ServerError, Summary};
