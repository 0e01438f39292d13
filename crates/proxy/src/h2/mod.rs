//! HTTP/2 towards clients (RFC 9113).
//!
//! Frames, field blocks and windows are those of [`microcache_wire::h2`], which validates sizes and indices from the
//! peer. Frames that cost the client less than the server are limited per connection ([`flood_limits`]).
//!
//! A connection has four parts, whose fields are private to their modules:
//!
//! - [`inbound`]: bytes become frames and field blocks;
//! - [`outbound`]: frames become bytes, within the connection's send window;
//! - [`streams`]: the requests under way, with all that begins and ends with them, down to the idle time;
//! - [`shutdown`]: the steps of GOAWAY.
//!
//! [`connection`] polls them in turns and passes on from one to another what is received: signatures say which
//! parts a step may change.

mod connection;
mod deadline_timer;
mod flood_limits;
mod inbound;
mod outbound;
mod reset_code;
mod shutdown;
mod streams;
mod tunnel;
mod write_timeout;

use microcache_wire::h2::{
    extended_connect, flow, frame, hpack, priority, reason, section, settings, write,
};

pub(crate) use connection::{CloseReason, Http2ServerConnection};
pub(crate) use inbound::PREFACE;
