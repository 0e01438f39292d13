//! Load generator (`microcache bench`), simulated slow origin, and the demonstration that uses both.
//!
//! Black box: nothing here depends on the crates of the cache, so any HTTP server can be measured.

pub mod demo;
pub mod load;
pub mod origin;
