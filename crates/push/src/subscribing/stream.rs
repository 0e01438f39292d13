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
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);
/// Placeholder id for clients that have not received an id yet: it marks their reconnects.
pub(crate) const PLACEHOLDER_ID: &str = "-";
/// A keep-alive comment. An empty line after it would be an empty event to some clients.
const KEEP_ALIVE: &[u8] = b":\n";

/// A source of encoded events.
pub(crate) trait EventSource: Send + Sync + Unpin {
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
    preamble: Option<StreamPreamble>,
    keep_alive: Pin<Box<Sleep>>,
}

/// The fields sent before the first event.
struct StreamPreamble {
    has_placeholder_id: bool,
}

impl StreamPreamble {
    /// Encodes the fields as part of the first event: on their own, some clients take them for an event.
    fn written(&self) -> Bytes {
        // Jitter keeps clients from reconnecting all at once.
        let pause = 1000 + microcache_store::random::number() % 2000;
        if self.has_placeholder_id {
            format!("retry: {pause}\nid: {PLACEHOLDER_ID}\n").into()
        } else {
            format!("retry: {pause}\n").into()
        }
    }
}

impl<E: EventSource> EventStream<E> {
    /// Creates a stream. `has_placeholder_id` starts it with [`PLACEHOLDER_ID`], which reveals reconnects.
    pub(crate) fn new(events: E, has_placeholder_id: bool) -> Self {
        let keep_alive = Box::pin(sleep_until(next_keep_alive(&events)));
        Self {
            events,
            preamble: Some(StreamPreamble { has_placeholder_id }),
            keep_alive,
        }
    }
}

impl<E: EventSource + 'static> EventStream<E> {
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

fn next_keep_alive(events: &impl EventSource) -> Instant {
    let keep_alive = Instant::now() + KEEP_ALIVE_INTERVAL;
    events.ends().map_or(keep_alive, |end| end.min(keep_alive))
}

impl<E: EventSource> Source for EventStream<E> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(preamble) = self.preamble.take() {
            return Poll::Ready(Some(Ok(Frame::Data(preamble.written()))));
        }
        if self.events.ends().is_some_and(|end| end <= Instant::now()) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(event) = self.events.poll_event(cx) {
            self.keep_alive
                .as_mut()
                .reset(next_keep_alive(&self.events));
            return Poll::Ready(event.map(|event| Ok(Frame::Data(event))));
        }
        if self.keep_alive.as_mut().poll(cx).is_ready() {
            if self.events.ends().is_some_and(|end| end <= Instant::now()) {
                return Poll::Ready(None);
            }
            self.keep_alive
                .as_mut()
                .reset(next_keep_alive(&self.events));
            // A reset timer has to be polled to register the waker.
            let _ = self.keep_alive.as_mut().poll(cx);
            return Poll::Ready(Some(Ok(Frame::Data(Bytes::from_static(KEEP_ALIVE)))));
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
    struct SingleEvent(Option<Bytes>, Instant);

    impl EventSource for SingleEvent {
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
        for has_placeholder_id in [false, true] {
            let end = Instant::now() + Duration::from_mins(1);
            let event = Bytes::from_static(b"data: 1\n\n");
            let mut stream = EventStream::new(SingleEvent(Some(event), end), has_placeholder_id);
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
            assert_eq!(first.contains("\nid: -\n"), has_placeholder_id);
            assert_eq!(rest, ":\n".repeat(3));
        }
    }

    /// Thousands of streams are open, and most of them are idle.
    #[test]
    fn a_stream_is_small() {
        assert!(size_of::<EventStream<WatchEvents>>() <= 192);
    }
}
