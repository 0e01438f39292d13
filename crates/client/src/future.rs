//! The response future of a service with a cache.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::Response;

use crate::Error;
use crate::body::CacheBody;

type CallResult<R> = Result<Response<CacheBody<R>>, Error>;

/// The response future of a [`CacheService`](crate::CacheService).
#[must_use = "a future does nothing unless it is awaited"]
pub struct ResponseFuture<R>(State<R>);

/// The response, or the future that yields it. A hit is ready at once and not boxed.
enum State<R> {
    Now(Option<CallResult<R>>),
    Later(Pin<Box<dyn Future<Output = CallResult<R>> + Send>>),
}

impl<R> ResponseFuture<R> {
    pub(crate) fn now(answer: CallResult<R>) -> Self {
        Self(State::Now(Some(answer)))
    }

    pub(crate) fn later(answer: impl Future<Output = CallResult<R>> + Send + 'static) -> Self {
        Self(State::Later(Box::pin(answer)))
    }
}

// Only boxed contents are pinned.
impl<R> Unpin for ResponseFuture<R> {}

impl<R> Future for ResponseFuture<R> {
    type Output = CallResult<R>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<CallResult<R>> {
        match &mut self.0 {
            State::Now(answer) => {
                Poll::Ready(answer.take().expect("it is not polled after its end"))
            }
            State::Later(answer) => answer.as_mut().poll(cx),
        }
    }
}

impl<R> std::fmt::Debug for ResponseFuture<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            State::Now(_) => "ResponseFuture(Now)",
            State::Later(_) => "ResponseFuture(Later)",
        })
    }
}
