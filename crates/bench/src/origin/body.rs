//! A page on its way to the client, in pieces that are made as they are wanted.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::counters::InFlight;
use super::page::Page;

/// The most that is made at a time.
const PIECE: u64 = 64 << 10;

/// How many pieces a slow page comes in.
const SLOW_PIECES: u32 = 20;

/// The body of an answer.
pub(super) enum AnswerBody {
    /// A short text.
    Text(Option<Bytes>),
    /// A page.
    Page(Box<PageBody>),
}

impl AnswerBody {
    pub(super) fn text(text: impl Into<Bytes>) -> Self {
        Self::Text(Some(text.into()))
    }
}

/// A page on its way to the client.
pub(super) struct PageBody {
    page: Page,
    sent: u64,
    /// Where it ends: before its length, if it is to be cut short.
    end: u64,
    pace: Option<Pace>,
    /// What came before the cut has been handed to the socket.
    flushed: bool,
    _in_flight: InFlight,
}

struct Pace {
    piece: u64,
    pause: Duration,
    next: Pin<Box<Sleep>>,
}

impl PageBody {
    /// A page that is sent over this time; and in the middle the connection closes, if it is cut.
    pub(super) fn new(page: Page, over: Duration, cut: bool, in_flight: InFlight) -> Self {
        let length = page.length();
        let slowly = (!over.is_zero()).then(|| Pace {
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

    /// Before the connection is closed in the middle, what was made is given the time to leave.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.end < self.page.length() && !self.flushed {
            self.flushed = true;
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(None)
    }
}

impl Body for AnswerBody {
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

    /// What is promised, even if less is to come.
    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(match self {
            Self::Text(text) => text.as_ref().map_or(0, |text| text.len() as u64),
            Self::Page(page) => page.page.length() - page.sent,
        })
    }
}
