//! HTTP/2 towards clients (RFC 9113).
//!
//! Frames, field blocks, windows and limits are I/O-free. Sizes and indices from the peer are validated before
//! use, and every frame that costs a client nothing has a limit ([`flood_limits`]).

mod answers;
mod connection;
mod content;
mod deadline_timer;
mod flood_limits;
mod flow;
pub mod frame;
mod goaway;
mod head;
pub mod hpack;
mod out;
mod priority;
pub mod reason;
mod receive;
mod requests;
mod section;
mod settings;
mod stream;
mod stream_events;
mod streams;
mod timing;
mod tunnel;
mod write;

pub(crate) use connection::{CloseReason, Http2ServerConnection, PREFACE};
