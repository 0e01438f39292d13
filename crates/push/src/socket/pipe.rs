//! In-memory, non-blocking duplex for frames. Both ends are polled with the connection, so neither wakes the
//! other.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Limit of unread input, in bytes.
const MAX_INPUT: usize = 16 * 1024;
/// Limit of output per poll, in bytes.
const MAX_OUTPUT: usize = 16 * 1024;

/// Both directions of the duplex.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    from_client: BytesMut,
    to_client: BytesMut,
    /// True if the client has shut down its side.
    has_ended: bool,
}

impl Pipe {
    /// Accepts input as far as there is room; returns how much.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let room = MAX_INPUT.saturating_sub(self.from_client.len());
        let taken = bytes.len().min(room);
        self.from_client.extend_from_slice(&bytes[..taken]);
        taken
    }

    pub(super) const fn end(&mut self) {
        self.has_ended = true;
    }

    /// Moves output to the connection; returns whether there was any.
    pub(super) fn give(&mut self, space: &mut ReadBuf<'_>) -> bool {
        let given = self.to_client.len().min(space.remaining());
        space.put_slice(&self.to_client[..given]);
        self.to_client.advance(given);
        give_back(&mut self.to_client);
        given > 0
    }

    pub(super) fn is_drained(&self) -> bool {
        self.to_client.is_empty()
    }
}

/// Most sockets are idle most of the time and need no buffer then.
fn give_back(buffer: &mut BytesMut) {
    if buffer.is_empty() {
        *buffer = BytesMut::new();
    }
}

/// Input, for the frame decoder.
impl AsyncRead for Pipe {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        space: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let pipe = self.get_mut();
        if pipe.from_client.is_empty() && !pipe.has_ended {
            return Poll::Pending;
        }
        let read = pipe.from_client.len().min(space.remaining());
        space.put_slice(&pipe.from_client[..read]);
        pipe.from_client.advance(read);
        give_back(&mut pipe.from_client);
        Poll::Ready(Ok(()))
    }
}

/// Output of the frame encoder.
impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let pipe = self.get_mut();
        let room = MAX_OUTPUT.saturating_sub(pipe.to_client.len());
        if room == 0 {
            return Poll::Pending;
        }
        let written = bytes.len().min(room);
        pipe.to_client.extend_from_slice(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
