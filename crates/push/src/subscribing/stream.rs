//! Event streams as endless response bodies.

use std::future::Future;
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll, ready};
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

    /// Returns true if the last event was the newest, and the waker of the poll that returned it is registered.
    fn is_drained(&self) -> bool {
        false
    }

    /// Returns when the source ends, such as with its token.
    fn ends(&self) -> Option<Instant> {
        None
    }
}

/// An instant in milliseconds, modulo 49 days. Thousands of streams have one, and it takes a quarter of an `Instant`.
#[derive(Clone, Copy)]
struct CoarseInstant(u32);

impl CoarseInstant {
    fn of(instant: Instant) -> Self {
        static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
        if let Some(after) = instant.checked_duration_since(*ORIGIN) {
            return Self(millis(after));
        }
        // A clock that tests have stopped may be behind.
        let before = ORIGIN.saturating_duration_since(instant);
        Self(0_u32.wrapping_sub(millis(before)))
    }

    fn elapsed_at(self, now: Instant) -> Duration {
        Duration::from_millis(Self::of(now).0.wrapping_sub(self.0).into())
    }
}

/// Returns a duration in milliseconds, modulo 49 days: [`Duration::as_millis`] calculates with 128 bits.
const fn millis(duration: Duration) -> u32 {
    (duration.as_secs() as u32)
        .wrapping_mul(1000)
        .wrapping_add(duration.subsec_millis())
}

/// A body of server-sent events.
pub(crate) struct EventStream<E> {
    events: E,
    /// Sent before the first event.
    preamble: Option<StreamPreamble>,
    /// Time of the last event or comment.
    last_output: CoarseInstant,
    /// Rings when the next comment is due, or earlier: events do not move it.
    keep_alive: Pin<Box<Sleep>>,
    /// True once a waker is registered with the timer.
    is_armed: bool,
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
        let now = Instant::now();
        Self {
            keep_alive: Box::pin(sleep_until(until_end(&events, now + KEEP_ALIVE_INTERVAL))),
            events,
            preamble: Some(StreamPreamble { has_placeholder_id }),
            last_output: CoarseInstant::of(now),
            is_armed: false,
        }
    }

    fn is_over(&self, now: Instant) -> bool {
        self.events.ends().is_some_and(|end| end <= now)
    }

    /// Ready with a comment after a silence, and at the end of the stream.
    fn poll_keep_alive(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut comment = Poll::Pending;
        while self.keep_alive.as_mut().poll(cx).is_ready() {
            let now = Instant::now();
            if self.is_over(now) {
                return Poll::Ready(None);
            }
            let mut silence = self.last_output.elapsed_at(now);
            if silence >= KEEP_ALIVE_INTERVAL {
                self.last_output = CoarseInstant::of(now);
                silence = Duration::ZERO;
                comment = Poll::Ready(Some(Bytes::from_static(KEEP_ALIVE)));
            }
            let next = until_end(&self.events, now + KEEP_ALIVE_INTERVAL - silence);
            self.keep_alive.as_mut().reset(next);
        }
        self.is_armed = true;
        comment
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

/// Returns the instant, or the end of the source if that is earlier.
fn until_end(events: &impl EventSource, instant: Instant) -> Instant {
    events.ends().map_or(instant, |end| end.min(instant))
}

impl<E: EventSource> Source for EventStream<E> {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(preamble) = self.preamble.take() {
            return Poll::Ready(Some(Ok(Frame::Data(preamble.written()))));
        }
        if self.events.ends().is_some() && self.is_over(Instant::now()) {
            return Poll::Ready(None);
        }
        let output = match self.events.poll_event(cx) {
            Poll::Ready(event) => {
                self.last_output = CoarseInstant::of(Instant::now());
                event
            }
            Poll::Pending => ready!(self.poll_keep_alive(cx)),
        };
        Poll::Ready(output.map(|bytes| Ok(Frame::Data(bytes))))
    }

    fn is_drained(&self) -> bool {
        self.is_armed && self.events.is_drained()
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
