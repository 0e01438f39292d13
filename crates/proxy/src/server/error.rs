//! Reasons for which the server does not run, each with its remedy.

use std::io;
use std::net::SocketAddr;

use microcache_push::BackendError;

use super::tiers::TierStartError;

/// Reason for which the server does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// An address cannot be bound.
    #[error("cannot listen on {address}: {error}{}", remedy(*address, error))]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Error of the system.
        error: io::Error,
    },
    /// The service manager passes a socket that the configuration does not use.
    #[error(
        "the socket listening on {0} was inherited at the start, but is neither in `listen` nor in `admin` (add it \
         to `listen`, or remove it from the .socket unit)"
    )]
    Unwanted(String),
    /// The storage of documents failed.
    #[error("{0}")]
    Push(#[from] BackendError),
    /// A tier cannot be started.
    #[error("{0}")]
    Tier(#[from] TierStartError),
    /// The previous process did not stop accepting.
    #[error("the previous process did not hand over, and keeps serving: {0}")]
    Handover(io::Error),
    /// A thread or runtime could not be created.
    #[error("cannot start a thread: {0}")]
    Thread(io::Error),
}

/// Remedy for an address that cannot be bound.
fn remedy(address: SocketAddr, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            " (is another server running there? choose another address with --listen)".to_owned()
        }
        // Ports below 1024 are reserved for root, unless configured otherwise.
        io::ErrorKind::PermissionDenied if address.port() < 1024 => {
            let program = std::env::current_exe();
            let program =
                program.map_or_else(|_| "microcache".into(), |path| path.display().to_string());
            format!(
                " (ports below 1024 need a capability: grant it with `sudo setcap cap_net_bind_service=+ep \
                 {program}`, or choose a higher port with --listen)"
            )
        }
        io::ErrorKind::AddrNotAvailable => format!(
            " (this machine has no such address; --listen 0.0.0.0:{} listens on all addresses)",
            address.port()
        ),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unavailable_address_is_reported_with_cause_and_remedy() {
        let text = |address: &str, kind: io::ErrorKind| {
            let address = address.parse().expect("an address");
            let error = kind.into();
            ServerError::Listen { address, error }.to_string()
        };
        let taken = text("127.0.0.1:80", io::ErrorKind::AddrInUse);
        assert!(taken.contains("another server"), "{taken}");
        let denied = text("127.0.0.1:80", io::ErrorKind::PermissionDenied);
        assert!(
            denied.contains("permission denied (ports below 1024"),
            "{denied}"
        );
        assert!(
            denied.contains("setcap cap_net_bind_service=+ep /"),
            "{denied}"
        );
        assert!(
            denied.contains("--listen") && !denied.contains("another server"),
            "{denied}"
        );
        let denied = text("127.0.0.1:8080", io::ErrorKind::PermissionDenied);
        assert!(!denied.contains("setcap"), "{denied}");
        let absent = text("192.0.2.1:80", io::ErrorKind::AddrNotAvailable);
        assert!(
            absent.contains("no such address; --listen 0.0.0.0:80"),
            "{absent}"
        );
    }
}
