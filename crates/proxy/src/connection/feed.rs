//! What an answer without an end is made of, sent as it comes.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_engine::{Body, Duplex, Frame};
use tokio::io::{AsyncRead, ReadBuf};

use super::client::{PART, push_frame};
use super::head::Ending;
use super::send::{Output, write_now};
use super::{COPY, INPUT, OUTPUT, Transport};
use crate::h1::encode;
use crate::session::Account;

/// Where it comes from.
pub(super) enum Feed {
    Body(Body, Ending),
    /// The far end of a socket. What the client sends goes there, until it sends nothing more.
    Socket(Box<dyn Duplex>, Hearing),
    /// Nothing more comes.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hearing {
    Open,
    Ended,
}

/// What was not taken at once, and whether more may come.
type Sent = (Option<Output>, bool);

impl Feed {
    /// Sends as much of what comes next as is taken at once.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &Transport,
        account: &mut Account,
    ) -> Poll<io::Result<Sent>> {
        match self {
            Self::Body(body, ending) => send_body(cx, (body, *ending), stream, account),
            Self::Socket(io, _) => send_socket(cx, io, stream, account),
            Self::Over => Poll::Ready(Ok((None, false))),
        }
    }
}

/// Small pieces are put together: one plain write is cheaper than many, or one of many parts.
fn send_body(
    cx: &mut Context<'_>,
    (body, ending): (&mut Body, Ending),
    stream: &Transport,
    account: &mut Account,
) -> Poll<io::Result<Sent>> {
    OUTPUT.with_borrow_mut(|small| {
        small.clear();
        let mut next = body.poll_frame(cx);
        while let Poll::Ready(Some(Ok(frame @ Frame::Data(data)))) = &next
            && data.len() <= COPY
            && small.len() < PART
        {
            account.sent(data.len() as u64);
            if ending == Ending::Chunked {
                encode::frame(small, frame);
            } else {
                small.extend_from_slice(data);
            }
            next = body.poll_frame(cx);
        }
        let mut unsent = match &small[..] {
            [] => None,
            small => write_now(stream, cx, small, &Bytes::new())?,
        };
        if let Poll::Ready(frame) = next {
            if let Some(Ok(Frame::Data(data))) = &frame {
                account.sent(data.len() as u64);
            }
            let goes_on = push_frame(unsent.get_or_insert_default(), frame, ending)?;
            return Poll::Ready(Ok((unsent, goes_on)));
        }
        if unsent.is_none() {
            return Poll::Pending;
        }
        Poll::Ready(Ok((unsent, true)))
    })
}

fn send_socket(
    cx: &mut Context<'_>,
    io: &mut Box<dyn Duplex>,
    stream: &Transport,
    account: &mut Account,
) -> Poll<io::Result<Sent>> {
    INPUT.with_borrow_mut(|space| {
        let mut read = ReadBuf::new(space);
        let mut before = 0;
        let next = loop {
            let next = Pin::new(&mut *io).poll_read(cx, &mut read);
            let length = read.filled().len();
            if next.is_pending() || length == before || read.remaining() == 0 {
                break next?;
            }
            before = length;
        };
        let read = read.filled();
        account.sent(read.len() as u64);
        let unsent = write_now(stream, cx, read, &Bytes::new())?;
        if next.is_pending() && unsent.is_none() {
            return Poll::Pending;
        }
        let goes_on = next.is_pending() || read.len() > before;
        Poll::Ready(Ok((unsent, goes_on)))
    })
}
