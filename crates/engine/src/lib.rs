//! One request's way through the cache. [`serve`] is the place to start reading.

mod alone;
mod ask;
mod behind;
pub mod body;
mod client;
mod clock;
mod failure;
mod file;
mod fill;
pub mod flight;
mod interim;
mod keep;
mod lead;
mod message;
pub mod origin;
pub mod outcome;
mod oversized;
mod page;
mod purge;
mod purges;
mod respond;
pub mod serve;
mod stale;
mod sync;

pub use body::{Body, BodyError, Frame, Source};
pub use client::ClientConnection;
pub use clock::Clock;
pub use file::FileReader;
pub use fill::FillReader;
pub use interim::{Interim, Interims};
pub use message::{Incoming, Request, Response};
pub use origin::{
    BoxFuture, Duplex, Origin, OriginError, OriginRequest, OriginResponse, Tunnel, Urgency,
};
pub use outcome::{Counters, Outcome};
pub use respond::plain as plain_response;
pub use serve::{Engine, Found, Question, Refresh, Route, Served, Settings};
