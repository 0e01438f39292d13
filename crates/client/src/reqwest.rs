//! A client of reqwest's with a cache in front of it.
//!
//! Redirections are followed in front of the cache and not behind it: each of them is a response of its own, with a
//! time of its own. So what the [`ClientBuilder`] says of redirections does not count.
//!
//! **Whatever the [`ClientBuilder`] adds to requests is added behind the cache, which does not see it**: default headers
//! and a cookie store. With credentials there, clients that are somebody else to the server would share responses, and
//! they would be sent to where a redirection leads, another site too. Give them to
//! [`Client::with_default_headers`], or to each request.
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

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::header::{COOKIE, PROXY_AUTHORIZATION};
use http::{Extensions, HeaderMap, Uri};
use microcache_policy::is_identity;
use reqwest::redirect::Policy as Redirects;
use reqwest::{
    Body, ClientBuilder, IntoUrl, Method, RequestBuilder, Response, ResponseBuilderExt, Url,
};
use tower_http::follow_redirect::policy::{Action, Attempt, Limited, Policy};
use tower_http::follow_redirect::{FollowRedirect, RequestUri};
use tower_layer::Layer;
use tower_service::Service;

use crate::inner::call;
use crate::{Cache, CacheBody, CacheOptions, CacheService, Error, ResponseFuture};

type HttpRequest = http::Request<Body>;

/// A client of reqwest's with a cache in front of it. Clones share both.
#[derive(Clone, Debug)]
pub struct Client {
    plain: reqwest::Client,
    default_headers: HeaderMap,
    cached: CacheService<Plain>,
}

impl Client {
    /// A client as this builder makes it, in front of which is this cache.
    pub fn new(cache: &Cache, client: ClientBuilder) -> Result<Self, reqwest::Error> {
        let plain = client.redirect(Redirects::none()).build()?;
        let cached = cache.layer().layer(Plain(plain.clone()));
        Ok(Self {
            plain,
            default_headers: HeaderMap::new(),
            cached,
        })
    }

    /// Adds these headers to each request that has not got them, in front of the cache: it knows by them who asks, and
    /// credentials are left out where a redirection leads to another site.
    #[must_use]
    pub fn with_default_headers(mut self, headers: HeaderMap) -> Self {
        self.default_headers = headers;
        self
    }

    /// Puts a request together, for [`Client::execute`]. Its own `send` would not ask the cache.
    pub fn request(&self, method: Method, url: impl IntoUrl) -> RequestBuilder {
        self.plain.request(method, url)
    }

    /// The response to a GET of a url.
    pub async fn get(&self, url: impl IntoUrl) -> Result<Response, Error> {
        let request = self.request(Method::GET, url).build();
        self.execute(request?).await
    }

    /// The response to a request. [`CacheInfo`](crate::CacheInfo) is among its extensions.
    pub async fn execute(&self, request: reqwest::Request) -> Result<Response, Error> {
        self.execute_with(request, CacheOptions::default()).await
    }

    /// The same with options, which a request of reqwest's cannot hold.
    pub async fn execute_with(
        &self,
        request: reqwest::Request,
        options: CacheOptions,
    ) -> Result<Response, Error> {
        let mut request = HttpRequest::try_from(request)?;
        request.extensions_mut().insert(options);
        self.add_default_headers(request.headers_mut());
        let each = Each {
            service: self.cached.clone(),
            extensions: request.extensions().clone(),
        };
        let redirected = FollowRedirect::with_policy(each, Following::default());
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

/// A request that reqwest could not even put together.
impl From<reqwest::Error> for Error {
    fn from(error: reqwest::Error) -> Self {
        Self::from_inner(error)
    }
}

/// As reqwest has it, with the url that it is of.
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

/// reqwest without a cache, and without following anything.
#[derive(Clone, Debug)]
struct Plain(reqwest::Client);

impl Service<HttpRequest> for Plain {
    type Response = http::Response<Body>;
    type Error = reqwest::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), reqwest::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move {
            let request = reqwest::Request::try_from(request)?;
            client.execute(request).await.map(http::Response::from)
        })
    }
}

/// Each of the requests that a redirected one becomes, with what its caller has said.
#[derive(Clone)]
struct Each {
    service: CacheService<Plain>,
    extensions: Extensions,
}

impl Service<HttpRequest> for Each {
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

/// Up to twenty redirections. Once one of them has left the site, none has credentials any more: whoever is there may
/// well redirect once more, to himself. A body that is there is sent again.
#[derive(Clone, Default)]
struct Following {
    limit: Limited,
    has_left: bool,
}

impl Policy<Body, Error> for Following {
    fn redirect(&mut self, attempt: &Attempt<'_>) -> Result<Action, Error> {
        self.has_left |= !is_same_site(attempt.previous(), attempt.location());
        Policy::<Body, Error>::redirect(&mut self.limit, attempt)
    }

    fn on_request(&mut self, request: &mut HttpRequest) {
        if self.has_left {
            let names = request.headers().keys();
            let credentials = names.filter(|name| is_identity(name.as_str().as_bytes()));
            let credentials: Vec<_> = credentials.cloned().collect();
            for name in credentials.into_iter().chain([COOKIE, PROXY_AUTHORIZATION]) {
                request.headers_mut().remove(name);
            }
        }
    }

    fn clone_body(&self, body: &Body) -> Option<Body> {
        body.as_bytes().map(|bytes| Body::from(bytes.to_vec()))
    }
}

/// Scheme, host and port are the same.
fn is_same_site(one: &Uri, other: &Uri) -> bool {
    let site = |uri: &Uri| Url::parse(&uri.to_string()).map(|url| url.origin());
    site(one).is_ok_and(|one| site(other).is_ok_and(|other| one == other))
}
