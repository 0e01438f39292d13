//! HTTP/2 to clients (RFC 9113): another face of the session.
//!
//! Frames, field blocks, windows and bounds are read and kept without I/O. Nothing is sized or
//! indexed by what comes from outside without a check, and whatever costs a client nothing has a
//! bound with a name ([`abuse`]).

mod abuse;
mod answers;
mod connection;
mod content;
mod flow;
pub mod frame;
mod head;
pub mod hpack;
mod leaving;
mod out;
mod priority;
pub mod reason;
mod receive;
mod requests;
mod section;
mod settings;
mod stream;
mod streams;
mod timing;
mod tunnel;
mod waiting;
mod write;

pub(crate) use connection::{Connection, Ended, PREFACE};
