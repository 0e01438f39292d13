//! The process that serves: its sockets, threads, tiers and signals.
//!
//! Owns the start and the stop: sockets are bound, tiers opened, worker threads accept, and a signal begins the drain.
//! Never parses a byte: accepted connections go to `connection`. Start at [`Server`], then `run` and `listener`.

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
mod threads;
mod tiers;

pub use error::ServerError;
pub use run::{Started, Summary};
pub use start::Server;
