//! Taking responses out of the cache.

use bytes::Bytes;
use http::Uri;
use microcache_engine::cache::{Scope, Strength};

use crate::cache::Cache;
use crate::clock;
use crate::request::Place;

/// Why a purge does not count everywhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PurgeError {
    /// Nothing is stored for it: it has no `http` or `https` in front, or names a user.
    #[error(
        "{0} is no url that anything is stored for: it begins with http:// or https:// and names a host"
    )]
    NotAUrl(String),
    /// It counts in this process. Those that share a tier with it do not know of it yet, or a restart may bring
    /// back what it covers.
    #[error("it counts here, and not elsewhere yet: {0}")]
    HereOnly(String),
}

impl Cache {
    /// Forgets every response of a url, of all identities and keys. From now on none of them is used, even if it is
    /// being fetched at the moment.
    pub async fn purge(&self, url: &Uri) -> Result<(), PurgeError> {
        let (host, target) = named(url)?;
        self.forget(Scope::Url { host, target }).await
    }

    /// The same for all urls of the same host that begin like this one.
    pub async fn purge_prefix(&self, url: &Uri) -> Result<(), PurgeError> {
        let (host, path) = named(url)?;
        self.forget(Scope::prefixed(host, path)).await
    }

    /// The same for all responses with this tag (`Cache-Tag`, `Surrogate-Key`, `xkey`), whatever their host.
    pub async fn purge_tag(&self, tag: &str) -> Result<(), PurgeError> {
        let name = Bytes::copy_from_slice(tag.as_bytes());
        self.forget(Scope::Tag(name)).await
    }

    /// Forgets everything.
    pub async fn clear(&self) -> Result<(), PurgeError> {
        self.forget(Scope::Everything).await
    }

    async fn forget(&self, scope: Scope) -> Result<(), PurgeError> {
        let cache = &self.shared.engine.cache;
        let purged = cache.purge([(scope, Strength::Hard)]);
        // It counts here already. Tiers are told where they can be waited for.
        if let Err(missing) = clock::is_here()
            && !cache.has_no_tiers()
        {
            let why = format!("they cannot be waited for ({})", missing.why());
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
    let place = Place::of(url).ok_or_else(|| PurgeError::NotAUrl(url.to_string()))?;
    // A url without a path names the root, and so does its key.
    let root = if place.target.starts_with(b"/") {
        ""
    } else {
        "/"
    };
    let target = [root.as_bytes(), place.target].concat();
    Ok((place.normal_host(), target.into()))
}
