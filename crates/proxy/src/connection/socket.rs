//! System calls on a socket. The C library's `recv` and `send` are cancellation points, which in a process with
//! threads costs a fiftieth of a hit.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::task::{Context, Poll, ready};

use rustix::fs::sendfile;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::coop;

/// Reads the available bytes. That is tried before it is waited for, as the task was probably woken for them, unless the
/// previous call has emptied the socket.
pub(super) fn poll_recv(
    stream: &TcpStream,
    is_drained: &mut bool,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        if std::mem::take(is_drained) {
            ready!(stream.poll_read_ready(cx))?;
        }
        let turn = ready!(coop::poll_proceed(cx));
        let mut received = None;
        let tried = stream.try_io(Interest::READABLE, || {
            let (length, _) = recv(stream, &mut *buffer, RecvFlags::empty())?;
            received = Some(length);
            // A short read has emptied the socket. Clearing the readiness avoids another read that would find
            // nothing.
            if length > 0 && length < buffer.len() {
                *is_drained = true;
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        });
        match (received, tried) {
            (Some(length), _) => {
                turn.made_progress();
                return Poll::Ready(Ok(length));
            }
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                return Poll::Ready(Err(error));
            }
            (None, _) => *is_drained = true,
        }
    }
}

/// Writes as much as the socket takes. It is tried before it is waited for: nearly always the socket is ready.
pub(super) fn poll_send(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    pieces: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    loop {
        let turn = ready!(coop::poll_proceed(cx));
        let tried = stream.try_io(Interest::WRITABLE, || send_now(stream, pieces));
        match tried {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(stream.poll_write_ready(cx))?;
            }
            written => {
                turn.made_progress();
                return Poll::Ready(written);
            }
        }
    }
}

/// Writes as much as the socket takes at once.
pub(super) fn send_now(socket: impl AsFd, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    Ok(match pieces {
        // A plain write costs the kernel less than a vector of one.
        [one] => send(socket, one, SendFlags::NOSIGNAL)?,
        many => rustix::io::writev(socket, many)?,
    })
}

/// Writes as much as the socket takes at once with `MSG_MORE`, to be joined with the next write.
pub(super) fn send_before_more(socket: impl AsFd, bytes: &[u8]) -> io::Result<usize> {
    Ok(send(socket, bytes, SendFlags::NOSIGNAL | SendFlags::MORE)?)
}

/// Sends the bytes of a file from `start` to `end`, as far as the socket takes them at once.
pub(super) fn send_file(
    socket: impl AsFd,
    file: &File,
    mut start: u64,
    end: u64,
) -> io::Result<usize> {
    let left = usize::try_from(end - start).unwrap_or(usize::MAX);
    Ok(sendfile(socket, file, Some(&mut start), left)?)
}

/// Writes with [`send_before_more`] if the socket is ready.
pub(super) fn try_send_before_more(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    stream.try_io(Interest::WRITABLE, || send_before_more(stream, bytes))
}

/// Writes with [`send_file`] if the socket is ready.
pub(super) fn try_send_file(
    stream: &TcpStream,
    file: &File,
    start: u64,
    end: u64,
) -> io::Result<usize> {
    stream.try_io(Interest::WRITABLE, || send_file(stream, file, start, end))
}
