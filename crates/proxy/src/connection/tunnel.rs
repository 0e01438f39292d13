//! Connections after an upgrade: bytes in both directions.

use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use microcache_engine::Tunnel;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, split};

use super::deadline::while_moving;
use super::state::Connection;
use crate::session::RequestAccount;

impl Connection {
    /// Copies bytes both ways until both sides have ended or the idle timeout has passed, which is shorter once
    /// one side has ended. Bytes to the client are accounted as they are sent, because the account may be
    /// dropped before the end.
    pub(super) async fn tunnel(&mut self, tunnel: Tunnel, account: &mut RequestAccount) {
        let timeouts = self.session.shared.timeouts;
        let early = std::mem::take(&mut self.input);
        let one_ended = AtomicBool::new(false);
        let both = async {
            let (from_client, to_client) = self.stream.split()?;
            let mut to_client = CountingWriter {
                to: to_client,
                account,
            };
            to_client.write_all(&tunnel.early).await?;
            to_client.flush().await?;
            let (from_origin, to_origin) = split(tunnel.io);
            // Early input goes first. The origin may read no more of it until its own output is read, so both
            // directions run at once.
            tokio::try_join!(
                one_way(early.into(), from_client, to_origin, &one_ended),
                one_way(Vec::new(), from_origin, to_client, &one_ended),
            )
        };
        let silence = || {
            if one_ended.load(Ordering::Relaxed) {
                timeouts.tunnel.min(timeouts.half_closed)
            } else {
                timeouts.tunnel
            }
        };
        // An error of a tunnel concerns its two ends only.
        let _ = while_moving(both, silence).await;
    }
}

/// A writer that accounts the bytes sent.
struct CountingWriter<'a, W> {
    to: W,
    account: &'a mut RequestAccount,
}

impl<W: AsyncWrite + Unpin> AsyncWrite for CountingWriter<'_, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.to).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = written {
            self.account.sent(written as u64);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.to).poll_shutdown(cx)
    }
}

/// Copies to the end, and passes the end on. `held` goes first.
async fn one_way(
    held: Vec<u8>,
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    ended: &AtomicBool,
) -> io::Result<()> {
    let mut flow = CopyDirection { held, gone: 0 };
    poll_fn(|cx| flow.poll(cx, &mut from, &mut to)).await?;
    ended.store(true, Ordering::Relaxed);
    to.shutdown().await
}

/// Bytes read at a time.
const READ_SIZE: usize = 8 * 1024;
/// Most reads in a row before other tasks get their turn.
const MAX_READS: usize = 32;

/// One direction of a tunnel. It owns no buffer while it is silent.
struct CopyDirection {
    /// Bytes read that could not be written.
    held: Vec<u8>,
    /// Number of these that have been written.
    gone: usize,
}

impl CopyDirection {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut (impl AsyncRead + Unpin),
        to: &mut (impl AsyncWrite + Unpin),
    ) -> Poll<io::Result<()>> {
        let mut space = [const { MaybeUninit::uninit() }; READ_SIZE];
        for _ in 0..MAX_READS {
            while self.gone < self.held.len() {
                self.gone += ready!(poll_some(cx, to, &self.held[self.gone..]))?;
            }
            *self = Self {
                held: Vec::new(),
                gone: 0,
            };
            let mut read = ReadBuf::uninit(&mut space);
            match Pin::new(&mut *from).poll_read(cx, &mut read) {
                Poll::Pending => {
                    ready!(Pin::new(to).poll_flush(cx))?;
                    return Poll::Pending;
                }
                Poll::Ready(read) => read?,
            }
            let mut rest = read.filled();
            if rest.is_empty() {
                return Pin::new(to).poll_flush(cx);
            }
            while !rest.is_empty() {
                match poll_some(cx, to, rest) {
                    Poll::Ready(written) => rest = &rest[written?..],
                    Poll::Pending => {
                        self.held = rest.to_vec();
                        return Poll::Pending;
                    }
                }
            }
        }
        // Yields to other tasks.
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

fn poll_some(
    cx: &mut Context<'_>,
    to: &mut (impl AsyncWrite + Unpin),
    bytes: &[u8],
) -> Poll<io::Result<usize>> {
    let written = ready!(Pin::new(to).poll_write(cx, bytes))?;
    Poll::Ready(match written {
        0 => Err(io::ErrorKind::WriteZero.into()),
        // A writer takes at most what it was given.
        written => Ok(written.min(bytes.len())),
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, duplex};

    use super::*;

    #[tokio::test]
    async fn all_bytes_pass_through_buffers_of_any_size() {
        let bytes: Vec<u8> = (0..100_000u32).map(|number| number as u8).collect();
        for room in [1, 7, 100_000] {
            let ((mut source, from), (to, mut sink)) = (duplex(5000), duplex(room));
            let ended = AtomicBool::new(false);
            let (early, late) = bytes.split_at(30_000);
            let sending = async {
                source.write_all(late).await?;
                source.shutdown().await
            };
            let mut received = Vec::new();
            let (flow, sent, read) = tokio::join!(
                one_way(early.to_vec(), from, to, &ended),
                sending,
                sink.read_to_end(&mut received),
            );
            assert!(flow.is_ok() && sent.is_ok() && read.is_ok());
            assert!(received == bytes && ended.into_inner(), "{room}");
        }
    }
}
