//! The engine as its callers see it, with origins and tiers that do as the test says.
#![cfg(not(shuttle))]

mod asking;
mod compression;
mod for_one;
mod large;
mod once;
mod private;
mod purge;
#[path = "../support/mod.rs"]
mod support;
mod unsafe_requests;
