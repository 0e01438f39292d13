//! Who is asked: servers, with a cache in front of them that lies in a directory.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::Method;
use http::header::{HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use microcache_client::reqwest::Client;
use microcache_client::{BuildError, Cache, CacheMode, CacheOptions, Error, Tier};
use microcache_policy::{is_common, is_identity};
use reqwest::{ClientBuilder, Response};
use sha2::{Digest, Sha256};

use super::{Ended, say, trust};
use crate::cli::{Fetch, Usage};

/// What memory takes at most: the response, while it arrives and is written to the directory. Larger ones than
/// [`LARGEST`] are written while they arrive.
const MEMORY: u64 = 64 << 20;
const LARGEST: u64 = 8 << 20;
/// A body that takes longer to arrive is not stored.
const LONGEST: Duration = Duration::from_hours(2);
/// A server that says nothing for so long is given up.
const SILENCE: Duration = Duration::from_mins(1);

/// The cache, and the client that asks it.
pub(super) struct Cached {
    pub(super) cache: Cache,
    client: Client,
}

impl Cached {
    pub(super) async fn new(fetch: &Fetch) -> Result<Self, Ended> {
        let cache = cache(fetch).await?;
        let tls = trust::config(fetch.cacert.as_deref()).map_err(Ended::Unusable)?;
        let builder = ClientBuilder::new()
            .connect_timeout(SILENCE)
            .read_timeout(SILENCE)
            .tls_backend_preconfigured(tls);
        let client = Client::new(&cache, builder);
        let client = client.map_err(|error| Ended::Unusable(super::deepest(&error)))?;
        Ok(Self { cache, client })
    }

    /// The response to a request of this method.
    pub(super) async fn ask(&self, fetch: &Fetch, method: Method) -> Result<Response, Error> {
        let mode = match fetch.usage {
            Usage::Usual => CacheMode::Default,
            Usage::Offline => CacheMode::OnlyIfCached,
            Usage::Reload => CacheMode::Reload,
            Usage::NoCache => CacheMode::NoCache,
            Usage::NoStore => CacheMode::NoStore,
        };
        let agent = concat!("microcache/", env!("CARGO_PKG_VERSION"));
        let mut headers = fetch.headers.clone();
        let entry = headers.entry(USER_AGENT);
        entry.or_insert(HeaderValue::from_static(agent));
        let request = self.client.request(method, fetch.url.clone());
        let request = request.headers(headers).build()?;
        let mut options = CacheOptions::default().with_mode(mode);
        options.ttl = fetch.max_age;
        options.key = told_apart(&fetch.headers);
        self.client.execute_with(request, options).await
    }
}

/// The part of the key that the fields of a request are: cookies, and all others that do not come with every request.
/// Servers rarely name them in `Vary`. Fields that say who asks are part of each key in a private cache. Only a hash
/// of them goes where keys go.
fn told_apart(headers: &HeaderMap) -> Option<Bytes> {
    let tells = |(name, value): &(&HeaderName, &HeaderValue)| {
        let name = name.as_str().as_bytes();
        !is_identity(name) && !is_common(name, value.as_bytes())
    };
    let mut hash = Sha256::new();
    let mut is_told = false;
    for (name, value) in headers.iter().filter(tells) {
        is_told = true;
        for part in [name.as_str().as_bytes(), value.as_bytes()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    is_told.then(|| Bytes::copy_from_slice(&hash.finalize()))
}

/// A private cache behind which is the directory, if that can be used.
async fn cache(fetch: &Fetch) -> Result<Cache, Ended> {
    let builder = || {
        let builder = Cache::private().memory(MEMORY).max_object(LARGEST);
        builder.fill_timeout(LONGEST)
    };
    let failed = |error: BuildError| Ended::Unusable(error.to_string());
    if fetch.usage == Usage::NoStore {
        return builder().build().await.map_err(failed);
    }
    let why = match directory(fetch) {
        None => "neither XDG_CACHE_HOME nor HOME is set; name a directory with --cache".to_owned(),
        Some(directory) => {
            let tier = Tier::directory(directory, fetch.cache_size);
            match builder().tier(tier).build().await {
                Ok(cache) => return Ok(cache),
                Err(BuildError::Tier { source, .. }) => source.to_string(),
                Err(error) => return Err(failed(error)),
            }
        }
    };
    if fetch.usage == Usage::Offline {
        return Err(Ended::NotStored(format!("there is no cache: {why}")));
    }
    say(&format!("it goes on without a cache: {why}"));
    builder().build().await.map_err(failed)
}

fn directory(fetch: &Fetch) -> Option<PathBuf> {
    // A relative path there is to be ignored (XDG Base Directory Specification).
    let named = |name| {
        let path = PathBuf::from(env::var_os(name)?);
        path.is_absolute().then_some(path)
    };
    let usual = || {
        let caches = named("XDG_CACHE_HOME").or_else(|| Some(named("HOME")?.join(".cache")));
        caches.map(|caches| caches.join("microcache/fetch"))
    };
    fetch.cache.clone().or_else(usual)
}
