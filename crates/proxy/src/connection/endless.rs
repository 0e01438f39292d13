//! An answer without an end, as server-sent events are. Thousands may be open, and most of the time nothing happens
//! to them: what the request needed is gone by then, and the rest is polled by hand.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use microcache_engine::{Body, Frame};
use tokio::time::{Sleep, sleep};

use super::client::{PART, push_frame};
use super::head::Ending;
use super::send::{Output, write_now};
use super::{COPY, Connection, INPUT, OUTPUT};
use crate::h1::encode;
use crate::room::Held;
use crate::session::Account;

/// What a client may send ahead meanwhile.
pub(super) const MAX_AHEAD: usize = 64 * 1024;

/// The rest of an answer whose head is sent.
pub(super) struct Endless {
    body: Body,
    ending: Ending,
    /// Nothing more of it comes.
    is_over: bool,
    /// Whether another request may follow.
    keep_alive: bool,
    /// What the socket has not taken yet; mostly nothing.
    unsent: Option<Box<Output>>,
    /// When the client is given up because of that.
    stall: Option<Pin<Box<Sleep>>>,
    account: Account,
    _held: Held,
}

impl Endless {
    pub(super) fn new(
        (body, ending): (Body, Ending),
        keep_alive: bool,
        account: Account,
        held: Held,
    ) -> Self {
        Self {
            body,
            ending,
            keep_alive: keep_alive && ending != Ending::Close,
            is_over: false,
            unsent: None,
            stall: None,
            account,
            _held: held,
        }
    }
}

impl Connection {
    /// Sends what comes, until it ends after all or the client leaves. Says whether the connection can go on.
    pub(super) async fn send_endless(&mut self, mut answer: Box<Endless>) -> bool {
        let keep_alive = answer.keep_alive;
        let sent = poll_fn(|cx| {
            // Whatever the client does with its end: what has come is sent first.
            if let Poll::Ready(sent) = self.poll_send_endless(cx, &mut answer) {
                return Poll::Ready(sent.is_ok());
            }
            self.poll_gone(cx).map(|()| false)
        });
        sent.await && keep_alive
    }

    fn poll_send_endless(
        &self,
        cx: &mut Context<'_>,
        answer: &mut Endless,
    ) -> Poll<io::Result<()>> {
        loop {
            if let Some(unsent) = &mut answer.unsent {
                let before = unsent.len();
                match unsent.poll_send(cx, &self.stream) {
                    Poll::Ready(sent) => sent?,
                    Poll::Pending => {
                        if unsent.len() < before {
                            answer.stall = None;
                        }
                        let patience = self.session.shared.timeouts.write;
                        ready!(answer.poll_stalled(cx, patience));
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                }
                (answer.unsent, answer.stall) = (None, None);
            }
            if answer.is_over {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_send_next(cx, answer))?;
        }
    }

    /// Sends as much of what comes next as is taken at once. Small pieces are put together: one plain write is cheaper
    /// than many, or one of many parts.
    fn poll_send_next(&self, cx: &mut Context<'_>, answer: &mut Endless) -> Poll<io::Result<()>> {
        OUTPUT.with_borrow_mut(|small| {
            small.clear();
            let mut next = answer.body.poll_frame(cx);
            while let Poll::Ready(Some(Ok(frame @ Frame::Data(data)))) = &next
                && data.len() <= COPY
                && small.len() < PART
            {
                answer.account.sent(data.len() as u64);
                if answer.ending == Ending::Chunked {
                    encode::frame(small, frame);
                } else {
                    small.extend_from_slice(data);
                }
                next = answer.body.poll_frame(cx);
            }
            let mut unsent = match &small[..] {
                [] => None,
                small => write_now(&self.stream, cx, small, &Bytes::new())?,
            };
            if let Poll::Ready(frame) = next {
                if let Some(Ok(Frame::Data(data))) = &frame {
                    answer.account.sent(data.len() as u64);
                }
                let output = unsent.get_or_insert_default();
                answer.is_over = !push_frame(output, frame, answer.ending)?;
            } else if unsent.is_none() {
                return Poll::Pending;
            }
            answer.unsent = unsent.map(Box::new);
            Poll::Ready(Ok(()))
        })
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
}

impl Endless {
    /// Ready when the client has taken nothing for so long.
    fn poll_stalled(&mut self, cx: &mut Context<'_>, patience: Duration) -> Poll<()> {
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(patience)));
        stall.as_mut().poll(cx)
    }
}
