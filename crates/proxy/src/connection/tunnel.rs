//! A connection that has left HTTP: bytes both ways.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use microcache_engine::Tunnel;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, copy, split};

use super::Connection;
use super::patience::while_moving;

impl Connection {
    /// Bytes both ways until both sides have ended, or neither has said anything for too long. When
    /// one side has ended, the other one may be talking to nobody, and gets less time.
    pub(super) async fn tunnel(&mut self, mut tunnel: Tunnel) {
        let timeouts = self.session.shared.timeouts;
        let early = std::mem::take(&mut self.input);
        let one_ended = AtomicBool::new(false);
        let both = async {
            self.stream.write_all(&tunnel.early).await?;
            tunnel.io.write_all(&early).await?;
            let (from_client, to_client) = self.stream.split();
            let (from_origin, to_origin) = split(tunnel.io);
            tokio::try_join!(
                one_way(from_client, to_origin, &one_ended),
                one_way(from_origin, to_client, &one_ended),
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
