//! Request content on its way from the client's connection to the origin's.
//!
//! The channel holds one frame, so a slow origin slows the client down (back-pressure) and nothing accumulates.

use std::task::{Context, Poll, ready};
use std::time::Duration;

use microcache_engine::{Body, BodyError, Frame, Source};
use microcache_policy::{
    FieldForwarding, FieldName, FieldPatterns, RequestRules, field_forwarding,
};
use tokio::sync::{mpsc, oneshot};

/// Framing and expectation of a request's content.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnnouncedContent {
    /// Announced length in bytes, if any.
    pub(crate) length: Option<u64>,
    /// The client waits for a 100 before it sends the content.
    pub(crate) expects_continue: bool,
}

/// Next frame of the content; `None` is the end.
type ContentStep = Result<Option<Frame>, BodyError>;

/// Receiving half of the channel, read by the exchange with the origin.
struct ContentReceiver {
    /// Frames, each with a flag for the last one.
    steps: mpsc::Receiver<(ContentStep, bool)>,
    ended: bool,
    /// Fires once when the content is needed, for clients that expect a 100.
    wanted: Option<oneshot::Sender<()>>,
}

impl Source for ContentReceiver {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(wanted) = self.wanted.take() {
            let _ = wanted.send(());
        }
        if self.ended {
            return Poll::Ready(None);
        }
        let step = match ready!(self.steps.poll_recv(cx)) {
            Some((step, is_last)) => {
                self.ended = is_last;
                step
            }
            // Truncated content must not pass for complete.
            None => Err(BodyError::Disconnected),
        };
        Poll::Ready(step.transpose())
    }
}

/// Sending half of the channel, filled by the client's connection. Dropping it before the end breaks the
/// content off.
pub(crate) struct ContentSender {
    steps: mpsc::Sender<(ContentStep, bool)>,
    /// Delays the content until the client has received its 100.
    go: Option<oneshot::Receiver<()>>,
    /// Read timeout of the client.
    pub(crate) allowance: Allowance,
    /// Bytes left of the size limit.
    room: u64,
    /// Rules for trailers.
    rules: Box<RequestRules>,
}

/// The client's expectation of a 100, until the content is needed.
pub(super) struct ContinueExpectation {
    pub(super) wanted: oneshot::Receiver<()>,
    pub(super) go: oneshot::Sender<()>,
}

/// Creates a channel for at most this many bytes, with the client's expectation if it has one.
pub(super) fn channel(
    announced: AnnouncedContent,
    most: u64,
    allowance: Allowance,
    rules: &RequestRules,
) -> (Body, ContentSender, Option<ContinueExpectation>) {
    let (sender, steps) = mpsc::channel(1);
    let (mut wanted_sender, mut expectation, mut go_receiver) = (None, None, None);
    if announced.expects_continue {
        let (wanted_in, wanted) = oneshot::channel();
        let (go, go_out) = oneshot::channel();
        wanted_sender = Some(wanted_in);
        expectation = Some(ContinueExpectation { wanted, go });
        go_receiver = Some(go_out);
    }
    let body = Body::Stream(Box::new(ContentReceiver {
        steps,
        ended: false,
        wanted: wanted_sender,
    }));
    let sender = ContentSender {
        steps: sender,
        go: go_receiver,
        allowance,
        room: most,
        rules: Box::new(RequestRules {
            // Trailers never identify a client, even where such fields are allowed in heads.
            kept_fields: FieldPatterns::default(),
            ..rules.clone()
        }),
    };
    (body, sender, expectation)
}

impl ContentSender {
    /// Waits for room for a frame. `false` if the receiver is gone, or the client got no 100.
    pub(crate) async fn ready(&mut self) -> bool {
        if let Some(go) = self.go.take()
            && go.await.is_err()
        {
            return false;
        }
        self.steps.reserve().await.is_ok()
    }

    /// Sends a frame, after [`Self::ready`]. `is_last` marks the last one. Exceeding the size limit ends the
    /// content with an error.
    pub(crate) fn send(&mut self, mut frame: Frame, is_last: bool) {
        if let Frame::Data(data) = &frame {
            match self.room.checked_sub(data.len() as u64) {
                Some(room) => self.room = room,
                None => return self.step(Err(BodyError::TooLarge), true),
            }
        }
        if let Frame::Trailers(trailers) = &mut frame {
            trailers.retain(|name, _| {
                field_forwarding(FieldName::of(name), false, &self.rules)
                    == FieldForwarding::Forwarded
            });
        }
        self.step(Ok(Some(frame)), is_last);
    }

    /// Ends the content, after [`Self::ready`].
    pub(crate) fn end(self) {
        self.step(Ok(None), true);
    }

    /// Breaks the content off, after [`Self::ready`].
    pub(crate) fn fail(self, why: BodyError) {
        self.step(Err(why), true);
    }

    fn step(&self, step: ContentStep, is_last: bool) {
        // There is room, unless the receiver is gone.
        let _ = self.steps.try_send((step, is_last));
    }
}

/// Read timeout with a least rate. Waiting uses it up; bytes received restore it at the least rate, up to its
/// initial value. So it ends for a silent client, and for one that sends a byte now and then.
pub(crate) struct Allowance {
    left: Duration,
    most: Duration,
    /// Least rate in bytes per second; 0 accepts any.
    rate: u64,
}

impl Allowance {
    pub(crate) fn new(most: Duration, rate: u64) -> Self {
        Self {
            left: most,
            most,
            rate,
        }
    }

    /// Returns the time that the next piece may take.
    pub(crate) fn left(&self) -> Duration {
        self.left
    }

    /// Records bytes received after this wait.
    pub(crate) fn received(&mut self, bytes: usize, waited: Duration) {
        let nanos = (bytes as u64).saturating_mul(1_000_000_000);
        let earned = nanos
            .checked_div(self.rate)
            .map_or(self.most, Duration::from_nanos);
        self.left = self
            .left
            .saturating_sub(waited)
            .saturating_add(earned)
            .min(self.most);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use microcache_policy::{Fields, FieldsBuf};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn data(bytes: &'static [u8]) -> Frame {
        Frame::Data(Bytes::from_static(bytes))
    }

    /// Returns the content that arrives when a connection sends like this.
    async fn arrived(send: impl AsyncFnOnce(ContentSender)) -> (Vec<u8>, Option<BodyError>) {
        let announced = AnnouncedContent {
            length: None,
            expects_continue: false,
        };
        let allowance = Allowance::new(SECOND, 0);
        let rules = RequestRules::default();
        let (mut body, sender, _) = channel(announced, 8, allowance, &rules);
        let receive = async {
            let mut whole = Vec::new();
            loop {
                match body.frame().await {
                    Some(Ok(Frame::Data(data))) => whole.extend_from_slice(&data),
                    Some(Ok(Frame::Trailers(trailers))) => whole.extend(trailers.into_block()),
                    Some(Err(error)) => return (whole, Some(error)),
                    None => return (whole, None),
                }
            }
        };
        tokio::join!(receive, send(sender)).0
    }

    #[tokio::test]
    async fn only_a_body_sent_to_its_end_is_complete() {
        let ended = arrived(async |mut sender| {
            assert!(sender.ready().await);
            sender.send(data(b"a"), false);
            assert!(sender.ready().await);
            sender.end();
        });
        assert_eq!(ended.await, (b"a".to_vec(), None));
        let last = arrived(async |mut sender| {
            assert!(sender.ready().await);
            sender.send(data(b"a"), true);
        });
        assert_eq!(last.await, (b"a".to_vec(), None));
        let dropped = arrived(async |mut sender| {
            assert!(sender.ready().await);
            sender.send(data(b"a"), false);
        });
        let broken = Some(BodyError::Disconnected);
        assert_eq!(dropped.await, (b"a".to_vec(), broken));
        let failed = arrived(async |mut sender| {
            assert!(sender.ready().await);
            sender.fail(BodyError::Timeout);
        });
        assert_eq!(failed.await, (Vec::new(), Some(BodyError::Timeout)));
    }

    #[tokio::test]
    async fn content_that_is_too_long_ends_where_it_is() {
        let whole = arrived(async |mut sender| {
            for _ in 0..2 {
                assert!(sender.ready().await);
                sender.send(data(b"abcd"), false);
            }
            assert!(sender.ready().await);
            sender.end();
        });
        assert_eq!(whole.await, (b"abcdabcd".to_vec(), None));
        let long = arrived(async |mut sender| {
            for piece in [&b"abcd"[..], b"efghi"] {
                assert!(sender.ready().await);
                sender.send(data(piece), false);
            }
        });
        assert_eq!(long.await, (b"abcd".to_vec(), Some(BodyError::TooLarge)));
    }

    #[tokio::test]
    async fn trailers_obey_the_rules_for_request_fields() {
        let trailers = arrived(async |mut sender| {
            let block = Fields::new(b"X-Sum: 1\r\nX-Forwarded-For: 6.6.6.6\r\n");
            assert!(sender.ready().await);
            sender.send(Frame::Trailers(FieldsBuf::from(block)), true);
        });
        assert_eq!(trailers.await, (b"X-Sum: 1\r\n".to_vec(), None));
    }

    #[tokio::test]
    async fn content_that_is_only_sent_when_wanted_waits_for_the_word() {
        let announced = AnnouncedContent {
            length: None,
            expects_continue: true,
        };
        let rules = RequestRules::default();
        let (mut body, mut sender, expectation) =
            channel(announced, 8, Allowance::new(SECOND, 0), &rules);
        let expectation = expectation.expect("it was announced");
        let face = async {
            assert!(sender.ready().await, "the client got its 100");
            sender.send(data(b"a"), true);
        };
        let client = async {
            expectation.wanted.await.expect("the content is read");
            expectation.go.send(()).expect("the sender waits");
        };
        let (frame, (), ()) = tokio::join!(body.frame(), face, client);
        assert!(matches!(frame, Some(Ok(Frame::Data(_)))), "{frame:?}");
        // The content is not needed, so the client gets no 100.
        let (_body, mut sender, expectation) =
            channel(announced, 8, Allowance::new(SECOND, 0), &rules);
        drop(expectation);
        assert!(!sender.ready().await);
    }

    #[test]
    fn a_client_at_the_least_rate_never_times_out() {
        let mut allowance = Allowance::new(10 * SECOND, 500);
        for _ in 0..1000 {
            allowance.received(4500, 9 * SECOND);
            assert_eq!(allowance.left(), 10 * SECOND);
        }
    }

    #[test]
    fn a_dripping_client_times_out() {
        let mut allowance = Allowance::new(10 * SECOND, 500);
        let bytes = (1..100).find(|_| {
            allowance.received(1, SECOND);
            allowance.left() < SECOND
        });
        assert_eq!(bytes, Some(10), "the next byte comes too late");
    }

    #[test]
    fn early_bytes_do_not_extend_the_timeout() {
        let mut allowance = Allowance::new(10 * SECOND, 500);
        allowance.received(1 << 30, Duration::ZERO);
        assert_eq!(allowance.left(), 10 * SECOND);
    }

    #[test]
    fn without_a_rate_only_silence_counts() {
        let mut allowance = Allowance::new(10 * SECOND, 0);
        for _ in 0..1000 {
            allowance.received(1, 9 * SECOND);
            assert_eq!(allowance.left(), 10 * SECOND);
        }
    }
}
