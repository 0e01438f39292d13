//! Errors that prevent a load from being generated at all.

use std::io;

use super::target::TargetServer;

/// Error that prevents a load from being generated at all. Failures of single requests are counted in the
/// report instead.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The settings describe no load: no URL, no connection, or no end.
    #[error("{0}")]
    Settings(&'static str),
    /// The host name cannot be resolved.
    #[error("cannot resolve {server}: {why}")]
    Unknown {
        /// The server.
        server: TargetServer,
        /// Error of the resolver.
        why: io::Error,
    },
    /// No address of the server accepts a connection.
    #[error("cannot reach {server}: {why}; is the server running?")]
    Unreachable {
        /// The server.
        server: TargetServer,
        /// Error of the last attempt.
        why: io::Error,
    },
    /// The server accepts TCP connections, but the TLS handshake or ALPN fails.
    #[error("{server} accepts connections, but {why}")]
    Handshake {
        /// The server.
        server: TargetServer,
        /// Cause, with a remedy.
        why: String,
    },
    /// The CA certificates cannot be loaded.
    #[error("cannot load CA certificates: {0}")]
    Authorities(String),
    /// The limit of open files is below the number of connections.
    #[error(
        "{wanted} connections exceed the limit of open files ({allowed}); raise it with: ulimit -n {needed}"
    )]
    Files {
        /// Configured connections.
        wanted: usize,
        /// Hard limit of open files (`RLIMIT_NOFILE`).
        allowed: u64,
        /// Sufficient limit.
        needed: u64,
    },
    /// The request counter of the origin cannot be read.
    #[error("cannot read the origin's counter at {url}: {why}")]
    Counter {
        /// URL of the counter.
        url: String,
        /// Cause.
        why: String,
    },
    /// The publish request was rejected or failed.
    #[error("{method} {url} is not accepted as a publication: {why}")]
    Publish {
        /// HTTP method.
        method: String,
        /// URL of the request.
        url: String,
        /// Cause, with a remedy.
        why: String,
    },
    /// No event stream could be opened; carries the first cause.
    #[error("no event stream could be opened: {0}")]
    NoStream(String),
    /// A system call failed.
    #[error("the operating system refuses {what}: {why}")]
    System {
        /// Requested resource.
        what: &'static str,
        /// Error of the system call.
        why: io::Error,
    },
}

impl LoadError {
    pub(super) fn system(what: &'static str, why: impl Into<io::Error>) -> Self {
        Self::System {
            what,
            why: why.into(),
        }
    }
}
