//! The caching layer as its users have it.

mod callers;
mod clocks;
mod directory;
mod elsewhere;
mod laws;
mod layer;
mod real;
mod robust;
mod support;
mod tiers;
