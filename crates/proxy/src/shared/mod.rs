//! State that all connections share, built from the configuration.
//!
//! Owns the engine with its origins and limits, the routing table, and the replacement of all of it by a reload.
//! Never does I/O, nor decides about a request. Start at [`Shared`].

mod active;
mod derived;
mod origins;
mod push;
mod routing;
mod state;

pub(crate) use active::Active;
#[cfg(test)]
pub(crate) use derived::settings;
pub(crate) use push::start_push;
pub(crate) use routing::AmbiguousPath;
pub(crate) use state::Shared;
