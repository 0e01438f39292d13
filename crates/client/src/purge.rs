//! Purging of stored responses.

use bytes::Bytes;
use http::Uri;
use microcache_engine::cache::{Scope, Strength};

use crate::cache::Cache;
use crate::request::CacheableUrl;
use crate::runtime;

/// The error of a purge that does not apply everywhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// The url cannot be cached: it is not `http` or `https`, or has user information.
    #[error("{0} is not a cacheable URL: it must begin with http:// or https:// and have a host")]
    NotAUrl(String),
    /// The purge applies in this process only. Others that share a tier miss it, or a restart may restore the purged
    /// responses.
    #[error("in force in this process, but {0}")]
    HereOnly(String),
}

impl Cache {
    /// Purges every response of a url, for all identities and keys. It also covers responses that are being fetched.
    pub async fn purge(&self, url: &Uri) -> Result<(), PurgeError> {
        let (host, target) = named(url)?;
        self.forget(Scope::Url { host, target }).await
    }

    /// Purges all urls of the same host that begin with this one.
    pub async fn purge_prefix(&self, url: &Uri) -> Result<(), PurgeError> {
        let (host, path) = named(url)?;
        self.forget(Scope::prefixed(host, path)).await
    }

    /// Purges all responses with this tag (`Cache-Tag`, `Surrogate-Key`, `xkey`), on all hosts.
    pub async fn purge_tag(&self, tag: &str) -> Result<(), PurgeError> {
        let name = Bytes::copy_from_slice(tag.as_bytes());
        self.forget(Scope::Tag(name)).await
    }

    /// Purges everything.
    pub async fn clear(&self) -> Result<(), PurgeError> {
        self.forget(Scope::Everything).await
    }

    async fn forget(&self, scope: Scope) -> Result<(), PurgeError> {
        let cache = &self.shared.engine.cache;
        let purged = cache.purge([(scope, Strength::Hard)]);
        // It applies in memory already. The tiers are waited for where that is possible.
        if let Err(missing) = runtime::check()
            && !cache.has_no_tiers()
        {
            let why = format!("the tiers cannot be awaited ({})", missing.why());
            return Err(PurgeError::HereOnly(why));
        }
        let purged = purged.await;
        let elsewhere = |error: microcache_engine::cache::NotWritten| error.to_string();
        purged
            .written
            .map_err(|error| PurgeError::HereOnly(elsewhere(error)))
    }
}

fn named(url: &Uri) -> Result<(Bytes, Bytes), PurgeError> {
    let place = CacheableUrl::of(url).ok_or_else(|| PurgeError::NotAUrl(url.to_string()))?;
    // A url without a path names the root, as does its key.
    let root = if place.target.starts_with(b"/") {
        ""
    } else {
        "/"
    };
    let target = [root.as_bytes(), place.target].concat();
    Ok((place.normal_host(), target.into()))
}
