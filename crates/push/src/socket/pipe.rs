//! What carries frames: bytes in memory, of which nobody waits for anybody. Who reads and who writes frames has
//! its turn whenever the connection does.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is taken of a client before all that is read.
const MAX_TAKEN: usize = 16 * 1024;
/// What is handed to the connection at a time.
const MAX_GIVEN: usize = 16 * 1024;

/// Both directions.
#[derive(Debug, Default)]
pub(super) struct Pipe {
    from_client: BytesMut,
    to_client: BytesMut,
    /// The client says nothing more.
    has_ended: bool,
}

impl Pipe {
    /// Takes what the client has sent, as far as there is room. Says how much.
    pub(super) fn take(&mut self, bytes: &[u8]) -> usize {
        let room = MAX_TAKEN.saturating_sub(self.from_client.len());
        let taken = bytes.len().min(room);
        self.from_client.extend_from_slice(&bytes[..taken]);
        taken
    }

    pub(super) const fn end(&mut self) {
        self.has_ended = true;
    }

    /// Gives what is for the client. Says whether there was anything.
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

/// Most sockets are silent most of the time, and need no room then.
fn give_back(buffer: &mut BytesMut) {
    if buffer.is_empty() {
        *buffer = BytesMut::new();
    }
}

/// What the client has sent, to who reads frames.
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

/// Frames for the client.
impl AsyncWrite for Pipe {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let pipe = self.get_mut();
        let room = MAX_GIVEN.saturating_sub(pipe.to_client.len());
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
