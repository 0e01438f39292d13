//! HTTP/2 to clients (RFC 9113): another face of the session.
//!
//! Frames, field blocks, windows and bounds are read and kept without I/O. Nothing is sized or
//! indexed by what comes from outside without a check, and whatever costs a client nothing has a
//! bound with a name ([`abuse`]).

mod abuse;
mod flow;
pub mod frame;
pub mod hpack;
mod priority;
pub mod reason;
mod settings;
mod write;
