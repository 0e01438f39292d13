//! HTTP/2 to servers: many requests share a connection.
//!
//! [`Http2Connections`] are those to one server, a few per runtime. A request reserves a [`StreamSlot`] on one of
//! them, and `exchange` opens a [`ResponseStream`]; `fields` validates the response by the rules of HTTP/1, `body`
//! reads its content, and `retry` classifies failures. Framing is done by the `h2` crate
//! (docs/decisions/http2.md).

mod body;
mod connection;
mod connections;
mod exchange;
mod fields;
mod retry;

pub(super) use body::deliver;
pub(super) use connection::{ConnectionRequirements, Http2Connection, StreamSlot};
pub(super) use connections::Http2Connections;
pub(super) use exchange::{ResponseStream, exchange};
pub(super) use retry::RetryClass;
