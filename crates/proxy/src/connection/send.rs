//! Output of a connection that is still to be sent.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::coop::poll_proceed;
use tokio::time::timeout;

use super::socket;
use super::transport::{ClientTransport, WriteHalf};

/// Most slices in one vectored write.
const MAX_AT_ONCE: usize = 16;

/// Bytes still to be sent, in order.
#[derive(Debug, Default)]
pub(crate) struct OutputQueue {
    pieces: SmallVec<[Bytes; 4]>,
    /// Memory in bytes that is held until the output is sent, in addition to the parts: a partly sent body
    /// keeps its whole allocation.
    pins: usize,
}

impl OutputQueue {
    pub(crate) fn bytes(bytes: Bytes) -> Self {
        let mut output = Self::default();
        output.push(bytes);
        output
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.pieces.push(bytes);
        }
    }

    /// Returns the number of bytes left to send.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Returns the memory in bytes that the output holds.
    pub(crate) fn holds(&self) -> usize {
        self.len() + self.pins
    }

    /// Appends another output.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.pieces.extend(other.pieces);
        self.pins += other.pins;
        self
    }

    /// Sends everything. Fails if the client takes nothing for the duration of `stall`.
    pub(crate) async fn send(
        &mut self,
        stream: &mut WriteHalf<'_>,
        stall: Duration,
    ) -> io::Result<()> {
        while !self.pieces.is_empty() {
            let written = self.write_bytes(stream, stall).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.advance(written);
        }
        // TLS may have accepted more than the socket has.
        let at_once = poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_flush(cx)));
        match at_once.await {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => Box::pin(timeout(stall, stream.flush())).await?,
        }
    }

    /// Writes as much as the socket takes.
    async fn write_bytes(&self, stream: &mut WriteHalf<'_>, stall: Duration) -> io::Result<usize> {
        // Usually the socket takes them at once, and no timer is needed; boxed, it does not enlarge the future.
        let at_once = poll_fn(|cx| Poll::Ready(self.poll_write(cx, stream)));
        match at_once.await {
            Poll::Ready(written) => written,
            Poll::Pending => {
                let written = poll_fn(|cx| self.poll_write(cx, stream));
                Box::pin(timeout(stall, written)).await?
            }
        }
    }

    fn poll_write(
        &self,
        cx: &mut Context<'_>,
        stream: &mut WriteHalf<'_>,
    ) -> Poll<io::Result<usize>> {
        let mut slices = [IoSlice::new(&[]); MAX_AT_ONCE];
        match self.gather(&mut slices) {
            [one] => Pin::new(stream).poll_write(cx, one),
            many => Pin::new(stream).poll_write_vectored(cx, many),
        }
    }

    /// Collects the first pieces into slices.
    fn gather<'a, 's>(&'a self, slices: &'s mut [IoSlice<'a>; MAX_AT_ONCE]) -> &'s [IoSlice<'a>] {
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            *slice = IoSlice::new(piece);
        }
        &slices[..self.pieces.len().min(MAX_AT_ONCE)]
    }

    /// Sends what the socket takes at once; ready when everything is sent.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &mut ClientTransport,
    ) -> Poll<io::Result<()>> {
        while !self.pieces.is_empty() {
            // A client that reads as fast as its source produces does not hold up the thread's other tasks.
            let turn = ready!(poll_proceed(cx));
            let mut slices = [IoSlice::new(&[]); MAX_AT_ONCE];
            let written = ready!(stream.poll_send(cx, self.gather(&mut slices)))?;
            turn.made_progress();
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        stream.poll_flush(cx)
    }

    /// Sends everything with `MSG_MORE`: the kernel joins it with the next write into one packet.
    pub(crate) async fn send_before_more(
        mut self,
        stream: &TcpStream,
        stall: Duration,
    ) -> io::Result<()> {
        while let Some(bytes) = self.pieces.first() {
            match socket::try_send_before_more(stream, bytes) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => self.advance(written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    timeout(stall, stream.writable()).await??;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn advance(&mut self, mut written: usize) {
        let gone = self.pieces.iter().take_while(|piece| {
            let whole = piece.len() <= written;
            written -= if whole { piece.len() } else { 0 };
            whole
        });
        let gone = gone.count();
        self.pieces.drain(..gone);
        if let Some(first) = self.pieces.first_mut() {
            first.advance(written);
        }
    }
}

/// Writes `head` and `body` without waiting. Returns what the socket did not take, boxed: nearly always it takes all.
pub(crate) fn write_now(
    stream: &mut ClientTransport,
    cx: &mut Context<'_>,
    head: &[u8],
    body: &Bytes,
) -> io::Result<Option<Box<OutputQueue>>> {
    let total = head.len() + body.len();
    let mut done = 0;
    while done < total {
        let slices = [
            IoSlice::new(&head[done.min(head.len())..]),
            IoSlice::new(&body[done.saturating_sub(head.len())..]),
        ];
        let pieces = if body.is_empty() {
            &slices[..1]
        } else {
            &slices
        };
        let written = stream.poll_send(cx, pieces);
        match written {
            Poll::Ready(Ok(0)) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(Ok(n)) => done += n,
            Poll::Ready(Err(error)) => return Err(error),
            Poll::Pending => {
                let mut rest = rest_of(head, done);
                rest.push(body.slice(rest.pins..));
                return Ok(Some(rest));
            }
        }
    }
    Ok(stream.holds_back().then(Box::default))
}

/// Returns the rest of a head after `done` bytes of it and the body behind it.
fn rest_of(head: &[u8], done: usize) -> Box<OutputQueue> {
    let mut rest = Box::<OutputQueue>::default();
    rest.push(Bytes::copy_from_slice(&head[done.min(head.len())..]));
    rest.pins = done.saturating_sub(head.len());
    rest
}
