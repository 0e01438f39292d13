//! Load plan shared by all threads: resolved servers and TLS parameters.

use std::io;
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::ClientConfig;

use super::error::LoadError;
use super::settings::{RequestPace, Settings};
use super::socket::TlsEndpoint;
use super::target::TargetServer;
use super::trust;

/// Resolved server that accepts connections.
#[derive(Debug)]
pub(crate) struct ServerEndpoint {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsEndpoint>,
}

impl ServerEndpoint {
    /// Resolves a server and checks that it accepts connections. `config` is used if it needs TLS.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if it cannot be resolved or reached, or the TLS handshake fails.
    pub(crate) fn find(
        server: &TargetServer,
        settings: &Settings,
        config: Option<&Arc<ClientConfig>>,
    ) -> Result<Self, LoadError> {
        let (address, socket) = find(server, settings.timeout.min(PATIENCE_AT_START))?;
        let tls = match config {
            Some(config) if server.secure => {
                let to = trust::tls_endpoint(server, config)?;
                trust::check(server, &to, socket)?;
                Some(to)
            }
            _ => None,
        };
        Ok(Self { address, tls })
    }
}

/// Load plan shared by all threads.
#[derive(Debug)]
pub(crate) struct LoadPlan {
    pub(crate) settings: Settings,
    pub(crate) endpoints: Vec<ServerEndpoint>,
    /// Index of each target's endpoint.
    pub(crate) endpoint_of: Vec<usize>,
    pub(crate) threads: usize,
    /// Start of the load. Measuring starts when the warm-up ends.
    pub(crate) begin: Instant,
}

/// One thread's share of the load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadShare {
    pub(crate) thread: usize,
    pub(crate) connections: usize,
    /// Number of requests, if the run is limited by one.
    pub(crate) requests: Option<u64>,
}

/// Totals of a finished thread that are not part of its recorder.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadOutcome {
    pub(crate) unfinished: u64,
    pub(crate) unsent: u64,
    pub(crate) gave_up: bool,
}

/// Limit of the connect timeout during the initial check.
const PATIENCE_AT_START: Duration = Duration::from_secs(5);

impl LoadPlan {
    /// Resolves and checks all servers.
    ///
    /// # Errors
    ///
    /// [`LoadError`] for invalid settings or an unusable server.
    pub(crate) fn new(settings: &Settings) -> Result<Self, LoadError> {
        check(settings)?;
        let mut servers: Vec<&TargetServer> = Vec::new();
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
            .map(|server| ServerEndpoint::find(server, settings, config.as_ref()));
        Ok(Self {
            settings: settings.clone(),
            endpoints: endpoints.collect::<Result<_, LoadError>>()?,
            endpoint_of,
            threads: settings.threads.clamp(1, settings.connections),
            begin: Instant::now(),
        })
    }

    /// Shares of all threads.
    pub(crate) fn shares(&self) -> impl Iterator<Item = ThreadShare> {
        let (threads, settings) = (self.threads, &self.settings);
        (0..threads).map(move |thread| ThreadShare {
            thread,
            connections: part(settings.connections as u64, thread, threads) as usize,
            requests: settings.requests.map(|all| part(all, thread, threads)),
        })
    }
}

/// Returns the share of number `number` when `all` is divided by `of`.
pub(crate) fn part(all: u64, number: usize, of: usize) -> u64 {
    let (number, of) = (number as u64, of as u64);
    all / of + u64::from(number < all % of)
}

fn check(settings: &Settings) -> Result<(), LoadError> {
    let wrong = |what| Err(LoadError::Settings(what));
    if settings.targets.is_empty() {
        return wrong("no URL given");
    }
    if settings.connections == 0 {
        return wrong("at least one connection is required");
    }
    if settings.duration.is_none() && settings.requests.is_none() {
        return wrong("a duration or a number of requests is required");
    }
    match settings.pace {
        RequestPace::Rate(rate) if !(rate.is_finite() && rate > 0.0) => {
            wrong("the rate must be more than zero")
        }
        _ => Ok(()),
    }
}

/// Returns the first address that accepts a connection, and that connection. `time_limit` limits connect, read
/// and write.
fn find(server: &TargetServer, time_limit: Duration) -> Result<(SocketAddr, TcpStream), LoadError> {
    let addresses = (server.host.as_str(), server.port)
        .to_socket_addrs()
        .map_err(|why| LoadError::Unknown {
            server: server.clone(),
            why,
        })?;
    let mut why = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, time_limit) {
            Ok(socket) => {
                let waits = socket
                    .set_read_timeout(Some(time_limit))
                    .and_then(|()| socket.set_write_timeout(Some(time_limit)));
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
