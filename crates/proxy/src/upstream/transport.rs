//! Transport of a connection to a server: a socket, or TLS on one.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use microcache_engine::Duplex;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::client::TlsStream;

use crate::tls::HTTP2;

/// A TCP, TLS or Unix stream to a server.
#[derive(Debug)]
pub(super) enum OriginTransport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl OriginTransport {
    /// Returns true if HTTP/2 was offered by ALPN and the server did not select it.
    pub(super) fn has_declined_http2(&self) -> bool {
        match self {
            Self::Plain(_) | Self::Unix(_) => false,
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol() != Some(HTTP2),
        }
    }

    /// Returns true if the runtime has seen nothing arrive, not even the end. It asks the socket only if something
    /// may have.
    pub(super) fn seems_quiet(&mut self) -> bool {
        match self {
            Self::Plain(socket) => {
                let socket = &*socket;
                is_nothing(&socket.try_io(Interest::READABLE, || peek(socket)))
            }
            Self::Tls(tls) => has_nothing(tls),
            Self::Unix(socket) => {
                let socket = &*socket;
                is_nothing(&socket.try_io(Interest::READABLE, || peek(socket)))
            }
        }
    }

    /// Returns true if nothing unsolicited has arrived, not even the end. Asks the socket itself at the cost
    /// of a system call: the runtime's readiness may lag, and stale bytes would be taken for the next
    /// response.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain(socket) => is_empty(socket),
            Self::Unix(socket) => is_empty(socket),
            Self::Tls(tls) => has_nothing(tls) && is_empty(tls.get_ref().0),
        }
    }
}

/// Returns true if a TLS session is open and has nothing to read. Takes in records that concern the session only, such
/// as a ticket. The socket alone does not tell: records behind a response may have been read along with it.
fn has_nothing(tls: &mut TlsStream<TcpStream>) -> bool {
    let mut byte = [0];
    let mut byte = ReadBuf::new(&mut byte);
    let mut no_waker = Context::from_waker(Waker::noop());
    let read = Pin::new(tls).poll_read(&mut no_waker, &mut byte);
    read.is_pending()
}

/// Returns true if a socket is open and has nothing to read.
fn is_empty(socket: &impl AsFd) -> bool {
    is_nothing(&peek(socket))
}

fn peek(socket: &impl AsFd) -> io::Result<usize> {
    SockRef::from(socket).peek(&mut [std::mem::MaybeUninit::uninit()])
}

fn is_nothing(peeked: &io::Result<usize>) -> bool {
    matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl Duplex for OriginTransport {}

impl AsyncRead for OriginTransport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Unix(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(tls) => {
                let mut tls = Pin::new(&mut **tls);
                // A read waits for the response, so the request is flushed first. After a failed flush there
                // may still be a response to read.
                let _ = tls.as_mut().poll_flush(cx);
                tls.poll_read(cx, buffer)
            }
        }
    }
}

impl AsyncWrite for OriginTransport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Unix(socket) => Pin::new(socket).poll_write(cx, bytes),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write(cx, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
            Self::Unix(socket) => Pin::new(socket).poll_write_vectored(cx, pieces),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Unix(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Unix(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}
