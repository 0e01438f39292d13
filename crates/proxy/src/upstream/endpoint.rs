//! The way to a server: the addresses of its host, or a Unix socket.

use std::path::PathBuf;

use super::resolve::OriginAddresses;
use super::server_address::ServerAddress;

/// The way to a server.
#[derive(Debug)]
pub(super) enum OriginEndpoint {
    Host(OriginAddresses),
    Socket(PathBuf),
}

impl OriginEndpoint {
    pub(super) fn at(address: &ServerAddress) -> Self {
        match address {
            ServerAddress::Tcp { host, port } => Self::Host(OriginAddresses::new(host, *port)),
            ServerAddress::Unix(path) => Self::Socket(path.clone()),
        }
    }

    /// Returns the addresses of a name, which can change.
    pub(super) fn of_name(&self) -> Option<&OriginAddresses> {
        match self {
            Self::Host(addresses) => Some(addresses).filter(|addresses| addresses.is_name()),
            Self::Socket(_) => None,
        }
    }
}
