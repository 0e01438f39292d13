//! Bytes on their way to the client.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use smallvec::SmallVec;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::transport::{Transport, WriteHalf};
use super::{lent_pages, socket};

/// So many pieces are given to the system at once.
const MAX_AT_ONCE: usize = 16;

/// Bytes that are still to be sent.
#[derive(Debug, Default)]
pub(crate) struct Output {
    pieces: SmallVec<[Piece; 4]>,
    /// What stays in memory until it is sent, beside the pieces: the part of a body that the socket
    /// has taken already lies in one piece with the rest.
    pins: usize,
}

/// One of several things to be sent after each other.
#[derive(Debug)]
enum Piece {
    Bytes(Bytes),
    Pages(Pages),
}

/// The rest of a file whose pages a socket can be lent.
#[derive(Debug)]
struct Pages {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl Piece {
    const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            // No more than the body in memory that it is a copy of.
            Self::Pages(pages) => (pages.end - pages.at) as usize,
        }
    }
}

impl Output {
    pub(crate) fn bytes(bytes: Bytes) -> Self {
        let mut output = Self::default();
        output.push(bytes);
        output
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.pieces.push(Piece::Bytes(bytes));
        }
    }

    /// How many bytes there are.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(Piece::len).sum()
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
        stream: &mut WriteHalf<'_>,
        stall: Duration,
    ) -> io::Result<()> {
        while let Some(first) = self.pieces.first_mut() {
            let written = match first {
                Piece::Bytes(_) => self.write_bytes(stream, stall).await?,
                Piece::Pages(pages) => pages.lend_to(stream, stall).await?,
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

    /// Writes of the bytes that come first as much as is taken.
    async fn write_bytes(&self, stream: &mut WriteHalf<'_>, stall: Duration) -> io::Result<usize> {
        let mut slices = [IoSlice::new(&[]); MAX_AT_ONCE];
        let slices = self.gather(&mut slices);
        // Mostly the socket takes it at once, and no timer is needed.
        let at_once = poll_fn(|cx| {
            Poll::Ready(match slices {
                [one] => Pin::new(&mut *stream).poll_write(cx, one),
                many => Pin::new(&mut *stream).poll_write_vectored(cx, many),
            })
        });
        match at_once.await {
            Poll::Ready(written) => written,
            Poll::Pending => timeout(stall, stream.write_vectored(slices)).await?,
        }
    }

    /// The bytes that come first.
    fn gather<'a, 's>(&'a self, slices: &'s mut [IoSlice<'a>; MAX_AT_ONCE]) -> &'s [IoSlice<'a>] {
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let Piece::Bytes(bytes) = piece else { break };
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        &slices[..count]
    }

    /// Sends what is taken at once; ready when that is all. There are no pages in it.
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        stream: &Transport,
    ) -> Poll<io::Result<()>> {
        while !self.pieces.is_empty() {
            let mut slices = [IoSlice::new(&[]); MAX_AT_ONCE];
            let written = ready!(stream.poll_send(cx, self.gather(&mut slices)))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(written);
        }
        stream.poll_flush(cx)
    }

    /// Sends everything, while the system is told that more follows at once: what does leaves in the same
    /// packet.
    pub(crate) async fn send_before_more(
        mut self,
        stream: &TcpStream,
        stall: Duration,
    ) -> io::Result<()> {
        while let Some(Piece::Bytes(bytes)) = self.pieces.first() {
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
        match self.pieces.first_mut() {
            Some(Piece::Bytes(bytes)) => bytes.advance(written),
            Some(Piece::Pages(pages)) => pages.at += written as u64,
            None => {}
        }
    }
}

impl Pages {
    /// Lends as much as is taken, and says how much that was.
    async fn lend_to(&self, stream: &WriteHalf<'_>, stall: Duration) -> io::Result<usize> {
        // They are put before sockets only.
        let socket = stream.as_socket().ok_or(io::ErrorKind::Unsupported)?;
        loop {
            match socket::try_send_file(socket, &self.file, self.at, self.end) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    timeout(stall, socket.writable()).await??;
                }
                sent => return sent,
            }
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
    if let Transport::Plain(socket) = stream
        && let Some(copy) = lent_pages::copy_of(body)
    {
        return lend_now(socket, head, copy, body.len());
    }
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
    Ok(stream.holds_back().then(Output::default))
}

/// The same with a body whose pages the socket is lent.
fn lend_now(
    socket: &TcpStream,
    head: &[u8],
    body: Arc<File>,
    length: usize,
) -> io::Result<Option<Output>> {
    let mut done = 0;
    while done < head.len() + length {
        let sent = match head.get(done..) {
            Some(head) if !head.is_empty() => socket::try_send_before_more(socket, head),
            _ => socket::try_send_file(socket, &body, (done - head.len()) as u64, length as u64),
        };
        match sent {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => done += sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut rest = rest_of(head, done);
                rest.pieces.push(Piece::Pages(Pages {
                    file: body,
                    at: rest.pins as u64,
                    end: length as u64,
                }));
                return Ok(Some(rest));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// What is left of a head when so much was taken of it and the body behind it.
fn rest_of(head: &[u8], done: usize) -> Output {
    let mut rest = Output::default();
    rest.push(Bytes::copy_from_slice(&head[done.min(head.len())..]));
    rest.pins = done.saturating_sub(head.len());
    rest
}
