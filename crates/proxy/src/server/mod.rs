//! The process that serves: its sockets, threads, tiers and signals.
//!
//! Owns the start and the stop: sockets are bound, tiers opened, one thread per core accepts, and a signal drains.
//! Never parses a byte: an accepted connection is `connection`'s. Start at [`Server`], then `run` and `listener`.

mod accepted;
mod checks;
mod error;
mod listener;
mod run;
mod serve_thread;
mod signals;
mod sockets;
mod start;
mod stop;
mod tiers;

pub use error::ServerError;
pub use run::{Started, Summary};
pub use start::Server;
