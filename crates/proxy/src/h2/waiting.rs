//! What the streams of a connection wait for: all of it in one set, and none of it a task.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use futures_util::future::{Abortable, abortable};
use futures_util::stream::{FuturesUnordered, Stream as _};
use microcache_engine::{Body, BodyError, Frame};

use super::stream::{Sink, Wait};
use crate::session::{Answering, Event};

/// Something that was waited for.
pub(super) enum Step {
    /// What the client is told next.
    Told(Box<Answering>, Event),
    /// The next of a body.
    Next(Body, Option<Result<Frame, BodyError>>),
    /// There is room for content again, or nobody wants any more.
    Room(Sink, bool),
    /// It panicked.
    Panicked,
}

type Waited = Pin<Box<dyn Future<Output = (u32, Step)> + Send>>;

/// What is waited for, each with the stream that waits.
#[derive(Default)]
pub(super) struct Waiting {
    set: FuturesUnordered<Abortable<Waited>>,
    /// What did not have to be waited for.
    ready: Vec<(u32, Step)>,
}

impl Waiting {
    /// Waits for this, until the returned value is dropped.
    pub(super) fn wait(
        &mut self,
        cx: &mut Context<'_>,
        stream: u32,
        work: impl Future<Output = Step> + Send + 'static,
    ) -> Wait {
        let mut work: Waited = Box::pin(async move {
            let mut work = pin!(work);
            // A panic in one request is that request's alone.
            let step = poll_fn(|cx| {
                let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
                polled.unwrap_or(Poll::Ready(Step::Panicked))
            });
            (stream, step.await)
        });
        if let Poll::Ready(step) = work.as_mut().poll(cx) {
            self.ready.push(step);
            return Wait::default();
        }
        let (work, handle) = abortable(work);
        self.set.push(work);
        Wait::until(Some(handle))
    }

    /// What is there. Streams that have ended meanwhile are nobody's.
    pub(super) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<(u32, Step)> {
        if let Some(step) = self.ready.pop() {
            return Poll::Ready(step);
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
