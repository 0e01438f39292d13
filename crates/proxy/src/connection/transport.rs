//! Byte stream of a connection: a plain socket, or one with TLS.
//!
//! The protocols read and write through it without knowing which. On a plain socket every call is the socket's
//! own.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, tcp};

use super::plain::PlainSocket;
use super::socket;
use super::tls::TlsSocket;

/// Byte stream of a connection.
pub(crate) enum ClientTransport {
    /// A plain socket.
    Plain(PlainSocket),
    /// A socket with TLS.
    Tls(Box<TlsSocket>),
}

/// Reading half.
pub(crate) enum ReadHalf<'a> {
    Plain(tcp::ReadHalf<'a>),
    Tls(&'a TlsSocket),
}

/// Writing half.
pub(crate) enum WriteHalf<'a> {
    Plain(tcp::WriteHalf<'a>),
    Tls(&'a TlsSocket),
}

impl ClientTransport {
    /// Starts TLS on a socket, with these settings.
    pub(crate) fn tls(socket: PlainSocket, settings: Arc<ServerConfig>) -> io::Result<Self> {
        let socket = socket.into_watched()?;
        Ok(Self::Tls(Box::new(TlsSocket::new(socket, settings)?)))
    }

    /// Returns what stands for a stream that is elsewhere. Every operation fails.
    pub(super) const fn elsewhere() -> Self {
        Self::Plain(PlainSocket::elsewhere())
    }

    /// Takes the stream.
    pub(super) const fn take(&mut self) -> Self {
        std::mem::replace(self, Self::elsewhere())
    }

    /// Reads the available bytes; 0 at the end.
    pub(crate) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_recv(cx, buffer),
            Self::Tls(tls) => {
                let (room, mut filled) = (buffer.len(), 0);
                tls.poll_receive(cx, room, |plain| {
                    buffer[filled..filled + plain.len()].copy_from_slice(plain);
                    filled += plain.len();
                })
            }
        }
    }

    /// Returns `false` if no input has arrived since a poll for it was pending: its waker is still registered.
    pub(crate) fn may_have_input(&self) -> bool {
        match self {
            Self::Plain(socket) => socket.may_have_input(),
            Self::Tls(_) => true,
        }
    }

    /// Takes as much as can be sent now. Some of it may still be buffered, see [`Self::holds_back`].
    pub(crate) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_send(cx, pieces),
            Self::Tls(tls) => tls.poll_send(cx, pieces),
        }
    }

    /// Sends bytes that the end of the connection follows, which the kernel joins with them into one packet. Returns the
    /// number that the socket has taken at once.
    pub(crate) fn send_before_end(&self, bytes: &[u8]) -> usize {
        let sent = match self {
            Self::Plain(plain) => plain.try_write(|it| socket::send_before_more(it, bytes)),
            Self::Tls(_) => Ok(0),
        };
        // An error is that of the next write, too.
        sent.unwrap_or(0)
    }

    /// Ready when the socket has taken all buffered bytes.
    pub(crate) fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    /// Returns `true` while the socket has not taken all buffered bytes. A flush waits for that.
    pub(crate) fn holds_back(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.holds_back(),
        }
    }

    /// Returns `true` if ALPN selected HTTP/2.
    pub(crate) fn has_agreed_on_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.has_agreed_on_http2(),
        }
    }

    /// Returns the underlying socket.
    pub(crate) fn socket(&mut self) -> io::Result<&mut TcpStream> {
        match self {
            Self::Plain(socket) => socket.watched(),
            Self::Tls(tls) => Ok(tls.socket()),
        }
    }

    /// Marks a response as under way: on drop, no `close_notify` makes a truncated one look complete.
    pub(crate) fn in_answer(&mut self, is_under_way: bool) {
        match self {
            Self::Plain(_) => {}
            Self::Tls(tls) => tls.in_answer(is_under_way),
        }
    }

    /// Returns the writing half.
    pub(crate) fn writer(&mut self) -> io::Result<WriteHalf<'_>> {
        Ok(self.split()?.1)
    }

    /// Returns both halves, for reading and writing concurrently.
    pub(crate) fn split(&mut self) -> io::Result<(ReadHalf<'_>, WriteHalf<'_>)> {
        Ok(match self {
            Self::Plain(socket) => {
                let (reader, writer) = socket.watched()?.split();
                (ReadHalf::Plain(reader), WriteHalf::Plain(writer))
            }
            Self::Tls(tls) => (ReadHalf::Tls(tls), WriteHalf::Tls(tls)),
        })
    }
}

impl ReadHalf<'_> {
    /// Resolves when the socket has an error, such as a reset.
    pub(crate) async fn failed(&self) {
        // An error while waiting is an error of the socket.
        let _ = match self {
            Self::Plain(reader) => reader.ready(Interest::ERROR).await,
            Self::Tls(tls) => tls.socket_ref().ready(Interest::ERROR).await,
        };
    }
}

impl WriteHalf<'_> {
    /// Returns the socket if output needs no encryption, as `sendfile` requires.
    pub(crate) fn as_socket(&self) -> Option<&TcpStream> {
        match self {
            Self::Plain(writer) => Some(writer.as_ref()),
            Self::Tls(_) => None,
        }
    }
}

impl AsyncRead for ReadHalf<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(reader) => Pin::new(reader).poll_read(cx, buffer),
            Self::Tls(tls) => tls
                .poll_receive(cx, buffer.remaining(), |plain| buffer.put_slice(plain))
                .map_ok(drop),
        }
    }
}

impl AsyncWrite for WriteHalf<'_> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(writer) => Pin::new(writer).poll_write(cx, bytes),
            Self::Tls(tls) => tls.poll_send(cx, &[IoSlice::new(bytes)]),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(writer) => Pin::new(writer).poll_write_vectored(cx, pieces),
            Self::Tls(tls) => tls.poll_send(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(writer) => Pin::new(writer).poll_flush(cx),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(writer) => Pin::new(writer).poll_shutdown(cx),
            Self::Tls(tls) => tls.poll_shutdown(cx),
        }
    }
}
