//! Awaited events of a connection's streams: one set of futures, without tasks.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures_util::future::{Abortable, abortable};
use futures_util::stream::{FuturesUnordered, Stream as _};
use microcache_engine::{Body, BodyError, Frame};

use super::stream::{ContentSink, EventHandle};
use crate::session::{OngoingRequest, RequestEvent};

/// Awaited event.
pub(super) enum StreamEvent {
    /// Next event of a request.
    Session(Box<OngoingRequest>, RequestEvent),
    /// Next frame of a body.
    Body(Body, Option<Result<Frame, BodyError>>),
    /// The receiver of content has room, or was dropped (`false`).
    Room(ContentSink, bool),
    /// The future panicked.
    Panicked,
}

type EventFuture = Pin<Box<dyn Future<Output = (u32, StreamEvent)> + Send>>;

/// Pending futures, each with its stream.
#[derive(Default)]
pub(super) struct PendingEvents {
    set: FuturesUnordered<Abortable<EventFuture>>,
    /// Events that were ready at once.
    ready: Vec<(u32, StreamEvent)>,
}

impl PendingEvents {
    /// Awaits a future until the returned handle is dropped.
    pub(super) fn wait(
        &mut self,
        cx: &mut Context<'_>,
        stream: u32,
        work: impl Future<Output = StreamEvent> + Send + 'static,
    ) -> EventHandle {
        let mut work: EventFuture = Box::pin(async move {
            let mut work = pin!(work);
            // A panic affects its own request only.
            let step = poll_fn(|cx| {
                let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
                polled.unwrap_or(Poll::Ready(StreamEvent::Panicked))
            });
            (stream, step.await)
        });
        if let Poll::Ready(step) = work.as_mut().poll(cx) {
            self.ready.push(step);
            return EventHandle::default();
        }
        let (work, handle) = abortable(work);
        self.set.push(work);
        EventHandle::until(Some(handle))
    }

    /// Returns the next event. Those of streams that have ended are dropped.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(u32, StreamEvent)> {
        if let Some(step) = self.ready.pop() {
            return Poll::Ready(step);
        }
        // Spares hits the poll of an empty set.
        if self.set.is_empty() {
            return Poll::Pending;
        }
        loop {
            match Pin::new(&mut self.set).poll_next(cx) {
                Poll::Ready(Some(Ok(step))) => return Poll::Ready(step),
                Poll::Ready(Some(Err(_given_up))) => {}
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
    }
}
