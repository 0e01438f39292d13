//! Who is asked: servers, with a cache in front of them that lies in a directory.

use std::env;
use std::future::{Ready, ready};
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Method;
use http::header::{HeaderMap, HeaderValue, RANGE, USER_AGENT};
use microcache_client::reqwest::Client;
use microcache_client::{BuildError, Cache, CacheMode, CacheOptions, Error, Tier};
use reqwest::{ClientBuilder, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use super::{Ended, say, trust};
use crate::cli::{Fetch, Usage};

/// What memory takes at most: the response, while it arrives and is written to the directory. Larger ones than
/// [`LARGEST`] are not stored.
const MEMORY: u64 = 512 << 20;
const LARGEST: u64 = 64 << 20;
/// A body that takes longer to arrive is not stored.
const LONGEST: Duration = Duration::from_hours(2);
/// A server that says nothing for so long is given up.
const SILENCE: Duration = Duration::from_mins(1);

/// The cache, and the ways to ask it.
pub(super) struct Clients {
    pub(super) cache: Cache,
    online: Client,
    /// Nobody can be reached by it.
    offline: Client,
}

impl Clients {
    pub(super) async fn new(fetch: &Fetch) -> Result<Self, Ended> {
        let cache = cache(fetch).await?;
        let tls = trust::config(fetch.cacert.as_deref()).map_err(Ended::Unusable)?;
        let client = |builder: ClientBuilder| {
            let client = Client::new(&cache, builder.tls_backend_preconfigured(tls.clone()));
            client.map_err(|error| Ended::Unusable(super::deepest(&error)))
        };
        Ok(Self {
            online: client(online())?,
            offline: client(online().connector_layer(Nobody))?,
            cache,
        })
    }

    /// The response to a request of this method.
    pub(super) async fn ask(&self, fetch: &Fetch, method: Method) -> Result<Response, Error> {
        // What is stored may lie in the directory, and to look there is to ask: where nobody is to be asked, there
        // is nobody who could be reached.
        let (client, mode) = match fetch.usage {
            Usage::Usual => (&self.online, CacheMode::Default),
            Usage::Offline => (&self.offline, CacheMode::ForceCache),
            Usage::Reload => (&self.online, CacheMode::Reload),
            Usage::NoCache => (&self.online, CacheMode::NoCache),
            Usage::NoStore => (&self.online, CacheMode::NoStore),
        };
        let request = self.request(fetch, method, fetch.headers.clone())?;
        client.execute_with(request, options(fetch, mode)).await
    }

    /// Has what the directory has put into memory, where requests for a part of it find it.
    pub(super) async fn lift(&self, fetch: &Fetch) -> Result<(), Error> {
        let mode = match fetch.usage {
            Usage::Usual => CacheMode::Default,
            Usage::Offline => CacheMode::ForceCache,
            Usage::Reload | Usage::NoCache | Usage::NoStore => return Ok(()),
        };
        let mut headers = fetch.headers.clone();
        headers.remove(RANGE);
        let request = self.request(fetch, Method::GET, headers)?;
        let lifted = self.offline.execute_with(request, options(fetch, mode));
        lifted.await.map(drop)
    }

    fn request(
        &self,
        fetch: &Fetch,
        method: Method,
        mut headers: HeaderMap,
    ) -> Result<Request, Error> {
        let agent = concat!("microcache/", env!("CARGO_PKG_VERSION"));
        let agent = HeaderValue::from_static(agent);
        headers.entry(USER_AGENT).or_insert(agent);
        let request = self.online.request(method, fetch.url.clone());
        let request = request.headers(headers).build();
        request.map_err(Error::from)
    }
}

fn options(fetch: &Fetch, mode: CacheMode) -> CacheOptions {
    CacheOptions {
        mode,
        ttl: fetch.max_age,
        key: None,
    }
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

fn online() -> ClientBuilder {
    ClientBuilder::new()
        .connect_timeout(SILENCE)
        .read_timeout(SILENCE)
}

/// In place of connections: there are none.
#[derive(Clone, Copy, Debug)]
struct Nobody;

/// What is said instead.
#[derive(Debug)]
struct NotAsked;

impl std::fmt::Display for NotAsked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("nobody is to be asked")
    }
}

impl std::error::Error for NotAsked {}

#[derive(Clone, Debug)]
struct Unconnected<S>(S);

impl<S> Layer<S> for Nobody {
    type Service = Unconnected<S>;

    fn layer(&self, inner: S) -> Unconnected<S> {
        Unconnected(inner)
    }
}

impl<S, R> Service<R> for Unconnected<S>
where
    S: Service<R, Error = microcache_client::BoxError>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Ready<Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, _: R) -> Self::Future {
        ready(Err(Box::new(NotAsked)))
    }
}
