//! Upstream groups: load balancing, queueing and connection pools towards origin servers.
//!
//! Start at [`Group`]: the beginning of the body is read (`read_ahead`), a permit awaited (`queue`), a server
//! chosen (`balance`), and the request sent to that `server` (`attempt`): on a connection from its `pool`, a new
//! one, or a shared one with HTTP/2 (`http2`); servers that run PHP have their own `fastcgi`, and `php` finds the script. `exchange` sends it and reads the head of the response, `response`
//! reads the body.

mod attempt;
mod balance;
mod connection;
mod counters;
mod endpoint;
mod exchange;
mod fastcgi;
mod group;
mod groups;
mod health;
mod http2;
mod owner;
mod php;
mod pool;
mod queue;
mod read_ahead;
mod reservations;
mod resolve;
mod response;
mod server;
mod server_address;
pub mod settings;
mod transport;
mod unix_socket;
mod upload;

pub use balance::ServerHealth;
pub use counters::ServerCounters;
pub use group::{Group, GroupSnapshot, ServerSnapshot};
pub(crate) use groups::Groups;
pub use settings::{
    GroupSettings, HealthCheck, OriginProtocol, PhpSettings, ServerAddress, ServerSettings,
};

#[cfg(test)]
mod tests;
