//! HTTP/2 with servers: many requests share a connection.
//!
//! [`Connections`] are those to one server, a few for each runtime. A request gets a [`Slot`] on one of them, and `exchange` makes a
//! [`Stream`] of it; `fields` holds the answer to the rules of HTTP/1's, `body` reads the rest, and `fate` says what a failure means for the
//! request. Frames are the `h2` crate's (docs/decisions/http2.md).

mod body;
mod connection;
mod connections;
mod exchange;
mod fate;
mod fields;

pub(super) use body::deliver;
pub(super) use connection::{Connection, Slot};
pub(super) use connections::{Connections, Wanted};
pub(super) use exchange::{Stream, exchange};
pub(super) use fate::Fate;
