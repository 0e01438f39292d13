//! What a request may ask of the cache beside what its fields say.

use std::time::Duration;

use bytes::Bytes;

/// Options of one request, put into its extensions:
///
/// ```
/// use microcache_client::{CacheMode, CacheOptions};
///
/// let request = http::Request::get("http://example.com/")
///     .extension(CacheOptions::default().with_mode(CacheMode::NoCache))
///     .body(());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheOptions {
    /// How the cache is used.
    pub mode: CacheMode,
    /// How long the response is fresh, whatever the server says about how long. Whether it may be stored at all
    /// stays the server's word. Counts for this request's own fetch: what is stored already keeps its time.
    pub ttl: Option<Duration>,
    /// Is part of the key beside the url: requests with different ones never share a response.
    pub key: Option<Bytes>,
}

impl CacheOptions {
    /// The same with this mode.
    #[must_use]
    pub const fn with_mode(mut self, mode: CacheMode) -> Self {
        self.mode = mode;
        self
    }

    /// The same with this time for which the response is fresh.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The same with this part of the key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }
}

/// How a request uses the cache, in the words of the [Fetch standard](https://fetch.spec.whatwg.org/#concept-request-cache-mode).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheMode {
    /// As RFC 9111 says.
    #[default]
    Default,
    /// Neither looks into the cache nor stores the response.
    NoStore,
    /// Does not look into the cache, and stores the response.
    Reload,
    /// What is stored is used only if the server confirms it.
    NoCache,
    /// What is stored is used however stale it is, unless its server forbids that (`must-revalidate`, `no-cache`).
    /// Without that the server is asked.
    ForceCache,
    /// The same, and the server is not asked: without a stored response there is a 504.
    OnlyIfCached,
}
