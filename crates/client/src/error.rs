//! A request without a response, or a body without its end.

use std::error::Error as StdError;
use std::fmt;

use microcache_engine::{BodyError, Cause, Failure, NoResponse, OriginError};

use crate::BoxError;

/// Why a request got no response, or a body broke off.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// What the inner service says: its error, as it is, is the source of this one, and is shared by all who
    /// waited for the same response.
    Inner(InnerError),
    /// The server's answer is no answer to what it was asked.
    Malformed(&'static str),
    /// The task that fetched the answer ended without one: the inner service has panicked, or the runtime is
    /// shutting down.
    Abandoned,
    /// The body broke off: why.
    Body(&'static str),
}

/// The inner service's error, shared by all whom it concerns: [`Error::inner`] has it as it is.
#[derive(Clone, Debug)]
pub struct InnerError(Cause);

impl Error {
    /// The inner service's error, if it is of this type.
    pub fn inner<E: StdError + 'static>(&self) -> Option<&E> {
        match self {
            Self::Inner(InnerError(cause)) => cause.get().downcast_ref(),
            _ => None,
        }
    }

    pub(crate) fn from_inner(error: impl Into<BoxError>) -> Self {
        Self::Inner(InnerError(Cause::new(error.into())))
    }
}

impl From<NoResponse> for Error {
    fn from(failed: NoResponse) -> Self {
        match failed.cause {
            Failure::Origin(OriginError::Other(cause)) => Self::Inner(InnerError(cause)),
            Failure::Origin(OriginError::Malformed(what)) => Self::Malformed(what),
            // The others are those of origins that are asked in other ways than these.
            _ => Self::Abandoned,
        }
    }
}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Other(cause) => Self::Inner(InnerError(cause)),
            BodyError::Malformed(what) => Self::Body(what),
            BodyError::Incomplete => Self::Body("it is not as long as was announced"),
            BodyError::TooSlow => Self::Body("it was read too slowly, and others waited for it"),
            BodyError::Timeout => Self::Body("nothing came for too long"),
            BodyError::TooLarge => Self::Body("it is too large"),
            BodyError::Reset(_) => Self::Body("its stream was reset"),
            BodyError::Disconnected => Self::Body("whoever fetched it has ended"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inner(InnerError(cause)) => {
                f.write_str("the request failed")?;
                let mut next: Option<&(dyn StdError + 'static)> = Some(cause.get());
                while let Some(error) = next {
                    write!(f, ": {error}")?;
                    next = error.source();
                }
                Ok(())
            }
            Self::Malformed(what) => write!(f, "the server's answer was malformed: {what}"),
            Self::Abandoned => f.write_str("the fetch of the response ended without an answer"),
            Self::Body(why) => write!(f, "the body broke off: {why}"),
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Inner(InnerError(cause)) => Some(cause.get()),
            _ => None,
        }
    }
}
