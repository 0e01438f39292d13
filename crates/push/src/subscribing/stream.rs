//! Events as a body, which has no end of its own.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::body::Source;
use microcache_engine::{Body, BodyError, Frame, OriginResponse};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::answer;

/// How often somebody to whom nothing happens is told that the connection is good.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// An id for those who have not been told of any that counts: who comes back with it is not new.
pub(crate) const MARK: &str = "-";
/// A comment. An empty line behind it would be an event without anything, to some clients.
const ALIVE: &[u8] = b":\n";

/// Whose events are sent.
pub(crate) trait Events: Send + Sync + Unpin {
    /// The next event, as it is sent; `None` if none comes any more.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;

    /// When there are none any more, whatever happens.
    fn ends(&self) -> Option<Instant> {
        None
    }
}

/// A body of server-sent events.
pub(crate) struct EventStream<E> {
    events: E,
    /// Something is said first.
    greeting: Option<Greeting>,
    heartbeat: Pin<Box<Sleep>>,
}

/// What is said first.
struct Greeting {
    is_marked: bool,
}

impl Greeting {
    /// The first lines of the first event. By themselves, some clients would take them for one.
    fn written(&self) -> Bytes {
        // Clients come back after a while, and not all at once.
        let pause = 1000 + microcache_store::random::number() % 2000;
        if self.is_marked {
            format!("retry: {pause}\nid: {MARK}\n").into()
        } else {
            format!("retry: {pause}\n").into()
        }
    }
}

impl<E: Events> EventStream<E> {
    /// Of these. Whoever comes back may have to be told apart from who is new.
    pub(crate) fn new(events: E, is_marked: bool) -> Self {
        let heartbeat = Box::pin(sleep_until(next_look(&events)));
        Self {
            events,
            greeting: Some(Greeting { is_marked }),
            heartbeat,
        }
    }
}

impl<E: Events + 'static> EventStream<E> {
    /// Changes, as they come.
    pub(crate) fn answer(self) -> OriginResponse {
        let mut answer = answer::bare(200);
        answer.fields.push("Content-Type", "text/event-stream");
        answer.fields.push("Cache-Control", "no-store");
        // nginx in front of us would hold them back.
        answer.fields.push("X-Accel-Buffering", "no");
        answer.length = None;
        answer.body = Body::Stream(Box::new(self));
        answer
    }
}

fn next_look(events: &impl Events) -> Instant {
    let heartbeat = Instant::now() + HEARTBEAT;
    events.ends().map_or(heartbeat, |end| end.min(heartbeat))
}

impl<E: Events> Source for EventStream<E> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(greeting) = self.greeting.take() {
            return Poll::Ready(Some(Ok(Frame::Data(greeting.written()))));
        }
        if self.events.ends().is_some_and(|end| end <= Instant::now()) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(event) = self.events.poll_event(cx) {
            self.heartbeat.as_mut().reset(next_look(&self.events));
            return Poll::Ready(event.map(|event| Ok(Frame::Data(event))));
        }
        if self.heartbeat.as_mut().poll(cx).is_ready() {
            if self.events.ends().is_some_and(|end| end <= Instant::now()) {
                return Poll::Ready(None);
            }
            self.heartbeat.as_mut().reset(next_look(&self.events));
            // The timer has to be polled once more for somebody to be woken by it.
            let _ = self.heartbeat.as_mut().poll(cx);
            return Poll::Ready(Some(Ok(Frame::Data(Bytes::from_static(ALIVE)))));
        }
        Poll::Pending
    }

    fn has_descriptor(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use crate::subscribing::subscription::WatchEvents;

    /// One event, and nothing more for a minute.
    struct One(Option<Bytes>, Instant);

    impl Events for One {
        fn poll_event(&mut self, _: &mut Context<'_>) -> Poll<Option<Bytes>> {
            self.0
                .take()
                .map_or(Poll::Pending, |event| Poll::Ready(Some(event)))
        }

        fn ends(&self) -> Option<Instant> {
            Some(self.1)
        }
    }

    /// httpx-sse and Symfony take each empty line for the end of an event, whatever stands before it.
    #[tokio::test(start_paused = true)]
    async fn an_empty_line_ends_an_event_and_nothing_else() {
        for is_marked in [false, true] {
            let end = Instant::now() + Duration::from_mins(1);
            let event = Bytes::from_static(b"data: 1\n\n");
            let mut stream = EventStream::new(One(Some(event), end), is_marked);
            let mut sent = String::new();
            while let Some(frame) = poll_fn(|cx| stream.poll_frame(cx)).await {
                let Ok(Frame::Data(bytes)) = frame else {
                    panic!("it is data");
                };
                sent += std::str::from_utf8(&bytes).expect("text");
            }
            let (first, rest) = sent.split_once("\n\n").expect("an event");
            assert!(
                first.starts_with("retry: ") && first.ends_with("\ndata: 1"),
                "{sent}"
            );
            assert_eq!(first.contains("\nid: -\n"), is_marked);
            assert_eq!(rest, ":\n".repeat(3));
        }
    }

    /// Thousands are open, and nothing happens to most of them.
    #[test]
    fn a_stream_is_small() {
        assert!(size_of::<EventStream<WatchEvents>>() <= 192);
    }
}
