//! HTTP/2 towards clients (RFC 9113).
//!
//! Frames, field blocks and windows are those of [`microcache_wire::h2`], which validates sizes and indices from the
//! peer. Every frame that costs a client nothing has a limit ([`flood_limits`]).

mod answers;
mod connection;
mod content;
mod deadline_timer;
mod flood_limits;
mod goaway;
mod head;
mod out;
mod receive;
mod requests;
mod reset_code;
mod stream;
mod stream_events;
mod streams;
mod timing;
mod tunnel;

use microcache_wire::h2::{
    extended_connect, flow, frame, hpack, priority, reason, section, settings, write,
};

pub(crate) use connection::{CloseReason, Http2ServerConnection, PREFACE};
