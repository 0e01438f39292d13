//! The request path of the cache. Start reading at [`serve`].

mod ask;
mod audience;
pub mod body;
pub mod cache;
mod cause;
mod client;
mod compress;
#[cfg(feature = "compress")]
mod decoded;
mod direct;
mod encoded;
mod explain;
mod failure;
mod fetch;
mod file;
mod fill;
mod frame;
mod holdings;
mod interim;
mod invalidate;
mod lead;
mod message;
pub mod origin;
pub mod outcome;
pub mod pace;
mod page;
mod peek;
mod respond;
pub mod serve;
mod stale;
mod store_response;
mod sync;
mod tier_lookup;
mod variants;
mod verdict;

pub use audience::{Audience, Seat, Watching};
pub use body::{Body, BodyError, Frame, Source};
pub use cache::flight::Failure;
pub use cache::{Cache, flight};
pub use cause::Cause;
pub use client::ClientConnection;
pub use compress::{CompressionStats, MadeStats};
pub use explain::{Compressed, Decision, Explained, ExplainedVariant};
pub use failure::NoResponse;
pub use file::FileReader;
pub use fill::FillReader;
pub use holdings::Holdings;
pub use interim::{Interim, Interims};
pub use message::{Incoming, Request, Response};
pub use microcache_store::clock::{self, Clock};
pub use origin::{
    BoxFuture, Duplex, Origin, OriginError, OriginRequest, OriginResponse, RouteId, Tunnel, Urgency,
};
pub use outcome::Outcome;
pub use peek::Peek;
pub use serve::{Bypass, Clients, Engine, FetchPlan, Refresh, Route, RouteMatch, Served, Settings};
