//! Accepting connections: one listener per thread and address, so that the kernel spreads them.

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

use crate::connections::Connections;
use crate::newcomer::{serve, serve_late};
use crate::shared::Shared;

/// A socket that listens, and how clients reach it.
pub(crate) struct Listening {
    pub(crate) socket: TcpListener,
    pub(crate) scheme: Scheme,
}

/// Connections the kernel holds for us before we take them.
const BACKLOG: i32 = 4096;
/// How long to wait when the machine has no file descriptor left for a connection: those that were
/// told to go have gone by then.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(10);

/// A listening socket that shares its address with those of the other threads.
pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
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

/// Whether another process listens there already: sharing an address with oneself is meant,
/// sharing it with somebody else would take half of his requests.
pub(crate) fn is_taken(address: SocketAddr) -> io::Result<bool> {
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

/// Accepts until the server is told to stop, then takes what the kernel has queued, and closes the
/// listener. With as many connections open as allowed, others give way; if none can, one more is
/// held back and the next ones wait in the kernel.
pub(crate) async fn accept(
    listener: tokio::net::TcpListener,
    scheme: Scheme,
    mut shared: Arc<Shared>,
    connections: Arc<Connections>,
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
                let place = tokio::select! {
                    biased;
                    place = shared.room.place(&shared.engine.clock) => place,
                    () = &mut stop => {
                        serve_late(stream, from, &shared, &connections);
                        break;
                    }
                };
                let Some(place) = place else { return };
                serve(stream, from, place, &shared, &connections);
            }
            Err(error) if is_exhaustion(&error) => {
                shared.room.make_room(shared.engine.clock.now());
                sleep(NO_DESCRIPTOR_PAUSE).await;
            }
            // The client left before it was accepted; the next one is already there.
            Err(_) => {}
        }
    }
    shared = shared.latest();
    // Who waits in the queue waits for the process that has taken this one's place.
    if shared.lifecycle.is_replaced() {
        return;
    }
    // Their descriptors may be wanted for those who still have to be heard.
    if let Some(stopped) = shared.lifecycle.draining_since() {
        connections.close_answered(stopped);
    }
    tokio::task::yield_now().await;
    let mut listener = listener.into_std().ok();
    while let Some(open) = listener.take() {
        let (queued, exhausted) = queued(&open);
        // What comes into the queue from now on is reset. So nothing else is done before closing.
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

/// What the kernel has queued for a listener, and whether there was no descriptor for all of it.
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
