//! What all threads share: where the servers are, and what is agreed with them.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::error::LoadError;
use super::http1::TlsTo;
use super::settings::{Pace, Settings};
use super::target::Server;
use super::trust;

/// A server that was seen to accept connections.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsTo>,
}

impl Endpoint {
    /// Finds a server, and sees whether it is there. `config` is what is needed where TLS is spoken.
    pub(crate) fn find(
        server: &Server,
        settings: &Settings,
        config: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, LoadError> {
        let (address, socket) = find(server, settings.timeout.min(PATIENCE_AT_START))?;
        let tls = match config {
            Some(config) if server.secure => {
                let to = trust::to(server, config)?;
                trust::try_out(server, &to, socket)?;
                Some(to)
            }
            _ => None,
        };
        Ok(Self { address, tls })
    }
}

/// What all threads share.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) settings: Settings,
    pub(crate) endpoints: Vec<Endpoint>,
    /// The endpoint of each target.
    pub(crate) endpoint_of: Vec<usize>,
    pub(crate) threads: usize,
    /// When the load begins. Measuring begins when warming ends.
    pub(crate) begin: Instant,
}

/// What one thread has to do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    pub(crate) thread: usize,
    pub(crate) connections: usize,
    /// Requests, where they are counted.
    pub(crate) requests: Option<u64>,
}

/// What came of one thread's work, beside what its recorder has handed over.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) unfinished: u64,
    pub(crate) unsent: u64,
    pub(crate) gave_up: bool,
}

/// When connecting takes longer than this at the start, the server is not there.
const PATIENCE_AT_START: Duration = Duration::from_secs(5);

impl Plan {
    /// Finds every server, and sees whether it is there.
    pub(crate) fn new(settings: &Settings) -> Result<Self, LoadError> {
        check(settings)?;
        let mut servers: Vec<&Server> = Vec::new();
        let mut endpoint_of = Vec::new();
        for target in &settings.targets {
            let server = &target.url.server;
            let known = servers.iter().position(|s| *s == server);
            endpoint_of.push(known.unwrap_or(servers.len()));
            if known.is_none() {
                servers.push(server);
            }
        }
        let needs_tls = servers.iter().any(|server| server.secure);
        let config = needs_tls.then(|| trust::config(settings)).transpose()?;
        let endpoints = servers
            .into_iter()
            .map(|server| Endpoint::find(server, settings, config.as_ref()));
        Ok(Self {
            settings: settings.clone(),
            endpoints: endpoints.collect::<Result<_, LoadError>>()?,
            endpoint_of,
            threads: settings.threads.clamp(1, settings.connections),
            begin: Instant::now(),
        })
    }

    /// The work of each thread.
    pub(crate) fn shares(&self) -> impl Iterator<Item = Share> {
        let (threads, settings) = (self.threads, &self.settings);
        (0..threads).map(move |thread| Share {
            thread,
            connections: part(settings.connections as u64, thread, threads) as usize,
            requests: settings.requests.map(|all| part(all, thread, threads)),
        })
    }
}

/// The share of one of so many.
pub(crate) fn part(all: u64, number: usize, of: usize) -> u64 {
    let (number, of) = (number as u64, of as u64);
    all / of + u64::from(number < all % of)
}

fn check(settings: &Settings) -> Result<(), LoadError> {
    let wrong = |what| Err(LoadError::Settings(what));
    if settings.targets.is_empty() {
        return wrong("no url is given");
    }
    if settings.connections == 0 {
        return wrong("a load needs at least one connection");
    }
    if settings.duration.is_none() && settings.requests.is_none() {
        return wrong("the load has no end: give it a duration or a number of requests");
    }
    match settings.pace {
        Pace::Rate(rate) if !(rate.is_finite() && rate > 0.0) => {
            wrong("the rate must be more than zero")
        }
        _ => Ok(()),
    }
}

/// The first address of the server that accepts a connection, and that connection, which waits no longer than `patience`.
fn find(server: &Server, patience: Duration) -> Result<(SocketAddr, TcpStream), LoadError> {
    let addresses = (server.host.as_str(), server.port)
        .to_socket_addrs()
        .map_err(|why| LoadError::Unknown {
            server: server.clone(),
            why,
        })?;
    let mut why = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(socket) => {
                let waits = socket
                    .set_read_timeout(Some(patience))
                    .and_then(|()| socket.set_write_timeout(Some(patience)));
                match waits {
                    Ok(()) => return Ok((address, socket)),
                    Err(error) => why = error,
                }
            }
            Err(error) => why = error,
        }
    }
    Err(LoadError::Unreachable {
        server: server.clone(),
        why,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_shared_out_whole() {
        for (all, of) in [(10, 3), (2, 3), (0, 1), (64, 2)] {
            let parts: Vec<_> = (0..of).map(|number| part(all, number, of)).collect();
            assert_eq!(parts.iter().sum::<u64>(), all);
            assert!(parts.iter().max().unwrap() - parts.iter().min().unwrap() <= 1);
        }
    }
}
