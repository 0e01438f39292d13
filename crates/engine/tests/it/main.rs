//! The engine through its public interface, with scripted origins and tiers.
#![cfg(not(shuttle))]

mod asking;
mod compression;
mod edge;
mod for_one;
mod large;
mod no_vary_search;
mod once;
mod private;
mod purge;
mod query;
mod stored_parameter;
#[path = "../support/mod.rs"]
mod support;
mod unsafe_requests;
mod uses;
