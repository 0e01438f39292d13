//! Settings of the push cache.

use std::fmt;
use std::path::PathBuf;

use crate::access::cors::AllowedOrigin;
use crate::changes::journal::SyncPolicy;
use crate::name::Prefix;

/// Settings of stored documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushSettings {
    /// Path prefixes under which documents are stored.
    pub prefixes: Vec<Prefix>,
    /// Private prefixes, equal to or below `prefixes`: readers need a token.
    pub private: Vec<Prefix>,
    /// Other origins whose pages may read and subscribe; those listed by name may publish too.
    pub allow_origins: Vec<AllowedOrigin>,
    /// Directory of the log; `None`: documents do not survive the process.
    pub directory: Option<PathBuf>,
    /// The point at which a write is acknowledged.
    pub sync: SyncPolicy,
    /// Redis, shared by several nodes; it replaces the directory.
    pub fleet: Option<FleetSettings>,
    /// Memory limit for all documents, in bytes.
    pub memory: u64,
    /// Size limit of a document, in bytes.
    pub max_document: u64,
    /// Versions stored per document for reconnecting subscribers; at least one.
    pub history: usize,
    /// True if every write needs `If-Match` or `If-None-Match`.
    pub conditions: bool,
    /// Limit of concurrent subscribers.
    pub max_subscribers: usize,
}

/// The Redis or Valkey server shared by several nodes.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FleetSettings {
    /// The server's URL, or the URLs of some servers of a cluster.
    pub urls: Vec<String>,
    /// True if the URLs are those of a cluster.
    pub cluster: bool,
    /// CA certificates (PEM) to verify the servers with; `None`: the system's.
    pub authorities: Option<Vec<u8>>,
}

/// Omits the URLs, which may contain passwords.
impl fmt::Debug for FleetSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetSettings").finish_non_exhaustive()
    }
}
