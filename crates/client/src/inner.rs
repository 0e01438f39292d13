//! The inner service as an origin of the engine.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Buf;
use http::header::CONTENT_LENGTH;
use http::uri::Authority;
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use http_body::Body;
use microcache_engine::{
    Body as EngineBody, BodyError, BoxFuture, Cause, Frame, Origin, OriginError, OriginRequest,
    OriginResponse, Source,
};
use microcache_policy::{FieldsBuf, end_to_end};
use parking_lot::Mutex;
use tokio::time::Instant;
use tower_service::Service;

use crate::BoxError;
use crate::callers_task::CallersTask;
use crate::fields::{from_map, to_request_map};
use crate::passthrough::Passthrough;
use crate::request::RequestVersion;

/// An inner service that is called with empty bodies of this type.
pub(crate) struct InnerService<S, B> {
    /// Locked, since many tasks call it and not every service is `Sync`.
    service: Mutex<S>,
    body: PhantomData<fn() -> B>,
}

impl<S, B> InnerService<S, B> {
    pub(crate) const fn new(service: S) -> Self {
        Self {
            service: Mutex::new(service),
            body: PhantomData,
        }
    }
}

impl<S, B, R> Origin for InnerService<S, B>
where
    S: Service<Request<B>, Response = Response<R>, Future: Send, Error: Into<BoxError>>
        + Clone
        + Send
        + 'static,
    B: Default + Send + 'static,
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    fn fetch(&self, request: OriginRequest) -> BoxFuture<'_, Result<OriginResponse, OriginError>> {
        let service = self.service.lock().clone();
        Box::pin(async move {
            let mut request = to_http(request)?;
            let passthrough = request.extensions_mut().remove::<Passthrough>();
            let task = request.extensions_mut().remove::<CallersTask>();
            let call = call_when_ready(service, request);
            let answer = match task {
                // The panic has been reported; it fails the fetch too.
                Some(task) => match task.run(call).await {
                    Some(answer) => answer,
                    None => resume_unwind(Box::new("the service panicked")),
                },
                None => call.await,
            };
            match answer {
                Ok((mut response, waited)) => {
                    if let Some(passthrough) = passthrough {
                        passthrough.put(&mut response);
                    }
                    Ok(from_http(response, waited))
                }
                Err(error) => Err(OriginError::Other(Cause::new(error))),
            }
        })
    }
}

/// Calls a service when it is ready.
pub(crate) async fn call<S, T>(service: S, request: T) -> Result<S::Response, BoxError>
where
    S: Service<T, Error: Into<BoxError>>,
{
    let answer = call_when_ready(service, request).await;
    answer.map(|(response, _)| response)
}

/// The response of a service, and the time until it was ready.
async fn call_when_ready<S, T>(mut service: S, request: T) -> Result<(S::Response, u32), BoxError>
where
    S: Service<T, Error: Into<BoxError>>,
{
    let began = Instant::now();
    let ready = poll_fn(|cx| service.poll_ready(cx)).await;
    ready.map_err(Into::into)?;
    let waited = began.elapsed().as_millis() as u32;
    let response = service.call(request).await.map_err(Into::into)?;
    Ok((response, waited))
}

fn to_http<B: Default>(request: OriginRequest) -> Result<Request<B>, OriginError> {
    // The parts come from a valid url.
    let url = |error: &dyn StdError| {
        let text = format!("not a URL: {error}");
        OriginError::Other(Cause::new(text.into()))
    };
    let authority = Authority::from_maybe_shared(request.authority).map_err(|e| url(&e))?;
    let uri = Uri::builder()
        .scheme(request.scheme.as_str())
        .authority(authority)
        .path_and_query(&request.target[..])
        .build()
        .map_err(|e| url(&e))?;
    let mut http = Request::new(B::default());
    if let Some(RequestVersion(version)) = request.extensions.get() {
        *http.version_mut() = *version;
    }
    *http.method_mut() = request.method;
    *http.uri_mut() = uri;
    *http.headers_mut() = to_request_map(&request.fields.into());
    *http.extensions_mut() = request.extensions;
    Ok(http)
}

fn from_http<R>(response: Response<R>, waited: u32) -> OriginResponse
where
    R: Body<Error: Into<BoxError>> + Send + 'static,
{
    let (parts, body) = response.into_parts();
    let has_none = body.is_end_stream() || parts.status == StatusCode::NOT_MODIFIED;
    OriginResponse {
        status: parts.status.as_u16(),
        length: announced(&parts.headers)
            .or_else(|| body.size_hint().exact().filter(|_| !has_none)),
        fields: without_length(&parts.headers),
        body: if has_none {
            EngineBody::Empty
        } else {
            EngineBody::Stream(Box::new(InnerBody(Mutex::new(Box::pin(body)))))
        },
        tunnel: None,
        waited,
    }
}

fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn without_length(headers: &HeaderMap) -> FieldsBuf {
    let mut fields = end_to_end(from_map(headers).fields());
    fields.remove("content-length");
    fields
}

/// A body of the inner service, with exclusive access for its reader.
struct InnerBody<R>(Mutex<Pin<Box<R>>>);

impl<R> Source for InnerBody<R>
where
    R: Body<Error: Into<BoxError>> + Send,
{
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        let body = self.0.get_mut();
        loop {
            let frame = match ready!(body.as_mut().poll_frame(cx)) {
                None => return Poll::Ready(None),
                Some(Err(error)) => {
                    let error = BodyError::Other(Cause::new(error.into()));
                    return Poll::Ready(Some(Err(error)));
                }
                Some(Ok(frame)) => frame,
            };
            match frame.into_data() {
                Ok(mut data) if data.has_remaining() => {
                    let data = data.copy_to_bytes(data.remaining());
                    return Poll::Ready(Some(Ok(Frame::Data(data))));
                }
                Ok(_nothing) => {}
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return Poll::Ready(Some(Ok(Frame::Trailers(from_map(&trailers)))));
                    }
                }
            }
        }
    }

    fn has_descriptor(&self) -> bool {
        false
    }
}
