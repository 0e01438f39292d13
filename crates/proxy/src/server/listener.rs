//! Accepts connections: one listener per thread and address, so that the kernel distributes them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use microcache_policy::Scheme;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::watch;
use tokio::time::sleep;

use super::accepted::{serve, serve_late};
use crate::admission::ThreadConnections;
use crate::connection::PlainSocket;
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
    // Accepted sockets inherit it. Without it a small response behind a large one waits for an acknowledgement.
    socket.set_tcp_nodelay(true)?;
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

/// Registers a listener with the runtime. The runtime's own listener would register each accepted socket at once.
#[expect(
    deprecated,
    reason = "the replacement is unsafe; its precondition holds: the listener owns its descriptor and keeps it open"
)]
pub(super) fn watched(listener: TcpListener) -> io::Result<AsyncFd<TcpListener>> {
    AsyncFd::with_interest(listener, Interest::READABLE)
}

/// Accepts connections until the server stops, then serves those in the kernel's queue and closes the listener.
/// At the connection limit idle connections are closed; without any, one more is held back and the next ones
/// wait in the kernel.
pub(super) async fn accept(
    listener: AsyncFd<TcpListener>,
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
            accepted = listener.async_io(Interest::READABLE, accept_now) => accepted,
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
    let mut listener = Some(listener.into_inner());
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
fn queued(listener: &TcpListener) -> (Vec<(PlainSocket, SocketAddr)>, bool) {
    let mut queued = Vec::new();
    let exhausted = loop {
        match accept_now(listener) {
            Ok(accepted) => queued.push(accepted),
            // The client left while it was queued.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => break is_exhaustion(&error),
        }
    };
    (queued, exhausted)
}

/// Accepts a connection without waiting.
fn accept_now(listener: &TcpListener) -> io::Result<(PlainSocket, SocketAddr)> {
    let (socket, peer) = acceptfrom_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
    let peer = peer.ok_or(io::ErrorKind::ConnectionAborted)?;
    Ok((PlainSocket::new(socket.into()), peer.try_into()?))
}

fn is_exhaustion(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn accepted_sockets_inherit_that_small_responses_do_not_wait() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        assert!(accepted.nodelay().unwrap());
    }
}
