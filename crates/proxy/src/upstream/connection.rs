//! One connection to a server: bytes in, bytes out, and one timer that is rarely set.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use microcache_engine::origin::Tunnel;
use microcache_store::poll_clock;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::runtime::{Handle, Id};
use tokio::time::{Instant, Sleep, sleep_until};

use super::transport::OriginTransport;

/// Minimum size of a read buffer.
const READ_MIN: usize = 16 * 1024;
/// Maximum size of a read buffer.
const READ_MAX: usize = 64 * 1024;
/// An idle connection keeps no read buffer of this size: a large head has enlarged it.
const KEPT_MAX: usize = 2 * READ_MAX + 1;
/// A buffer with less free space than this is replaced by a new one.
const ROOM_MIN: usize = 2 * 1024;

/// A connection to a server.
#[derive(Debug)]
pub(super) struct OriginConnection {
    pub(super) stream: OriginTransport,
    /// Bytes read and not yet parsed.
    pub(super) buf: BytesMut,
    pub(super) timer: InactivityTimer,
    /// Runtime that the socket is registered with.
    pub(super) runtime: Id,
    /// The last response had no body by its method or status. A server that sends one nevertheless, as to a HEAD, may
    /// still be sending it.
    pub(super) may_send_more: bool,
}

impl OriginConnection {
    /// Wraps a stream that was opened on the current runtime.
    pub(super) fn new(stream: OriginTransport) -> Self {
        Self {
            stream,
            runtime: Handle::current().id(),
            buf: BytesMut::new(),
            timer: InactivityTimer::default(),
            may_send_more: false,
        }
    }

    /// Reads more into the buffer, making room for `expected` bytes within reason. Frames that are
    /// still in use keep their buffer alive, so its room is used up before there is another.
    pub(super) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        expected: u64,
    ) -> Poll<io::Result<usize>> {
        let room = self.buf.capacity() - self.buf.len();
        if room < ROOM_MIN {
            let wanted = usize::try_from(expected).unwrap_or(READ_MAX);
            self.buf.reserve(wanted.clamp(READ_MIN, READ_MAX));
        }
        pin!(self.stream.read_buf(&mut self.buf)).poll(cx)
    }

    /// Prepares the connection for the next exchange. The buffer stays unless frames still reference it or it is too
    /// large.
    pub(super) fn rest(&mut self) {
        if self.buf.try_reclaim(KEPT_MAX) || !self.buf.try_reclaim(READ_MIN) {
            self.buf = BytesMut::new();
        }
    }

    /// Turns the connection into a tunnel that begins with the bytes read already.
    pub(super) fn into_tunnel(mut self) -> Tunnel {
        Tunnel {
            early: self.buf.split().freeze(),
            io: Box::new(self.stream),
            has_descriptor: true,
        }
    }

    pub(super) fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let stream = Pin::new(&mut self.stream);
        let written = match pieces {
            // A plain write costs the kernel less than a vector of one.
            [one, rest @ ..] if rest.iter().all(|piece| piece.is_empty()) => {
                stream.poll_write(cx, one)
            }
            many => stream.poll_write_vectored(cx, many),
        };
        let written = ready!(written)?;
        if written == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        Poll::Ready(Ok(written))
    }

    /// Returns true if an idle connection is open and the server has sent no unsolicited bytes on it.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet()
    }

    /// Returns true if the runtime has seen neither the end of an idle connection nor unsolicited bytes on it.
    pub(super) fn seems_quiet(&mut self) -> bool {
        self.stream.seems_quiet()
    }
}

/// Inactivity timeout of a server. Clock and timer are touched only when there is something to wait for; a
/// timer that fires too early is set again.
#[derive(Debug, Default)]
pub(super) struct InactivityTimer {
    silence: Duration,
    /// Set at the first wait after a restart.
    deadline: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl InactivityTimer {
    /// Restarts the timeout with this duration.
    pub(super) fn restart(&mut self, silence: Duration) {
        self.silence = silence;
        self.deadline = None;
    }

    /// Ready once the timeout has expired.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let silence = self.silence;
        let deadline = *self
            .deadline
            .get_or_insert_with(|| poll_clock::now() + silence);
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if deadline < sleep.deadline() {
            sleep.as_mut().reset(deadline);
        }
        loop {
            ready!(sleep.as_mut().poll(cx));
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(deadline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[tokio::test(start_paused = true)]
    async fn a_deadline_can_be_put_off_and_brought_forward() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timer = InactivityTimer::default();
        timer.restart(Duration::from_secs(10));
        assert!(poll_fn(|cx| Poll::Ready(timer.poll(cx))).await.is_pending());
        timer.restart(Duration::from_secs(30));
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(Instant::now(), at(30));
        timer.restart(Duration::from_secs(50));
        assert!(poll_fn(|cx| Poll::Ready(timer.poll(cx))).await.is_pending());
        timer.restart(Duration::from_secs(10));
        poll_fn(|cx| timer.poll(cx)).await;
        assert_eq!(Instant::now(), at(40));
    }
}
