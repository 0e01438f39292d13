//! An HTTP client with a private cache in a directory.

use std::env;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderName, HeaderValue, USER_AGENT};
use microcache_client::reqwest::{Client, Exchange};
use microcache_client::{BuildError, Cache, CacheMode, CacheOptions, Error, Tier};
use microcache_policy::{is_common, is_identity};
use reqwest::{ClientBuilder, NoProxy, Proxy as HttpProxy, Response};
use sha2::{Digest, Sha256};

use super::failure::FetchFailure;
use super::message::{deepest, say};
use super::{trust, verbose};
use crate::cli::{Fetch, Proxy, Usage};

/// Memory for responses in transit to the directory, in bytes. Those above [`LARGEST`] are written while they
/// arrive.
const MEMORY: u64 = 64 << 20;
const LARGEST: u64 = 8 << 20;
/// Time limit for a body to be stored.
const LONGEST: Duration = Duration::from_hours(2);
/// Inactivity timeout of a server.
const SILENCE: Duration = Duration::from_mins(1);

/// The cache with its client.
pub(super) struct Cached {
    pub(super) cache: Cache,
    client: Client,
}

impl Cached {
    pub(super) async fn new(fetch: &Fetch) -> Result<Self, FetchFailure> {
        let cache = cache(fetch).await?;
        let tls = trust::config(fetch).map_err(FetchFailure::Unusable)?;
        let builder = ClientBuilder::new()
            .connect_timeout(SILENCE)
            .read_timeout(SILENCE)
            .tls_backend_preconfigured(tls);
        let builder = through_proxy(builder, fetch.proxy.as_ref());
        let client = builder.and_then(|builder| {
            if fetch.verbose {
                let show = |exchange: Exchange<'_>| verbose::show(&exchange);
                Client::with_observer(&cache, builder, show)
            } else {
                Client::new(&cache, builder)
            }
        });
        let client = client.map_err(|error| FetchFailure::Unusable(deepest(&error)))?;
        Ok(Self { cache, client })
    }

    /// Sends the request through the cache.
    pub(super) async fn ask(&self, fetch: &Fetch, usage: Usage) -> Result<Response, Error> {
        let mode = match usage {
            Usage::Usual => CacheMode::Default,
            Usage::Offline => CacheMode::OnlyIfCached,
            Usage::Reload => CacheMode::Reload,
            Usage::NoCache => CacheMode::NoCache,
            Usage::NoStore => CacheMode::NoStore,
        };
        let agent = concat!("microcache/", env!("CARGO_PKG_VERSION"));
        let mut headers = fetch.headers.clone();
        for (name, value) in [(USER_AGENT, agent), (ACCEPT, "*/*")] {
            let entry = headers.entry(name);
            entry.or_insert(HeaderValue::from_static(value));
        }
        let request = self
            .client
            .request(fetch.method.clone(), fetch.url.clone())
            .headers(headers);
        let request = match &fetch.data {
            Some(data) => request.body(data.clone()),
            None => request,
        };
        let mut options = CacheOptions::default().with_mode(mode);
        options.ttl = fetch.max_age;
        options.key = identity(fetch);
        self.client.execute_with(request.build()?, options).await
    }
}

/// Sets the proxy of the command line, if there is one; `NO_PROXY` applies to it, as with `curl`. Otherwise
/// the builder uses those of the environment.
fn through_proxy(
    builder: ClientBuilder,
    proxy: Option<&Proxy>,
) -> Result<ClientBuilder, reqwest::Error> {
    match proxy {
        Some(Proxy::None) => Ok(builder.no_proxy()),
        _ if is_all_direct() => Ok(builder.no_proxy()),
        None => Ok(builder),
        Some(Proxy::At(url)) => {
            let proxy = HttpProxy::all(url.clone())?;
            Ok(builder.proxy(proxy.no_proxy(NoProxy::from_env())))
        }
    }
}

/// Returns true if the environment exempts every host from proxies. The client applies `*` to names only, not
/// to addresses.
fn is_all_direct() -> bool {
    let names = ["NO_PROXY", "no_proxy"];
    let list = names.into_iter().find_map(|name| env::var(name).ok());
    list.is_some_and(|list| list.split(',').any(|entry| entry.trim() == "*"))
}

/// Part of the cache key besides the URL: a hash of cookies, other specific fields and `--insecure`. Servers
/// rarely name them in `Vary`. Credentials are part of every key of a private cache.
fn identity(fetch: &Fetch) -> Option<Bytes> {
    let identifies = |(name, value): &(&HeaderName, &HeaderValue)| {
        let name = name.as_str().as_bytes();
        !is_identity(name) && !is_common(name, value.as_bytes())
    };
    let mut hash = Sha256::new();
    let mut is_specific = fetch.insecure;
    let mut push = |part: &[u8]| {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    };
    if fetch.insecure {
        // No field has this name.
        push(b"");
    }
    for (name, value) in fetch.headers.iter().filter(identifies) {
        is_specific = true;
        push(name.as_str().as_bytes());
        push(value.as_bytes());
    }
    is_specific.then(|| Bytes::copy_from_slice(&hash.finalize()))
}

/// A private cache, with the directory as its tier if that is usable.
async fn cache(fetch: &Fetch) -> Result<Cache, FetchFailure> {
    let builder = || {
        let builder = Cache::private().memory(MEMORY).max_object(LARGEST);
        builder.fill_timeout(LONGEST)
    };
    let failed = |error: BuildError| FetchFailure::Unusable(error.to_string());
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
        return Err(FetchFailure::NotStored(format!("there is no cache: {why}")));
    }
    say(&format!("continuing without a cache: {why}"));
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
