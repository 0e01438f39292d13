//! Source of a response without an end, sent as it arrives.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use microcache_engine::{Body, Duplex, Frame};
use microcache_wire::h1::encode;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::task::coop::has_budget_remaining;

use super::client::{PART, push_frame};
use super::head::BodyEnding;
use super::send::{OutputQueue, write_now};
use super::state::{BUFFERS, COPY};
use super::transport::ClientTransport;
use crate::session::SentBytes;

/// Source of the output.
pub(super) enum EndlessSource {
    Body(Body, BodyEnding, InputState),
    /// The far end of a WebSocket. Receives the client's input until the client closes its sending side.
    Socket(Box<dyn Duplex>, InputState),
    /// No more output.
    Over,
}

/// State of the client's sending side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InputState {
    Open,
    /// Open, and the waker of the connection is registered for more input.
    Awaited,
    Ended,
}

impl InputState {
    /// Returns the state after a poll for input that was pending.
    pub(super) fn after_pending() -> Self {
        // Without budget, Tokio wakes the task at once and registers nothing.
        if has_budget_remaining() {
            Self::Awaited
        } else {
            Self::Open
        }
    }
}

/// Output that the socket did not take, and whether more may follow.
type FeedProgress = (Option<Box<OutputQueue>>, bool);

impl EndlessSource {
    /// Sends as much of the available output as the socket takes.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut ClientTransport,
        sent: &mut SentBytes,
    ) -> Poll<io::Result<FeedProgress>> {
        match self {
            Self::Body(body, ending, _) => send_body(cx, (body, *ending), stream, sent),
            Self::Socket(io, _) => send_socket(cx, io, stream, sent),
            Self::Over => Poll::Ready(Ok((None, false))),
        }
    }
}

/// Small pieces are joined: one plain write is cheaper than several, or than a vectored one.
fn send_body(
    cx: &mut Context<'_>,
    (body, ending): (&mut Body, BodyEnding),
    stream: &mut ClientTransport,
    sent: &mut SentBytes,
) -> Poll<io::Result<FeedProgress>> {
    BUFFERS.with_borrow_mut(|buffers| {
        let small = &mut buffers.output;
        small.clear();
        let mut next = body.poll_frame(cx);
        while let Poll::Ready(Some(Ok(Frame::Data(data)))) = &next
            && data.len() <= COPY
            && small.len() < PART
        {
            sent.add(data.len() as u64);
            if ending == BodyEnding::Chunked {
                encode::chunk(small, data);
            } else {
                small.extend_from_slice(data);
            }
            next = if body.is_drained() {
                Poll::Pending
            } else {
                body.poll_frame(cx)
            };
        }
        let mut unsent = match &small[..] {
            [] => None,
            small => write_now(stream, cx, small, &Bytes::new())?,
        };
        if let Poll::Ready(frame) = next {
            if let Some(Ok(Frame::Data(data))) = &frame {
                sent.add(data.len() as u64);
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
    stream: &mut ClientTransport,
    sent: &mut SentBytes,
) -> Poll<io::Result<FeedProgress>> {
    BUFFERS.with_borrow_mut(|buffers| {
        let mut read = ReadBuf::new(&mut buffers.input);
        let mut before = 0;
        let next = loop {
            let next = Pin::new(&mut *io).poll_read(cx, &mut read);
            let length = read.filled().len();
            if next.is_pending() || length == before || read.remaining() == 0 {
                break next?;
            }
            if io.is_drained() {
                break Poll::Pending;
            }
            before = length;
        };
        let read = read.filled();
        sent.add(read.len() as u64);
        let unsent = write_now(stream, cx, read, &Bytes::new())?;
        if unsent.is_none() {
            io.mark_sent();
            if next.is_pending() {
                return Poll::Pending;
            }
        }
        let goes_on = next.is_pending() || read.len() > before;
        Poll::Ready(Ok((unsent, goes_on)))
    })
}
