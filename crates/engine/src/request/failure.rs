//! Failures: requests without a response, and the reason to report to the client.

use microcache_policy::{CacheStatus, Detail, Forward};

use crate::cache::fetch_outcome::Failure;
use crate::origin::OriginError;

impl Failure {
    /// Returns true if the failure may be due to the leader's request, so that the origin may well
    /// answer others: an error status, a malformed response, or a dropped connection. An
    /// unreachable origin fails all requests.
    pub(crate) const fn may_be_due_to_request(&self) -> bool {
        match self {
            Self::Status(_) | Self::Abandoned => true,
            Self::Origin(error) => {
                matches!(error, OriginError::Disconnected | OriginError::Malformed(_))
            }
            Self::OnlyIfCached | Self::TooManyWait => false,
        }
    }

    /// The `Cache-Status` detail.
    pub const fn detail(&self) -> Detail {
        match self {
            Self::Origin(OriginError::Timeout) => Detail::OriginTimeout,
            Self::Origin(OriginError::Busy) => Detail::OriginBusy,
            Self::Origin(OriginError::Connect(_) | OriginError::Down | OriginError::Other(_)) => {
                Detail::OriginUnreachable
            }
            Self::Origin(OriginError::Disconnected) => Detail::OriginDisconnected,
            Self::Origin(OriginError::Malformed(_)) => Detail::OriginMalformed,
            Self::Origin(OriginError::RequestBody(_)) => Detail::RequestBody,
            Self::Origin(OriginError::Left) | Self::Abandoned => Detail::FetchAbandoned,
            Self::Status(_) => Detail::OriginError,
            Self::TooManyWait => Detail::TooManyWait,
            Self::OnlyIfCached => Detail::OnlyIfCached,
        }
    }
}

/// A request that got no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request got no response")]
pub struct NoResponse {
    /// The `Cache-Status` parameters.
    pub cache_status: CacheStatus,
    /// The reason there is no response.
    #[source]
    pub cause: Failure,
}

impl NoResponse {
    /// A failure of a request that was forwarded for this reason.
    pub(crate) fn new(cause: Failure, forward: Forward) -> Self {
        let cache_status = CacheStatus {
            fwd: Some(forward),
            detail: Some(cause.detail()),
            ..CacheStatus::default()
        };
        Self {
            cache_status,
            cause,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use super::*;
    use crate::body::BodyError;

    #[test]
    fn a_failure_tells_its_causes_down_to_the_first() {
        let body = OriginError::RequestBody(BodyError::Timeout);
        let failure = NoResponse::new(Failure::Origin(body), Forward::Method);
        let mut texts = Vec::new();
        let mut next: Option<&dyn Error> = Some(&failure);
        while let Some(error) = next {
            texts.push(error.to_string());
            next = error.source();
        }
        let expected = [
            "the request got no response",
            "the origin could not answer",
            "the request body failed",
            "the body stalled",
        ];
        assert_eq!(texts, expected);
        assert_eq!(failure.cache_status.detail, Some(Detail::RequestBody));
    }
}
