//! Output of a connection that is still to be sent.

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
use tokio::task::coop::poll_proceed;
use tokio::time::timeout;

use super::plain::PlainSocket;
use super::transport::{ClientTransport, WriteHalf};
use super::{memfd_copies, socket};

/// Most slices in one vectored write.
const MAX_AT_ONCE: usize = 16;

/// Bytes and pages still to be sent, in order.
#[derive(Debug, Default)]
pub(crate) struct OutputQueue {
    pieces: SmallVec<[OutputPart; 4]>,
    /// Memory in bytes that is held until the output is sent, in addition to the parts: a partly sent body
    /// keeps its whole allocation.
    pins: usize,
}

/// One part of the output.
#[derive(Debug)]
enum OutputPart {
    Bytes(Bytes),
    Pages(FilePages),
}

/// Remainder of a file that is sent with `sendfile`.
#[derive(Debug)]
struct FilePages {
    file: Arc<File>,
    at: u64,
    end: u64,
}

impl OutputPart {
    const fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            // At most the size of the body in memory that it copies.
            Self::Pages(pages) => (pages.end - pages.at) as usize,
        }
    }
}

impl OutputQueue {
    pub(crate) fn bytes(bytes: Bytes) -> Self {
        let mut output = Self::default();
        output.push(bytes);
        output
    }

    pub(crate) fn push(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.pieces.push(OutputPart::Bytes(bytes));
        }
    }

    /// Returns the number of bytes left to send.
    pub(crate) fn len(&self) -> usize {
        self.pieces.iter().map(OutputPart::len).sum()
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
        while let Some(first) = self.pieces.first_mut() {
            let written = match first {
                OutputPart::Bytes(_) => self.write_bytes(stream, stall).await?,
                OutputPart::Pages(pages) => Box::pin(pages.send_to(stream, stall)).await?,
            };
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

    /// Writes as much of the leading bytes as the socket takes.
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

    /// Collects the leading bytes into slices.
    fn gather<'a, 's>(&'a self, slices: &'s mut [IoSlice<'a>; MAX_AT_ONCE]) -> &'s [IoSlice<'a>] {
        let mut count = 0;
        for (slice, piece) in slices.iter_mut().zip(&self.pieces) {
            let OutputPart::Bytes(bytes) = piece else {
                break;
            };
            *slice = IoSlice::new(bytes);
            count += 1;
        }
        &slices[..count]
    }

    /// Sends what the socket takes at once; ready when everything is sent. Must not contain pages.
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
        while let Some(OutputPart::Bytes(bytes)) = self.pieces.first() {
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
            Some(OutputPart::Bytes(bytes)) => bytes.advance(written),
            Some(OutputPart::Pages(pages)) => pages.at += written as u64,
            None => {}
        }
    }
}

impl FilePages {
    /// Sends pages with `sendfile`, as much as the socket takes. Returns the number of bytes.
    async fn send_to(&self, stream: &WriteHalf<'_>, stall: Duration) -> io::Result<usize> {
        // Pages are only used on plain sockets.
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

/// Writes `head` and `body` without waiting. Returns what the socket did not take, boxed: nearly always it takes all.
pub(crate) fn write_now(
    stream: &mut ClientTransport,
    cx: &mut Context<'_>,
    head: &[u8],
    body: &Bytes,
) -> io::Result<Option<Box<OutputQueue>>> {
    if let ClientTransport::Plain(socket) = stream
        && let Some(copy) = memfd_copies::copy_of(body)
    {
        return send_file_now(socket, head, copy, body.len());
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
    Ok(stream.holds_back().then(Box::default))
}

/// Writes as [`write_now`] does, with a body in a file that is sent with `sendfile`.
fn send_file_now(
    socket: &PlainSocket,
    head: &[u8],
    body: Arc<File>,
    length: usize,
) -> io::Result<Option<Box<OutputQueue>>> {
    let mut done = 0;
    while done < head.len() + length {
        let sent = socket.try_write(|socket| match head.get(done..) {
            Some(head) if !head.is_empty() => socket::send_before_more(socket, head),
            _ => socket::send_file(socket, &body, (done - head.len()) as u64, length as u64),
        });
        match sent {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(sent) => done += sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut rest = rest_of(head, done);
                rest.pieces.push(OutputPart::Pages(FilePages {
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

/// Returns the rest of a head after `done` bytes of it and the body behind it.
fn rest_of(head: &[u8], done: usize) -> Box<OutputQueue> {
    let mut rest = Box::<OutputQueue>::default();
    rest.push(Bytes::copy_from_slice(&head[done.min(head.len())..]));
    rest.pins = done.saturating_sub(head.len());
    rest
}
