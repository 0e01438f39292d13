//! An HTTP cache for clients, as a [`tower`](https://docs.rs/tower) layer: the engine of Microcache, without the proxy.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use microcache_client::{Cache, CacheInfo};
//! use tower::{ServiceBuilder, ServiceExt};
//! # use http_body_util::Empty;
//! # let connector = tower::service_fn(|_: http::Request<Empty<bytes::Bytes>>| async {
//! #     Ok::<_, std::io::Error>(http::Response::builder().header("cache-control", "max-age=60")
//! #         .body(http_body_util::Full::<bytes::Bytes>::from("hello")).unwrap())
//! # });
//!
//! let cache = Cache::private().memory(64 << 20).build().await?;
//! let client = ServiceBuilder::new().layer(cache.layer()).service(connector);
//!
//! let request = http::Request::get("http://example.com/").body(Empty::new())?;
//! let response = client.oneshot(request).await?;
//! println!("{:?}", response.extensions().get::<CacheInfo>());
//! # Ok(())
//! # }
//! ```
//!
//! Properties:
//!
//! - GET and HEAD without a body are served from the cache where RFC 9111 allows it. Other requests are forwarded
//!   unchanged to the inner service, and invalidate stored responses where they succeed.
//! - Bodies are streamed: the first byte of a miss is forwarded when the inner service yields it.
//! - Concurrent requests for the same response are coalesced into one fetch. It continues if the caller that began it
//!   is dropped.
//! - A failing tier never fails a request: the inner service is called instead.
//! - An error of the inner service is the source of the [`Error`] of every coalesced request.
//! - Memory and tiers are bounded in bytes.
//!
//! It needs a tokio runtime, of either kind, with timers (`enable_all` or `enable_time`): a cache is not built without
//! them, and requests from a runtime without timers, or outside of a runtime, bypass the cache. A [`Cache`] is a
//! handle: its clones and their layers share the stored responses.

#[cfg(feature = "reqwest")]
mod added_headers;
mod body;
mod builder;
mod cache;
mod callers_task;
mod counts;
mod error;
mod events;
mod fields;
mod future;
mod info;
mod inner;
mod layer;
mod options;
mod passthrough;
mod purge;
mod request;
#[cfg(feature = "reqwest")]
pub mod reqwest;
mod response;
mod runtime;
mod stats;
#[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
mod tier;

pub use body::CacheBody;
pub use builder::{BuildError, Builder};
pub use cache::Cache;
pub use error::{Error, InnerError};
pub use events::{Event, EventKind, Events};
pub use future::ResponseFuture;
pub use info::{CacheInfo, Outcome};
pub use layer::{CacheLayer, CacheService};
pub use options::{CacheMode, CacheOptions};
pub use purge::PurgeError;
pub use stats::{Stats, TierStats};
#[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
pub use tier::Tier;

/// Compiles and runs the examples of the documentation.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/client/api-client.md")]
    struct ApiClient;
    #[doc = include_str!("../../../docs/client/sharing.md")]
    struct Sharing;
    #[doc = include_str!("../../../docs/client/offline.md")]
    struct Offline;
    #[doc = include_str!("../../../docs/client/testing.md")]
    struct Testing;
}

/// Any error that can travel between threads, as [`tower`](https://docs.rs/tower) has it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
