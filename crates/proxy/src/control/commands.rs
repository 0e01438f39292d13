//! Commands that change a running server: reload and upgrade, with their results.

use std::io;

use tokio::sync::oneshot;

use crate::config::{Report, SourceError};

/// Limit of pending commands; further ones are refused as busy.
pub(crate) const MAX_WAITING: usize = 16;

/// A command for the reloader, with the channel for its result.
pub(crate) enum ServerCommand {
    Reload(oneshot::Sender<Result<ReloadOutcome, ReloadError>>),
    Upgrade(oneshot::Sender<Result<u32, UpgradeError>>),
}

/// Result of a successful reload.
#[derive(Clone, Debug)]
pub struct ReloadOutcome {
    /// Number of reloads that changed the configuration.
    pub generation: u64,
    /// Options that changed.
    pub changed: Vec<String>,
    /// Warnings about the new configuration.
    pub warnings: Report,
}

/// Reason for which a reload failed.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// There is no configuration file.
    #[error("the server was started without a configuration file")]
    NoFile,
    /// The file cannot be read or parsed, or has mistakes.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// A change needs a restart.
    #[error("{0}")]
    NeedsRestart(Report),
    /// The server of a tier rejects the new password.
    #[error("{0}")]
    TierLogin(String),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// Too many commands are pending.
    #[error("{MAX_WAITING} other reloads are waiting")]
    Busy,
}

impl ReloadError {
    /// The mistakes, if the reload failed because of them.
    pub const fn report(&self) -> Option<&Report> {
        match self {
            Self::Source(SourceError::Mistakes(report)) | Self::NeedsRestart(report) => {
                Some(report)
            }
            _ => None,
        }
    }
}

/// Reason for which an upgrade failed. This process continues.
#[derive(Debug, thiserror::Error)]
pub enum UpgradeError {
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Draining,
    /// The process is the first of a container, which would end with it.
    #[error("this is process 1 of its container, which would stop with it")]
    First,
    /// The new process could not be started.
    #[error("{0}")]
    NotStarted(#[from] io::Error),
    /// The new process has ended, or reported an error.
    #[error("the new process does not serve: {0}")]
    Failed(String),
    /// Too many commands are pending.
    #[error("other upgrades are waiting")]
    Busy,
}
