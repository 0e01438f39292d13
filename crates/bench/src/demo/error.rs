//! Errors of the demonstration.

use std::io;

use crate::load::LoadError;
use crate::origin;

/// Reasons why a demonstration cannot run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The origin could not bind its listen address.
    #[error("the application {0}; choose another address with --origin-listen")]
    OriginAddress(origin::Error),
    /// The origin could not be started.
    #[error("the application {0}")]
    Origin(origin::Error),
    /// The cache could not be started; carries the first line of its stderr.
    #[error("the cache did not start: {0}; --listen gives it another address")]
    Cache(String),
    /// The load generator failed before the first request.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A system call failed.
    #[error("cannot start: {0}")]
    System(#[from] io::Error),
}

impl From<origin::Error> for Error {
    fn from(error: origin::Error) -> Self {
        match error {
            origin::Error::Listen(..) => Self::OriginAddress(error),
            origin::Error::Start(_) => Self::Origin(error),
        }
    }
}
