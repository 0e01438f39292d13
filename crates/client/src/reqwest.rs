//! A client of reqwest's with a cache in front of it.
//!
//! Redirections are followed in front of the cache and not behind it: each of them is a response of its own, with a
//! time of its own. So what the [`ClientBuilder`] says of redirections does not count.
//!
//! Headers for all requests are best given to [`Client::with_default_headers`]. Default headers of the
//! [`ClientBuilder`] count too: they select what is stored, credentials among them tell clients of one cache apart, and
//! a shared cache stores no more with them than with the same headers of a request. But:
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

/// A client of reqwest's with a cache in front of it. Clones share both.
#[derive(Clone, Debug)]
pub struct Client {
    plain: reqwest::Client,
    added_by_plain: AddedHeaders,
    default_headers: HeaderMap,
    cached: CacheService<Plain>,
}

impl Client {
    /// A client as this builder makes it, in front of which is this cache.
    pub fn new(cache: &Cache, client: ClientBuilder) -> Result<Self, reqwest::Error> {
        Self::build(cache, client, None)
    }

    /// The same, with a function that sees each request to a server and the head of each answer: those that the cache
    /// answers by itself are not among them, and its questions whether a copy is still good are.
    ///
    /// It is called where the request is sent, and holds that up for as long as it takes.
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
        let cached = cache.layer().layer(Plain {
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
        request.extensions_mut().insert(self.added_by_plain.clone());
        self.add_default_headers(request.headers_mut());
        let each = Each {
            service: self.cached.clone(),
            extensions: request.extensions().clone(),
        };
        let following = Following {
            stays: self.added_by_plain.have_credentials(),
            ..Following::default()
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

/// One half of an exchange with a server.
#[derive(Debug)]
#[non_exhaustive]
pub enum Exchange<'a> {
    /// A request that is about to be sent. Fields that the connection adds, such as `Host`, are not in it yet.
    Request(&'a reqwest::Request),
    /// The head of the answer to it, the body of which is still to come.
    Response(&'a Response),
}

#[derive(Clone)]
struct Observer(Arc<dyn Fn(Exchange<'_>) + Send + Sync>);

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}

/// reqwest without a cache, and without following anything.
#[derive(Clone, Debug)]
struct Plain {
    client: reqwest::Client,
    observer: Option<Observer>,
}

impl Service<HttpRequest> for Plain {
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
    /// No redirection to another site is followed.
    stays: bool,
    has_left: bool,
}

impl Policy<Body, Error> for Following {
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

/// Scheme, host and port are the same.
fn is_same_site(one: &Uri, other: &Uri) -> bool {
    let site = |uri: &Uri| Url::parse(&uri.to_string()).map(|url| url.origin());
    site(one).is_ok_and(|one| site(other).is_ok_and(|other| one == other))
}
