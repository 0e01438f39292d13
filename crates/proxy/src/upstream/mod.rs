//! The origin's side: groups of servers, what is asked of them, and how much at a time.
//!
//! [`Group`] is where to start reading: what a request sends is read `ahead`, it waits for a place in the `queue`, is given a
//! server by its `balance`, and that `server` is asked (`ask`): on a connection from its `pool`, a new one, or one that requests
//! share (`http2`). `exchange` sends it and reads the head of the answer, `response` reads the rest.

mod ahead;
mod ask;
mod balance;
mod connection;
mod exchange;
mod group;
mod health;
mod http2;
mod owner;
mod pool;
mod queue;
mod record;
mod resolve;
mod response;
mod server;
pub mod settings;
mod transport;
mod upload;

pub use balance::Standing;
pub use group::{Group, GroupSnapshot, ServerSnapshot};
pub use record::Record;
pub use settings::{GroupSettings, HealthCheck, ServerSettings};

#[cfg(test)]
mod tests;
