//! Response bodies: cached, or the inner service's own.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use microcache_engine::{Body as EngineBody, Frame as EngineFrame};
use pin_project_lite::pin_project;

use crate::fields::to_map;
use crate::{BoxError, Error};

pin_project! {
    /// The body of a response: stored, being received, or the inner service's own. A range of one that is being
    /// received has an exact length only if the server announces it.
    pub struct CacheBody<B> {
        #[pin]
        content: Content<B>,
    }
}

pin_project! {
    #[project = ContentProjection]
    enum Content<B> {
        Cached { body: EngineBody, left: Option<u64>, ended: bool },
        Inner { #[pin] body: B },
    }
}

impl<B> CacheBody<B> {
    /// A body that comes through the cache, with its length in bytes if known.
    pub(crate) const fn cached(body: EngineBody, length: Option<u64>) -> Self {
        let ended = matches!(body, EngineBody::Empty);
        let left = if ended { Some(0) } else { length };
        let content = Content::Cached { body, left, ended };
        Self { content }
    }

    /// A body of the inner service that bypasses the cache.
    pub(crate) const fn inner(body: B) -> Self {
        let content = Content::Inner { body };
        Self { content }
    }

    /// An empty body.
    pub(crate) const fn empty() -> Self {
        Self::cached(EngineBody::Empty, None)
    }
}

impl<B> Body for CacheBody<B>
where
    B: Body<Error: Into<BoxError>>,
{
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let (body, left, ended) = match self.project().content.project() {
            ContentProjection::Cached { body, left, ended } => (body, left, ended),
            ContentProjection::Inner { body } => {
                return body.poll_frame(cx).map(|frame| {
                    frame.map(|frame| match frame {
                        Ok(frame) => {
                            Ok(frame.map_data(|mut data| data.copy_to_bytes(data.remaining())))
                        }
                        Err(error) => Err(Error::from_inner(error)),
                    })
                });
            }
        };
        if *ended {
            return Poll::Ready(None);
        }
        body.poll_frame(cx).map(|frame| match frame {
            Some(Ok(EngineFrame::Data(data))) => {
                *left = left.map(|left| left.saturating_sub(data.len() as u64));
                Some(Ok(Frame::data(data)))
            }
            Some(Ok(EngineFrame::Trailers(fields))) => {
                Some(Ok(Frame::trailers(to_map(&fields.into()))))
            }
            Some(Err(error)) => {
                *ended = true;
                Some(Err(error.into()))
            }
            None => {
                *ended = true;
                None
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Cached { ended, .. } => *ended,
            Content::Inner { body } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Cached { left, .. } => left.map_or_else(SizeHint::new, SizeHint::with_exact),
            Content::Inner { body } => body.size_hint(),
        }
    }
}

impl<B> std::fmt::Debug for CacheBody<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.content {
            Content::Cached { body, .. } => f.debug_tuple("CacheBody").field(body).finish(),
            Content::Inner { .. } => f.write_str("CacheBody(Inner)"),
        }
    }
}
