//! Accepts connections: one listener per thread and address, so that the kernel distributes them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use microcache_policy::Scheme;
use rustix::io::Errno;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::sleep;

use super::accepted::{serve, serve_late};
use crate::admission::ThreadConnections;
use crate::shared::Shared;

/// A bound listener, with the scheme of its clients.
pub(super) struct BoundListener {
    pub(super) socket: TcpListener,
    pub(super) scheme: Scheme,
}

/// Length of the kernel's accept queue.
const BACKLOG: i32 = 4096;
/// Pause when no file descriptor is left for a connection; dismissed connections have closed by then.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(10);

/// Binds a listener that shares its address with those of the other threads (`SO_REUSEPORT`).
pub(super) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(false)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Returns `true` if another process listens on this address. Sharing is intended among the threads of one
/// process only: another process would receive half of the requests.
pub(super) fn is_taken(address: SocketAddr) -> io::Result<bool> {
    if address.port() == 0 {
        return Ok(false);
    }
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    match socket.bind(&address.into()) {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(true),
        Err(error) => Err(error),
    }
}

/// Accepts connections until the server stops, then serves those in the kernel's queue and closes the listener.
/// At the connection limit idle connections are closed; without any, one more is held back and the next ones
/// wait in the kernel.
pub(super) async fn accept(
    listener: tokio::net::TcpListener,
    scheme: Scheme,
    mut shared: Arc<Shared>,
    connections: Arc<ThreadConnections>,
    mut stopped: watch::Receiver<bool>,
) {
    let mut stop = pin!(async move {
        let _ = stopped.wait_for(|&stopped| stopped).await;
    });
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut stop => break,
        };
        match accepted {
            Ok((stream, peer)) => {
                shared = shared.latest();
                let from = (peer.ip(), scheme);
                let permit = tokio::select! {
                    biased;
                    permit = shared.connection_limits.admit(&shared.engine.clock) => permit,
                    () = &mut stop => {
                        serve_late(stream, from, &shared, &connections);
                        break;
                    }
                };
                let Some(permit) = permit else { return };
                serve(stream, from, permit, &shared, &connections);
            }
            Err(error) if is_exhaustion(&error) => {
                shared
                    .connection_limits
                    .close_idle(shared.engine.clock.now());
                sleep(NO_DESCRIPTOR_PAUSE).await;
            }
            // The client left before it was accepted; try the next one.
            Err(_) => {}
        }
    }
    shared = shared.latest();
    // Queued connections are for the process that has replaced this one.
    if shared.lifecycle.is_replaced() {
        return;
    }
    // Idle connections may hold the descriptors that the queued ones need.
    if let Some(stopped) = shared.lifecycle.draining_since() {
        connections.close_answered(stopped);
    }
    tokio::task::yield_now().await;
    let mut listener = listener.into_std().ok();
    while let Some(open) = listener.take() {
        let (queued, exhausted) = queued(&open);
        // Connections queued from now on are reset, so the listener is closed first.
        if exhausted {
            listener = Some(open);
        } else {
            drop(open);
        }
        for (stream, peer) in queued {
            serve_late(stream, (peer.ip(), scheme), &shared, &connections);
        }
        if listener.is_some() {
            sleep(NO_DESCRIPTOR_PAUSE).await;
        }
    }
}

/// Takes the kernel's accept queue of a listener. `true`: descriptors ran out before its end.
fn queued(listener: &TcpListener) -> (Vec<(TcpStream, SocketAddr)>, bool) {
    let mut queued = Vec::new();
    let exhausted = loop {
        match listener.accept() {
            Ok(accepted) => queued.push(accepted),
            // The client left while it was queued.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => break is_exhaustion(&error),
        }
    };
    let usable = queued.into_iter().filter_map(|(stream, peer)| {
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, peer))
    });
    (usable.collect(), exhausted)
}

fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
