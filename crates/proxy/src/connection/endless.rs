//! An answer without an end, as server-sent events are, or a WebSocket that ends in this process. Thousands may be
//! open, and most of the time nothing happens to them: what the request needed is gone by then, and the rest is
//! polled by hand.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use microcache_engine::{Body, Duplex, Tunnel};
use tokio::io::AsyncWrite;
use tokio::time::{Sleep, sleep};

use super::feed::{Feed, Hearing};
use super::head::Ending;
use super::send::Output;
use super::{Connection, INPUT};
use crate::room::Held;
use crate::session::Account;

/// What a client may send ahead meanwhile.
pub(super) const MAX_AHEAD: usize = 64 * 1024;

/// The rest of an answer whose head is sent.
pub(super) struct Endless {
    feed: Feed,
    /// What the socket has not taken yet; mostly nothing.
    unsent: Option<Box<Unsent>>,
    account: Account,
    _held: Held,
}

struct Unsent {
    output: Output,
    /// When the client is given up because of that.
    stall: Option<Pin<Box<Sleep>>>,
}

impl Unsent {
    fn of(output: Output) -> Box<Self> {
        let stall = None;
        Box::new(Self { output, stall })
    }
}

impl Endless {
    pub(super) fn body(body: Body, ending: Ending, account: Account, held: Held) -> Self {
        let feed = Feed::Body(body, ending);
        Self {
            feed,
            unsent: None,
            account,
            _held: held,
        }
    }

    /// A tunnel that leads to nowhere else.
    pub(super) fn socket(tunnel: Tunnel, account: Account, held: Held) -> Self {
        let early = Some(tunnel.early).filter(|early| !early.is_empty());
        Self {
            feed: Feed::Socket(tunnel.io, Hearing::Open),
            unsent: early.map(|early| Unsent::of(Output::bytes(early))),
            account,
            _held: held,
        }
    }
}

impl Connection {
    /// Sends what comes, until it ends after all or the client leaves. Says whether all of it was sent.
    pub(super) async fn send_endless(&mut self, mut answer: Box<Endless>) -> bool {
        poll_fn(|cx| {
            // What the client has asked for by now is known when it is told what comes next.
            if let Feed::Socket(io, hearing) = &mut answer.feed {
                let heard = self.poll_heard(cx, io, hearing);
                if heard.is_ready() {
                    return Poll::Ready(false);
                }
            }
            if let Poll::Ready(sent) = self.poll_send_endless(cx, &mut answer) {
                return Poll::Ready(sent.is_ok());
            }
            match answer.feed {
                Feed::Socket(..) => Poll::Pending,
                // What has come was sent first, whatever the client does with its end.
                Feed::Body(..) | Feed::Over => self.poll_gone(cx).map(|()| false),
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
            if matches!(answer.feed, Feed::Over) {
                return Poll::Ready(Ok(()));
            }
            let (unsent, goes_on) =
                ready!(answer.feed.poll_send(cx, &self.stream, &mut answer.account))?;
            answer.unsent = unsent.map(Unsent::of);
            if !goes_on {
                answer.feed = Feed::Over;
            }
        }
    }

    /// Only the client can end such an answer: by closing its sending side, if it does nothing else. One that sends much
    /// meanwhile is not listened to any more, and is as good as gone.
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

    /// Hands on what the client sends. As long as that is not taken, no more is read.
    fn poll_heard(
        &mut self,
        cx: &mut Context<'_>,
        io: &mut Box<dyn Duplex>,
        hearing: &mut Hearing,
    ) -> Poll<()> {
        loop {
            while !self.input.is_empty() {
                match ready!(Pin::new(&mut *io).poll_write(cx, &self.input)) {
                    Ok(0) | Err(_) => return Poll::Ready(()),
                    Ok(taken) => self.input.advance(taken),
                }
            }
            // Most say nothing most of the time.
            self.input = BytesMut::new();
            if *hearing == Hearing::Ended {
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
                *hearing = Hearing::Ended;
                // What it still has to say it says.
                ready!(Pin::new(&mut *io).poll_shutdown(cx)).ok();
            }
        }
    }
}

impl Unsent {
    /// Ready when the client has taken nothing for so long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>, patience: Duration) -> Poll<()> {
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(patience)));
        stall.as_mut().poll(cx)
    }
}
