//! What carries a connection to a server: a socket, or TLS on one.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::tls::HTTP2;

/// What carries a connection to a server.
#[derive(Debug)]
pub(super) enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    /// Whether HTTP/2 was offered by TLS and the server has chosen something else, or nothing.
    pub(super) fn has_declined_http2(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.get_ref().1.alpn_protocol() != Some(HTTP2),
        }
    }

    /// Whether nothing has come that nobody asked for, not even the end. The socket itself is asked: what the
    /// runtime has heard may be older than what would be taken for the next answer. That costs a system call, and is worth it.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain(socket) => is_empty(socket),
            Self::Tls(tls) => {
                if is_empty(tls.get_ref().0) {
                    return true;
                }
                // It may be something that the session alone is told, such as a ticket.
                let mut byte = [0];
                let mut byte = ReadBuf::new(&mut byte);
                let mut nobody = Context::from_waker(Waker::noop());
                let read = Pin::new(&mut **tls).poll_read(&mut nobody, &mut byte);
                read.is_pending() && is_empty(tls.get_ref().0)
            }
        }
    }
}

/// Whether a socket is open and has nothing to read.
fn is_empty(socket: &TcpStream) -> bool {
    let mut byte = [std::mem::MaybeUninit::uninit()];
    let peeked = SockRef::from(socket).peek(&mut byte);
    matches!(peeked, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

impl AsyncRead for Transport {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_read(cx, buffer),
            Self::Tls(tls) => {
                let mut tls = Pin::new(&mut **tls);
                // Whoever waits for an answer has not sent all of the request before this is done. If it cannot be, there may be an answer
                // all the same.
                let _ = tls.as_mut().poll_flush(cx);
                tls.poll_read(cx, buffer)
            }
        }
    }
}

impl AsyncWrite for Transport {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_write(cx, bytes),
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
            Self::Tls(tls) => Pin::new(&mut **tls).poll_write_vectored(cx, pieces),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_flush(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(socket) => Pin::new(socket).poll_shutdown(cx),
            Self::Tls(tls) => Pin::new(&mut **tls).poll_shutdown(cx),
        }
    }
}
