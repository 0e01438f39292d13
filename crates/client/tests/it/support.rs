//! A server that says what a test wants, and a client with a cache in front of it.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Empty, Full, StreamBody};
use microcache_client::{
    Builder, Cache, CacheBody, CacheInfo, CacheMode, CacheOptions, CacheService, Error, Outcome,
};
use tokio::sync::mpsc;
use tower::{Layer, Service, ServiceExt};

pub(crate) type SiteBody = UnsyncBoxBody<Bytes, io::Error>;
pub(crate) type SiteResponse = Response<SiteBody>;
pub(crate) type SiteFuture = Pin<Box<dyn Future<Output = Result<SiteResponse, io::Error>> + Send>>;
type Script = Arc<dyn Fn(usize, &Request<Empty<Bytes>>) -> SiteFuture + Send + Sync>;

/// Answers each request as its script says, which gets the number of earlier requests, and records the
/// requests.
#[derive(Clone)]
pub(crate) struct Site {
    script: Script,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// What the server was asked.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: http::Method,
    pub(crate) headers: HeaderMap,
}

impl Site {
    /// Answers at once.
    pub(crate) fn new(
        script: impl Fn(usize, &Request<Empty<Bytes>>) -> SiteResponse + Send + Sync + 'static,
    ) -> Self {
        Self::later(move |number, request| {
            let response = script(number, request);
            Box::pin(async { Ok(response) })
        })
    }

    /// Answers in its own time, or not.
    pub(crate) fn later(
        script: impl Fn(usize, &Request<Empty<Bytes>>) -> SiteFuture + Send + Sync + 'static,
    ) -> Self {
        Self {
            script: Arc::new(script),
            seen: Arc::default(),
        }
    }

    /// Always this, with the number of the request as the body; a condition is answered with 304.
    pub(crate) fn says(lines: &'static [(&'static str, &'static str)]) -> Self {
        Self::new(move |number, request| {
            let confirms = request.headers().contains_key("if-none-match");
            let mut response = page(number.to_string(), lines);
            if confirms {
                *response.status_mut() = http::StatusCode::NOT_MODIFIED;
                *response.body_mut() = no_body();
            }
            response
        })
    }

    pub(crate) fn request_count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }
}

impl Service<Request<Empty<Bytes>>> for Site {
    type Response = SiteResponse;
    type Error = io::Error;
    type Future = SiteFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), io::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Empty<Bytes>>) -> SiteFuture {
        let number = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(Seen {
                method: request.method().clone(),
                headers: request.headers().clone(),
            });
            seen.len()
        };
        (self.script)(number, &request)
    }
}

/// A 200 with this body and these field lines.
pub(crate) fn page(body: impl Into<Bytes>, lines: &[(&'static str, &'static str)]) -> SiteResponse {
    let mut response = Response::new(boxed(Full::new(body.into())));
    for &(name, value) in lines {
        let value = http::HeaderValue::from_static(value);
        response.headers_mut().append(name, value);
    }
    response
}

/// The same with a status.
pub(crate) fn status(code: u16, lines: &[(&'static str, &'static str)]) -> SiteResponse {
    let mut response = page(code.to_string(), lines);
    *response.status_mut() = code.try_into().unwrap();
    response
}

pub(crate) fn no_body() -> SiteBody {
    boxed(Full::default())
}

fn boxed(body: Full<Bytes>) -> SiteBody {
    body.map_err(|never: Infallible| match never {})
        .boxed_unsync()
}

/// A body whose pieces come when a test sends them.
pub(crate) fn piecemeal() -> (mpsc::Sender<Result<&'static str, io::Error>>, SiteBody) {
    let (pieces, mut coming) = mpsc::channel::<Result<&str, io::Error>>(8);
    let stream = futures_util::stream::poll_fn(move |cx| {
        let next = coming.poll_recv(cx);
        next.map(|piece| {
            piece.map(|piece| {
                piece.map(|text| http_body::Frame::data(Bytes::from_static(text.as_bytes())))
            })
        })
    });
    (pieces, StreamBody::new(stream).boxed_unsync())
}

/// A client of a site, by a cache.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) cache: Cache,
    pub(crate) service: CacheService<Site>,
}

/// What a client was given.
#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) info: CacheInfo,
    pub(crate) body: Result<String, Error>,
}

impl Got {
    pub(crate) fn body(&self) -> &str {
        self.body.as_ref().expect("the body has its end")
    }

    pub(crate) const fn outcome(&self) -> Outcome {
        self.info.outcome
    }
}

impl Client {
    pub(crate) async fn private(site: &Site) -> Self {
        Self::with(Cache::private(), site).await
    }

    pub(crate) async fn shared(site: &Site) -> Self {
        Self::with(Cache::shared(), site).await
    }

    pub(crate) async fn with(builder: Builder, site: &Site) -> Self {
        let cache = builder.build().await.expect("it is built");
        Self::of(&cache, site)
    }

    pub(crate) fn of(cache: &Cache, site: &Site) -> Self {
        Self {
            cache: cache.clone(),
            service: cache.layer().layer(site.clone()),
        }
    }

    pub(crate) async fn send(
        &self,
        request: Request<Empty<Bytes>>,
    ) -> Result<Response<CacheBody<SiteBody>>, Error> {
        self.service.clone().oneshot(request).await
    }

    /// The whole answer to a request; what it leaves to be done in the background is done.
    pub(crate) async fn ask(&self, request: Request<Empty<Bytes>>) -> Got {
        let response = self.send(request).await.expect("there is a response");
        let got = whole(response).await;
        settle().await;
        got
    }

    /// A GET of a page with these field lines.
    pub(crate) async fn get(&self, path: &str, lines: &[(&str, &str)]) -> Got {
        self.ask(request(path, lines)).await
    }

    pub(crate) async fn get_by(&self, mode: CacheMode, path: &str) -> Got {
        let mut request = request(path, &[]);
        request
            .extensions_mut()
            .insert(CacheOptions::default().with_mode(mode));
        self.ask(request).await
    }
}

/// Reads a response to its end.
pub(crate) async fn whole(response: Response<CacheBody<SiteBody>>) -> Got {
    let (parts, body) = response.into_parts();
    let text = |bytes: Bytes| String::from_utf8(bytes.into()).expect("it is text");
    Got {
        status: parts.status.as_u16(),
        headers: parts.headers,
        info: *parts.extensions.get().expect("it says what was done"),
        body: body.collect().await.map(|whole| text(whole.to_bytes())),
    }
}

/// A GET of a page of the site, with these field lines.
pub(crate) fn request(path: &str, lines: &[(&str, &str)]) -> Request<Empty<Bytes>> {
    let mut request = Request::get(format!("http://site.example{path}"));
    for &(name, value) in lines {
        request = request.header(name, value);
    }
    request.body(Empty::new()).expect("it is a request")
}

/// Gives what goes on in the background its turns.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
