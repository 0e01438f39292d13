//! System calls on a socket. The C library's `recv` and `send` are cancellation points, which in a process with
//! threads costs a fiftieth of a hit.

use std::fs::File;
use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use rustix::fs::sendfile;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::task::coop;

/// Reads the available bytes.
pub(super) fn poll_recv(
    stream: &TcpStream,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    loop {
        ready!(stream.poll_read_ready(cx))?;
        let mut received = None;
        let tried = stream.try_io(Interest::READABLE, || {
            let (length, _) = recv(stream, &mut *buffer, RecvFlags::empty())?;
            received = Some(length);
            // A short read has emptied the socket. Clearing the readiness avoids another read that would find
            // nothing.
            if length > 0 && length < buffer.len() {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            Ok(())
        });
        match (received, tried) {
            (Some(length), _) => return Poll::Ready(Ok(length)),
            (None, Err(error)) if error.kind() != io::ErrorKind::WouldBlock => {
                return Poll::Ready(Err(error));
            }
            // The readiness was out of date; polling it again waits.
            (None, _) => {}
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
        let tried = stream.try_io(Interest::WRITABLE, || {
            Ok(match pieces {
                // A plain write costs the kernel less than a vector of one.
                [one] => send(stream, one, SendFlags::NOSIGNAL)?,
                many => rustix::io::writev(stream, many)?,
            })
        });
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

/// Writes as much as the socket takes at once with `MSG_MORE`, to be joined with the next write.
pub(super) fn try_send_before_more(stream: &TcpStream, bytes: &[u8]) -> io::Result<usize> {
    stream.try_io(Interest::WRITABLE, || {
        Ok(send(stream, bytes, SendFlags::NOSIGNAL | SendFlags::MORE)?)
    })
}

/// Sends the bytes of a file from `start` to `end`, as far as the socket takes them at once.
pub(super) fn try_send_file(
    stream: &TcpStream,
    file: &File,
    mut start: u64,
    end: u64,
) -> io::Result<usize> {
    let left = usize::try_from(end - start).unwrap_or(usize::MAX);
    stream.try_io(Interest::WRITABLE, || {
        Ok(sendfile(stream, file, Some(&mut start), left)?)
    })
}
