//! A client's plain socket. The runtime watches it from the first wait on: many a connection is for one request that
//! is there when it is accepted, and then costs the kernel and the runtime nothing for events.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::socket;

/// Plain socket of a client.
pub(crate) enum PlainSocket {
    /// Accepted, and not watched by the runtime. `None` once the runtime has refused it.
    Unwatched {
        socket: Option<std::net::TcpStream>,
        /// Input was read. More of it is waited for.
        has_read: bool,
    },
    /// Watched by the runtime.
    Watched {
        socket: TcpStream,
        /// The last read has emptied it.
        is_drained: bool,
    },
}

impl PlainSocket {
    /// Takes an accepted socket, which must not block.
    pub(crate) const fn new(socket: std::net::TcpStream) -> Self {
        Self::Unwatched {
            socket: Some(socket),
            has_read: false,
        }
    }

    /// Returns what stands for a socket that is elsewhere. Every operation fails.
    pub(super) const fn elsewhere() -> Self {
        Self::Unwatched {
            socket: None,
            has_read: true,
        }
    }

    /// Returns the socket for operations that may have to wait.
    pub(crate) fn watched(&mut self) -> io::Result<&mut TcpStream> {
        if let Self::Unwatched { socket, .. } = self {
            let socket = socket.take().ok_or(io::ErrorKind::NotConnected)?;
            *self = Self::Watched {
                socket: TcpStream::from_std(socket)?,
                is_drained: true,
            };
        }
        match self {
            Self::Watched { socket, .. } => Ok(socket),
            Self::Unwatched { .. } => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns the socket for operations that may have to wait.
    pub(super) fn into_watched(mut self) -> io::Result<TcpStream> {
        self.watched()?;
        match self {
            Self::Watched { socket, .. } => Ok(socket),
            Self::Unwatched { .. } => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Returns `false` if no input has arrived since a poll for it was pending.
    pub(super) fn may_have_input(&self) -> bool {
        match self {
            Self::Watched { socket, .. } => socket.try_io(Interest::READABLE, || Ok(())).is_ok(),
            Self::Unwatched { .. } => true,
        }
    }

    /// Reads the available bytes.
    pub(super) fn poll_recv(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if let Self::Unwatched {
            socket: Some(socket),
            has_read: has_read @ false,
        } = self
        {
            *has_read = true;
            match recv(&*socket, &mut *buffer, RecvFlags::empty()) {
                Err(Errno::WOULDBLOCK) => {}
                received => return Poll::Ready(Ok(received?.0)),
            }
        }
        self.watched()?;
        match self {
            Self::Watched { socket, is_drained } => {
                socket::poll_recv(socket, is_drained, cx, buffer)
            }
            Self::Unwatched { .. } => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// Writes by this operation, which does not wait.
    pub(super) fn try_write(
        &self,
        operation: impl FnOnce(BorrowedFd<'_>) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self {
            Self::Watched { socket, .. } => {
                socket.try_io(Interest::WRITABLE, || operation(socket.as_fd()))
            }
            Self::Unwatched {
                socket: Some(socket),
                ..
            } => operation(socket.as_fd()),
            Self::Unwatched { socket: None, .. } => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Writes as much as the socket takes.
    pub(super) fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if let Self::Unwatched {
            socket: Some(socket),
            ..
        } = self
        {
            match socket::send_now(socket, pieces) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => return Poll::Ready(sent),
            }
        }
        socket::poll_send(self.watched()?, cx, pieces)
    }
}
