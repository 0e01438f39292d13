//! The path of one request through the cache. [`serve`] is the place to start reading.
//!
//! [`Engine::serve`] does everything that needs no waiting: route, request facts, key, lookup, verdict, and a
//! look at what the nearest tier can return at once. The result is one of these, whose steps are the files of `request`:
//!
//! - **Hit**: `respond` applies conditional requests, ranges and HEAD; `encoded` selects a content coding among those that
//!   `compress` has made on its own threads.
//! - **Stale**: the same response at once, and one background refresh (`stale`).
//! - **Miss**: `coalesce` enters the table of fetches ([`cache::flight`]) as leader or waiter. A leader's fetch is a task of its
//!   own (`lead`), so it survives its client; `audience` and `holdings` bound the waiters of one address. The tiers are
//!   looked up first (`tier_lookup`). A storable response (`store_response`) becomes a fill (`fill`), which all waiters
//!   read while it arrives, and which its pump commits when it is complete. A response that must not be shared goes to
//!   the leader alone.
//! - **Pass**: `direct` sends the request on and streams both ways; `invalidate` removes what unsafe methods change.
//!
//! All state belongs to [`cache::Cache`], whose module documentation has the invariants and the order of locks. `inspect`
//! takes the same steps without effects, by the same functions.

mod audience;
pub mod body;
pub mod cache;
mod cause;
mod compress;
mod content;
mod fill;
mod holdings;
mod inspect;
mod message;
pub mod origin;
pub mod outcome;
mod request;
mod sync;

pub use audience::{Audience, RequestClients, Seat, Watching};
pub use body::{Body, BodyError, FileReader, Frame, Source};
pub use cache::fetch_outcome::Failure;
pub use cache::{Cache, flight};
pub use cause::Cause;
#[cfg(feature = "compress")]
pub use compress::GzipPage;
pub use compress::{CompressionStats, MadeStats};
pub use content::{ContentDigest, QueryContent};
pub use fill::{FillReader, pace};
pub use holdings::Holdings;
pub use inspect::{Compressed, Decision, Explained, ExplainedVariant, Peek};
pub use message::{ForwardedRequest, Request, RequestHead, RequestId, Response};
pub use microcache_store::clock::{self, Clock};
pub use origin::{
    BoxFuture, ClientConnection, Duplex, Interim, Interims, Origin, OriginError, OriginRequest,
    OriginResponse, RouteId, Tunnel, Urgency,
};
pub use outcome::Outcome;
pub use request::{
    AheadResult, Bypass, Clients, Engine, FetchPlan, FindRoute, NoResponse, Refresh, Route,
    RouteMatch, Served, Settings,
};
