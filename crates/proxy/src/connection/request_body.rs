//! A request body on its way from the client's socket to whoever wants it.
//!
//! The connection reads the socket, the origin's exchange wants the bytes: a channel of one frame
//! lies between them, so a slow origin slows the client down and nothing piles up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use bytes::BytesMut;
use microcache_engine::{Body, BodyError, Frame, Source};
use microcache_policy::{Fate, FieldPatterns, RequestRules, fate};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use super::patience::Allowance;
use crate::h1::{Decoded, Decoder, Framing};

/// How much is read from the socket at a time.
const READ_SIZE: usize = 64 * 1024;

/// The end that the origin reads from.
struct Receiver {
    frames: mpsc::Receiver<Result<Frame, BodyError>>,
    /// Says once that somebody wants the body: a client that expects a 100 waits for this.
    wanted: Option<oneshot::Sender<()>>,
}

impl Source for Receiver {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
        if let Some(wanted) = self.wanted.take() {
            let _ = wanted.send(());
        }
        self.frames.poll_recv(cx)
    }
}

/// The end that reads the socket.
pub(crate) struct Pump {
    decoder: Decoder,
    frames: Option<mpsc::Sender<Result<Frame, BodyError>>>,
    /// Holds the pump back until the client was told to go on.
    go: Option<oneshot::Receiver<()>>,
    allowance: Allowance,
    /// What the origin does not see, also behind the body.
    rules: RequestRules,
}

/// The connection's hold on a body that is only sent when wanted.
pub(crate) struct Expectation {
    pub(crate) wanted: oneshot::Receiver<()>,
    pub(crate) go: oneshot::Sender<()>,
}

/// A body with this framing, the pump that fills it, and the client's expectation if it has one.
pub(crate) fn request_body(
    framing: Framing,
    expects_continue: bool,
    allowance: Allowance,
    rules: &RequestRules,
) -> (Body, Option<Pump>, Option<Expectation>) {
    if framing == Framing::None {
        return (Body::Empty, None, None);
    }
    let (sender, frames) = mpsc::channel(1);
    let (mut wanted_sender, mut expectation, mut go_receiver) = (None, None, None);
    if expects_continue {
        let (wanted_in, wanted) = oneshot::channel();
        let (go, go_out) = oneshot::channel();
        wanted_sender = Some(wanted_in);
        expectation = Some(Expectation { wanted, go });
        go_receiver = Some(go_out);
    }
    let body = Body::Stream(Box::new(Receiver {
        frames,
        wanted: wanted_sender,
    }));
    let pump = Pump {
        decoder: Decoder::new(framing),
        frames: Some(sender),
        go: go_receiver,
        allowance,
        rules: RequestRules {
            // A trailer has no say on who asks for what, whoever may have one in the head.
            kept_fields: FieldPatterns::default(),
            ..rules.clone()
        },
    };
    (body, Some(pump), expectation)
}

impl Pump {
    /// Moves the body until its end; then sets `complete`. Returns without setting it when the
    /// body was malformed, stalled, or nobody wants the rest.
    pub(crate) async fn run(
        &mut self,
        socket: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
        complete: &AtomicBool,
    ) {
        if let Some(go) = self.go.take()
            && go.await.is_err()
        {
            return;
        }
        while let Some(frames) = self.frames.take() {
            let Ok(room) = frames.reserve().await else {
                return;
            };
            match self.next(socket, buffer).await {
                Some(Ok(frame)) => {
                    room.send(Ok(frame));
                    if self.decoder.is_end() {
                        return complete.store(true, Ordering::Relaxed);
                    }
                }
                Some(Err(error)) => return room.send(Err(error)),
                None => return complete.store(true, Ordering::Relaxed),
            }
            self.frames = Some(frames);
        }
    }

    async fn next(
        &mut self,
        socket: &mut (impl AsyncRead + Unpin),
        buffer: &mut BytesMut,
    ) -> Option<Result<Frame, BodyError>> {
        loop {
            match self.decoder.decode(buffer) {
                Ok(Decoded::Frame(Frame::Trailers(mut trailers))) => {
                    trailers.retain(|name, _| fate(name, false, &self.rules) == Fate::Travels);
                    return Some(Ok(Frame::Trailers(trailers)));
                }
                Ok(Decoded::Frame(data)) => return Some(Ok(data)),
                Ok(Decoded::End) => return None,
                Err(error) => return Some(Err(error)),
                Ok(Decoded::NeedMore) => {}
            }
            buffer.reserve(READ_SIZE);
            let asked = Instant::now();
            match timeout(self.allowance.left(), socket.read_buf(buffer)).await {
                Err(_) => return Some(Err(BodyError::Timeout)),
                Ok(Ok(0)) => return Some(Err(BodyError::Incomplete)),
                Ok(Ok(bytes)) => self.allowance.received(bytes, asked.elapsed()),
                Ok(Err(_)) => return Some(Err(BodyError::Disconnected)),
            }
        }
    }
}
