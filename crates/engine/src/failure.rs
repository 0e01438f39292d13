//! What the client is told when the origin gave no proper answer.

use microcache_policy::{CacheStatus, Detail, Forward, Time};

use crate::body::BodyError;
use crate::cache::flight::Failure;
use crate::message::Response;
use crate::origin::OriginError;
use crate::respond::plain;

impl Failure {
    /// Whether the origin may well answer others: an error, garbage, or a connection that it drops
    /// may be due to what the one sent who asked. An origin that cannot be reached is so for all.
    pub(crate) const fn may_be_the_askers(&self) -> bool {
        match self {
            Self::Status(_) | Self::Abandoned => true,
            Self::Origin(error) => {
                matches!(error, OriginError::Disconnected | OriginError::Malformed(_))
            }
        }
    }

    /// What `Cache-Status` says of it.
    pub(crate) const fn detail(&self) -> Detail {
        match self {
            Self::Origin(OriginError::Timeout) => Detail::OriginTimeout,
            Self::Origin(OriginError::Busy) => Detail::OriginBusy,
            Self::Origin(OriginError::Connect(_) | OriginError::Down) => Detail::OriginUnreachable,
            Self::Origin(OriginError::Disconnected) => Detail::OriginDisconnected,
            Self::Origin(OriginError::Malformed(_)) => Detail::OriginMalformed,
            Self::Origin(OriginError::RequestBody(_)) => Detail::RequestBody,
            Self::Status(_) => Detail::OriginError,
            Self::Abandoned => Detail::FetchAbandoned,
        }
    }
}

/// An error of our own, where nothing better is to be had.
pub(crate) fn failed(failure: &Failure, forward: Forward, now: Time) -> Response {
    let (status, text) = match failure {
        Failure::Origin(OriginError::Busy) => (
            503,
            "The application is at its limit. Please try again in a moment.",
        ),
        Failure::Origin(OriginError::Connect(_)) => (502, "The application cannot be reached."),
        Failure::Origin(OriginError::Down) => (
            503,
            "The application is not available. Please try again in a moment.",
        ),
        Failure::Origin(OriginError::Timeout) => (504, "The application did not answer in time."),
        Failure::Origin(OriginError::RequestBody(BodyError::Timeout)) => {
            (408, "The request body did not arrive in time.")
        }
        Failure::Origin(OriginError::RequestBody(_)) => (400, "The request body was malformed."),
        Failure::Status(_) | Failure::Origin(_) => {
            (502, "The application did not give a proper answer.")
        }
        Failure::Abandoned => (500, "This request failed. The others go on."),
    };
    let cache_status = CacheStatus {
        fwd: Some(forward),
        detail: Some(failure.detail()),
        ..CacheStatus::default()
    };
    plain(status, text, cache_status, now)
}
