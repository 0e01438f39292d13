//! Bytes on their way to the client.

use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::socket;
use super::transport::Transport;

/// Bytes that are still to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pieces: SmallVec<[Bytes; 4]>,
    /// What stays in memory until it is sent, beside the pieces: the part of a body that the socket
    /// has taken already lies in one piece with the rest.
    pins: usize,
}

impl Output {
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

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// How many bytes stay in memory until it is sent.
    pub(crate) fn holds(&self) -> usize {
        self.len() + self.pins
    }

    /// Both, one after the other.
    pub(crate) fn and(mut self, other: Self) -> Self {
        self.pieces.extend(other.pieces);
        self.pins += other.pins;
        self
    }

    /// Sends everything; a client that takes nothing for `stall` is given up.
    pub(crate) async fn send(
        mut self,
        stream: &mut (impl AsyncWrite + Unpin),
        stall: Duration,
    ) -> io::Result<()> {
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); 16];
            for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
                *slice = IoSlice::new(piece);
            }
            let count = self.pieces.len().min(slices.len());
            let slices = &slices[..count];
            // Mostly the socket takes it at once, and no timer is needed.
            let at_once = poll_fn(|cx| {
                Poll::Ready(match slices {
                    [one] => Pin::new(&mut *stream).poll_write(cx, one),
                    many => Pin::new(&mut *stream).poll_write_vectored(cx, many),
                })
            });
            let written = match at_once.await {
                Poll::Ready(written) => written?,
                Poll::Pending => timeout(stall, stream.write_vectored(slices)).await??,
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            self.advance(written);
        }
        // What carries the bytes may have taken more than the socket has.
        let at_once = poll_fn(|cx| Poll::Ready(Pin::new(&mut *stream).poll_flush(cx)));
        match at_once.await {
            Poll::Ready(flushed) => flushed,
            Poll::Pending => timeout(stall, stream.flush()).await?,
        }
    }

    /// The same, while the system is told that more follows at once: what does leaves in the same
    /// packet.
    pub(crate) async fn send_before_more(
        mut self,
        stream: &TcpStream,
        stall: Duration,
    ) -> io::Result<()> {
        while let Some(piece) = self.pieces.first() {
            match socket::try_send_before_more(stream, piece) {
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

/// Writes `head` and `body` without waiting. Returns what the socket did not take.
pub(crate) fn write_now(
    stream: &Transport,
    cx: &mut Context<'_>,
    head: &[u8],
    body: &Bytes,
) -> io::Result<Option<Output>> {
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
                let mut rest = Output::default();
                rest.push(Bytes::copy_from_slice(&head[done.min(head.len())..]));
                rest.pins = done.saturating_sub(head.len());
                rest.push(body.slice(rest.pins..));
                return Ok(Some(rest));
            }
        }
    }
    Ok(stream.holds_back().then(Output::default))
}
