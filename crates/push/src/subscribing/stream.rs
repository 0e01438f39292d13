//! Event streams as endless response bodies.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::body::Source;
use microcache_engine::{Body, BodyError, Frame, OriginResponse};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::answer;

/// Interval of keep-alive comments on a silent stream.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// Placeholder id for clients that have not received an id yet: it marks their reconnects.
pub(crate) const MARK: &str = "-";
/// A keep-alive comment. An empty line after it would be an empty event to some clients.
const ALIVE: &[u8] = b":\n";

/// A source of encoded events.
pub(crate) trait Events: Send + Sync + Unpin {
    /// Polls the next encoded event; `None` at the end.
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>>;

    /// Returns when the source ends, such as with its token.
    fn ends(&self) -> Option<Instant> {
        None
    }
}

/// A body of server-sent events.
pub(crate) struct EventStream<E> {
    events: E,
    /// Sent before the first event.
    greeting: Option<Greeting>,
    heartbeat: Pin<Box<Sleep>>,
}

/// The fields sent before the first event.
struct Greeting {
    is_marked: bool,
}

impl Greeting {
    /// Encodes the fields as part of the first event: on their own, some clients take them for an event.
    fn written(&self) -> Bytes {
        // Jitter keeps clients from reconnecting all at once.
        let pause = 1000 + microcache_store::random::number() % 2000;
        if self.is_marked {
            format!("retry: {pause}\nid: {MARK}\n").into()
        } else {
            format!("retry: {pause}\n").into()
        }
    }
}

impl<E: Events> EventStream<E> {
    /// Creates a stream. `is_marked` starts it with a placeholder id, which reveals reconnects.
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
    /// Returns the response with this stream as its body.
    pub(crate) fn answer(self) -> OriginResponse {
        let mut answer = answer::bare(200);
        answer.fields.push("Content-Type", "text/event-stream");
        answer.fields.push("Cache-Control", "no-store");
        // Disables response buffering of nginx in front of this server.
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
            // A reset timer has to be polled to register the waker.
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

    /// One event, then silence until the end.
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

    /// httpx-sse and Symfony treat every empty line as the end of an event.
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

    /// Thousands of streams are open, and most of them are idle.
    #[test]
    fn a_stream_is_small() {
        assert!(size_of::<EventStream<WatchEvents>>() <= 192);
    }
}
