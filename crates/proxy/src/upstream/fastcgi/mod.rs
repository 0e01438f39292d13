//! FastCGI to servers: a connection carries one request at a time, as with HTTP/1.
//!
//! `attempt` chooses the connection, `exchange` sends the request and reads the head of the response, `body` reads the
//! rest. The variables of a request are in `variables`, and `error_output` logs the application's error stream.

mod attempt;
mod body;
pub(super) mod call;
mod error_output;
pub(super) mod exchange;
pub(super) mod server;
pub(super) mod variables;

pub(super) use body::{FastCgiExchange, deliver};
