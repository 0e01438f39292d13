//! The path of one request through the cache. [`serve`] is the place to start reading.
//!
//! [`Engine::serve`] does everything that needs no waiting: route, request facts, key, lookup, verdict, and a
//! look at what the nearest tier can return at once. The result is one of these:
//!
//! - **Hit**: `respond` applies conditional requests, ranges and HEAD; `encoded` selects a content coding among those that
//!   `compress` has made on its own threads.
//! - **Stale**: the same response at once, and one background refresh (`stale`).
//! - **Miss**: `ask` enters the table of fetches ([`cache::flight`]) as leader or waiter. A leader's fetch is a task of its
//!   own (`lead`), so it survives its client; `audience` and `holdings` bound the waiters of one address. The tiers are
//!   looked up first (`tier_lookup`). A storable response becomes a fill (`fill`), which all waiters read while it
//!   arrives, and which `store_response` commits when it is complete. A response that must not be shared goes to the
//!   leader alone.
//! - **Pass**: `direct` sends the request on and streams both ways; `invalidate` removes what unsafe methods change.
//!
//! All state belongs to [`cache::Cache`], whose module documentation has the invariants and the order of locks. `explain`
//! takes the same steps without effects, by the same functions.

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
