//! State that all connections share, built from the configuration.
//!
//! Owns the engine with its origins and limits, the routing table, and the replacement of all of it by a reload.
//! Never does I/O, nor decides about a request. Start at [`Shared`].

mod active;
mod routing;
mod state;

pub(crate) use active::Active;
pub(crate) use routing::AmbiguousPath;
#[cfg(test)]
pub(crate) use state::settings;
pub(crate) use state::{Shared, keep_updates, start_push};
