//! Responses without an end: server-sent events, and WebSocket sessions that end in this process. Thousands may be open
//! and idle, so the state of the request is dropped and the rest is polled by hand.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use microcache_engine::{Body, Tunnel};
use tokio::io::AsyncWrite;
use tokio::time::{Sleep, sleep};

use super::feed::{EndlessSource, InputState};
use super::head::BodyEnding;
use super::send::OutputQueue;
use super::state::{BUFFERS, Connection};
use super::transport::ClientTransport;
use crate::admission::ResponsePermits;
use crate::session::{RequestAccount, SentBytes};
use crate::shared::Shared;

/// Limit of input bytes read ahead during a response. During an endless one, a client above it counts as gone.
pub(super) const MAX_AHEAD: usize = 64 * 1024;

/// Remainder of a response whose head is sent, with the stream of its connection meanwhile. What an event needs is in two
/// cache lines: the time of an event that goes to thousands of clients is that of reading their memory.
#[repr(C)]
pub(super) struct Endless {
    stream: ClientTransport,
    sent: SentBytes,
    /// Output that the socket has not taken yet; usually none.
    unsent: Option<Box<UnsentOutput>>,
    feed: EndlessSource,
    /// Input that is not consumed yet; usually none.
    input: Option<Box<BytesMut>>,
    account: RequestAccount,
    _held: ResponsePermits,
}

/// Three cache lines, in which an event needs the first two. With debug assertions, a socket of mio is larger.
const _: () = assert!(cfg!(debug_assertions) || size_of::<Endless>() <= 192);

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
        (body, ending): (Body, BodyEnding),
        account: RequestAccount,
        held: ResponsePermits,
        shared: &Arc<Shared>,
    ) -> Box<Self> {
        let feed = EndlessSource::Body(body, ending, InputState::Open);
        Self::new(feed, account, held, shared)
    }

    /// Response of a WebSocket that ends in this process.
    pub(super) fn socket(
        tunnel: Tunnel,
        account: RequestAccount,
        held: ResponsePermits,
        shared: &Arc<Shared>,
    ) -> Box<Self> {
        let early = Some(tunnel.early).filter(|early| !early.is_empty());
        let feed = EndlessSource::Socket(tunnel.io, InputState::Open);
        let mut socket = Self::new(feed, account, held, shared);
        socket.unsent = early.map(|early| UnsentOutput::of(OutputQueue::bytes(early)));
        socket
    }

    fn new(
        feed: EndlessSource,
        account: RequestAccount,
        held: ResponsePermits,
        shared: &Arc<Shared>,
    ) -> Box<Self> {
        Box::new(Self {
            stream: ClientTransport::elsewhere(),
            sent: SentBytes::of(&account, shared),
            unsent: None,
            feed,
            input: None,
            account,
            _held: held,
        })
    }

    /// Takes the stream of the connection, and its unread input.
    pub(super) fn begin(&mut self, connection: &mut Connection) {
        self.stream = connection.stream.take();
        self.keep_input(std::mem::take(&mut connection.input));
    }

    /// Gives back what [`Self::begin`] has taken.
    pub(super) fn end(&mut self, connection: &mut Connection) {
        connection.stream = self.stream.take();
        connection.input = self.take_input();
    }

    fn keep_input(&mut self, input: BytesMut) {
        self.input = (!input.is_empty()).then(|| Box::new(input));
    }

    fn take_input(&mut self) -> BytesMut {
        self.input.take().map_or_else(BytesMut::new, |input| *input)
    }

    /// Sends the body as it arrives, until it ends or the client leaves. Ready with `true` if it was sent
    /// completely.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        // Input is handed over first, so that the next output already takes it into account.
        if self.poll_heard(cx).is_ready() {
            return Poll::Ready(false);
        }
        if let Poll::Ready(sent) = self.poll_send(cx) {
            return Poll::Ready(sent.is_ok());
        }
        // Pending output goes first, whatever the client does to its sending side.
        self.poll_gone(cx).map(|()| false)
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(unsent) = &mut self.unsent {
                let before = unsent.output.len();
                match unsent.output.poll_send(cx, &mut self.stream) {
                    Poll::Ready(sent) => sent?,
                    Poll::Pending => {
                        if unsent.output.len() < before {
                            unsent.stall = None;
                        }
                        let time_limit = self.sent.shared().timeouts.write;
                        ready!(unsent.poll_stalled(cx, time_limit));
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                }
                self.unsent = None;
            }
            if matches!(self.feed, EndlessSource::Over) {
                return Poll::Ready(Ok(()));
            }
            let (unsent, goes_on) =
                ready!(self.feed.poll_send(cx, &mut self.stream, &mut self.sent))?;
            self.unsent = unsent.map(|unsent| UnsentOutput::of(*unsent));
            if !goes_on {
                self.feed = EndlessSource::Over;
            }
        }
    }

    /// Waits for the client to leave. Closing its sending side counts, as it is the only way to end such a
    /// response; so does sending more than [`MAX_AHEAD`] bytes.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut unwatched = InputState::Open;
        let state = match &mut self.feed {
            // Its input was handed over.
            EndlessSource::Socket(..) => return Poll::Pending,
            EndlessSource::Body(_, _, state) => state,
            EndlessSource::Over => &mut unwatched,
        };
        if is_silent(&self.stream, *state) {
            return Poll::Pending;
        }
        BUFFERS.with_borrow_mut(|buffers| {
            let scratch = &mut buffers.input;
            let length = |input: &Option<Box<BytesMut>>| input.as_ref().map_or(0, |it| it.len());
            while length(&self.input) < MAX_AHEAD {
                match self.stream.poll_recv(cx, scratch) {
                    Poll::Ready(Ok(0) | Err(_)) => return Poll::Ready(()),
                    Poll::Ready(Ok(length)) => {
                        let input = self.input.get_or_insert_default();
                        input.extend_from_slice(&scratch[..length]);
                    }
                    Poll::Pending => {
                        *state = InputState::after_pending();
                        return Poll::Pending;
                    }
                }
            }
            Poll::Ready(())
        })
    }

    /// Passes on input of the client to a WebSocket. Reads no more until that is taken (back-pressure).
    fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.feed {
            EndlessSource::Socket(_, state) if !is_silent(&self.stream, *state) => {}
            _ => return Poll::Pending,
        }
        // Most clients are silent most of the time, and need no buffer then.
        let mut input = self.take_input();
        let heard = self.poll_handed_over(cx, &mut input);
        self.keep_input(input);
        heard
    }

    fn poll_handed_over(&mut self, cx: &mut Context<'_>, input: &mut BytesMut) -> Poll<()> {
        let EndlessSource::Socket(io, state) = &mut self.feed else {
            return Poll::Pending;
        };
        loop {
            while !input.is_empty() {
                match ready!(Pin::new(&mut *io).poll_write(cx, input)) {
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(taken) => input.advance(taken),
                }
            }
            if *state == InputState::Ended {
                return Poll::Pending;
            }
            *state = InputState::Open;
            let read = BUFFERS.with_borrow_mut(|buffers| {
                let scratch = &mut buffers.input;
                let read = self.stream.poll_recv(cx, scratch);
                read.map_ok(|length| input.extend_from_slice(&scratch[..length]))
            });
            match read {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => return Poll::Ready(()),
                Poll::Pending => {
                    *state = InputState::after_pending();
                    return Poll::Pending;
                }
            }
            if input.is_empty() {
                *state = InputState::Ended;
                // Shutting down flushes what is left to send.
                ready!(Pin::new(&mut *io).poll_shutdown(cx)).ok();
            }
        }
    }
}

impl Drop for Endless {
    fn drop(&mut self) {
        self.account.add_counted(self.sent.sum());
    }
}

/// Returns `true` if the client has sent nothing since the waker was registered for input. This costs less than
/// another poll, and most clients are silent most of the time.
fn is_silent(stream: &ClientTransport, state: InputState) -> bool {
    state == InputState::Awaited && !stream.may_have_input()
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
    use std::future::poll_fn;
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

    fn events(connection: &mut Connection, at_once: usize) -> (Box<Endless>, Arc<AtomicUsize>) {
        let polls = Arc::new(AtomicUsize::new(0));
        let source = Events {
            at_once,
            left: at_once,
            polls: Arc::clone(&polls),
        };
        let body = Body::Stream(Box::new(source));
        let (account, held) = (RequestAccount::default(), ResponsePermits::default());
        let shared = &connection.session.shared;
        let mut endless = Endless::body((body, BodyEnding::Close), account, held, shared);
        endless.begin(connection);
        (endless, polls)
    }

    /// Polls once, without a look at the sockets.
    async fn poll_now<T>(future: &mut Pin<&mut impl Future<Output = T>>) -> Poll<T> {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
    }

    #[tokio::test]
    async fn a_client_that_does_not_read_costs_its_source_nothing() {
        let (mut connection, _client) = connection().await;
        // As many as no socket takes.
        let (mut endless, polls) = events(&mut connection, 1 << 14);
        let mut sending = pin!(poll_fn(|cx| endless.poll(cx)));
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
        let (mut endless, polls) = events(&mut connection, 1);
        let mut sending = pin!(poll_fn(|cx| endless.poll(cx)));
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
