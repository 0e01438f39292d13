//! Accepting connections: one listener per thread and address, so that the kernel spreads them.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::connection::Connection;
use crate::shared::Shared;

/// Connections the kernel holds for us before we take them.
const BACKLOG: i32 = 4096;
/// How long to wait when the machine has no file descriptor left for a connection.
const NO_DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);

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

/// The connections of one thread.
#[derive(Default)]
pub(crate) struct Connections {
    open: Mutex<Seats>,
}

#[derive(Default)]
struct Seats {
    seats: Vec<Option<Seat>>,
    vacant: Vec<usize>,
}

struct Seat {
    task: AbortHandle,
    busy: Arc<AtomicBool>,
}

impl Connections {
    /// Ends those that wait for a request. Says how many are left.
    pub(crate) fn close_idle(&self) -> usize {
        let open = self.open.lock();
        let (mut left, mut idle) = (0, Vec::new());
        for seat in open.seats.iter().flatten() {
            if seat.busy.load(Ordering::Relaxed) {
                left += 1;
            } else {
                idle.push(seat.task.clone());
            }
        }
        drop(open);
        for task in idle {
            task.abort();
        }
        left
    }

    fn spawn(self: &Arc<Self>, connection: Connection, busy: Arc<AtomicBool>) {
        let mut open = self.open.lock();
        let at = open.vacant.pop().unwrap_or_else(|| {
            open.seats.push(None);
            open.seats.len() - 1
        });
        let leave = Leave {
            connections: Arc::clone(self),
            at,
        };
        let task = tokio::spawn(async move {
            let _leave = leave;
            connection.serve().await;
        });
        open.seats[at] = Some(Seat {
            task: task.abort_handle(),
            busy,
        });
    }
}

struct Leave {
    connections: Arc<Connections>,
    at: usize,
}

impl Drop for Leave {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock();
        open.seats[self.at] = None;
        open.vacant.push(self.at);
    }
}

/// Accepts for ever. With as many connections open as allowed, every listener holds one more back
/// and the next ones wait in the kernel.
pub(crate) async fn accept(
    listener: tokio::net::TcpListener,
    shared: Arc<Shared>,
    connections: Arc<Connections>,
    room: Arc<Semaphore>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, peer)) => {
                // Without it a small answer behind a large one waits for an acknowledgement.
                let _ = stream.set_nodelay(true);
                let Ok(place) = Arc::clone(&room).acquire_owned().await else {
                    return;
                };
                let busy = Arc::new(AtomicBool::new(false));
                let connection =
                    Connection::new(stream, peer, Arc::clone(&shared), Arc::clone(&busy), place);
                connections.spawn(connection, busy);
            }
            Err(error) if is_exhaustion(&error) => sleep(NO_DESCRIPTOR_PAUSE).await,
            // The client left before it was accepted; the next one is already there.
            Err(_) => {}
        }
    }
}

fn is_exhaustion(error: &io::Error) -> bool {
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    const ENOBUFS: i32 = 105;
    const ENOMEM: i32 = 12;
    matches!(
        error.raw_os_error(),
        Some(EMFILE | ENFILE | ENOBUFS | ENOMEM)
    )
}
