//! Why a load could not be made at all.

use std::io;

use super::target::Server;

/// Why a load could not be made at all. What happens later is in the report.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// There is nothing to ask for, or nobody to ask.
    #[error("{0}")]
    Settings(&'static str),
    /// The name leads nowhere.
    #[error("cannot find {server}: {why}")]
    Unknown {
        /// Where.
        server: Server,
        /// What the resolver says.
        why: io::Error,
    },
    /// Nobody answers there.
    #[error("cannot reach {server}: {why}; is the server running?")]
    Unreachable {
        /// Where.
        server: Server,
        /// What the system says.
        why: io::Error,
    },
    /// Somebody answers, but not as is needed.
    #[error("{server} accepts connections, but {why}")]
    Handshake {
        /// Where.
        server: Server,
        /// What is missing, and what to do.
        why: String,
    },
    /// The authorities' certificates cannot be had.
    #[error("cannot read the authorities' certificates: {0}")]
    Authorities(String),
    /// Fewer files than connections.
    #[error(
        "{wanted} connections need more open files than this system allows ({allowed}); raise it with: ulimit -n {needed}"
    )]
    Files {
        /// Connections.
        wanted: usize,
        /// The limit.
        allowed: u64,
        /// What would do.
        needed: u64,
    },
    /// The origin does not tell its count.
    #[error("cannot read the origin's counter at {url}: {why}")]
    Counter {
        /// Where.
        url: String,
        /// What went wrong.
        why: String,
    },
    /// What is published is not accepted.
    #[error("{method} {url} publishes nothing: {why}")]
    Publish {
        /// How.
        method: String,
        /// Where.
        url: String,
        /// What went wrong, and what to do.
        why: String,
    },
    /// Not one stream was opened.
    #[error("no stream was opened: {0}")]
    NoStream(String),
    /// The system refuses something that always works.
    #[error("the system refuses {what}: {why}")]
    System {
        /// What.
        what: &'static str,
        /// What it says.
        why: io::Error,
    },
}
