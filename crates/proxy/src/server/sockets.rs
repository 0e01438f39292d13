//! The listening sockets of a server: inherited, or bound.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;

use microcache_policy::Scheme;
use rustix::net::sockopt::set_tcp_nodelay;

use super::error::ServerError;
use super::listener::{BoundListener, bind, is_taken};
use crate::config::Config;
use crate::lifecycle::{InheritedSockets, label};

/// Bound sockets of a server.
pub(super) struct BoundSockets {
    pub(super) addresses: Vec<(Scheme, SocketAddr)>,
    /// Listeners by thread.
    pub(super) listeners: Vec<Vec<BoundListener>>,
    /// Copies of the listening sockets with their labels, for a handover.
    pub(super) copies: Vec<(String, OwnedFd)>,
}

/// Binds all addresses of a configuration, or takes the inherited sockets.
pub(super) fn take_addresses(
    config: &Config,
    inherited: &mut InheritedSockets,
) -> Result<BoundSockets, ServerError> {
    let threads = config.threads.max(1);
    let mut addresses = Vec::new();
    let mut listeners: Vec<Vec<BoundListener>> = Vec::new();
    listeners.resize_with(threads, Vec::new);
    let mut copies = Vec::new();
    let plain = config.listen.iter().map(|&address| (Scheme::Http, address));
    let secure = config.tls.listen.iter();
    let secure = secure.map(|&address| (Scheme::Https, address));
    for (scheme, wanted) in plain.chain(secure) {
        let failed = |error| ServerError::Listen {
            address: wanted,
            error,
        };
        let taken = take((scheme, wanted), threads, inherited).map_err(failed)?;
        let first = taken.first().map(TcpListener::local_addr);
        let address = first.transpose().map_err(failed)?.unwrap_or(wanted);
        addresses.push((scheme, address));
        for socket in &taken {
            let copy = socket.try_clone().map_err(failed)?;
            copies.push((label(scheme, wanted), copy.into()));
        }
        for (number, socket) in shared_out(taken, threads).map_err(failed)? {
            listeners[number].push(BoundListener { socket, scheme });
        }
    }
    if let ([address, ..], false) = (inherited.left().as_slice(), inherited.takes_over()) {
        return Err(ServerError::Unwanted((*address).to_owned()));
    }
    Ok(BoundSockets {
        addresses,
        listeners,
        copies,
    })
}

/// Sockets for one address: the inherited ones, or a new one for each thread.
fn take(
    (scheme, wanted): (Scheme, SocketAddr),
    threads: usize,
    inherited: &mut InheritedSockets,
) -> io::Result<Vec<TcpListener>> {
    let handed = inherited.take(scheme, wanted);
    if !handed.is_empty() {
        for socket in &handed {
            socket.set_nonblocking(true)?;
            set_tcp_nodelay(socket, true)?;
        }
        return Ok(handed);
    }
    if is_taken(wanted)? {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    let mut address = wanted;
    let mut sockets = Vec::new();
    for _ in 0..threads {
        let socket = bind(address)?;
        // With port 0, the first thread's socket determines the port of the others.
        address = socket.local_addr()?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Distributes sockets so that every thread has one, and every socket is accepted from: each has a backlog of
/// its own.
fn shared_out(sockets: Vec<TcpListener>, threads: usize) -> io::Result<Vec<(usize, TcpListener)>> {
    let mut shared = Vec::new();
    for number in sockets.len()..threads {
        if let Some(socket) = sockets.get(number % sockets.len().max(1)) {
            shared.push((number, socket.try_clone()?));
        }
    }
    let own = sockets.into_iter().enumerate();
    shared.extend(own.map(|(number, socket)| (number % threads, socket)));
    Ok(shared)
}
