//! A connection that has left HTTP: bytes both ways.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};

use microcache_engine::Tunnel;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};

use super::Connection;
use super::patience::while_moving;

impl Connection {
    /// Bytes both ways until both sides have ended, or neither has said anything for too long. When
    /// one side has ended, the other one may be talking to nobody, and gets less time. Says how many
    /// bytes went to the client.
    pub(super) async fn tunnel(&mut self, tunnel: Tunnel) -> u64 {
        let timeouts = self.session.shared.timeouts;
        let early = std::mem::take(&mut self.input);
        let one_ended = AtomicBool::new(false);
        let sent = AtomicU64::new(tunnel.early.len() as u64);
        let both = async {
            let (from_client, mut to_client) = self.stream.split();
            to_client.write_all(&tunnel.early).await?;
            to_client.flush().await?;
            let (from_origin, mut to_origin) = split(tunnel.io);
            let from_client = async {
                // The other side may take no more of it before it has been listened to.
                to_origin.write_all(&early).await?;
                one_way(from_client, to_origin, &one_ended).await
            };
            tokio::try_join!(
                from_client,
                one_way(
                    from_origin,
                    Counted {
                        to: to_client,
                        bytes: &sent
                    },
                    &one_ended
                ),
            )
        };
        let silence = || {
            if one_ended.load(Ordering::Relaxed) {
                timeouts.tunnel.min(timeouts.half_closed)
            } else {
                timeouts.tunnel
            }
        };
        // How a tunnel ends is between the two ends of it.
        let _ = while_moving(both, silence).await;
        sent.into_inner()
    }
}

/// A way out that knows how much has gone.
struct Counted<'a, W> {
    to: W,
    bytes: &'a AtomicU64,
}

impl<W: AsyncWrite + Unpin> AsyncWrite for Counted<'_, W> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.to).poll_write(cx, bytes);
        if let Poll::Ready(Ok(written)) = written {
            self.bytes.fetch_add(written as u64, Ordering::Relaxed);
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

/// Copies to the end, and passes the end on.
async fn one_way(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    ended: &AtomicBool,
) -> io::Result<()> {
    copy(&mut from, &mut to).await?;
    ended.store(true, Ordering::Relaxed);
    to.shutdown().await
}
