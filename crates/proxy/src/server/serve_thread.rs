//! One serving thread: its listeners, its connections, and their end.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Builder;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::listener::{BoundListener, accept, watched};
use super::threads::ThreadStart;
use crate::admission::ThreadConnections;
use crate::shared::Shared;

/// Time for clients to receive the close frame.
const FAREWELL: Duration = Duration::from_millis(100);
/// Blocking threads per serving thread, for the disk.
const FILE_THREADS: usize = 16;

/// Serves from the permission to accept until the server stops, then drains.
pub(super) fn serve_thread(
    listeners: Vec<BoundListener>,
    shared: &Arc<Shared>,
    mut start: ThreadStart,
    mut stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(FILE_THREADS)
        .build()?;
    runtime.block_on(async {
        let connections = Arc::new(ThreadConnections::default());
        shared.connection_limits.add(&connections);
        let listeners = listeners.into_iter().map(|listener| {
            let socket = watched(listener.socket)?;
            Ok((socket, listener.scheme))
        });
        let listeners = listeners.collect::<io::Result<Vec<_>>>()?;
        if !start.wait_for_permission().await {
            return Ok(());
        }
        let mut accepting = JoinSet::new();
        for (socket, scheme) in listeners {
            let (shared, connections) = (Arc::clone(shared), Arc::clone(&connections));
            let accept = accept(socket, scheme, shared, connections, stopped.clone());
            accepting.spawn(accept);
        }
        tokio::select! {
            _ = stopped.wait_for(|&stopped| stopped) => {}
            // A panic has logged itself. The server stops, and the connections of this thread end with it.
            Some(Err(ended)) = accepting.join_next() => return Err(io::Error::other(ended)),
        }
        let timeouts = shared.latest().timeouts;
        let finished = async {
            // A panic logs itself; the connections still drain.
            while accepting.join_next().await.is_some() {}
            let is_replaced = shared.lifecycle.is_replaced();
            let streams = timeouts.drain_streams + FAREWELL;
            let stopped = shared.lifecycle.draining_since().unwrap_or_default();
            connections.drain(streams, stopped, is_replaced).await;
        };
        let before_the_end = timeouts.drain.saturating_sub(FAREWELL);
        let farewell = end_sockets(shared, timeouts.drain_streams.min(before_the_end));
        let finished = async {
            tokio::select! {
                () = finished => {}
                () = farewell => {}
            }
        };
        // Connections that have not finished by then are closed with the runtime.
        let _ = timeout(timeouts.drain, finished).await;
        Ok(())
    })
}

/// Closes WebSocket subscriptions at the end, after a delay.
async fn end_sockets(shared: &Arc<Shared>, after: Duration) {
    sleep(after).await;
    // A reload may have enabled it.
    if let Some(push) = &shared.latest().push {
        push.close_sockets();
    }
    pending::<()>().await;
}
