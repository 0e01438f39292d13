//! Cache options of a single request, in addition to its fields.

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
    /// The cache mode.
    pub mode: CacheMode,
    /// The freshness lifetime of the response, instead of the server's. The server still decides about storing. It
    /// applies to the fetch of this request, not to responses that are stored already.
    pub ttl: Option<Duration>,
    /// Part of the key in addition to the url: requests with different values never share a response.
    pub key: Option<Bytes>,
}

impl CacheOptions {
    /// The options with this mode.
    #[must_use]
    pub const fn with_mode(mut self, mode: CacheMode) -> Self {
        self.mode = mode;
        self
    }

    /// The options with this freshness lifetime.
    #[must_use]
    pub const fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The options with this part of the key.
    #[must_use]
    pub fn with_key(mut self, key: impl Into<Bytes>) -> Self {
        self.key = Some(key.into());
        self
    }
}

/// The cache mode of a request, with the semantics of the [Fetch
/// standard](https://fetch.spec.whatwg.org/#concept-request-cache-mode).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CacheMode {
    /// As in RFC 9111.
    #[default]
    Default,
    /// Neither looks up nor stores the response.
    NoStore,
    /// Does not look up the response, but stores it.
    Reload,
    /// Uses a stored response only after its revalidation.
    NoCache,
    /// Uses a stored response however stale it is, unless its server forbids that (`must-revalidate`, `no-cache`), and
    /// fetches if there is none.
    ForceCache,
    /// Like [`CacheMode::ForceCache`], without fetching: a 504 if there is no stored response.
    OnlyIfCached,
}
