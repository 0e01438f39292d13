//! Errors of requests and bodies.

use std::error::Error as StdError;
use std::fmt;

use microcache_engine::{BodyError, Cause, Failure, NoResponse, OriginError};

use crate::BoxError;

/// The error of a request without a response, or of a body that broke off.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The inner service failed. Its error is the source of this one, and is shared by all coalesced requests.
    Inner(InnerError),
    /// The server's response does not match the request.
    Malformed(&'static str),
    /// The fetch ended without a response: the inner service has panicked, or the runtime is shutting down.
    Abandoned,
    /// The body broke off, with the reason.
    Body(&'static str),
}

/// The inner service's error, shared by all requests that it failed: see [`Error::inner`].
#[derive(Clone, Debug)]
pub struct InnerError(Cause);

impl Error {
    /// The inner service's error, if it has this type.
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
            // The other failures only occur with other kinds of origins.
            _ => Self::Abandoned,
        }
    }
}

impl From<BodyError> for Error {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::Other(cause) => Self::Inner(InnerError(cause)),
            BodyError::Malformed(what) => Self::Body(what),
            BodyError::Incomplete => Self::Body("not of its announced length"),
            BodyError::TooSlow => Self::Body("read too slowly while other readers waited"),
            BodyError::Timeout => Self::Body("timed out"),
            BodyError::TooLarge => Self::Body("too large"),
            BodyError::Reset(_) => Self::Body("the stream was reset"),
            BodyError::Disconnected => Self::Body("the fetch was cancelled"),
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
            Self::Malformed(what) => write!(f, "the response was malformed: {what}"),
            Self::Abandoned => f.write_str("the fetch ended without a response"),
            Self::Body(why) => write!(f, "the body is incomplete: {why}"),
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
