//! What the operator wants of it.

use std::fmt;
use std::path::PathBuf;

use crate::access::sites::Site;
use crate::changes::journal::Sync;
use crate::name::Prefix;

/// How documents are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PushSettings {
    /// The paths under which documents are.
    pub prefixes: Vec<Prefix>,
    /// Those of them, or beginnings under them, whose documents are for those only who show that they may read them.
    pub private: Vec<Prefix>,
    /// The other sites whose pages may read and subscribe, and publish if they are named.
    pub allow_origins: Vec<Site>,
    /// Where they are written down; `None`: they end with the process.
    pub directory: Option<PathBuf>,
    /// When they count as written.
    pub sync: Sync,
    /// Where they are kept for several nodes, and nowhere else then.
    pub fleet: Option<FleetSettings>,
    /// What all of them may take, in bytes.
    pub memory: u64,
    /// The largest.
    pub max_document: u64,
    /// How many versions of each are remembered for those who come later; at least one.
    pub history: usize,
    /// Whoever changes a document has to say which version of it.
    pub conditions: bool,
    /// Who subscribes at a time.
    pub max_subscribers: usize,
}

/// Where the documents of several nodes are.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FleetSettings {
    /// The server, or for a cluster any of its servers.
    pub urls: Vec<String>,
    /// Whether they are a cluster.
    pub cluster: bool,
    /// The certificates (PEM) that vouch for the servers; the system's if there are none here.
    pub authorities: Option<Vec<u8>>,
}

/// Without the urls, which hold passwords.
impl fmt::Debug for FleetSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetSettings").finish_non_exhaustive()
    }
}
