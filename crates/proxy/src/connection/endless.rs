//! Responses without an end: server-sent events, and WebSocket sessions that end in this process. Thousands may be open
//! and idle, so the state of the request is dropped and the rest is polled by hand.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use microcache_engine::{Body, Duplex, Tunnel};
use tokio::io::AsyncWrite;
use tokio::time::{Sleep, sleep};

use super::feed::{EndlessSource, InputState};
use super::head::BodyEnding;
use super::send::OutputQueue;
use super::state::{BUFFERS, Connection};
use crate::admission::ResponsePermits;
use crate::session::RequestAccount;

/// Limit of input bytes read ahead during a response. During an endless one, a client above it counts as gone.
pub(super) const MAX_AHEAD: usize = 64 * 1024;

/// Remainder of a response whose head is sent.
pub(super) struct Endless {
    feed: EndlessSource,
    /// Output that the socket has not taken yet; usually none.
    unsent: Option<Box<UnsentOutput>>,
    account: RequestAccount,
    _held: ResponsePermits,
}

struct UnsentOutput {
    output: OutputQueue,
    /// Deadline of a client that takes nothing.
    stall: Option<Pin<Box<Sleep>>>,
}

impl UnsentOutput {
    fn of(output: OutputQueue) -> Box<Self> {
        let stall = None;
        Box::new(Self { output, stall })
    }
}

impl Endless {
    pub(super) fn body(
        body: Body,
        ending: BodyEnding,
        account: RequestAccount,
        held: ResponsePermits,
    ) -> Self {
        let feed = EndlessSource::Body(body, ending, InputState::Open);
        Self {
            feed,
            unsent: None,
            account,
            _held: held,
        }
    }

    /// Response of a WebSocket that ends in this process.
    pub(super) fn socket(tunnel: Tunnel, account: RequestAccount, held: ResponsePermits) -> Self {
        let early = Some(tunnel.early).filter(|early| !early.is_empty());
        Self {
            feed: EndlessSource::Socket(tunnel.io, InputState::Open),
            unsent: early.map(|early| UnsentOutput::of(OutputQueue::bytes(early))),
            account,
            _held: held,
        }
    }
}

impl Connection {
    /// Sends the body as it arrives, until it ends or the client leaves. Returns `true` if it was sent
    /// completely.
    pub(super) async fn send_endless(&mut self, mut answer: Box<Endless>) -> bool {
        poll_fn(|cx| {
            // Input is handed over first, so that the next output already takes it into account.
            if let EndlessSource::Socket(io, state) = &mut answer.feed {
                let heard = self.poll_heard(cx, io, state);
                if heard.is_ready() {
                    return Poll::Ready(false);
                }
            }
            if let Poll::Ready(sent) = self.poll_send_endless(cx, &mut answer) {
                return Poll::Ready(sent.is_ok());
            }
            // Pending output goes first, whatever the client does to its sending side.
            let gone = match &mut answer.feed {
                EndlessSource::Socket(..) => Poll::Pending,
                EndlessSource::Body(_, _, state) => self.poll_gone(cx, state),
                EndlessSource::Over => self.poll_gone(cx, &mut InputState::Open),
            };
            gone.map(|()| false)
        })
        .await
    }

    fn poll_send_endless(
        &mut self,
        cx: &mut Context<'_>,
        answer: &mut Endless,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(unsent) = &mut answer.unsent {
                let before = unsent.output.len();
                match unsent.output.poll_send(cx, &mut self.stream) {
                    Poll::Ready(sent) => sent?,
                    Poll::Pending => {
                        if unsent.output.len() < before {
                            unsent.stall = None;
                        }
                        let time_limit = self.session.shared.timeouts.write;
                        ready!(unsent.poll_stalled(cx, time_limit));
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                }
                answer.unsent = None;
            }
            if matches!(answer.feed, EndlessSource::Over) {
                return Poll::Ready(Ok(()));
            }
            let (unsent, goes_on) = ready!(answer.feed.poll_send(
                cx,
                &mut self.stream,
                &mut answer.account
            ))?;
            answer.unsent = unsent.map(|unsent| UnsentOutput::of(*unsent));
            if !goes_on {
                answer.feed = EndlessSource::Over;
            }
        }
    }

    /// Waits for the client to leave. Closing its sending side counts, as it is the only way to end such a
    /// response; so does sending more than [`MAX_AHEAD`] bytes.
    fn poll_gone(&mut self, cx: &mut Context<'_>, state: &mut InputState) -> Poll<()> {
        if self.is_silent(*state) {
            return Poll::Pending;
        }
        BUFFERS.with_borrow_mut(|buffers| {
            let scratch = &mut buffers.input;
            while self.input.len() < MAX_AHEAD {
                match self.stream.poll_recv(cx, scratch) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(length)) => self.input.extend_from_slice(&scratch[..length]),
                    Poll::Pending => {
                        *state = InputState::after_pending();
                        return Poll::Pending;
                    }
                }
            }
            Poll::Ready(())
        })
    }

    /// Returns `true` if the client has sent nothing since the waker was registered for input. This costs less than
    /// another poll, and most clients are silent most of the time.
    fn is_silent(&self, state: InputState) -> bool {
        state == InputState::Awaited && !self.stream.may_have_input()
    }

    /// Passes on input of the client. Reads no more until that is taken (back-pressure).
    fn poll_heard(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Box<dyn Duplex>,
        state: &mut InputState,
    ) -> Poll<()> {
        if self.is_silent(*state) {
            return Poll::Pending;
        }
        loop {
            while !self.input.is_empty() {
                match ready!(Pin::new(&mut *io).poll_write(cx, &self.input)) {
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(taken) => self.input.advance(taken),
                }
            }
            // Most clients are silent most of the time.
            self.input = BytesMut::new();
            if *state == InputState::Ended {
                return Poll::Pending;
            }
            *state = InputState::Open;
            let read = BUFFERS.with_borrow_mut(|buffers| {
                let scratch = &mut buffers.input;
                let read = self.stream.poll_recv(cx, scratch);
                read.map_ok(|length| self.input.extend_from_slice(&scratch[..length]))
            });
            match read {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {
                    *state = InputState::after_pending();
                    return Poll::Pending;
                }
            }
            if self.input.is_empty() {
                *state = InputState::Ended;
                // Shutting down flushes what is left to send.
                ready!(Pin::new(&mut *io).poll_shutdown(cx)).ok();
            }
        }
    }
}

impl UnsentOutput {
    /// Ready once the client has taken nothing for the duration of `time_limit`.
    fn poll_stalled(&mut self, cx: &mut Context<'_>, time_limit: Duration) -> Poll<()> {
        let stall = self
            .stall
            .get_or_insert_with(|| Box::pin(sleep(time_limit)));
        stall.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use microcache_engine::{BodyError, Frame, Source};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::tests::connection;
    use super::*;

    const EVENT: &[u8] = &[b'x'; 4096];

    /// A source that is polled for each event, and has so many of them at once.
    struct Events {
        at_once: usize,
        left: usize,
        polls: Arc<AtomicUsize>,
    }

    impl Source for Events {
        fn poll_frame(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Frame, BodyError>>> {
            self.polls.fetch_add(1, Ordering::Relaxed);
            if self.left == 0 {
                self.left = self.at_once;
                return Poll::Pending;
            }
            self.left -= 1;
            Poll::Ready(Some(Ok(Frame::Data(Bytes::from_static(EVENT)))))
        }

        fn is_drained(&self) -> bool {
            self.at_once == 1
        }
    }

    fn events(at_once: usize) -> (Box<Endless>, Arc<AtomicUsize>) {
        let polls = Arc::new(AtomicUsize::new(0));
        let source = Events {
            at_once,
            left: at_once,
            polls: Arc::clone(&polls),
        };
        let body = Body::Stream(Box::new(source));
        let held = ResponsePermits::default();
        let endless = Endless::body(body, BodyEnding::Close, RequestAccount::default(), held);
        (Box::new(endless), polls)
    }

    /// Polls once, without a look at the sockets.
    async fn poll_now<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_costs_its_source_nothing() {
        let (mut connection, _client) = connection().await;
        // As many as no socket takes.
        let (endless, polls) = events(1 << 14);
        let mut sending = pin!(connection.send_endless(endless));
        let sent = loop {
            let before = polls.load(Ordering::Relaxed);
            assert!(poll_now(&mut sending).await.is_pending());
            if polls.load(Ordering::Relaxed) == before {
                break before;
            }
            // Renews the budget of this task, which ends a poll, too.
            tokio::task::yield_now().await;
        };
        for _ in 0..100 {
            assert!(poll_now(&mut sending).await.is_pending());
        }
        assert_eq!(polls.load(Ordering::Relaxed), sent);
    }

    #[tokio::test]
    async fn the_source_of_a_newest_event_is_not_polled_again() {
        let (mut connection, mut client) = connection().await;
        let (endless, polls) = events(1);
        let mut sending = pin!(connection.send_endless(endless));
        let mut received = vec![0; EVENT.len()];
        for event in 1..=10 {
            // Every second poll finds no event.
            assert!(poll_now(&mut sending).await.is_pending());
            assert!(poll_now(&mut sending).await.is_pending());
            client.read_exact(&mut received).await.unwrap();
            assert_eq!(polls.load(Ordering::Relaxed), 2 * event);
        }
        // The end of the client is noticed though input is not polled for each event.
        client.shutdown().await.unwrap();
        assert!(!sending.await);
    }
}
