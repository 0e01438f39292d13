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
use super::state::{Connection, INPUT};
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
        let feed = EndlessSource::Body(body, ending);
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
            if let EndlessSource::Socket(io, hearing) = &mut answer.feed {
                let heard = self.poll_heard(cx, io, hearing);
                if heard.is_ready() {
                    return Poll::Ready(false);
                }
            }
            if let Poll::Ready(sent) = self.poll_send_endless(cx, &mut answer) {
                return Poll::Ready(sent.is_ok());
            }
            match answer.feed {
                EndlessSource::Socket(..) => Poll::Pending,
                // Pending output goes first, whatever the client does to its sending side.
                EndlessSource::Body(..) | EndlessSource::Over => self.poll_gone(cx).map(|()| false),
            }
        })
        .await
    }

    fn poll_send_endless(
        &self,
        cx: &mut Context<'_>,
        answer: &mut Endless,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(unsent) = &mut answer.unsent {
                let before = unsent.output.len();
                match unsent.output.poll_send(cx, &self.stream) {
                    Poll::Ready(sent) => sent?,
                    Poll::Pending => {
                        if unsent.output.len() < before {
                            unsent.stall = None;
                        }
                        let patience = self.session.shared.timeouts.write;
                        ready!(unsent.poll_stalled(cx, patience));
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                }
                answer.unsent = None;
            }
            if matches!(answer.feed, EndlessSource::Over) {
                return Poll::Ready(Ok(()));
            }
            let (unsent, goes_on) =
                ready!(answer.feed.poll_send(cx, &self.stream, &mut answer.account))?;
            answer.unsent = unsent.map(UnsentOutput::of);
            if !goes_on {
                answer.feed = EndlessSource::Over;
            }
        }
    }

    /// Waits for the client to leave. Closing its sending side counts, as it is the only way to end such a
    /// response; so does sending more than [`MAX_AHEAD`] bytes.
    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        INPUT.with_borrow_mut(|scratch| {
            while self.input.len() < MAX_AHEAD {
                match ready!(self.stream.poll_recv(cx, scratch)) {
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(length) => self.input.extend_from_slice(&scratch[..length]),
                }
            }
            Poll::Ready(())
        })
    }

    /// Passes on input of the client. Reads no more until that is taken (back-pressure).
    fn poll_heard(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Box<dyn Duplex>,
        hearing: &mut InputState,
    ) -> Poll<()> {
        loop {
            while !self.input.is_empty() {
                match ready!(Pin::new(&mut *io).poll_write(cx, &self.input)) {
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(taken) => self.input.advance(taken),
                }
            }
            // Most clients are silent most of the time.
            self.input = BytesMut::new();
            if *hearing == InputState::Ended {
                return Poll::Pending;
            }
            let read = INPUT.with_borrow_mut(|scratch| {
                let read = self.stream.poll_recv(cx, scratch);
                read.map_ok(|length| self.input.extend_from_slice(&scratch[..length]))
            });
            if ready!(read).is_err() {
                return Poll::Ready(());
            }
            if self.input.is_empty() {
                *hearing = InputState::Ended;
                // Shutting down flushes what is left to send.
                ready!(Pin::new(&mut *io).poll_shutdown(cx)).ok();
            }
        }
    }
}

impl UnsentOutput {
    /// Ready once the client has taken nothing for the duration of `patience`.
    fn poll_stalled(&mut self, cx: &mut Context<'_>, patience: Duration) -> Poll<()> {
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(patience)));
        stall.as_mut().poll(cx)
    }
}
