//! A reqwest client with a cache in front of it.
//!
//! Redirects are followed in front of the cache: each of them is a response with a lifetime of its own. So the redirect
//! policy of the [`ClientBuilder`] has no effect.
//!
//! Headers for all requests are best given to [`Client::with_default_headers`]. Default headers of the
//! [`ClientBuilder`] count too: they select the stored response, credentials among them separate clients of one cache,
//! and a shared cache treats them like headers of a request. But:
//!
//! - The value of a header that is marked as sensitive cannot be read. Such a client shares with its clones alone, and
//!   finds nothing in a tier that it had stored there before the program was started.
//! - With credentials there, a redirection to another site is not followed, because reqwest would send them there.
//! - A cookie store counts as a cookie of this client in each request.
//!
//! **The cache does not see a client certificate (`identity`), an address, or a proxy of the [`ClientBuilder`].** If
//! servers answer otherwise for them, have a [`Cache`] for each such client, or set [`CacheOptions::key`].
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use microcache_client::{Cache, reqwest::Client};
//!
//! let cache = Cache::private().build().await?;
//! let client = Client::new(&cache, reqwest::Client::builder())?;
//! let text = client.get("http://example.com/").await?.text().await?;
//!
//! let request = client.request(reqwest::Method::GET, "http://example.com/").header("accept", "text/plain");
//! let response = client.execute(request.build()?).await?;
//! # Ok(())
//! # }
//! ```

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{Extensions, HeaderMap, Uri};
use reqwest::redirect::Policy as Redirects;
use reqwest::{
    Body, ClientBuilder, IntoUrl, Method, RequestBuilder, Response, ResponseBuilderExt, Url,
};
use tower_http::follow_redirect::policy::{Action, Attempt, Limited, Policy};
use tower_http::follow_redirect::{FollowRedirect, RequestUri};
use tower_layer::Layer;
use tower_service::Service;

use crate::added_headers::{AddedHeaders, is_credential};
use crate::inner::call;
use crate::{Cache, CacheBody, CacheOptions, CacheService, Error, ResponseFuture};

type HttpRequest = http::Request<Body>;

/// A reqwest client with a cache in front of it. Clones share both.
#[derive(Clone, Debug)]
pub struct Client {
    plain: reqwest::Client,
    added_by_plain: AddedHeaders,
    default_headers: HeaderMap,
    cached: CacheService<UncachedClient>,
}

impl Client {
    /// Builds the client with this cache in front of it.
    pub fn new(cache: &Cache, client: ClientBuilder) -> Result<Self, reqwest::Error> {
        Self::build(cache, client, None)
    }

    /// Builds the client with an observer of each request to a server and the head of each response. It does not see
    /// requests that are served from the cache, but it sees revalidations.
    ///
    /// It is called before a request is sent, and delays it while it runs.
    pub fn with_observer(
        cache: &Cache,
        client: ClientBuilder,
        observer: impl Fn(Exchange<'_>) + Send + Sync + 'static,
    ) -> Result<Self, reqwest::Error> {
        Self::build(cache, client, Some(Observer(Arc::new(observer))))
    }

    fn build(
        cache: &Cache,
        client: ClientBuilder,
        observer: Option<Observer>,
    ) -> Result<Self, reqwest::Error> {
        let plain = client.redirect(Redirects::none()).build()?;
        let cached = cache.layer().layer(UncachedClient {
            client: plain.clone(),
            observer,
        });
        Ok(Self {
            added_by_plain: AddedHeaders::of(&plain),
            plain,
            default_headers: HeaderMap::new(),
            cached,
        })
    }

    /// Adds these headers to each request that lacks them, in front of the cache: they identify the user, and
    /// credentials are removed when a redirect leads to another site.
    #[must_use]
    pub fn with_default_headers(mut self, headers: HeaderMap) -> Self {
        self.default_headers = headers;
        self
    }

    /// Creates a request for [`Client::execute`]. Its own `send` would bypass the cache.
    pub fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        self.plain.request(method, url)
    }

    /// Sends a GET request. Fails if the url is invalid, or if there is no response.
    pub async fn get(&self, url: impl IntoUrl) -> Result<Response, Error> {
        let request = self.request(Method::GET, url).build();
        self.execute(request?).await
    }

    /// Sends a request. The extensions of the response have a [`CacheInfo`](crate::CacheInfo). Fails if there is no
    /// response.
    pub async fn execute(&self, request: reqwest::Request) -> Result<Response, Error> {
        self.execute_with(request, CacheOptions::default()).await
    }

    /// Sends a request with cache options, which a reqwest request cannot hold.
    pub async fn execute_with(
        &self,
        request: reqwest::Request,
        options: CacheOptions,
    ) -> Result<Response, Error> {
        let mut request = HttpRequest::try_from(request)?;
        request.extensions_mut().insert(options);
        request.extensions_mut().insert(self.added_by_plain.clone());
        self.add_default_headers(request.headers_mut());
        let each = RedirectHop {
            service: self.cached.clone(),
            extensions: request.extensions().clone(),
        };
        let following = RedirectPolicy {
            stays: self.added_by_plain.have_credentials(),
            ..RedirectPolicy::default()
        };
        let redirected = FollowRedirect::with_policy(each, following);
        let answer = call(redirected, request).await;
        let response = answer.map_err(|error| match error.downcast() {
            Ok(error) => *error,
            Err(error) => Error::from_inner(error),
        })?;
        Ok(with_url(response))
    }
}

impl Client {
    fn add_default_headers(&self, headers: &mut HeaderMap) {
        for name in self.default_headers.keys() {
            if !headers.contains_key(name) {
                for value in self.default_headers.get_all(name) {
                    headers.append(name, value.clone());
                }
            }
        }
    }
}

/// The error of a request that reqwest could not build.
impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Self {
        Self::from_inner(error)
    }
}

/// The response as reqwest's type, with its url.
fn with_url(response: http::Response<CacheBody<Body>>) -> Response {
    let (parts, body) = response.into_parts();
    let url = parts.extensions.get::<RequestUri>();
    let url = url.and_then(|url| reqwest::Url::parse(&url.0.to_string()).ok());
    let mut builder = http::Response::builder();
    if let Some(url) = url {
        builder = builder.url(url);
    }
    let mut response = builder.body(()).expect("nothing in it can be wrong");
    *response.status_mut() = parts.status;
    *response.version_mut() = parts.version;
    *response.headers_mut() = parts.headers;
    response.extensions_mut().extend(parts.extensions);
    Response::from(response.map(|()| Body::wrap(body)))
}

/// A request to a server, or its response.
#[derive(Debug)]
#[non_exhaustive]
pub enum Exchange<'a> {
    /// A request that is about to be sent, without the fields that the connection adds, such as `Host`.
    Request(&'a reqwest::Request),
    /// The head of its response, before the body is received.
    Response(&'a Response),
}

#[derive(Clone)]
struct Observer(Arc<dyn Fn(Exchange<'_>) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// The reqwest client without cache and redirects.
#[derive(Clone, Debug)]
struct UncachedClient {
    client: reqwest::Client,
    observer: Option<Observer>,
}

impl Service<HttpRequest> for UncachedClient {
    type Response = http::Response<Body>;
    type Error = reqwest::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest) -> Self::Future {
        let Self { client, observer } = self.clone();
        Box::pin(async move {
            let request = reqwest::Request::try_from(request)?;
            let observe = |exchange: Exchange<'_>| {
                if let Some(Observer(observer)) = &observer {
                    observer(exchange);
                }
            };
            observe(Exchange::Request(&request));
            let response = client.execute(request).await?;
            observe(Exchange::Response(&response));
            Ok(http::Response::from(response))
        })
    }
}

/// Passes each request of a redirect chain to the cache, with the caller's options.
#[derive(Clone)]
struct RedirectHop {
    service: CacheService<UncachedClient>,
    extensions: Extensions,
}

impl Service<HttpRequest> for RedirectHop {
    type Response = http::Response<CacheBody<Body>>;
    type Error = Error;
    type Future = ResponseFuture<Body>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: HttpRequest) -> Self::Future {
        *request.extensions_mut() = self.extensions.clone();
        self.service.call(request)
    }
}

/// The redirect policy: up to twenty redirects. Credentials are removed for good once one leads to another site, which
/// may redirect again. A body that is available is sent again.
#[derive(Clone, Default)]
struct RedirectPolicy {
    limit: Limited,
    /// Redirects to other sites are not followed.
    stays: bool,
    has_left: bool,
}

impl Policy<Body, Error> for RedirectPolicy {
    fn redirect(&mut self, attempt: &Attempt<'_>) -> Result<Action, Error> {
        self.has_left |= !is_same_site(attempt.previous(), attempt.location());
        if self.has_left && self.stays {
            return Ok(Action::Stop);
        }
        Policy::<Body, Error>::redirect(&mut self.limit, attempt)
    }

    fn on_request(&mut self, request: &mut HttpRequest) {
        if self.has_left {
            let names = request.headers().keys();
            let credentials: Vec<_> = names.filter(|name| is_credential(name)).cloned().collect();
            for name in credentials {
                request.headers_mut().remove(name);
            }
        }
    }

    fn clone_body(&self, body: &Body) -> Option<Body> {
        body.as_bytes().map(|bytes| Body::from(bytes.to_vec()))
    }
}

/// Returns true if scheme, host and port are the same.
fn is_same_site(one: &Uri, other: &Uri) -> bool {
    let site = |uri: &Uri| Url::parse(&uri.to_string()).map(|url| url.origin());
    site(one).is_ok_and(|one| site(other).is_ok_and(|other| one == other))
}
