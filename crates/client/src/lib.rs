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
//! What it does, and what it does not:
//!
//! - GET and HEAD without a body are answered from the cache where RFC 9111 allows it. Everything else goes to the
//!   inner service untouched, and makes invalid what it changes.
//! - Bodies stream: the first byte of a miss is there when the inner service has it.
//! - Simultaneous requests for the same are one request to the inner service. It goes on when the one who began it
//!   leaves.
//! - A cache that fails is never a request that fails: without a tier the inner service is asked.
//! - What an inner service says when it fails is the source of the [`Error`], for each of those who waited.
//! - What is stored is bounded in bytes.
//!
//! It needs a tokio runtime, of either kind, with its timers (`enable_all` or `enable_time`): without them it is not
//! built, and requests from another runtime that has none, or from no runtime at all, pass by the cache. A [`Cache`] is
//! a handle: clones of it, and all their layers, share what is stored.

#[cfg(feature = "reqwest")]
mod added_headers;
mod beside;
mod body;
mod builder;
mod cache;
mod callers_task;
mod clock;
mod counts;
mod error;
mod events;
mod fields;
mod future;
mod info;
mod inner;
mod layer;
mod options;
mod purge;
mod request;
#[cfg(feature = "reqwest")]
pub mod reqwest;
mod response;
#[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
mod tier;

pub use body::CacheBody;
pub use builder::{BuildError, Builder};
pub use cache::Cache;
pub use counts::{Stats, TierStats};
pub use error::{Error, InnerError};
pub use events::{Event, EventKind, Events};
pub use future::ResponseFuture;
pub use info::{CacheInfo, Outcome};
pub use layer::{CacheLayer, CacheService};
pub use options::{CacheMode, CacheOptions};
pub use purge::PurgeError;
#[cfg(any(feature = "disk", feature = "memcached", feature = "redis"))]
pub use tier::Tier;

/// What stands in documents is compiled, and run where it can be.
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
