//! The measuring half: a load generator, a simulated slow application, and a demonstration of both.
//!
//! It measures any HTTP server from outside and knows nothing of the cache's own code.

pub mod demo;
pub mod load;
pub mod origin;
