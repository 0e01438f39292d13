//! Response body, generated piece by piece.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::counters::RequestGuard;
use super::page::GeneratedPage;

/// Maximum size of a piece, in bytes.
const PIECE: u64 = 64 << 10;

/// Number of pieces of a slow page.
const SLOW_PIECES: u32 = 20;

/// Response body.
pub(super) enum OriginBody {
    /// Short text.
    Text(Option<Bytes>),
    /// Generated page.
    Page(Box<PageBody>),
}

impl OriginBody {
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Some(text.into()))
    }
}

/// Body of a page.
pub(super) struct PageBody {
    page: GeneratedPage,
    sent: u64,
    /// Offset at which the body ends: less than its length if it is truncated.
    end: u64,
    pace: Option<SendPace>,
    /// `true` if the truncated body has been flushed to the socket.
    flushed: bool,
    _in_flight: RequestGuard,
}

struct SendPace {
    piece: u64,
    pause: Duration,
    next: Pin<Box<Sleep>>,
}

impl PageBody {
    /// Creates a body that is sent over the period `over`. With `cut`, the connection is closed halfway.
    pub(super) fn new(
        page: GeneratedPage,
        over: Duration,
        cut: bool,
        in_flight: RequestGuard,
    ) -> Self {
        let length = page.length();
        let slowly = (!over.is_zero()).then(|| SendPace {
            piece: length.div_ceil(u64::from(SLOW_PIECES)).max(1),
            pause: over / SLOW_PIECES,
            next: Box::pin(sleep_until(Instant::now())),
        });
        Self {
            page,
            sent: 0,
            end: if cut { length / 2 } else { length },
            pace: slowly,
            flushed: false,
            _in_flight: in_flight,
        }
    }

    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.sent >= self.end {
            return self.poll_end(context);
        }
        let mut piece = PIECE;
        if let Some(pace) = &mut self.pace {
            ready!(pace.next.as_mut().poll(context));
            let next = pace.next.deadline() + pace.pause;
            pace.next.as_mut().reset(next);
            piece = piece.min(pace.piece);
        }
        let to = self.end.min(self.sent + piece);
        let bytes = self.page.piece(self.sent, to);
        self.sent = to;
        Poll::Ready(Some(bytes.into()))
    }

    /// Ends the body. Before the connection of a truncated one is closed, hyper gets a chance to flush it.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.end < self.page.length() && !self.flushed {
            self.flushed = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(None)
    }
}

impl Body for OriginBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Text(text) => text.take(),
            Self::Page(page) => ready!(page.poll_piece(context)),
        };
        Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Text(text) => text.is_none(),
            Self::Page(page) => page.sent == page.page.length(),
        }
    }

    /// Announced length, even if the body is truncated.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Text(text) => text.as_ref().map_or(0, |text| text.len() as u64),
            Self::Page(page) => page.page.length() - page.sent,
        })
    }
}
