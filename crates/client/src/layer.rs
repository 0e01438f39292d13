//! The layer, and the path of a request through it.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http::{Method, Request, Response, Uri};
use http_body::Body;
use microcache_engine::{Bypass, Engine, Failure, NoResponse, RouteMatch, Served};
use microcache_policy::{FieldsBuf, invalidates};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::CacheBody;
use crate::cache::{Cache, CacheInner};
use crate::fields::from_map;
use crate::future::ResponseFuture;
use crate::info::CacheInfo;
use crate::inner::{InnerService, call};
use crate::options::{CacheMode, CacheOptions};
use crate::request::{CacheableRequest, CacheableUrl};
use crate::runtime::{self, RuntimeError};
use crate::{BoxError, Error, response};

/// A layer that puts a cache in front of services.
#[derive(Clone, Debug)]
pub struct CacheLayer {
    cache: Cache,
}

impl CacheLayer {
    pub(crate) const fn new(cache: Cache) -> Self {
        Self { cache }
    }
}

impl Cache {
    /// A layer that serves requests from this cache.
    pub fn layer(&self) -> CacheLayer {
        CacheLayer::new(self.clone())
    }
}

impl<S> Layer<S> for CacheLayer {
    type Service = CacheService<S>;

    fn layer(&self, inner: S) -> CacheService<S> {
        CacheService {
            shared: Arc::clone(&self.cache.shared),
            engine: Arc::default(),
            inner,
        }
    }
}

/// A service with a cache in front of it. It is always ready: a hit does not wait for the inner service.
#[derive(Clone)]
pub struct CacheService<S> {
    shared: Arc<CacheInner>,
    /// The cache in front of the inner service, shared by clones. The first request creates it, since it determines the
    /// type of bodies.
    engine: Arc<OnceLock<Arc<Engine>>>,
    inner: S,
}

impl<S: std::fmt::Debug> std::fmt::Debug for CacheService<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut written = f.debug_struct("CacheService");
        written.field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<S, B, R> Service<Request<B>> for CacheService<S>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send, Error: Into<BoxError>>
        + Clone
        + Send
        + 'static,
    B: Body + Default + Send + 'static,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    type Response = Response<CacheBody<R>>;
    type Error = Error;
    type Future = ResponseFuture<R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> ResponseFuture<R> {
        let engine = self.engine.get_or_init(|| {
            let inner = InnerService::<S, B>::new(self.inner.clone());
            self.shared.in_front_of(Arc::new(inner))
        });
        let (parts, body) = request.into_parts();
        let has_body = !body.is_end_stream() && body.size_hint().exact() != Some(0);
        if !has_body && CacheableRequest::is_for_the_cache(&parts) {
            return call_cached(
                &self.shared,
                engine,
                &self.inner,
                CacheableRequest::new(parts),
            );
        }
        // No response to such a request is stored, and fetching is forbidden.
        if parts.extensions.get().is_some_and(only_if_cached) {
            return ResponseFuture::now(self.shared.finish_only_if_cached());
        }
        let bypass = BypassCall {
            engine: Arc::clone(engine),
            shared: Arc::clone(&self.shared),
            inner: self.inner.clone(),
        };
        ResponseFuture::later(bypass.pass(Request::from_parts(parts, body)))
    }
}

fn only_if_cached(options: &CacheOptions) -> bool {
    options.mode == CacheMode::OnlyIfCached
}

/// Handles a request that the cache may serve.
fn call_cached<S, B, R>(
    shared: &Arc<CacheInner>,
    engine: &Arc<Engine>,
    inner: &S,
    mut request: CacheableRequest,
) -> ResponseFuture<R>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send, Error: Into<BoxError>>
        + Clone
        + Send
        + 'static,
    B: Default + Send + 'static,
    R: Send + 'static,
{
    let mode = request.mode();
    let found = RouteMatch {
        route: 0,
        bypass: (mode == CacheMode::NoStore).then_some(Bypass::Condition),
    };
    let served = engine.serve_on(found, &request.as_request(), engine.clock.now());
    let plan = match served {
        Served::Now(answer) => return ResponseFuture::now(shared.finish(Ok(answer))),
        Served::NowAndRefresh(answer, refresh) => {
            // Without timers, a request cannot wait for a revalidation.
            if runtime::check().is_ok() {
                engine.refresh(refresh, request.into_forwarded());
            }
            return ResponseFuture::now(shared.finish(Ok(answer)));
        }
        Served::Failed(failed) => Err(failed),
        Served::Fetch(plan) => Ok(request.plan(plan)),
    };
    let (shared, engine, inner) = (Arc::clone(shared), Arc::clone(engine), inner.clone());
    ResponseFuture::later(async move {
        if let Err(missing) = runtime::check() {
            return match plan {
                Ok(_) => shared.bypass(inner, request, missing).await,
                Err(failed) => shared.finish(Err(failed)),
            };
        }
        let passthrough = request.passthrough();
        // A request that fetches for itself or not at all must search the tiers here; other requests do so when they
        // fetch.
        let searches_tiers = plan.is_err() || request.wants_less() && mode != CacheMode::NoStore;
        let found = if searches_tiers {
            engine.answer_from_tiers(&request.as_request()).await
        } else {
            None
        };
        let answer = match (found, plan) {
            (Some(found), _) => Ok(found),
            (None, Ok(plan)) => {
                let task = request.callers_task();
                let answer = engine.ask(plan, request.into_forwarded());
                Box::pin(task.wait_for(answer)).await
            }
            (None, Err(failed)) => Err(failed),
        };
        let response = shared.finish(answer);
        response.map(|response| passthrough.add_to(response))
    })
}

impl CacheInner {
    /// Counts the response for the caller and adds its report.
    fn finish<R>(
        &self,
        answer: Result<microcache_engine::Response, NoResponse>,
    ) -> Result<Response<CacheBody<R>>, Error> {
        let result = match answer {
            Ok(answer) => Ok(response::to_http(answer)),
            Err(failed) if failed.cause == Failure::OnlyIfCached => Ok(response::only_if_cached()),
            Err(failed) => Err(Error::from(failed)),
        };
        self.note(&result);
        result
    }

    /// Counts a 504 for a request that the cache cannot serve and that must not be forwarded.
    fn finish_only_if_cached<R>(&self) -> Result<Response<CacheBody<R>>, Error> {
        let result = Ok(response::only_if_cached());
        self.note(&result);
        result
    }

    /// Forwards a request that the cache cannot serve, and counts its response.
    async fn bypass<S, B, R>(
        &self,
        inner: S,
        request: CacheableRequest,
        missing: RuntimeError,
    ) -> Result<Response<CacheBody<R>>, Error>
    where
        S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>>,
        B: Default,
    {
        let answer = call(inner, request.into_request()).await;
        let result = bypass_response(answer, CacheInfo::without(missing));
        self.note(&result);
        result
    }

    fn note<R>(&self, answer: &Result<Response<R>, Error>) {
        let response = answer.as_ref().ok();
        let info = response.and_then(|response| response.extensions().get::<CacheInfo>());
        self.counts.count(info);
        #[cfg(feature = "tracing")]
        tracing::debug!(
            outcome = info.map(|info| info.outcome.as_str()),
            tier = info.and_then(|info| info.tier),
            why = info.and_then(|info| info.why),
            "answered"
        );
    }
}

/// A request that bypasses the cache; an unsafe one still invalidates.
struct BypassCall<S> {
    engine: Arc<Engine>,
    shared: Arc<CacheInner>,
    inner: S,
}

impl<S> BypassCall<S> {
    async fn pass<B, R>(self, request: Request<B>) -> Result<Response<CacheBody<R>>, Error>
    where
        S: Service<Request<B>, Response = Response<R>, Error: Into<BoxError>>,
    {
        let changed = Invalidation::by(&request);
        let answer = call(self.inner, request).await;
        if let Some(changed) = changed
            && let Some((status, fields)) = answer.as_ref().ok().map(status_and_fields)
        {
            changed.invalidate(&self.engine, status, &fields).await;
        }
        let answer = bypass_response(answer, CacheInfo::bypass());
        self.shared.note(&answer);
        answer
    }
}

/// The inner service's response for the caller.
fn bypass_response<R>(
    answer: Result<Response<R>, BoxError>,
    info: CacheInfo,
) -> Result<Response<CacheBody<R>>, Error> {
    let answer = answer.map_err(Error::from_inner);
    answer.map(|response| {
        let mut response = response.map(CacheBody::inner);
        response.extensions_mut().insert(info);
        response
    })
}

fn status_and_fields<R>(response: &Response<R>) -> (u16, FieldsBuf) {
    (response.status().as_u16(), from_map(response.headers()))
}

/// The invalidation by an unsafe request that succeeds (RFC 9111 §4.4): of its url with every key.
struct Invalidation {
    method: Method,
    uri: Uri,
}

impl Invalidation {
    fn by<B>(request: &Request<B>) -> Option<Self> {
        let changes =
            invalidates(request.method(), 200) && CacheableUrl::of(request.uri()).is_some();
        changes.then(|| Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
        })
    }

    async fn invalidate(&self, engine: &Engine, status: u16, response: &FieldsBuf) {
        let Some(place) = CacheableUrl::of(&self.uri) else {
            return;
        };
        let request = microcache_engine::Request {
            method: &self.method,
            ..microcache_engine::Request::of_url(place.scheme, place.host, place.target)
        };
        let propagated = engine.invalidate_after(&request, status, response.fields());
        // It applies in memory at once. Without timers, the tiers are not waited for.
        if runtime::check().is_ok() {
            propagated.await;
        }
    }
}
